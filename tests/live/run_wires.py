#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Live tests of HTTP/2, gRPC and WebSockets, as TAP: real stacks on both sides, the tracer beside them.

usage: run_wires.py [--list] [--keep DIR] [PATTERN...]     as run_live.py

Servers: hypercorn, nghttpd, grpcio, websockets; clients: curl, nghttp, h2load, h2, grpcio, websockets, npm's ws.
The witnesses are the servers' and clients' own logs and, for HTTP/2, tshark.
"""
import json
import os
import subprocess
import sys

import check
import run_live
from check import Expect
from rig import EXIT_S, HERE, TOOL, Failure, Process, Tracer, ends, free_port, tail, wait_for
from run_live import check_server, judge, only, test

run_live.TESTS.clear()  # the runner is run_live.py's, the tests are these

PYTHON = "/usr/bin/python3"  # Debian's packages and so Debian's own
CHAT = "/v1/chat/completions"
PRIMES = (29, 13, 7, 1, 2, 17, 11, 3)
FAST = {"gap_ms": 10, "prefill_ms": 30}


def listening(server):
    """Whether somebody listens on its port; no connection is made, for that would be traced or logged."""
    server.check_alive()
    return subprocess.run(["ss", "-Hltn", f"sport = :{server.port}"], capture_output=True, text=True, check=True).stdout


class PythonServer(Process):
    """A server of servers/ that takes a port, the witness log, and more."""

    def __init__(self, folder, script, *more):
        self.port, self.log = free_port(), os.path.join(folder, f"{script}.log")
        argv = [PYTHON, os.path.join(HERE, "servers", f"{script}.py"), str(self.port), self.log, *more]
        super().__init__(folder, script, argv)

    def started(self):
        wait_for(self.name, EXIT_S, lambda: listening(self))


    def witnesses(self, count):
        wait_for(f"{self.name}'s log", EXIT_S, lambda: ends(self.log) >= count)
        return check.read_app(self.log)


class Client(Process):
    """A client of clients/ that writes a log with -o."""

    def __init__(self, folder, script, port, *more, name=None):
        self.log_path = os.path.join(folder, f"{name or script}.log")
        argv = [PYTHON, os.path.join(HERE, "clients", f"{script}.py"), str(port), *more, "-o", self.log_path]
        super().__init__(folder, name or script, argv)

    def logs(self):
        status = self.finish(120)
        if status:
            raise Failure(f"{self.name}'s exit status is {status}", *tail(self.err_path), *tail(self.log_path, 3))
        return check.read_lines(self.log_path)


def command(folder, name, argv, seconds=60):
    """Runs a client to its end; returns its output."""
    with Process(folder, name, argv) as p:
        if p.finish(seconds):
            raise Failure(f"{name} failed", *tail(p.out_path), *tail(p.err_path))
    with open(p.out_path, encoding="utf-8", errors="replace") as f:
        return f.read()


def go_file(folder):
    """The name of a file that is not there: a client waits for it."""
    path = os.path.join(folder, "go")
    if os.path.exists(path):
        os.unlink(path)
    return path


def under_way(client):
    wait_for("5 tokens", EXIT_S, lambda: client.line(client.out_path, "under way"))


def touch(path):
    with open(path, "w", encoding="utf-8"):
        pass


def by_id(records):
    """({response_id: record}, problems)"""
    found, problems = {}, []
    for r in records:
        if r.get("response_id") in found:
            problems.append(f"two records of {r.get('response_id')}")
        found[r.get("response_id")] = r
    return found, problems


def wrong(r, **want):
    return [f"{k} {r.get(k)!r}, not {v!r}" for k, v in want.items() if r.get(k) != v]


def outside(r, w):
    """Token times of a broken answer that are not within the sends that the server logged."""
    return [f"token {i} at {t} is outside of its send" for i, (t, a) in enumerate(zip(r["tokens_at_ns"], w.arrivals))
            if not a.before <= t <= a.after]


# --- HTTP/2 ------------------------------------------------------------------------------------------

H2_EXPECT = Expect("openai.chat", ["usage"], "text", finish="length", may=["coalesced"])


def check_h2_one(r, w, expect, c=None, **want):
    """One record against the server's log, and the client's where there is one."""
    rates, strict = check.check_rates(r, w)
    problems = check.check_identity({**r, "http": "1.1", "method": "POST"}, expect)
    problems += wrong(r, **{"http": "2", "method": "POST", "path": CHAT, **want})
    problems += check.check_counts(r, w, expect) + check.check_flags(r, expect) + check.check_times(r, w)
    problems += check.check_consistency(r, w) + rates
    if check.peer_port(r) != w.peer:
        problems.append(f"peer {r.get('peer')}, the server saw port {w.peer}")
    if c:
        problems += check.check_client(r, c) + wrong(r, stream_id=c["stream_id"])
    return [f"{w.id}: {p}" for p in problems], strict


def check_h2(records, witnesses, clients=(), expect=H2_EXPECT, wide=False, **want):
    """All checks of a run's records: who is who is told by the id that the server made. wide: the witness is not
    exact enough for most rates to be within 1 % without excuse."""
    found, problems = by_id(records)
    clients, strict = {c["id"]: c for c in clients}, 0
    if len(records) != len(witnesses):
        problems.append(f"{len(records)} records of {len(witnesses)} requests")
    for w in witnesses:
        if w.id not in found:
            problems.append(f"{w.id}: no record")
            continue
        if clients and w.id not in clients:
            problems.append(f"{w.id}: the client knows nothing of it")
        more, ok = check_h2_one(found[w.id], w, expect, clients.get(w.id), **want)
        problems, strict = problems + more, strict + ok
    streams = [(check.peer_port(r), r.get("stream_id")) for r in records]
    if len(set(streams)) != len(streams) or not all(isinstance(s, int) and s % 2 for _, s in streams):
        problems.append(f"streams {streams}")
    if not witnesses or not wide and strict < check.STRICT_SHARE * len(witnesses):
        problems.append(f"only {strict} of {len(witnesses)} requests have their TPOT within {check.RATE:.0%}")
    return problems


def h2_client(folder, server, tokens, body=None, *more):
    return Client(folder, "h2_client", server.port, "--max-tokens", ",".join(map(str, tokens)),
                  "--body", json.dumps({**FAST, **(body or {})}), *more)


def h2_streams(folder, tokens, rounds, body):
    """Streams that share a connection, all of a round at once."""
    with PythonServer(folder, "h2_app") as server:
        with Tracer(folder, server.port) as tracer:
            with h2_client(folder, server, tokens, body, "--rounds", str(rounds)) as client:
                clients = client.logs()
            witnesses = server.witnesses(rounds * len(tokens))
            records = tracer.stop()
        problems = check_h2(records, witnesses, clients) + check_server(records, server, len(tokens))
    judge(problems, tracer.err_path)


test("h2.one_by_one", (13,), 5, {})(h2_streams)
test("h2.streams8", PRIMES, 2, {})(h2_streams)
test("h2.streams40", PRIMES * 5, 2, {"gap_ms": 25})(h2_streams)
test("h2.gzip", PRIMES, 1, {"coding": "gzip"})(h2_streams)


@test("h2.flow_control")
def h2_flow_control(folder):
    """Tokens of three DATA frames each, which wait for the client's windows: their time is that of the last byte."""
    tokens = (7, 3, 5, 2)
    with PythonServer(folder, "h2_app") as server:
        with Tracer(folder, server.port) as tracer:
            with h2_client(folder, server, tokens, {"pad": 40000, "gap_ms": 40}) as client:
                clients = client.logs()
            witnesses = server.witnesses(len(tokens))
            records = tracer.stop()
    by_key = {c["id"]: c for c in clients}
    for w in witnesses:  # hypercorn holds them, so only the client's reading bounds them from above
        for a, (t, _) in zip(w.arrivals, [f for f in by_key[w.id]["frames"] if f[1] == "token"]):
            a.after = t
    problems = check_h2(records, witnesses, clients, wide=True)
    few = [c for c in clients if c["data_frames"] < 3 * c["usage"]["completion_tokens"]]
    judge(problems + [f"{c['id']}: only {c['data_frames']} DATA frames" for c in few], tracer.err_path)


