#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Live tests of TLS, as TAP: each server over plaintext and over TLS, from the same script, and the same is asserted.

usage: run_tls.py [--list] [--keep DIR] [PATTERN...]     as run_live.py

Witnesses: the servers' own logs (of a proxy: that of the server behind it) and the client's. Each request asks for a
model name of its own, which the server repeats in model, id and in every token's text, and nearly each for a count of
its own, so that a token on another's record shows in both records' counts and times.
"""
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import check
import run_live
import run_wires
from check import Expect
from rig import EXIT_S, HERE, Failure, Process, Tracer, ends, free_port, tail, wait_for
from run_live import judge, test
from run_wires import PYTHON, wrong

run_live.TESTS.clear()  # the runner is run_live.py's, the tests are these

SERVERS = os.path.join(HERE, "servers", "tls")
SID = os.path.join(SERVERS, "sid.sh")
CHAT = "/v1/chat/completions"
EXPECT = Expect("openai.chat", ["usage"], "text", finish="length", may=["coalesced"])
# c64 has more requests than it has in flight: connections are used again. Its counts are 70 different ones.
LOADS = {"c1": {"requests": 5, "concurrency": 1, "tokens": (29, 13, 7, 1, 2)},
         "c64": {"requests": 70, "concurrency": 64, "tokens": tuple(3 + i * 37 % 71 for i in range(70))}}
TRANSPORT = {False: "tcp", True: "tls"}
BODY = {"gap_ms": 40, "prefill_ms": 60}
SCRATCH = {}  # what is made once a run


def scratch():
    if "folder" not in SCRATCH:
        SCRATCH["folder"] = tempfile.TemporaryDirectory(prefix="tks-tls-")
    return SCRATCH["folder"].name


def pem():
    """A file with a certificate and its key."""
    path = os.path.join(scratch(), "tls.pem")
    if not os.path.exists(path):
        parts = [f"{path}.{x}" for x in ("key", "cert")]
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                        "-nodes", "-keyout", parts[0], "-out", parts[1], "-days", "30", "-subj", "/CN=localhost",
                        "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"], check=True, capture_output=True)
        with open(path, "w", encoding="utf-8") as out:
            for part in reversed(parts):
                with open(part, encoding="utf-8") as f:
                    out.write(f.read())
    return path


# --- servers -------------------------------------------------------------------------------------------


def descendants(pid):
    """The process and all below it."""
    found, todo = set(), [pid]
    while todo:
        p = todo.pop()
        found.add(p)
        try:
            with open(f"/proc/{p}/task/{p}/children", encoding="ascii") as f:
                todo += map(int, f.read().split())
        except OSError:
            pass
    return found


class Server(Process):
    """A server of servers/tls: command(server) gives its arguments; secure: over TLS."""

    host = "127.0.0.1"  # where the client finds it
    late_ns = 0  # so much later than the bytes a send's time may be
    to = ()  # the client's arguments for that

    def __init__(self, folder, secure, command, name="server", env=None):
        self.folder, self.port, self.log = folder, free_port(), os.path.join(folder, f"{name}.log")
        self.secure, self.pem = secure, pem() if secure else "-"
        if os.path.exists(self.log):
            os.unlink(self.log)
        super().__init__(folder, name, command(self), env)

    def started(self):
        wait_for(self.name, EXIT_S, lambda: run_wires.listening(self))

    def url(self):
        return f"http{'s' * self.secure}://127.0.0.1:{self.port}{CHAT}"

    def tracer(self, folder):
        return Tracer(folder, self.port)

    def identity(self, w):
        """What the record of w says of its connection."""
        return {"transport": TRANSPORT[self.secure], "local": f"{self.host}:{self.port}", "peer": f"{self.host}:{w.peer}"}

    def pids(self):
        return descendants(self.popen.pid)

    def witnesses(self, count):
        wait_for(f"{self.name}'s log", EXIT_S, lambda: ends(self.log) >= count)
        return read_log(self.log)


class Behind(Server):
    """A proxy: what is behind it tells what was answered."""

    def __init__(self, folder, secure, command, upstream, name="proxy"):
        self.upstream = upstream
        super().__init__(folder, secure, command, name)

    def __enter__(self):
        self.upstream.__enter__()
        try:
            return super().__enter__()
        except BaseException:
            self.upstream.__exit__()
            raise

    def __exit__(self, *_):
        super().__exit__()
        self.upstream.__exit__()

    def witnesses(self, count):
        return self.upstream.witnesses(count)


def read_log(path):
    """The witness log: as the FastAPI app's, and each request's model."""
    witnesses = {w.id: w for w in check.read_app(path)}
    for line in check.read_lines(path):
        witnesses[line["id"]].model = line["model"]
    return list(witnesses.values())


def app(stack, *more):
    """uvicorn or hypercorn."""
    def command(s):
        return [PYTHON, os.path.join(SERVERS, "app.py"), stack, str(s.port), s.log, s.pem, *more]
    return lambda folder, secure: Server(folder, secure, command)


def node(http):
    def command(s):
        return ["node", os.path.join(SERVERS, "node_server.js"), str(s.port), s.log, s.pem, http]
    return lambda folder, secure: Server(folder, secure, command)


def go_program(stripped, sid):
    """servers/tls/main.go, built by Debian's go, or by sid's."""
    path = os.path.join(scratch(), f"go_server{'.stripped' * stripped}{'.sid' * sid}")
    if not os.path.exists(path):
        env = {**os.environ, "GO111MODULE": "off", "GOCACHE": os.path.join(scratch(), "gocache"), "CGO_ENABLED": "0"}
        source, flags = os.path.join(SERVERS, "main.go"), ["-ldflags=-s -w"] * stripped
        argv = ["sh", SID, "go", path, source, *flags] if sid else ["/usr/bin/go", "build", *flags, "-o", path, source]
        subprocess.run(argv, check=True, env=env)
    return path


def go(http, stripped=False, sid=False):
    def command(s):
        return [go_program(stripped, sid), str(s.port), s.log, s.pem, http]
    return lambda folder, secure: Server(folder, secure, command)


ANDROID = "/usr/lib/x86_64-linux-gnu/android"  # Debian's BoringSSL
LIBRARIES = {"gnutls": ["-lgnutls"], "openssl": ["-lssl", "-lcrypto"], "storm": ["-lssl", "-lcrypto"],
             "nss": ["-isystem", "/usr/include/nss", "-isystem", "/usr/include/nspr", "-lssl3", "-lnss3", "-lnspr4"],
             "boringssl": ["-isystem", "/usr/include/android", f"-L{ANDROID}", f"-Wl,-rpath,{ANDROID}", "-lssl",
                           "-lcrypto"]}
SOURCES = {"boringssl": "openssl", "openssl11": "openssl"}  # of the same interface


def flags(library):
    """The compiler's, for programs that use the library."""
    if library != "openssl11":
        return LIBRARIES[library]
    got = subprocess.run(["sh", os.path.join(SERVERS, "openssl11.sh")], capture_output=True, text=True, check=False)
    if got.returncode:
        raise Failure("no OpenSSL 1.1", *got.stderr.splitlines()[-8:])
    include, lib = (os.path.join(got.stdout.strip(), "usr", x) for x in ("include", "lib/x86_64-linux-gnu"))
    return ["-isystem", include, "-isystem", f"{include}/x86_64-linux-gnu", f"-Wl,-rpath,{lib}",
            *(os.path.join(lib, f"lib{x}.so.1.1") for x in ("ssl", "crypto"))]


def c_program(library):
    """servers/tls/LIBRARY_server.c (or storm.c), built with the library."""
    path = os.path.join(scratch(), f"{library}_server")
    source = library if library == "storm" else f"{SOURCES.get(library, library)}_server"
    if not os.path.exists(path):
        subprocess.run(["gcc", "-std=gnu11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-o", path,
                        os.path.join(SERVERS, f"{source}.c"), *flags(library), "-lpthread"], check=True)
    return path


def c_server(library, *mode):
    def command(s):
        return [c_program(library), str(s.port), s.log, s.pem, *mode]
    return lambda folder, secure: Server(folder, secure, command)


class Elsewhere(Server):
    """A server that listens on `bound`, asked at `host`."""

    def __init__(self, folder, secure, bound, host):
        self.host = f"[{host}]" if ":" in host else host
        self.to = ["--host", host]
        super().__init__(folder, secure, lambda s: [c_program("openssl"), f"[{bound}]:{s.port}", s.log, s.pem, "blocking"])


def static_program(symbols=None):
    """openssl_server with the library within it and without symbols: nothing shows where its functions are, unless these
    are put aside: "link": in a file that its .gnu_debuglink names; "data": in its .gnu_debugdata."""
    path = os.path.join(scratch(), f"static_server.{symbols}")
    if os.path.exists(path):
        return path
    full, packed = f"{path}.full", f"{path}.packed"
    subprocess.run(["gcc", "-std=gnu11", "-D_GNU_SOURCE", "-O2", "-w", "-static", "-o", full,
                    os.path.join(SERVERS, "openssl_server.c"), "-lssl", "-lcrypto", "-lpthread", "-ldl"],
                   check=True, stderr=subprocess.DEVNULL)
    add = []
    if symbols == "link":
        subprocess.run(["objcopy", "--only-keep-debug", full, packed], check=True)
        add = [f"--add-gnu-debuglink={packed}"]
    elif symbols == "data":
        subprocess.run(["objcopy", "-S", "--wildcard", "--keep-symbol=SSL_*", "--keep-symbol=BIO_*", full, packed],
                       check=True)
        subprocess.run(["xz", packed], check=True)
        add = [f"--add-section=.gnu_debugdata={packed}.xz"]
    subprocess.run(["objcopy", "--strip-all", *add, full, path], check=True)
    return path


def static(symbols):
    def command(s):
        return [static_program(symbols), str(s.port), s.log, s.pem, "blocking"]
    return lambda folder, secure: Server(folder, secure, command)


def nss_database():
    """A folder with the certificate as NSS keeps it."""
    path = os.path.join(scratch(), "nss")
    if not os.path.exists(path):
        os.makedirs(path)
        bundle, export = os.path.join(scratch(), "tls.p12"), ["openssl", "pkcs12", "-export", "-passout", "pass:"]
        for argv in (["certutil", "-N", "-d", f"sql:{path}", "--empty-password"],
                     [*export, "-in", pem(), "-name", "tls", "-out", bundle],
                     ["pk12util", "-i", bundle, "-d", f"sql:{path}", "-W", ""]):
            subprocess.run(argv, check=True, capture_output=True)
    return f"sql:{path}"


def nss(folder, secure):
    def command(s):
        return [c_program("nss"), str(s.port), s.log, nss_database() if secure else "-"]
    return Server(folder, secure, command)


# --- proxies -------------------------------------------------------------------------------------------

# The configuration in servers/tls and the command, which gets the filled-in file's name.
PROXIES = {
    "nginx": ("nginx.conf", lambda path: ["nginx", "-c", path, "-p", os.path.dirname(path)]),
    "haproxy": ("haproxy.cfg", lambda path: ["haproxy", "-db", "-f", path]),
    "apache": ("apache.conf", lambda path: ["apache2", "-DFOREGROUND", "-f", path]),
    "caddy": ("Caddyfile", lambda path: ["env", f"HOME={os.path.dirname(path)}", "caddy", "run", "--adapter",
                                         "caddyfile", "--config", path]),
}