def h2_command(folder, count, make, streams=None, **want):
    """A client that is a command: make(port, folder) gives its arguments."""
    with PythonServer(folder, "h2_app") as server:
        with Tracer(folder, server.port) as tracer:
            command(folder, "client", make(f"http://127.0.0.1:{server.port}{CHAT}", folder))
            witnesses = server.witnesses(count)
            records = tracer.stop()
    problems = check_h2(records, witnesses, **want)
    got = sorted(r.get("stream_id") or 0 for r in records)
    if streams and got != streams:
        problems.append(f"streams {got}, not {streams}")
    judge(problems, tracer.err_path)


def post_file(folder, tokens=13, gap_ms=10):
    path = os.path.join(folder, "body.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump({"model": "tiny", "stream": True, "max_tokens": tokens, **FAST, "gap_ms": gap_ms}, f)
    return path


def curl_prior(url, folder):
    return ["curl", "-sSN", "--http2-prior-knowledge", "-H", "Content-Type: application/json",
            "--data-binary", f"@{post_file(folder)}", url]


def nghttp(url, folder):
    return ["nghttp", "-n", "-H", "content-type: application/json", "-d", post_file(folder), url]


def nghttp_upgrade(url, folder):
    """OPTIONS brings the upgrade and is stream 1; the POST is the next stream."""
    return [*nghttp(url, folder)[:-1], "-u", url]


def h2load(url, folder, connections):
    return ["h2load", "-n100", f"-c{connections}", "-m16", "-H", "content-type: application/json",
            "-d", post_file(folder, 7, 40), url]


test("h2.curl_prior", 1, curl_prior, [1])(h2_command)
test("h2.nghttp", 1, nghttp)(h2_command)
test("h2.nghttp_upgrade", 1, nghttp_upgrade)(h2_command)
test("h2.h2load.c1", 100, lambda url, folder: h2load(url, folder, 1), list(range(1, 200, 2)))(h2_command)
test("h2.h2load.c5", 100, lambda url, folder: h2load(url, folder, 5))(h2_command)


@test("h2.curl_upgrade")
def curl_upgrade(folder):
    """The upgrading request's answer is stream 1; the POST behind it is one more stream of that connection."""
    with PythonServer(folder, "h2_app") as server:
        with Tracer(folder, server.port) as tracer:
            url = f"http://127.0.0.1:{server.port}{CHAT}"
            command(folder, "curl", ["curl", "-sSN", "--http2", f"{url}?max_tokens=7&gap_ms=10", "--next", "-sSN",
                                     "--http2", "-H", "Content-Type: application/json",
                                     "--data-binary", f"@{post_file(folder)}", url])
            witnesses = server.witnesses(2)
            records = tracer.stop()
    found, problems = by_id(records)
    problems += [] if len(records) == 2 else [f"{len(records)} records of 2 requests"]
    for w, method, stream in zip(witnesses, ("GET", "POST"), (1, 3)):
        if w.id in found:
            problems += check_h2_one(found[w.id], w, H2_EXPECT, method=method, stream_id=stream)[0]
        else:
            problems.append(f"{w.id}: no record")
    judge(problems, tracer.err_path)


@test("h2.whole")
def h2_whole(folder):
    """An answer in one piece: totals, and no token times."""
    with PythonServer(folder, "h2_app") as server, Tracer(folder, server.port) as tracer:
        url = f"http://127.0.0.1:{server.port}{CHAT}"
        command(folder, "curl", ["curl", "-sS", "--http2-prior-knowledge", "-d", '{"max_tokens": 13}', url])
        records = tracer.stop()
    problems = [] if len(records) == 1 else [f"{len(records)} records of a request"]
    for r in records:
        problems += wrong(r, http="2", stream_id=1, streamed=False, tokens=13, ttft_ns=None, tpot_ns=None, itl=None,
                          status=200)
        if not (r.get("e2e_ns") or 0) > 25_000_000:
            problems.append(f"e2e_ns {r.get('e2e_ns')}")
    judge(problems)


@test("h2.error_frame")
def h2_error(folder):
    """Every second stream gets an error in its middle; the others are whole."""
    with PythonServer(folder, "h2_app") as server, Tracer(folder, server.port) as tracer:
        with h2_client(folder, server, PRIMES[:3], {"fault": "error"}) as bad, \
                Client(folder, "h2_client", server.port, "--max-tokens", "29,13", name="good") as good:
            bad.logs()
            clients = good.logs()
        witnesses = server.witnesses(5)
        records = tracer.stop()
    failed = [r for r in records if r.get("finish") == "error"]
    problems = check_h2([r for r in records if r not in failed], [w for w in witnesses if w.outcome == "done"], clients)
    errors = {w.id: w for w in witnesses if w.outcome == "error"}
    problems += [] if len(failed) == len(errors) == 3 else [f"{len(failed)} records with errors, not 3"]
    for r in failed:
        w = errors.get(r.get("response_id"))
        problems += check.check_times(r, w) if w else [f"nobody made {r.get('response_id')}"]
        problems += [] if r.get("error") else ["no error"]
    judge(problems, tracer.err_path)


@test("h2.client_abort")
def h2_abort(folder):
    """RST_STREAM for two of eight streams: these are aborted, with what was sent until then; the others are whole."""
    with PythonServer(folder, "h2_app") as server:
        with Tracer(folder, server.port) as tracer:
            tokens = (97, 13, 89, 7, 17, 11, 3, 29)
            with h2_client(folder, server, tokens, {}, "--abort", "0:5", "--abort", "2:11") as client:
                clients = client.logs()
            witnesses = server.witnesses(len(tokens))
            records = tracer.stop()
    aborted = [r for r in records if r.get("finish") == "aborted"]
    done = [w for w in witnesses if w.outcome == "done"]
    problems = check_h2([r for r in records if r not in aborted], done, clients)
    found, more = by_id(aborted)
    for c in (clients[0], clients[2]):
        w = next(w for w in witnesses if w.id == c["id"])
        r = found.get(w.id)
        problems += check_aborted(r, w, c) if r else [f"{w.id}: no record that is aborted"]
    problems += [] if len(aborted) == 2 else [f"{len(aborted)} records are aborted, not 2"]
    judge(problems + more, tracer.err_path)


def check_aborted(r, w, c):
    """Between what the client had read and what the server had sent when they knew of the reset."""
    read, sent = sum(kind == "token" for _, kind in c["frames"]), len(w.arrivals)
    times = r.get("tokens_at_ns") or []
    problems = wrong(r, http="2", stream_id=c["stream_id"], e2e_ns=None, dialect="openai.chat")
    problems += check.check_flags(r, Expect(flags=["estimated"], may=["coalesced"]))
    if not read <= len(times) <= sent:
        problems.append(f"{len(times)} token times; the client read {read}, the server sent {sent}")
    problems += outside(r, w)
    if c["t_end_ns"] and not c["frames"][-1][0] - 5_000_000 <= (r.get("t_end_ns") or 0):
        problems.append(f"t_end_ns {r.get('t_end_ns')}, the client still read at {c['frames'][-1][0]}")
    return [f"{w.id}: {p}" for p in problems]


@test("h2.curl_abort")
def h2_curl_abort(folder):
    """curl leaves in the middle, with its connection."""
    with PythonServer(folder, "h2_app") as server, Tracer(folder, server.port) as tracer:
        argv = ["curl", "-sSN", "--http2-prior-knowledge", "--max-time", "0.5", "--data-binary",
                f"@{post_file(folder, 997)}", f"http://127.0.0.1:{server.port}{CHAT}"]
        with Process(folder, "curl", argv) as curl:
            judge([] if curl.finish(30) == 28 else ["curl did not run out of its time"], curl.err_path)
        witnesses = server.witnesses(1)
        records = tracer.stop()
    r = only(records, "the request", lambda r: r["finish"] == "aborted")
    n = len(witnesses[0].arrivals)
    judge([] if 10 < (r.get("token_frames") or 0) <= n else [f"{r.get('token_frames')} token frames of {n}"])


@test("h2.server_dies")
def h2_server_dies(folder):
    """Every stream of the connection is cut."""
    with PythonServer(folder, "h2_app") as server, Tracer(folder, server.port) as tracer:
        with h2_client(folder, server, (997,) * 9) as client:
            under_way(client)
            server.popen.kill()
            server.finish(10)
            client.finish(30)
        records = tracer.stop()
    problems = [] if len(records) == 9 else [f"{len(records)} records of 9 requests"]
    judge(problems + [p for r in records for p in wrong(r, finish="cut", http="2", dialect="openai.chat")])


@test("h2.mid_connection")
def h2_mid_connection(folder):
    """Started behind a connection's first requests: later ones are whole, but for fields that refer to a table that
    nobody saw: the path is one, method and status stand in the table that everybody has."""
    go = go_file(folder)
    with PythonServer(folder, "h2_app") as server:
        with h2_client(folder, server, PRIMES, {}, "--rounds", "2", "--go", go) as client:
            wait_for("the first round", EXIT_S, lambda: client.line(client.out_path, "round 0 done"))
            server.witnesses(len(PRIMES))
            with Tracer(folder, server.port) as tracer:
                touch(go)
                clients = client.logs()
                witnesses = server.witnesses(2 * len(PRIMES))
                records = tracer.stop()
    later = clients[len(PRIMES):]
    ids = {c["id"] for c in later}
    judge(check_h2(records, [w for w in witnesses if w.id in ids], later, path=None), tracer.err_path)


@test("h2.mid_stream")
def h2_mid_stream(folder):
    """Started in the middle of eight streams: each is a record, flagged, with the server's total."""
    with PythonServer(folder, "h2_app") as server:
        tokens = (401, 397, 389, 383, 379, 373, 367, 359)
        with h2_client(folder, server, tokens) as client:
            under_way(client)
            with Tracer(folder, server.port) as tracer:
                clients = client.logs()
                server.witnesses(len(tokens))
                records = tracer.stop()
    found, problems = by_id(records)
    for c in clients:
        r = found.get(c["id"])
        if not r:
            problems.append(f"{c['id']}: no record")
            continue
        more = wrong(r, http="2", stream_id=c["stream_id"], flags=["mid_stream"],
                     tokens=c["usage"]["completion_tokens"], ttft_ns=None, tpot_ns=None, t_first_ns=None,
                     t_request_ns=None, status=None, path=None,
                     finish="length", dialect="openai.chat")
        read = [t for t, kind in c["frames"] if kind == "token"]
        if not 0 <= read[-1] - (r.get("t_last_ns") or 0) < 50_000_000:
            more.append(f"t_last_ns {r.get('t_last_ns')}, the client read the last token at {read[-1]}")
        problems += [f"{c['id']}: {p}" for p in more]
    judge(problems + ([] if len(records) == len(tokens) else [f"{len(records)} records of {len(tokens)}"]))


class Nghttpd(Process):
    """Serves one answer that lies in a file, as text/event-stream, at the path of chat completions."""

    def __init__(self, folder, answer, *more):
        self.port, root = free_port(), os.path.join(folder, "root")
        os.makedirs(os.path.join(root, "v1", "chat"), exist_ok=True)
        types = os.path.join(folder, "mime.types")
        for path, text in ((types, "text/event-stream sse\n"), (os.path.join(root, CHAT[1:] + ".sse"), answer)):
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
        super().__init__(folder, "nghttpd", ["nghttpd", "--no-tls", "-a", "127.0.0.1", "-d", root, "--mime-types-file",
                                             types, *more, str(self.port)])

    def started(self):
        wait_for("nghttpd", EXIT_S, lambda: listening(self))


def written_answer(tokens, pad):
    """The events of an answer of so many tokens."""
    base = {"id": "chatcmpl-file", "object": "chat.completion.chunk", "model": "tiny"}
    events = [{**base, "choices": [{"index": 0, "delta": {"content": "x" * pad}, "finish_reason": None}]}] * tokens
    events += [{**base, "choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]},
               {**base, "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": tokens, "total_tokens": 7}}]
    return "".join(f"data: {json.dumps(e)}\n\n" for e in events) + "data: [DONE]\n\n"


def nghttpd(folder, tokens, pad, *more):
    """A file goes out in as few sends as there can be; padding of DATA and HEADERS frames is none of it."""
    with Nghttpd(folder, written_answer(tokens, pad), *more) as server, Tracer(folder, server.port) as tracer:
        argv = ["h2load", "-n40", "-c2", "-m5", f"http://127.0.0.1:{server.port}{CHAT}.sse"]
        out = command(folder, "h2load", argv)
        records = tracer.stop()
    problems = [] if "40 succeeded" in out else out.splitlines()
    problems += [] if len(records) == 40 else [f"{len(records)} records of 40 requests"]
    for r in records:
        problems += wrong(r, dialect="openai.chat", http="2", method="GET", path=f"{CHAT}.sse", status=200,
                          tokens=tokens, tokens_source="usage", token_frames=tokens, frames=tokens + 3,
                          finish="length", prompt_tokens=7, response_id="chatcmpl-file", streamed=True)
        problems += check.check_flags(r, Expect(may=["coalesced"]))
        if not (r.get("t_request_end_ns") or 0) <= (r.get("t_first_ns") or 0) <= (r.get("t_end_ns") or 0):
            problems.append("times out of order")
    judge(problems, tracer.err_path)


test("h2.nghttpd", 31, 1)(nghttpd)
test("h2.nghttpd.padding", 31, 100, "-b", "200")(nghttpd)
test("h2.nghttpd.large", 29, 5000, "-b", "100")(nghttpd)


class Tshark(Process):
    """Captures a port of the loopback, and reads HTTP/2 from it."""

    def __init__(self, folder, port):
        self.port, self.file = port, os.path.join(folder, "tshark.pcapng")
        argv = ["tshark", "-q", "-i", "lo", "-f", f"tcp port {port}", "-w", self.file]
        super().__init__(folder, "tshark", argv)

    def started(self):
        wait_for("tshark", EXIT_S, lambda: self.line(self.err_path, "Capturing on"))
        # the line comes before the capture is set up, the file's first block behind it
        wait_for("tshark's file", EXIT_S, lambda: os.path.exists(self.file) and os.path.getsize(self.file))

    def streams(self):
        """{(client's port, stream): (path, bytes of DATA from the server, when the last one came, since 1970)}"""
        fields = ("tcp.srcport", "tcp.dstport", "frame.time_epoch", "http2.streamid", "http2.type", "http2.length",
                  "http2.headers.path")
        argv = ["tshark", "-r", self.file, "-d", f"tcp.port=={self.port},http2", "-Y", "http2", "-T", "fields",
                "-E", "separator=\t", *(x for f in fields for x in ("-e", f))]
        out = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
        found = {}
        for line in out.splitlines():
            source, dest, when, ids, kinds, lengths, path = line.split("\t")
            server = int(source) == self.port
            for stream, kind, length in zip(*(map(int, x.split(",")) for x in (ids, kinds, lengths))):
                s = found.setdefault((int(dest if server else source), stream), [None, 0, 0.0])
                if kind == 1 and not server and path:
                    s[0] = path.split(",")[0]
                if kind == 0 and server:
                    s[1], s[2] = s[1] + length, float(when)
        return {key: s for key, s in found.items() if key[1]}


@test("h2.tshark")
def h2_tshark(folder):
    """tshark as one more witness: the same streams, paths and ends; and the tool's own reading of its packets."""
    with PythonServer(folder, "h2_app") as server:
        with Tshark(folder, server.port) as tshark, Tracer(folder, server.port) as tracer:
            with h2_client(folder, server, PRIMES, {}, "--rounds", "2") as client:
                client.logs()
            server.witnesses(16)
            records = tracer.stop()
            wait_for("the packets", EXIT_S, lambda: len([s for s in tshark.streams().values() if s[1]]) == 16)
        seen, problems = tshark.streams(), []
    for r in records:
        s = seen.pop((check.peer_port(r), r.get("stream_id")), None)
        if not s:
            problems.append(f"tshark saw no stream {r.get('stream_id')} of {r.get('peer')}")
            continue
        late = s[2] * 1e9 - (r["start_unix_ns"] + r["t_end_ns"] - r["t_request_ns"])
        problems += wrong(r, path=s[0])
        problems += [] if -1e6 < late < 50e6 else [f"its last packet came {late} ns behind t_end_ns"]
    problems += [f"no record of {key}" for key in seen]
    packets = os.path.join(folder, "packets.jsonl")
    subprocess.run([TOOL, "report", "--port", str(server.port), "--format", "jsonl", "--tokens", "-o", packets,
                    tshark.file], check=True, capture_output=True)
    again = {r["response_id"]: r for r in check.read_records(packets)}
    for r in records:
        same = {k: r[k] for k in ("tokens", "frames", "token_frames", "finish", "stream_id", "path", "status", "model",
                                  "dialect", "http", "prompt_tokens", "max_tokens")}
        problems += wrong(again.get(r["response_id"], {}), **same, boundary="wire")
    judge(problems, tracer.err_path)


# --- gRPC --------------------------------------------------------------------------------------------

SGLANG_PATH = "/sglang.grpc.scheduler.SglangScheduler/Generate"
TRITON_PATH = "/inference.GRPCInferenceService/ModelStreamInfer"
GRPC = {"http": "2", "method": "POST", "status": 200, "transport": "tcp", "boundary": "send"}


def grpc_run(folder, service, tokens, *more, metadata=None, gzip=False):
    """(records, witnesses by id, clients by id, problems) of one client's calls."""
    options = ["--tokens", ",".join(map(str, tokens)), "--metadata", json.dumps(metadata or {}), *more]
    with PythonServer(folder, "grpc_app", *(["gzip"] if gzip else [])) as server:
        with Tracer(folder, server.port) as tracer:
            with Client(folder, "grpc_client", server.port, service, *options, *(["--gzip"] if gzip else [])) as client:
                clients = client.logs()
            witnesses = server.witnesses(len(clients))
            records = tracer.stop()
        problems = [p for r in records for p in wrong(r, pid=server.popen.pid, local=f"127.0.0.1:{server.port}")]
    if len(records) != len(clients):
        problems.append(f"{len(records)} records of {len(clients)} requests")
    return records, {w.id: w for w in witnesses}, {c["id"]: c for c in clients}, problems


def check_call(r, w, c, expect, **want):
    """A whole answer against both logs."""
    if expect.dialect == "triton.grpc":  # the stream's head belongs to no answer
        r = {**r, "t_headers_ns": r.get("t_request_end_ns")}
    rates, strict = check.check_rates(r, w)
    problems = wrong(r, **{**GRPC, "dialect": expect.dialect, "streamed": True, **want})
    problems += check.check_counts(r, w, expect) + check.check_flags(r, expect) + check.check_times(r, w)
    problems += check.check_consistency(r, w) + rates + check_read(r, c)
    return [f"{w.id}: {p}" for p in problems], strict


def check_read(r, c):
    """By the client's readings of the clock: asked before it arrived, sent before it was read."""
    problems = [] if c["t_send_ns"] <= (r.get("t_request_ns") or 0) else ["the request arrived before it was sent"]
    read = [t for t, kind in c["frames"] if kind == "token"]
    late = [i for i, (t, s) in enumerate(zip(read, r.get("tokens_at_ns") or [])) if s > t]
    if r.get("frames") != len(c["frames"]):
        problems.append(f"frames {r.get('frames')}, the client got {len(c['frames'])}")
    return problems + ([f"token {late[0]} was read before it was sent"] if late else [])


def strict_enough(oks):
    oks = list(oks)
    if oks and sum(oks) >= check.STRICT_SHARE * len(oks):
        return []
    return [f"only {sum(oks)} of {len(oks)} requests have their TPOT within {check.RATE:.0%}"]


def grpc_generate(folder, tokens, rounds, step, gzip):
    """Calls that share a connection; each chunk says its ids, and the end the server's total."""
    records, witnesses, clients, problems = grpc_run(folder, "sglang", tokens, "--rounds", str(rounds),
                                                     metadata={"step": step}, gzip=gzip)
    found, more = by_id(records)
    problems, oks = problems + more, []
    for rid, w in witnesses.items():
        flags = ["multi_token_frames"] if step > 1 and w.usage > 1 else []
        # one chunk's counter is not told from a total
        sources = ["per_frame"] if len(w.arrivals) > 1 else ["per_frame", "usage"]
        expect = Expect("engine.grpc", sources, "text", flags, may=["coalesced"])
        if rid not in found:
            problems.append(f"{rid}: no record")
            continue
        more, ok = check_call(found[rid], w, clients[rid], expect, path=SGLANG_PATH, finish="length", prompt_tokens=5,
                              response_id=rid)
        problems, oks = problems + more, [*oks, ok]
    streams = [r.get("stream_id") for r in records]
    problems += [] if len(set(streams)) == len(streams) and all(streams) else [f"streams {streams}"]
    judge(problems + strict_enough(oks))


test("grpc.generate.one_by_one", (13,), 5, 1, False)(grpc_generate)
test("grpc.generate.streams8", PRIMES, 2, 1, False)(grpc_generate)
test("grpc.generate.steps", PRIMES, 1, 3, False)(grpc_generate)
test("grpc.generate.gzip", (97, 29, 13, 7), 1, 2, True)(grpc_generate)


def grpc_error(folder, fault, error, tokens):
    """The status is in the trailers; what was sent before it counts."""
    records, witnesses, clients, problems = grpc_run(folder, "sglang", (29, 13, 7), metadata={"fault": fault})
    by_stream = sorted(records, key=lambda r: r.get("stream_id") or 0)
    for r in by_stream:
        problems += wrong(r, **GRPC, path=SGLANG_PATH, dialect="engine.grpc", finish="error", error=error)
    found = {r.get("response_id"): r for r in records}
    for rid, w in witnesses.items() if tokens else ():
        r = found.get(rid)
        problems += [f"{rid}: {p}" for p in (check.check_times(r, w) + check_read(r, clients[rid]))] if r else \
            [f"{rid}: no record"]
    judge(problems)


test("grpc.generate.error", "abort", "grpc: 8", True)(grpc_error)
test("grpc.generate.refused", "refuse", "grpc: 14", False)(grpc_error)


@test("grpc.generate.cancel")
def grpc_cancel(folder):
    """The client cancels one of three calls."""
    records, witnesses, clients, problems = grpc_run(folder, "sglang", (97, 29, 13), "--cancel", "0:7",
                                                     metadata={"gap-ms": 20})
    r = only(records, "the cancelled call", lambda r: r["finish"] == "aborted")
    w, n = witnesses["rid-0-0"], len(r.get("tokens_at_ns") or [])
    problems += wrong(r, response_id="rid-0-0", e2e_ns=None, dialect="engine.grpc")
    problems += [] if 7 <= n <= len(w.arrivals) else [f"{n} token times, the server sent {len(w.arrivals)}"]
    problems += outside(r, w)
    for other in ("rid-0-1", "rid-0-2"):
        r = only(records, other, lambda r, other=other: r["response_id"] == other)
        expect = Expect("engine.grpc", ["per_frame"], "text", may=["coalesced"])
        problems += check_call(r, witnesses[other], clients[other], expect, finish="length")[0]
    judge(problems)


def triton_pairs(records, witnesses, clients):
    """The stream's records beside the logs: in the order in which the requests went out."""
    return list(zip(records, [(witnesses[c["id"]], c) for c in sorted(clients.values(), key=lambda c: c["t_send_ns"])]))


def grpc_triton(folder, tokens, rounds, gzip, more):
    """Requests that share a stream, answers told apart by their ids."""
    records, witnesses, clients, problems = grpc_run(folder, "triton", tokens, "--rounds", str(rounds), *more,
                                                     gzip=gzip)
    oks, expect = [], Expect("triton.grpc", ["frames"], "text", ["estimated"], may=["coalesced"])
    for r, (w, c) in triton_pairs(records, witnesses, clients):
        found, ok = check_call(r, w, c, expect, path=TRITON_PATH, model="ens", stream_id=1, server="triton")
        problems, oks = problems + found, [*oks, ok]
    judge(problems + strict_enough(oks))


test("grpc.triton.one_by_one", (13,), 3, False, ())(grpc_triton)
test("grpc.triton.shared", (13, 7), 2, False, ())(grpc_triton)
test("grpc.triton.staggered", PRIMES, 2, False, ("--staggered",))(grpc_triton)
test("grpc.triton.gzip", (97, 29, 13), 1, True, ("--staggered",))(grpc_triton)


@test("grpc.triton.identity")
def triton_identity(folder):
    """What is known of the stream is known of each of its answers, of those that were asked for before its head, too;
    an answer's id is the one that its messages bear."""
    records, witnesses, clients, problems = grpc_run(folder, "triton", (7, 5, 3), "--rounds", "2")
    for r, (_, c) in triton_pairs(records, witnesses, clients):
        problems += [f"{c['id']}: {p}" for p in wrong(r, **GRPC, path=TRITON_PATH, response_id=c["id"])]
    judge(problems)


@test("grpc.mid_connection")
def grpc_mid_connection(folder):
    """Started behind a connection's first calls. Which method is called is a field that refers to a table that nobody
    saw; without it the messages can't be told from others': a record or none, but no number is made up."""
    go = go_file(folder)
    with PythonServer(folder, "grpc_app") as server:
        with Client(folder, "grpc_client", server.port, "sglang", "--tokens", "29,13,7", "--rounds", "2",
                    "--go", go) as client:
            server.witnesses(3)
            with Tracer(folder, server.port) as tracer:
                touch(go)
                client.logs()
                witnesses = server.witnesses(6)
                records = tracer.stop()
    totals = {w.id: w.usage for w in witnesses}
    problems = [f"path {r['path']}" for r in records if r.get("path") not in (None, SGLANG_PATH)]
    problems += [f"{r['tokens']} tokens of {r.get('response_id')}" for r in records
                 if r.get("tokens") is not None and r["tokens"] != totals.get(r.get("response_id"))]
    judge(problems, tracer.err_path)


@test("grpc.comm")
def grpc_comm(folder):
    """grpcio sends from threads that have names of their own: the process's name is what is told, and filtered by."""
    path = os.path.join(folder, "records.jsonl")
    with PythonServer(folder, "grpc_app") as server:
        args = ["--format", "jsonl", "--tokens", "-o", path, "--comm", "python3"]
        with Tracer(folder, server.port, args) as tracer:
            with Client(folder, "grpc_client", server.port, "sglang", "--tokens", "13,7,5", "--rounds", "3") as client:
                client.logs()
            server.witnesses(9)
            records = tracer.stop()
    problems = [] if len(records) == 9 else [f"{len(records)} records of 9 requests with --comm python3"]
    judge(problems + [p for r in records for p in wrong(r, comm="python3")])


@test("grpc.triton.error")
def triton_error(folder):
    """One of three answers of a stream fails; the others are whole."""
    records, witnesses, clients, problems = grpc_run(folder, "triton", (13, 11, 7), "--bad", "1", "--staggered",
                                                     metadata={"fault": "error"})
    for r, (w, c) in triton_pairs(records, witnesses, clients):
        if w.outcome == "done":
            expect = Expect("triton.grpc", ["frames"], "text", ["estimated"], may=["coalesced"])
            problems += check_call(r, w, c, expect, path=TRITON_PATH, error=None)[0]
        else:
            problems += wrong(r, finish="error", dialect="triton.grpc", model="ens", token_frames=5)
            problems += check.check_times(r, w) + check_read(r, c)
    judge(problems)


@test("grpc.triton.cancel")
def triton_cancel(folder):
    """The client cancels the stream: every answer that is not whole is aborted."""
    records, witnesses, clients, problems = grpc_run(folder, "triton", (97, 3, 89), "--staggered", "--cancel", "0:60")
    for r, (w, c) in triton_pairs(records, witnesses, clients):
        n = len(r.get("tokens_at_ns") or [])
        if w.outcome == "done":
            problems += check.check_times(r, w)
            continue
        problems += wrong(r, finish="aborted", dialect="triton.grpc", e2e_ns=None)
        problems += [] if 5 < n <= len(w.arrivals) else [f"{n} token times, the server sent {len(w.arrivals)}"]
    outcomes = sorted(w.outcome for w in witnesses.values())
    judge(problems + ([] if outcomes == ["done", "gone", "gone"] else [f"the server saw {outcomes}"]))


# --- WebSocket -----------------------------------------------------------------------------------------


def ws_expect(silent=False, **more):
    return Expect("openai.realtime", ["usage"], "text", may=["coalesced"], **{"finish": "completed", **more})


def check_realtime(records, witnesses, clients, expect=None, **want):
    """A record a response: against the server's log and the client's."""
    found, problems = by_id(records)
    by_key, oks = {c["id"]: c for c in clients}, []
    if len(records) != len(witnesses):
        problems.append(f"{len(records)} records of {len(witnesses)} responses")
    for w in witnesses:
        r, c = found.get(w.id), by_key.get(w.id)
        if not r or not c:
            problems.append(f"{w.id}: no {'record' if not r else 'line of the client'}")
            continue
        rates, ok = check.check_rates(r, w)
        more = wrong(r, **{"http": "1.1", "method": "GET", "path": "/v1/realtime", "status": 101, "transport": "tcp",
                           "boundary": "send", "streamed": True, "model": "tiny", "stream_id": None,
                           "prompt_tokens": 11, "cached_tokens": 3, "finish": "completed",
                           "dialect": "openai.realtime", **want})
        e = expect or ws_expect()
        more += check.check_counts(r, w, e) + check.check_flags(r, e) + check.check_times(r, w) + rates
        if "t_request_ns" not in want:
            more += check.check_consistency({**r, "t_headers_ns": r.get("t_request_end_ns")}, w)
            more += [] if c["t_send_ns"] <= (r.get("t_request_ns") or 0) else ["it was asked for before it was sent"]
        if c["usage"]["output_tokens"] != r.get("tokens"):
            more.append(f"tokens {r.get('tokens')}, the client was told {c['usage']}")
        problems, oks = problems + [f"{w.id}: {p}" for p in more], [*oks, ok]
    return problems + strict_enough(oks)


def ws_run(folder, mode, run_client, count, **want):
    """run_client(server) gives the client's log; mode: () or ("plain",)."""
    with PythonServer(folder, "realtime_app", *mode) as server:
        with Tracer(folder, server.port) as tracer:
            clients = run_client(server)
            witnesses = server.witnesses(count)
            records = tracer.stop()
        problems = [p for r in records for p in wrong(r, pid=server.popen.pid)]
    agreed = {"permessage-deflate" in c["extensions"] for c in clients}
    if agreed != {not mode}:
        problems.append(f"permessage-deflate: {agreed}")
    judge(problems + check_realtime(records, witnesses, clients, **want), tracer.err_path)


def ws_python(folder, mode, tokens, connections, body, *more):
    def run_client(server):
        options = ["--tokens", ",".join(map(str, tokens)), "--connections", str(connections),
                   "--body", json.dumps(body), *more, *(["--plain"] if mode else [])]
        with Client(folder, "ws_client", server.port, *options) as client:
            return client.logs()

    ws_run(folder, mode, run_client, len(tokens) * connections)


PLAIN, DEFLATE = ("plain",), ()
for _name, _mode in (("plain", PLAIN), ("deflate", DEFLATE)):
    test(f"ws.{_name}.c1", _mode, (29, 13, 7, 1, 2), 1, {})(ws_python)
    test(f"ws.{_name}.c16", _mode, (29, 13, 7), 16, {"gap_ms": 30})(ws_python)
    test(f"ws.{_name}.fragments", _mode, (13, 7), 2, {"fragments": 5})(ws_python)
    test(f"ws.{_name}.silent", _mode, (13, 7), 1, {"silent": 4})(ws_python)
    test(f"ws.{_name}.audio", _mode, (13, 7), 1, {"audio": True})(ws_python)


def npm_folder():
    npm = subprocess.run(["sh", os.path.join(HERE, "clients", "npm.sh")], capture_output=True, text=True, check=False)
    if npm.returncode:
        raise Failure("npm install failed", *npm.stderr.splitlines()[-8:])
    return npm.stdout.strip()


def ws_node(folder, mode, body):
    def run_client(server):
        out = command(folder, "node", ["node", os.path.join(HERE, "clients", "ws_client.mjs"), npm_folder(),
                                       f"ws://127.0.0.1:{server.port}/v1/realtime?model=tiny", "3", "29,13,7",
                                       json.dumps(body)])
        return [json.loads(line) for line in out.splitlines()]

    ws_run(folder, mode, run_client, 9)


test("ws.node.plain", PLAIN, {})(ws_node)
test("ws.node.deflate", DEFLATE, {})(ws_node)
test("ws.node.fragments", DEFLATE, {"fragments": 3})(ws_node)


@test("ws.voice")
def ws_voice(folder):
    """Responses that the server began by itself: no request, no TTFT, no E2E."""
    def run_client(server):
        with Client(folder, "ws_client", server.port, "--tokens", "13,13", "--voice") as client:
            return client.logs()

    ws_run(folder, DEFLATE, run_client, 2, t_request_ns=None, t_request_end_ns=None, ttft_ns=None, e2e_ns=None,
           max_tokens=None)


@test("ws.error")
def ws_error(folder):
    """A response that fails in its middle."""
    with PythonServer(folder, "realtime_app") as server, Tracer(folder, server.port) as tracer:
        with Client(folder, "ws_client", server.port, "--tokens", "29,13", "--body", '{"fault": "error"}') as client:
            client.logs()
        witnesses = server.witnesses(2)
        records = tracer.stop()
    problems = [] if len(records) == 2 else [f"{len(records)} records of 2 responses"]
    found, more = by_id(records)
    for w in witnesses:
        r = found.get(w.id)
        problems += wrong(r, finish="error", error="server_error: engine_died") if r else [f"{w.id}: no record"]
        problems += check.check_times(r, w) if r else []
    judge(problems + more, tracer.err_path)


def ws_abort(folder, *more):
    """The client leaves in the middle of the second response: by a Close frame, or without."""
    with PythonServer(folder, "realtime_app") as server, Tracer(folder, server.port) as tracer:
        with Client(folder, "ws_client", server.port, "--tokens", "13,997", "--abort-after", "11", *more) as client:
            clients = client.logs()
        witnesses = server.witnesses(2)
        records = tracer.stop()
    problems = [] if len(records) == 2 else [f"{len(records)} records of 2 responses"]
    r = only(records, "the response under way", lambda r: r["finish"] == "aborted")
    sent, n = len(witnesses[1].arrivals), len(r.get("tokens_at_ns") or [])
    problems += [] if 11 <= n <= sent else [f"{n} token times, the server sent {sent}"]
    problems += wrong(r, response_id=clients[1]["id"], e2e_ns=None, dialect="openai.realtime")
    judge(problems + check_realtime([x for x in records if x is not r], witnesses[:1], clients[:1]), tracer.err_path)


test("ws.client_abort")(ws_abort)
test("ws.client_close", "--close")(ws_abort)


@test("ws.server_dies")
def ws_server_dies(folder):
    with PythonServer(folder, "realtime_app") as server, Tracer(folder, server.port) as tracer:
        with Client(folder, "ws_client", server.port, "--tokens", "997") as client:
            under_way(client)
            server.popen.kill()
            server.finish(10)
            client.finish(30)
        records = tracer.stop()
    r = only(records, "the response", lambda r: r["dialect"] == "openai.realtime")
    judge(wrong(r, finish="cut", e2e_ns=None) + ([] if r.get("t_end_ns") else ["no t_end_ns"]))


def ws_mid(folder, mode):
    """Started between two responses of a connection. Plain messages show that it is a WebSocket, and the next response
    is whole, but for what the head had said and its request, which came before the first message told; with context takeover nobody can read it, and no number is made up."""
    go = go_file(folder)
    with PythonServer(folder, "realtime_app", *mode) as server:
        options = ["--tokens", "29,13", "--go", go, *(["--plain"] if mode else [])]
        with Client(folder, "ws_client", server.port, *options) as client:
            server.witnesses(1)
            with Tracer(folder, server.port) as tracer:
                touch(go)
                clients = client.logs()
                server.witnesses(2)
                records = tracer.stop()
    known = {"response_id": clients[1]["id"], "tokens": 13, "finish": "completed", "dialect": "openai.realtime",
             "status": 101, "path": None, "method": None}
    problems = [f"{k} {r[k]}" for r in records for k in known if r.get(k) not in (None, known[k], "unknown")]
    if mode:
        r = only(records, "the response", lambda r: r["response_id"] == known["response_id"])
        problems += wrong(r, **known, flags=[]) + ([] if r.get("tpot_ns") else ["no TPOT"])
    judge(problems + [p for r in records if not mode for p in wrong(r, tokens=None)], tracer.err_path)


test("ws.mid_connection.plain", PLAIN)(ws_mid)
test("ws.mid_connection.deflate", DEFLATE)(ws_mid)


if __name__ == "__main__":
    sys.exit(run_live.main(sys.argv[1:]))