def filled(folder, name, secure, values):
    """A configuration of servers/tls, filled in, in the folder."""
    with open(os.path.join(SERVERS, name), encoding="utf-8") as f:
        lines = f.read().splitlines(keepends=True)
    mine, other = ("%tls", "%plain") if secure else ("%plain", "%tls")
    text = "".join(line.removeprefix(mine) for line in lines if not line.startswith(other))
    for key, value in values.items():
        text = text.replace(f"@{key}@", str(value))
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    return path


def proxy(kind, http="1.1", upstream=app("uvloop"), workers=1, sid=False):
    """A proxy in front of a server that has no TLS; Debian's, or sid's."""
    config, argv = PROXIES[kind]

    def command(s):
        values = {"FOLDER": s.folder, "LISTEN": s.port, "UPSTREAM": s.upstream.port, "PEM": s.pem, "WORKERS": workers,
                  "REUSE": "reuseport" * (workers > 1),
                  "HTTP2": "http2" * (http == "2"), "PROTO": "proto h2" * (http == "2"),
                  "MODULES": "/usr/lib/apache2/modules"}
        sees = ["sh", SID, "run", f"{scratch()}:{s.folder}"] if sid else []
        return sees + argv(filled(s.folder, config, s.secure, values))

    def make(folder, secure):
        return Behind(folder, secure, command, upstream(folder, False), kind)

    return make


# --- the client ----------------------------------------------------------------------------------------


class Client(Process):
    """client.py; logs() gives what it wrote."""

    def __init__(self, folder, server, http, load, more=(), body=None, name="client"):
        self.log_path = os.path.join(folder, f"{name}.log")
        argv = [*getattr(server, "wrap", []), PYTHON, os.path.join(SERVERS, "client.py"), str(server.port)]
        argv += ["--requests", str(load["requests"]), "--concurrency", str(load["concurrency"])]
        argv += ["--max-tokens", ",".join(map(str, load["tokens"])), "--body", json.dumps({**BODY, **(body or {})})]
        argv += ["--tls"] * server.secure + ["--h2"] * (http == "2") + [*server.to, *more, "-o", self.log_path]
        super().__init__(folder, name, argv)

    def logs(self):
        status = self.finish(120)
        logs = check.read_lines(self.log_path) if os.path.exists(self.log_path) else []
        if status:
            bad = [{**c, "frames": len(c["frames"])} for c in logs if c["outcome"] != "done" or c["foreign"]]
            raise Failure(f"the client's exit status is {status}", *tail(self.err_path), *map(str, bad[:5]))
        return logs


def stream(folder, server, http, load, more=(), body=None, name="client"):
    """Asks, and returns the client's log."""
    with Client(folder, server, http, load, more, body, name) as client:
        return client.logs()


# --- checks --------------------------------------------------------------------------------------------


def bounded(w, c, behind, late_ns):
    """Adds to the witness w what the client c tells of the same request: a token was sent before the client read it;
    the connection, where the server is behind a proxy. Returns what does not agree."""
    problems = []
    if "frames" in c:
        read = [t for t, kind in c["frames"] if kind == "token"]
        problems += [] if len(read) == len(w.arrivals) else [f"the client read {len(read)} token frames"]
        for a, t in zip(w.arrivals, read):
            a.after = t + late_ns if behind else min(a.after, t + late_ns)
    elif behind:
        for a in w.arrivals:
            a.after = a.before + check.UNKNOWN_NS
    if c.get("local"):
        problems += [] if behind or w.peer == c["local"] else [f"the server saw port {w.peer}, not {c['local']}"]
        w.peer = c["local"]
    return problems


def check_boundary(r, w=None):
    """The plaintext's times: not behind those of the sends, and not before the server had the token."""
    b = (r.get("boundaries") or {}).get("tls")
    if not b:
        return ["no boundaries.tls"]
    problems = [f"boundaries.tls has no {k}" for k in ("ttft_ns", "tpot_ns") if k not in b]
    n, ttft, tpot = r.get("tokens") or 0, b.get("ttft_ns"), b.get("tpot_ns")
    if ttft is None or r.get("ttft_ns") is None or ttft > r["ttft_ns"]:
        return problems + [f"ttft {ttft} at TLS, {r.get('ttft_ns')} at the send"]
    if (n > 1) != (tpot is not None):
        problems.append(f"tpot {tpot} at TLS, with {n} tokens")
    return problems + (check_boundary_times(r["t_request_end_ns"] + ttft, tpot, n, w.arrivals) if w else [])


def check_boundary_times(first, tpot, n, arrivals):
    early, problems = arrivals[0].before - first, []
    if early > 0:
        problems.append(f"the first token was at TLS {early} ns before the server had it")
    if n > 1 and tpot is not None:
        want = (arrivals[-1].before - arrivals[0].before) / (n - 1)
        slack = max(arrivals[0].width, arrivals[-1].width) / (n - 1)
        if abs(tpot - want) > max(check.RATE * want, slack):
            problems.append(f"tpot {tpot} at TLS, the server's times give {want:.0f}")
    return problems


def check_one(r, w, c, server, http):
    """One record against the server's and the client's logs."""
    rates, strict = check.check_rates(r, w)
    problems = check.check_identity({**r, "http": "1.1", "transport": "tcp"}, EXPECT)
    problems += check.check_counts(r, w, EXPECT) + check.check_flags(r, EXPECT) + check.check_times(r, w)
    problems += check.check_consistency(r, w) + rates
    problems += wrong(r, **server.identity(w), http=http, path=CHAT, model=w.model, prompt_tokens=7,
                      token_frames=len(w.arrivals), frames=len(w.arrivals) + 4)
    if "frames" in c:
        frames = [[t + server.late_ns, kind] for t, kind in c["frames"]]
        problems += check.check_client(r, {**c, "frames": frames}) + wrong(r, stream_id=c.get("stream_id"))
    problems += check_boundary(r, w) if server.secure else []
    return problems, strict


def check_order(records, clients):
    """Each connection has its requests in the client's order, and the file has the records by their ends."""
    problems, have, want = [], {}, {}
    clients = [c for c in clients if "frames" in c and c.get("local")]  # others don't tell
    for r in sorted(records, key=lambda r: (r.get("t_request_ns") or 0, r.get("stream_id") or 0)):
        have.setdefault(check.peer_port(r), []).append(r.get("model"))
    for c in sorted(clients, key=lambda c: c.get("nr", c["index"])):
        want.setdefault(c["local"], []).append(c["model"])
    for port in want:
        if have.get(port) != want.get(port):
            problems.append(f"port {port} has the records {have.get(port)}, and asked {want.get(port)}")
    if len({r.get("id") for r in records}) != len(records):
        problems.append("ids are not unique")
    return problems


def check_crowd(records, load):
    most = max(((r.get("concurrency") or {}).get("max") or 0 for r in records), default=0)
    good = most > load["concurrency"] // 2 and most <= load["concurrency"]
    return [] if good else [f"at most {most} at once, with {load['concurrency']} in flight"]


def check_run(records, witnesses, clients, server, http, case, pids=None, wide=False):
    """All checks of a run."""
    found, problems = run_wires.by_id(records)
    clients_by_id, strict = {c["id"]: c for c in clients}, 0
    if not len(records) == len(witnesses) == len(clients):
        problems.append(f"{len(records)} records of {len(witnesses)} requests, {len(clients)} asked for")
    for w in witnesses:
        c = clients_by_id[w.id]
        more, ok = bounded(w, c, case.behind, server.late_ns), False
        if w.id in found:
            others, ok = check_one(found[w.id], w, c, server, http)
            more += others
        else:
            more.append("no record")
        problems, strict = problems + [f"{w.id}: {p}" for p in more], strict + ok
    if not case.wide and not wide and strict < check.STRICT_SHARE * len(witnesses):
        problems.append(f"only {strict} of {len(witnesses)} requests have their TPOT within {check.RATE:.0%}")
    pids = pids or server.pids()
    strangers = {r.get("pid") for r in records} - pids
    problems += [f"pids {strangers} are not the server's {pids}"] if strangers else []
    return problems + check_order(records, clients)


def kept(records):
    """What must be the same over plaintext and TLS, by model. Ids are the server's, times are not, and coalescing is
    the kernel's and the scheduler's."""
    same = ("method", "path", "status", "dialect", "model", "server", "streamed", "boundary", "frames", "token_frames",
            "tokens", "tokens_source", "t_last_source", "prompt_tokens", "cached_tokens", "reasoning_tokens",
            "max_tokens", "n", "finish", "error")
    return {r["model"]: {**{k: r.get(k) for k in same}, "flags": sorted(set(r["flags"]) - {"coalesced"})}
            for r in records}


def check_same(plain, other, name="TLS"):
    """What came over plaintext, and over TLS or another way."""
    have, want = kept(other), kept(plain)
    problems = [f"{m} is over {name} only" for m in have.keys() - want.keys()]
    problems += [f"{m} is over plaintext only" for m in want.keys() - have.keys()]
    for m in have.keys() & want.keys():
        differ = [k for k, v in want[m].items() if have[m][k] != v]
        problems += [f"{m}: {k} {have[m][k]} over {name}, {want[m][k]} over plaintext" for k in differ]
    return problems


# --- the matrix ----------------------------------------------------------------------------------------


class Case:
    """A server and how it is spoken to. make(folder, secure) gives the server."""

    def __init__(self, make, http="1.1", plain_http=None, behind=False, wide=False):
        self.make, self.behind, self.wide = make, behind, wide
        self.http = {True: http, False: plain_http or http}


def stop(tracer):
    """Ends the tracer; what it attached since its start is looked for, too."""
    tracer.held.update(check.held_by(tracer.popen.pid))
    return tracer.stop()


def traced(folder, case, secure, load, ask=stream, **more):
    """Traces a load on a server and checks everything; returns the records. ask is the client."""
    http, load = case.http[secure], LOADS[load] if isinstance(load, str) else load
    os.makedirs(folder, exist_ok=True)
    with case.make(folder, secure) as server:
        with server.tracer(folder) as tracer:
            clients = ask(folder, server, http, load, **more)
            witnesses = server.witnesses(load["requests"])
            records = stop(tracer)
        judge(check_run(records, witnesses, clients, server, http, case) + check_crowd(records, load), tracer.err_path)
    return records


PLAIN = {}  # records over plaintext, by case and load


def matrix(folder, name, case, secure, load):
    """Over plaintext, or over TLS and then compared with the former."""
    if not secure or (name, load) not in PLAIN:
        PLAIN[name, load] = traced(os.path.join(folder, "plain"), case, False, load)
    if secure:
        judge(check_same(PLAIN[name, load], traced(folder, case, True, load)))


def case(name, *args, **more):
    """Registers the four tests of a server."""
    c = CASES[name] = Case(*args, **more)
    for load in LOADS:
        for secure in (False, True):
            test(f"tls.{name}.{FORMS[secure]}.{load}", name, c, secure, load)(matrix)


FORMS = {False: "plain", True: "tls"}
CASES = {}
case("uvloop", app("uvloop"))
case("go", go("1.1"))
case("go_h2", go("2"), "2", "1.1", wide=True)  # without TLS net/http speaks HTTP/1.1
case("go_stripped", go("1.1", True))
case("node", node("1.1"))
case("node_h2", node("2"), "2", wide=True)
case("asyncio", app("asyncio"))
case("hypercorn", app("hypercorn"))
case("hypercorn_h2", app("hypercorn"), "2", wide=True)
for _kind in PROXIES:
    case(_kind, proxy(_kind), behind=True)
    case(f"{_kind}_h2", proxy(_kind, "2"), "2", behind=True)
case("gnutls_send", c_server("gnutls", "send"))
case("gnutls_cork", c_server("gnutls", "cork"))
case("openssl_blocking", c_server("openssl", "blocking"))
case("openssl_retry", c_server("openssl", "retry"))
case("openssl_bio", c_server("openssl", "bio", "1"))
case("openssl_bio_threads", c_server("openssl", "bio", "3"))
case("openssl_uring", c_server("openssl", "uring"))
case("openssl_zerocopy", c_server("openssl", "zerocopy"))
case("openssl_ipv6", lambda folder, secure: Elsewhere(folder, secure, "::1", "::1"))
case("openssl_v4mapped", lambda folder, secure: Elsewhere(folder, secure, "::", "127.0.0.1"))
case("openssl_debuglink", static("link"))
case("openssl_debugdata", static("data"))
case("openssl11", c_server("openssl11", "blocking"))
case("openssl11_bio", c_server("openssl11", "bio", "1"))
case("boringssl", c_server("boringssl", "blocking"))
case("boringssl_retry", c_server("boringssl", "retry"))
case("boringssl_bio", c_server("boringssl", "bio", "1"))
case("nss", nss)
case("go_sid", go("1.1", sid=True))
case("go_sid_h2", go("2", sid=True), "2", "1.1", wide=True)
case("go_sid_stripped", go("1.1", True, sid=True))
case("caddy_sid", proxy("caddy", sid=True), behind=True)
case("caddy_sid_h2", proxy("caddy", "2", sid=True), "2", behind=True)


# --- llama-server behind proxies -------------------------------------------------------------------------


class Shared:
    """run_live's llama-server, which outlives a test."""

    def __enter__(self):
        self.port = run_live.llama_server().port
        return self

    def __exit__(self, *_):
        pass


def llama(folder, kind, http, secure):
    """The client is the witness: llama-server has no log of its tokens."""
    load, shared = LOADS["c64"], Shared()
    with shared:
        with proxy(kind, http, lambda *_: shared)(folder, secure) as server, Tracer(folder, server.port) as tracer:
            clients = stream(folder, server, http, load, ["--any"], {"ignore_eos": True, "cache_prompt": False})
            pids = server.pids()
            records = stop(tracer)
    found, problems = run_wires.by_id(records)
    problems += [] if len(records) == len(clients) else [f"{len(records)} records of {len(clients)} requests"]
    for c in clients:
        c.update(path=CHAT)
        r = found.get(c["id"])
        more = run_live.check_llama({**r, "http": "1.1", "transport": "tcp"}, c, ["usage"], ()) if r else ["no record"]
        more += wrong(r, transport=TRANSPORT[secure], http=http, peer=f"127.0.0.1:{c['local']}", path=CHAT) if r else []
        more += [f"pid {r['pid']} is not the proxy's"] if r and r["pid"] not in pids else []
        more += check_boundary(r) if r and secure else []
        problems += [f"{c['id']}: {p}" for p in more]
    judge(problems + check_crowd(records, load), tracer.err_path)


for _kind, _http in (("nginx", "1.1"), ("nginx", "2"), ("haproxy", "1.1"), ("haproxy", "2")):
    for _secure in (False, True):
        test(f"tls.llama.{_kind}{'_h2' * (_http == '2')}.{FORMS[_secure]}.c64", _kind, _http, _secure)(llama)


# --- other clients -------------------------------------------------------------------------------------


def curl(folder, server, http, load):
    """One curl, all requests at once; it says the ports, and not when it read what."""
    path, out = (os.path.join(folder, x) for x in ("curl.config", "curl.out"))
    version = "http2" if http == "2" else "http1.1"
    with open(path, "w", encoding="utf-8") as f:
        for i in range(load["requests"]):
            body = {"model": f"m-{i}", "max_tokens": load["tokens"][i], "stream": True,
                    "stream_options": {"include_usage": True}, **BODY}
            f.write(f'url = "{server.url()}"\ndata = {json.dumps(json.dumps(body))}\noutput = "{out}.{i}"\n'
                    f'write-out = "{i} %{{http_code}} %{{local_port}}\\n"\nheader = "Content-Type: application/json"\n'
                    f'insecure\n{version}\nno-buffer\n{"next" * (i < load["requests"] - 1)}\n')
    argv = ["curl", "-sSZ", "--parallel-max", str(load["concurrency"]), "-K", path]
    printed = run_wires.command(folder, "curl", argv)
    said = dict(line.split(" ", 1) for line in printed.splitlines())
    clients = []
    for i in range(load["requests"]):
        with open(f"{out}.{i}", encoding="utf-8") as f:
            events = [json.loads(x[6:]) for x in f.read().split("\n\n") if x.startswith("data: {")]
        status, port = map(int, said[str(i)].split())
        clients.append({"id": events[0]["id"], "status": status, "local": port, "model": f"m-{i}", "index": i})
    return clients


def openai(folder, server, _, load):
    """npm's client: two streams at once."""
    npm = subprocess.run(["sh", os.path.join(HERE, "clients", "npm.sh")], capture_output=True, text=True, check=False)
    if npm.returncode:
        raise Failure("npm install failed", *npm.stderr.splitlines()[-8:])
    argv = ["node", os.path.join(HERE, "clients", "openai_client.mjs"), npm.stdout.strip(),
            server.url().removesuffix("/chat/completions"), str(load["requests"]), str(load["concurrency"]),
            json.dumps({**BODY, "max_tokens": load["tokens"]})]
    with Process(folder, "openai", argv, {"NODE_TLS_REJECT_UNAUTHORIZED": "0"}) as client:
        if client.finish(120):
            raise Failure("the npm client failed", *tail(client.out_path, 3), *tail(client.err_path))
    seen = check.read_lines(client.out_path)
    for c in seen:
        if c["error"] or c["usage"]["completion_tokens"] != load["tokens"][c["index"]]:
            raise Failure(f"the npm client got {c}")
        del c["frames"]  # only how many there were
    return seen


TWO = {"requests": 3, "concurrency": 2, "tokens": (29, 13, 17)}
# Debian 12's curl breaks a connection of prior knowledge that it shares, so there is no h2 over plaintext.
for _name, _ask, _server, _load, _forms in (
        ("curl", curl, "uvloop", "c64", FORMS), ("curl_go", curl, "go", "c64", FORMS),
        ("curl_h2", curl, "hypercorn_h2", "c64", [True]), ("curl_nginx_h2", curl, "nginx_h2", "c64", [True]),
        ("openai", openai, "uvloop", TWO, FORMS), ("openai_node", openai, "node", TWO, FORMS)):
    for _secure in _forms:
        test(f"tls.client.{_name}.{FORMS[_secure]}", CASES[_server], _secure, _load, _ask)(traced)


# --- beginnings, forks, namespaces, replaced libraries ------------------------------------------------


ONE = {"requests": 1, "concurrency": 1, "tokens": (3,)}


def late(folder, case, load):
    """The server starts after the tracer, from a file that nobody has run before."""
    server = case.make(folder, True)
    tries = 0

    def found():
        """A request is whole; those that came while the probes were being set may lack something."""
        nonlocal tries
        tries += 1
        stream(folder, server, case.http[True], ONE, ["--prefix", f"warm{tries}"], name="warm")
        time.sleep(0.2)  # the tracer writes within 100 ms
        return any(r["model"] and r["model"].startswith("warm") and not r["flags"] for r in tracer.records())

    with Tracer(folder, server.port) as tracer, server:
        wait_for("a whole record", 10, found)
        since = time.monotonic_ns()
        clients = stream(folder, server, case.http[True], LOADS[load])
        witnesses = server.witnesses(LOADS[load]["requests"] + tries)
        witnesses = [w for w in witnesses if not w.model.startswith("warm")]
        records = [r for r in stop(tracer) if (r["t_end_ns"] or since) >= since]
        problems = check_run(records, witnesses, clients, server, case.http[True], case)
    judge(problems + ([] if tries <= 3 else [f"found only after {tries} requests"]), tracer.err_path)


def copied(make_program, *more):
    """A server out of a copy of its program."""
    def make(folder, secure):
        program = shutil.copy(make_program(), os.path.join(folder, "program"))
        return Server(folder, secure, lambda s: [program, str(s.port), s.log, s.pem, *more])
    return Case(make)


for _name, _case in (("uvloop", CASES["uvloop"]), ("node", CASES["node"]), ("nginx", CASES["nginx"]),
                     ("go", copied(lambda: go_program(False, False), "1.1")),
                     ("openssl", copied(lambda: c_program("openssl"), "blocking")),
                     ("gnutls", copied(lambda: c_program("gnutls"), "send"))):
    for _load in LOADS:
        test(f"tls.late.{_name}.{_load}", _case, _load)(late)


def workers(folder, case, secure):
    """Two processes serve; each is seen."""
    for attempt in range(3):  # the kernel may give all connections to one of them
        records = traced(folder, case, secure, "c64")
        if len({r["pid"] for r in records}) == 2:
            return
    raise Failure("one process had all the requests, three times")


for _name, _case in (("uvloop", Case(app("uvloop", "2"))), ("nginx", Case(proxy("nginx", workers=2), behind=True))):
    for _secure in (False, True):
        test(f"tls.workers.{_name}.{FORMS[_secure]}", _case, _secure)(workers)


class Sid(Server):
    """openssl_server in sid's folder, and so with sid's libssl, in namespaces of its own."""

    def __init__(self, folder, secure, namespaces):
        self.wrap = ["nsenter", "-n", "-t", "PID"] if "-n" in namespaces.split() else []
        sees = ":".join((scratch(), folder))
        super().__init__(folder, secure, lambda s: ["sh", os.path.join(SERVERS, "sid.sh"), "run", sees,
                                                    c_program("openssl"), str(s.port), s.log, s.pem, "blocking"],
                         env={"TKS_UNSHARE": namespaces})

    def started(self):
        self.wrap = [str(self.popen.pid) if x == "PID" else x for x in self.wrap]
        argv = [*self.wrap, "ss", "-Hltn", f"sport = :{self.port}"]
        wait_for("the server in namespaces (and its first fetch)", 900, lambda: (self.check_alive(), subprocess.run(
            argv, capture_output=True, text=True, check=False).stdout)[1])

    def __exit__(self, *_):
        self.popen.kill()  # the first process of a PID namespace takes nothing less
        super().__exit__()


for _name, _spaces in (("chroot", ""), ("all", "-p -n -u -i --fork --kill-child")):
    for _secure in (False, True):
        _case = Case(lambda folder, secure, spaces=_spaces: Sid(folder, secure, spaces))
        test(f"tls.namespaces.{_name}.{FORMS[_secure]}", _case, _secure, "c64")(traced)


def libraries(folder):
    """A folder with a copy of the libssl that openssl_server uses; LD_LIBRARY_PATH names it."""
    out = subprocess.run(["ldd", c_program("openssl")], capture_output=True, text=True, check=True).stdout
    path = next(line.split()[2] for line in out.splitlines() if "libssl" in line)
    os.makedirs(os.path.join(folder, "lib"), exist_ok=True)
    return shutil.copy(path, os.path.join(folder, "lib"))


def replace_library(path, server):
    """A new file under the name, as an upgrade does it; the server has the old one."""
    os.rename(shutil.copy(path, f"{path}.new"), path)
    with open(f"/proc/{server.popen.pid}/maps", encoding="utf-8") as f:
        if f"{path} (deleted)" not in f.read():
            raise Failure("the server does not run on the library that was replaced")


def replaced(folder, before):
    """libssl is replaced while a server runs, before the trace begins or in it; then one starts on the new file."""
    path, load, clients, witnesses = libraries(folder), LOADS["c1"], [], []

    def make(name):
        return Server(folder, True, lambda s: [c_program("openssl"), str(s.port), s.log, s.pem, "blocking"], name,
                      {"LD_LIBRARY_PATH": os.path.dirname(path)})

    def ask(server, prefix):
        clients.extend(stream(folder, server, "1.1", load, ["--prefix", prefix], name=prefix))

    old, new = make("old"), make("new")
    new.port = old.port
    new.argv[1] = str(old.port)
    with contextlib.ExitStack() as stack:
        tracer = Tracer(folder, old.port)
        with old:
            if before:
                replace_library(path, old)
            stack.enter_context(tracer)
            ask(old, "first")
            if not before:
                replace_library(path, old)
            ask(old, "second")
            witnesses, pids = old.witnesses(2 * load["requests"]), old.pids()
        with new:
            ask(new, "third")
            witnesses, pids = witnesses + new.witnesses(load["requests"]), pids | new.pids()
        problems = check_run(stop(tracer), witnesses, clients, old, "1.1", CASES["openssl_blocking"], pids)
    judge(problems, tracer.err_path)


test("tls.replaced.before", True)(replaced)
test("tls.replaced.during", False)(replaced)


# --- blind ---------------------------------------------------------------------------------------------


def check_blind(r, w):
    """A record of what nobody can read: when its frames left, and that this is all that is known."""
    problems = wrong(r, dialect="unknown", transport="tls", boundary="send", tokens=None, token_frames=0, ttft_ns=None,
                     tpot_ns=None, model=None, path=None, peer=f"127.0.0.1:{w.peer}",
                     flags=["blind", "estimated"])
    gaps, n = r.get("itl") or {}, len(w.arrivals)
    # The head, the role, the tokens, the finish, the usage and the end: each a write, so a record.
    if not n + 2 <= r["frames"] <= n + 8:
        problems.append(f"{r['frames']} frames, the server wrote {n} tokens")
    span = w.arrivals[-1].before - w.arrivals[0].before
    if not gaps or not 0.9 * span <= gaps["mean_ns"] * gaps["n"] <= 1.2 * span + 200_000_000:
        problems.append(f"gaps {gaps}, the server's tokens spread over {span} ns")
    return problems


@test("tls.blind")
def blind(folder):
    """TLS that nobody can read is said within about a second, and timed by its records."""
    load = {"requests": 3, "concurrency": 1, "tokens": (40, 40, 40)}
    with Server(folder, True, lambda s: [static_program(), str(s.port), s.log, s.pem, "blocking"]) as server:
        with Tracer(folder, server.port) as tracer:
            began = time.monotonic()
            with Client(folder, server, "1.1", load) as client:
                wait_for("that it is blind", EXIT_S, lambda: any("blind to TLS of" in x for x in tail(tracer.err_path)))
                noticed = time.monotonic() - began
                client.logs()
            witnesses = server.witnesses(3)
            records = sorted(stop(tracer), key=lambda r: r["t_request_ns"])
        text = "\n".join(tail(tracer.err_path, 200))
        problems = [] if f"[{server.popen.pid}] at 127.0.0.1:{server.port}: " in text else ["not whose TLS it is"]
        problems += [] if noticed < 4 else [f"noticed after {noticed:.1f} s"]
        problems += [] if len(records) == 3 else [f"{len(records)} records of 3 requests"]
        for r, w in zip(records, witnesses):
            problems += [f"{w.id}: {p}" for p in check_blind(r, w)]
        judge(problems, tracer.err_path)


# --- slow clients, much else going on, a tracer that is killed -------------------------------------------


def slow(folder, secure):
    """The socket is full: a token's bytes leave in several sends, and SSL_write is called again for what is left."""
    load = {"requests": 8, "concurrency": 8, "tokens": (29, 13, 7, 1, 17, 11, 3, 23)}
    case = CASES["openssl_retry"]
    with case.make(folder, secure) as server, Tracer(folder, server.port) as tracer:
        clients = stream(folder, server, "1.1", load, ["--slow", "20"], {"pad": 8000, "gap_ms": 5})
        witnesses = server.witnesses(8)
        waited = [w.id for w in witnesses if any(a.width > 10_000_000 for a in w.arrivals)]
        problems = check_run(stop(tracer), witnesses, clients, server, "1.1", case, wide=True)
    problems += [] if waited else ["no send waited for the client"]
    judge(problems, tracer.err_path)


test("tls.slow.plain", False)(slow)
test("tls.slow.tls", True)(slow)


# Attaching and detaching holds up each fork of the machine for a while: what is asked for leaves room for that.
STORM = {"rate": 220, "seconds": 10, "least": 200}


def held_now(tracer):
    """How many descriptors the tracer has, and how many of them are links."""
    links = sum(kind == "link" for kind, _ in check.held_by(tracer.popen.pid))
    return len(os.listdir(f"/proc/{tracer.popen.pid}/fd")), links


def probes_in(strace_log):
    """Probes that were put: multi-uprobe links (BPF_LINK_CREATE is 28, BPF_TRACE_UPROBE_MULTI 48), or perf events."""
    with open(strace_log) as f:
        return len(re.findall(r"bpf\((?:28|0x1c)\b.*attach_type=(?:48|0x30)\b|perf_event_open\(", f.read()))


def check_storm(others):
    """At least 200 processes a second, each of which had libssl and came to its end."""
    count, good, took_ms = map(int, tail(others.out_path)[-1].split())
    want = STORM["rate"] * STORM["seconds"]
    most_ms = want * 1000 // STORM["least"]
    if count == good == want and took_ms <= most_ms:
        return []
    return [f"{count} processes in {took_ms} ms, {good} of which ended well; {want} in {most_ms} ms were wanted"]


@test("tls.crowd")
def crowd(folder):
    """200 short-lived processes a second that map libssl, and in their midst a server from files nobody has run."""
    load, port, attached = LOADS["c1"], free_port(), os.path.join(folder, "attached")
    env = {"LD_LIBRARY_PATH": os.path.dirname(libraries(folder))}
    late_server = Server(folder, True, lambda s: [c_program("openssl"), str(s.port), s.log, s.pem, "blocking"], env=env)
    # Tells what is attached. -D: the process that is started is the tracer, not strace.
    strace = ["strace", "-D", "-f", "--seccomp-bpf", "-X", "raw", "-e", "trace=bpf,perf_event_open", "-o", attached]
    first = Server(folder, True, lambda s: [c_program("openssl"), str(port), f"{s.log}.first", s.pem, "blocking"], "first")
    first.port = port
    with first, Tracer(folder, late_server.port, wrap=strace) as tracer:
        subprocess.run([c_program("storm")], check=True)
        before, attaches = held_now(tracer), probes_in(attached)
        argv = [c_program("storm"), str(STORM["rate"]), str(STORM["seconds"]), c_program("storm")]
        with Process(folder, "storm", argv) as others:
            time.sleep(1)
            with late_server:
                clients = stream(folder, late_server, "1.1", load)
                witnesses, pids = late_server.witnesses(load["requests"]), late_server.pids()
                if others.popen.poll() is not None:
                    raise Failure("the storm was over before the server had answered")
                others.finish(EXIT_S)
                during, attaches = held_now(tracer), probes_in(attached) - attaches
        wait_for(f"no more held than {before}", 30, lambda: all(n <= m for n, m in zip(held_now(tracer), before)))
        problems = check_run(stop(tracer), witnesses, clients, late_server, "1.1", CASES["openssl_blocking"], pids, True)
    said = "\n".join(tail(tracer.err_path, 200) + tail(tracer.out_path, 200))
    problems += [] if re.search(r"^drops +none$", said, re.M) else ["the summary doesn't say that nothing was lost"]
    # The one new file of TLS: the server's libssl.
    new = during[1] - before[1]
    problems += [] if 0 < new == attaches else [f"{attaches} probes were attached, {new} of which were of use"]
    judge(problems + check_storm(others), tracer.err_path)


@test("tls.few_descriptors")
def few_descriptors(folder):
    """Each probe is a descriptor; the tracer asks for as many as it may have."""
    case, load = CASES["openssl_blocking"], LOADS["c1"]
    limited = ["sh", "-c", 'ulimit -Sn 40; exec "$@"', "sh"]
    with case.make(folder, True) as server, Tracer(folder, server.port, wrap=limited) as tracer:
        clients = stream(folder, server, "1.1", load)
        problems = [] if len(os.listdir(f"/proc/{tracer.popen.pid}/fd")) > 40 else ["40 descriptors were enough: the test shows nothing"]
        problems += check_run(stop(tracer), server.witnesses(load["requests"]), clients, server, "1.1", case)
    judge(problems, tracer.err_path)


def uprobes_left():
    path = "/sys/kernel/tracing/uprobe_events"
    with open(path, encoding="utf-8") as f:
        return [f"{path}: {line.strip()}" for line in f]


@test("tls.killed")
def killed(folder):
    """SIGKILL for the tracer in the middle of streams: these are whole, and nothing stays in the kernel."""
    load = {"requests": 8, "concurrency": 8, "tokens": (73, 71, 67, 61, 59, 53, 47, 43)}
    server = CASES["uvloop"].make(folder, True)
    with server, Tracer(folder, server.port) as tracer, Client(folder, server, "1.1", load) as client:
        wait_for("a token", EXIT_S, lambda: client.line(client.out_path, "under way"))
        held = check.held_by(tracer.popen.pid)
        kinds = {check.bpf_objects("prog").get(number, {}).get("type") for kind, number in held if kind == "prog"}
        tracer.popen.kill()
        tracer.finish(EXIT_S)
        problems = check.leftovers(held) + uprobes_left()
        clients = client.logs()  # fails unless each is whole
    problems += [] if "kprobe" in kinds else [f"the tracer had no uprobe, only programs of {sorted(map(str, kinds))}"]
    judge(problems + [f"{c['id']}: {c['outcome']}" for c in clients if c["outcome"] != "done"])


def main(argv):
    try:
        return run_live.main(argv)
    finally:
        if "folder" in SCRATCH:
            SCRATCH["folder"].cleanup()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
