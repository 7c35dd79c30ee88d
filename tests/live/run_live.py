#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The live tests, as TAP: real servers and clients, the tracer beside them, and independent witnesses.

usage: run_live.py [--list] [--keep DIR] [PATTERN...]     patterns of test names; all without one

Needs root, build/tokensnoop and build/tests/truth_server (make all test-bins); TKS_TOOL names another binary.
"""
import argparse
import fnmatch
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback

import check
import strace
from check import Expect
from rig import (EXIT_S, HERE, TOP, TOOL, TRUTH, Failure, Llama, Load, Process, Skip, Stream, Tracer, TruthServer, Uvicorn,
                 free_port, tail, wait_for)

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
# Primes, so that no wrong factor goes unseen; c32 has more requests than it has in flight.
LOADS = {"c1": {"requests": 5, "concurrency": 1, "tokens": (29, 13, 7, 1, 2)},
         "c32": {"requests": 37, "concurrency": 32, "tokens": (29, 13, 7, 1, 2)}}
TESTS = []


def test(name, *args):
    """Registers a function of (folder, *args) as the test `name`."""
    def register(function):
        TESTS.append((name, lambda folder: function(folder, *args)))
        return function
    return register


def judge(problems, *paths):
    if problems:
        more = [f"... and {len(problems) - 12} more"] if len(problems) > 12 else []
        raise Failure(*problems[:12], *more, *(line for p in paths for line in tail(p, 8)))


def check_server(records, server, concurrency):
    """What every record of a run must say of the server, and of how many requests there were at once."""
    problems = []
    for r in records:
        if r.get("pid") != server.popen.pid:
            problems.append(f"pid {r.get('pid')}, the server is {server.popen.pid}")
        if r.get("local") != f"127.0.0.1:{server.port}":
            problems.append(f"local {r.get('local')}, the server listens on port {server.port}")
        c = r.get("concurrency") or {}
        instant = r.get("t_first_ns") == r.get("t_last_ns")  # no window to take a mean over
        mean, most = (1 if instant and c.get(name, 0) is None else c.get(name) or 0 for name in ("mean", "max"))
        if not 1 <= mean <= most <= concurrency:
            problems.append(f"concurrency {c} with {concurrency} in flight")
    if concurrency > 1 and not any(((r.get("concurrency") or {}).get("max") or 0) > concurrency // 2 for r in records):
        problems.append(f"no concurrency above {concurrency // 2} with {concurrency} in flight")
    if len({r.get("id") for r in records}) != len(records):
        problems.append("ids are not unique")
    return problems


def traced(folder, server, expect, path, load, body, more=()):
    """Traces one load on a running server and checks everything; returns the records."""
    with Tracer(folder, server.port) as tracer:
        with Load(folder, server.port, path, body=body, more=more, **load) as client:
            clients = client.log()
        witnesses = server.witnesses(load["requests"])
        records = tracer.stop()
    if any(w.outcome == "unsupported" for w in witnesses):
        raise Skip("this kernel refuses that way of sending")
    problems = check.check_run(records, witnesses, expect, clients)
    judge(problems + check_server(records, server, load["concurrency"]), tracer.err_path)
    return records


# --- the truth server: every way of sending -----------------------------------------------------------

# What a mode changes in the load: fewer tokens where each is many sends or many bytes.
FEW = (7, 3, 1, 5, 2)
MODES = {
    "write": {}, "writev": {"iovs": 8}, "writev1024": {"send_mode": "writev", "iovs": 1024, "pad": 3000},
    "sendmsg": {"iovs": 33}, "sendto": {}, "sendmmsg": {}, "split1": {}, "coalesce": {"coalesce": 4},
    "partial": {"gap_us": 50000}, "sendfile": {}, "splice": {}, "zerocopy": {"pad": 3000}, "iouring": {},
}


def truth_expect(mode):
    def expect(w):
        flags = ["coalesced"] if mode == "coalesce" and len(w.arrivals) > 1 else []
        return Expect("openai.chat", ["usage"], "text", flags, finish="length")
    return expect


def truth_body(mode):
    return {"send_mode": mode, "gap_us": 5000, "prefill_us": 10000, **MODES[mode]}


def truth_mode(folder, mode, load):
    load = dict(LOADS[load], **({"tokens": FEW} if mode in ("split1", "partial") else {}))
    with TruthServer(folder) as server:
        traced(folder, server, truth_expect(mode), CHAT, load, truth_body(mode))


def check_unread(r):
    """A request whose answer could not be read: flagged, and no figure that needs what is missing."""
    figures = ("tokens", "tpot_ns", "itl", "ttft_ns")
    problems = [f"{n} {r[n]} of an answer that was not read" for n in figures if r.get(n) is not None]
    return problems if "lost" in r.get("flags", []) else problems + ["neither read nor flagged as lost"]


def truth_pages(folder, mode, load):
    """sendfile and splice hand over pages, which not every hook can read: right, or flagged on each request."""
    load = LOADS[load]
    with TruthServer(folder) as server:
        with Tracer(folder, server.port) as tracer:
            with Load(folder, server.port, CHAT, body=truth_body(mode), **load) as client:
                clients = client.log()
            witnesses = server.witnesses(load["requests"])
            records = tracer.stop()
    problems = check.check_run(records, witnesses, truth_expect(mode), clients)
    if problems and any("lost" in r.get("flags", []) for r in records):
        problems = [f"{len(records)} records of {len(witnesses)} requests"] if len(records) != len(witnesses) else []
        problems += [p for r in records for p in check_unread(r)]
    judge(problems, tracer.err_path)


for _mode in MODES:
    for _load in LOADS:
        test(f"truth.{_mode}.{_load}", _mode, _load)(truth_pages if _mode in ("sendfile", "splice") else truth_mode)


@test("truth.completions.c32")
def truth_completions(folder):
    with TruthServer(folder) as server:
        expect = Expect("openai.completions", ["usage"], "text", finish="length")
        traced(folder, server, expect, COMPLETIONS, LOADS["c32"], {"gap_us": 5000})


@test("truth.eos.c32")
def truth_eos(folder):
    """The end-of-sequence token has no text: the finish frame is its arrival."""
    with TruthServer(folder) as server:
        expect = Expect("openai.chat", ["usage"], "finish", finish="stop")
        traced(folder, server, expect, CHAT, LOADS["c32"], {"eos": 1, "gap_us": 5000})


@test("truth.close.c32")
def truth_close(folder):
    """A connection a request."""
    with TruthServer(folder) as server:
        expect = Expect("openai.chat", ["usage"], "text", finish="length")
        traced(folder, server, expect, CHAT, LOADS["c32"], {"gap_us": 5000}, ["--no-keep-alive"])


@test("truth.dense.c32")
def truth_dense(folder):
    """Tokens as fast as they go out: 40000 frames, none lost."""
    load = {"requests": 37, "concurrency": 32, "tokens": (1009, 1151)}
    with TruthServer(folder) as server:
        expect = Expect("openai.chat", ["usage"], "text", finish="length")
        traced(folder, server, expect, CHAT, load, {"gap_us": 2000, "prefill_us": 2000})


@test("truth.after_bulk")
def after_bulk(folder):
    """Of a large file only the heads are captured; of the prompt and the answer that follow on the connection, all."""
    port, models = free_port(), [f"model-{i}" for i in range(3)]
    server = Process(folder, "bulk", ["node", os.path.join(HERE, "servers", "bulk.js"), str(port)])
    with server, Tracer(folder, port) as tracer:
        wait_for("the server", EXIT_S, lambda: server.line(server.out_path, "ready"))
        connection = http.client.HTTPConnection("127.0.0.1", port)
        for i, model in enumerate(models):
            connection.request("GET", "/file")
            size = len(connection.getresponse().read())
            time.sleep(0.2 * i)  # the verdict comes before the next request, or after it
            body = {"model": model, "stream": True, "max_tokens": 77, "messages": [{"role": "user", "content": "y" * 30000}]}
            connection.request("POST", CHAT, json.dumps(body))
            text = connection.getresponse().read()
            if size != 8 << 20 or text.count(b"xxx\"") != 5:
                raise Failure(f"the client got {size} bytes and {text.count(b'xxx')} tokens")
        connection.close()
        records = tracer.stop()
    got = [{k: r.get(k) for k in ("model", "max_tokens", "token_frames", "finish", "flags")} for r in records]
    want = [{"model": m, "max_tokens": 77, "token_frames": 5, "finish": "stop", "flags": ["estimated"]} for m in models]
    judge([] if got == want else [f"{g}, not {w}" for g, w in zip(got, want) if g != w] or [f"{len(got)} records"],
          tracer.err_path)


@test("truth.whole.c1")
def truth_whole(folder):
    """An answer in one piece has a count, and no token times."""
    with TruthServer(folder) as server, Tracer(folder, server.port) as tracer:
        with Load(folder, server.port, CHAT, requests=3, tokens=(13,), body={"stream": False}) as client:
            client.log()
        records = tracer.stop()
    problems = [] if len(records) == 3 else [f"{len(records)} records of 3 requests"]
    for r in records:
        want = {"streamed": False, "tokens": 13, "ttft_ns": None, "tpot_ns": None, "itl": None, "status": 200}
        problems += [f"{k} {r.get(k)}, not {v}" for k, v in want.items() if r.get(k) != v]
        if not (r.get("e2e_ns") or 0) > 4_000_000:
            problems.append(f"e2e_ns {r.get('e2e_ns')}")
    judge(problems)


# --- uvicorn: vLLM's and SGLang's shapes ---------------------------------------------------------------

SLOW = {"gap_ms": 25, "prefill_ms": 40}
IDS = {"return_token_ids": True}
CONTINUOUS = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
NO_USAGE = {"stream_options": {}}


def uvicorn_expect(shape, chat, **more):
    expect = {"dialect": "openai.chat" if chat else "openai.completions", "sources": ["usage"], "finish": "length",
              "last": "text" if shape == "sglang" else None, **more}
    return Expect(**expect)


def uvicorn_load(folder, stack, shape, path, load, body, more):
    def expect(w):
        e = uvicorn_expect(shape, path == CHAT, **more)
        if len(w.arrivals) < 2 and "per_frame" in e.sources:
            e.sources.add("usage")  # a counter that was seen once is not told from a total
        return e

    load = LOADS[load]
    if body.get("eos"):  # an answer of nothing but the end of sequence has no token frame in SGLang's shape
        load = {**load, "tokens": (29, 13, 7, 3, 2)}
    with Uvicorn(folder, stack) as server:
        traced(folder, server, expect, f"/{shape}{path}", load, {**SLOW, **body})


for _stack in ("uvloop", "asyncio"):
    for _shape in ("vllm", "sglang"):
        for _load in LOADS:
            test(f"{_stack}.{_shape}.chat.{_load}", _stack, _shape, CHAT, _load, {}, {})(uvicorn_load)
        test(f"{_stack}.{_shape}.completions.c32", _stack, _shape, COMPLETIONS, "c32", {}, {})(uvicorn_load)

EOS = {"eos": True}
for _name, _shape, _path, _body, _more in (
        ("vllm.eos", "vllm", CHAT, EOS, {"last": "finish", "finish": "stop"}),
        ("sglang.eos", "sglang", CHAT, EOS, {"last": "finish", "finish": "stop"}),
        ("vllm.ids", "vllm", CHAT, {**IDS, **EOS}, {"sources": ["per_frame"], "finish": "stop"}),
        ("vllm.ids_completions", "vllm", COMPLETIONS, {**IDS, **NO_USAGE}, {"sources": ["per_frame"]}),
        ("vllm.logprobs", "vllm", CHAT, {"logprobs": True}, {"sources": ["per_frame"]}),
        ("vllm.continuous", "vllm", CHAT, CONTINUOUS, {"sources": ["per_frame"]}),
        ("vllm.reasoning", "vllm", CHAT, {"reasoning": 5}, {}),
        ("sglang.reasoning", "sglang", CHAT, {"reasoning": 5}, {}),
        ("vllm.no_usage", "vllm", CHAT, NO_USAGE, {"sources": ["frames"], "flags": ["estimated"]}),
        ("sglang.no_usage", "sglang", CHAT, NO_USAGE, {"sources": ["frames"], "flags": ["estimated"]}),
        ("vllm.abort", "vllm", CHAT, {"fault": "abort"}, {"finish": "abort"})):
    test(f"uvloop.{_name}.c1", "uvloop", _shape, _path, "c1", _body, _more)(uvicorn_load)


@test("uvloop.vllm.n3.c1")
def vllm_n3(folder):
    """Three choices: tokens of all, TPOT of none but each choice's own."""
    with Uvicorn(folder, "uvloop") as server:
        expect = uvicorn_expect("vllm", True, finish=None, may=["coalesced"])
        load = {"requests": 3, "concurrency": 1, "tokens": (13, 7, 2)}
        records = traced(folder, server, expect, f"/vllm{CHAT}", load, {**SLOW, "n": 3})
        witnesses = server.witnesses(3)
    problems = []
    for r, w in zip(records, witnesses):
        choices = r.get("choices") or []
        if r.get("tpot_ns") is not None or [c.get("index") for c in choices] != [0, 1, 2]:
            problems.append(f"tpot_ns {r.get('tpot_ns')}, choices {[c.get('index') for c in choices]}")
        problems += [f"choice {c['index']}: itl {c.get('itl')}" for c in choices
                     if (c.get("itl") or {}).get("n") != w.usage // 3 - 1]
        problems += [f"choice {c['index']}: {c.get('token_frames')} token frames, finish {c.get('finish')}"
                     for c in choices
                     if c.get("token_frames") != w.usage // 3 or c.get("finish") != "length"]
    judge(problems)


@test("uvloop.strace.c1")
def uvloop_strace(folder):
    """strace as a second witness: each token time lies in the system call that carried the frame."""
    log = os.path.join(folder, "strace.log")
    with Uvicorn(folder, "uvloop", strace.command(log)) as server:
        offset = strace.clock_offset()
        with Tracer(folder, server.port) as tracer:
            with Load(folder, server.port, f"/vllm{CHAT}", requests=3, tokens=(29, 13, 7), body=SLOW) as client:
                client.log()
            server.witnesses(3)
            records = tracer.stop()
    calls = strace.read(log)
    judge(strace.compare(records, calls, offset), tracer.err_path)


# --- llama.cpp -------------------------------------------------------------------------------------


LLAMA = {}
# llama-server announces keep-alive, but closes the connection after each streamed answer.
ONCE = ("--no-keep-alive",)


def llama_server():
    """One server for all of its tests; main() ends it."""
    if "server" not in LLAMA:
        folder = tempfile.TemporaryDirectory(prefix="tks-llama-")
        server = Llama(folder.name)
        server.__enter__()
        LLAMA.update(server=server, folder=folder)
    LLAMA["server"].check_alive()
    return LLAMA["server"]


def llama_stop():
    if LLAMA:
        LLAMA["server"].__exit__()
        LLAMA["folder"].cleanup()


def llama_total(client):
    """The server's own count, by the usage frame or by the timings."""
    return (client["usage"] or {}).get("completion_tokens") or (client["timings"] or {}).get("predicted_n")


def check_llama(r, c, sources, may):
    """A record against what the client was sent, and read, and against the server's own timings."""
    expect = Expect("openai.chat" if c["path"] == CHAT else "openai.completions", sources, None, (),
                    {"coalesced", "multi_token_frames", *may}, finish=c["finish"])
    problems = check.check_identity(r, expect) + check.check_flags(r, expect)
    if r.get("tokens") != llama_total(c):
        problems.append(f"tokens {r.get('tokens')}, the server says {llama_total(c)}")
    if r.get("tokens_source") not in expect.sources:
        problems.append(f"tokens_source {r.get('tokens_source')}, not {sorted(expect.sources)}")
    problems += check.check_client(r, c)
    read = [t for t, kind in c["frames"] if kind == "token"]
    if len(read) != len(r.get("tokens_at_ns") or []) and "per_frame" not in sources:
        problems.append(f"{len(r.get('tokens_at_ns') or [])} token times, the client got {len(read)} frames with text")
    return problems


def llama_rate(r, c):
    """How far TPOT is from that of the nearer witness, client or server, as a share; None: too few tokens to say."""
    read = [t for t, kind in c["frames"] if kind == "token"]
    if len(read) < 100 or r.get("t_last_source") != "text" or not r.get("tpot_ns"):
        return None
    witnesses = [(read[-1] - read[0]) / (r["tokens"] - 1)]
    if (c["timings"] or {}).get("predicted_per_token_ms"):
        witnesses.append(c["timings"]["predicted_per_token_ms"] * 1e6)
    return min(abs(r["tpot_ns"] - tpot) / tpot for tpot in witnesses)


def check_llama_rates(pairs):
    """Neither witness stands at the send: a busy host delays the one's reading and the other's decoding. So each
    request must be near to one of them, and most must be within 1 %."""
    off = [o for o in (llama_rate(r, c) for r, c in pairs) if o is not None]
    problems = [f"TPOT is {o:.1%} from both witnesses'" for o in off if o > 10 * check.RATE]
    if sum(o <= check.RATE for o in off) < check.STRICT_SHARE * len(off):
        problems.append(f"most TPOTs are more than {check.RATE:.0%} off: {', '.join(f'{o:.2%}' for o in off)}")
    return problems


def llama_load(folder, path, load, body, sources, may=()):
    server = llama_server()
    body = {"temperature": 1.0, "seed": 7, "cache_prompt": False, **body}
    with Tracer(folder, server.port) as tracer:
        with Load(folder, server.port, path, body=body, more=ONCE, **load) as client:
            clients = client.log()
        records = tracer.stop()
    by_key, problems = {}, []
    for r in records:
        port = check.peer_port(r)
        by_key[port, sum(k[0] == port for k in by_key)] = r
    if len(records) != load["requests"]:
        problems.append(f"{len(records)} records of {load['requests']} requests")
    for key, c in clients.items():
        c["path"] = path
        found = check_llama(by_key[key], c, sources, may) if key in by_key else ["no record"]
        problems += [f"request {key[1]} of port {key[0]}: {p}" for p in found]
    if load["concurrency"] == 1:
        problems += check_llama_rates([(by_key[k], c) for k, c in clients.items() if k in by_key])
    judge(problems, tracer.err_path)


FORCED = {"ignore_eos": True}
for _name, _path, _load, _body, _sources, _may in (
        ("chat.long.c1", CHAT, {"requests": 3, "concurrency": 1, "tokens": (401, 293, 211)}, FORCED, ["usage"], ()),
        ("chat.short.c1", CHAT, {"requests": 7, "concurrency": 1, "tokens": (1, 2, 3, 5)}, FORCED, ["usage"], ()),
        ("chat.mixed.c32", CHAT, {"requests": 37, "concurrency": 32, "tokens": (29, 1, 97, 13)}, FORCED, ["usage"], ()),
        ("chat.natural.c1", CHAT, {"requests": 5, "concurrency": 1, "tokens": (997,)},
         {"logit_bias": [[2, 2.0]]}, ["usage"], ()),
        ("completions.long.c1", COMPLETIONS, {"requests": 3, "concurrency": 1, "tokens": (401, 211)}, FORCED,
         ["usage"], ()),
        ("completions.mixed.c32", COMPLETIONS, {"requests": 37, "concurrency": 32, "tokens": (29, 1, 97, 13)}, FORCED,
         ["usage"], ()),
        ("chat.no_usage.c1", CHAT, {"requests": 3, "concurrency": 1, "tokens": (29, 13)}, {**FORCED, **NO_USAGE},
         ["usage", "frames"], ("estimated",)),
        ("chat.timings.c1", CHAT, {"requests": 3, "concurrency": 1, "tokens": (97, 29)},
         {**FORCED, "timings_per_token": True}, ["per_frame", "usage"], ("count_mismatch",))):
    test(f"llama.{_name}", _path, _load, _body, _sources, _may)(llama_load)


# --- other clients ---------------------------------------------------------------------------------


def node_client(folder, port, path, count, concurrency, body):
    """Runs the npm client; returns what it printed by response id."""
    npm = subprocess.run(["sh", os.path.join(HERE, "clients", "npm.sh")], capture_output=True, text=True, check=False)
    if npm.returncode:
        raise Failure("npm install failed", *npm.stderr.splitlines()[-8:])
    argv = ["node", os.path.join(HERE, "clients", "openai_client.mjs"), npm.stdout.strip(),
            f"http://127.0.0.1:{port}{path}", str(count), str(concurrency), json.dumps(body)]
    with Process(folder, "node", argv) as client:
        if client.finish(120):
            raise Failure("the npm client failed", *tail(client.out_path, 3), *tail(client.err_path))
    return {o["id"]: o for o in check.read_lines(client.out_path)}


def check_ids(records, seen):
    problems = [] if len(records) == len(seen) else [f"{len(records)} records of {len(seen)} requests"]
    for r in records:
        c = seen.get(r.get("response_id"))
        if not c:
            problems.append(f"nobody got {r.get('response_id')}")
            continue
        if r.get("tokens") != c["usage"]["completion_tokens"] or r.get("finish") != c["finish"]:
            problems.append(f"{c['id']}: {r.get('tokens')} tokens, finish {r.get('finish')}; the client got {c}")
    return problems


def npm_client(folder, stack, concurrency, count):
    with Uvicorn(folder, stack) as server:
        with Tracer(folder, server.port) as tracer:
            body = {"max_tokens": [29, 13, 7, 1], **SLOW}
            seen = node_client(folder, server.port, "/vllm/v1", count, concurrency, body)
            witnesses = server.witnesses(count)
            records = tracer.stop()
    judge(check.check_run(records, witnesses, uvicorn_expect("vllm", True)) + check_ids(records, seen))


test("client.openai.uvloop.c1", "uvloop", 1, 3)(npm_client)
test("client.openai.uvloop.c32", "uvloop", 32, 37)(npm_client)


@test("client.openai.llama.c3")
def npm_llama(folder):
    server = llama_server()
    with Tracer(folder, server.port) as tracer:
        seen = node_client(folder, server.port, "/v1", 3, 3, {"max_tokens": [29, 13, 7], "ignore_eos": True})
        records = tracer.stop()
    judge(check_ids(records, seen))


@test("client.curl.c1")
def curl_client(folder):
    """curl asks "Expect: 100-continue" for a large body; the interim answer is no answer."""
    prompt = os.path.join(folder, "body.json")
    with open(prompt, "w", encoding="utf-8") as f:
        json.dump({"stream": True, "max_tokens": 13,
                   "messages": [{"role": "user", "content": "long " * 50_000}]}, f)
    with TruthServer(folder) as server, Tracer(folder, server.port) as tracer:
        argv = ["curl", "-sSN", "-H", "Expect: 100-continue", "-H", "Content-Type: application/json",
                "--data-binary", f"@{prompt}", f"http://127.0.0.1:{server.port}{CHAT}"]
        with Process(folder, "curl", argv) as curl:
            if curl.finish(60):
                raise Failure("curl failed", *tail(curl.err_path))
        witnesses = server.witnesses(1)
        records = tracer.stop()
    judge(check.check_run(records, witnesses, Expect("openai.chat", ["usage"], "text", finish="length")))


# --- beginnings and ends ---------------------------------------------------------------------------

LONG_STREAM = {"max_tokens": 1500, "gap_us": 5000, "prefill_us": 1000}


def only(records, what, condition):
    found = [r for r in records if condition(r)]
    if len(found) != 1:
        raise Failure(f"{len(found)} records of {what}, not 1: {[(r.get('flags'), r.get('finish')) for r in records]}")
    return found[0]


@test("start.mid_stream")
def mid_stream(folder):
    """Started in the middle of a stream: flagged; the next request on the connection is whole."""
    with TruthServer(folder) as server:
        stream = Stream(server.port, LONG_STREAM).send()
        stream.wait_frames(20)
        with Tracer(folder, server.port) as tracer:
            if stream.ended:
                raise Failure("the stream was over before the tracer was ready")
            stream.wait_end()
            stream.send({"max_tokens": 13, "gap_us": 5000}).wait_end()
            stream.close()
            witnesses = server.witnesses(2)
            records = tracer.stop()
    begun = only(records, "the stream under way", lambda r: "mid_stream" in r["flags"])
    problems = [f"{n} {begun[n]} of a stream whose beginning was not seen" for n in ("ttft_ns", "tpot_ns", "e2e_ns")
                if begun.get(n) is not None]
    if begun.get("tokens") not in (None, 1500) and begun.get("tokens_source") == "usage":
        problems.append(f"tokens {begun['tokens']} by usage, the server says 1500")
    whole = [r for r in records if r is not begun]
    after = witnesses[1]
    after.nr = 0
    judge(problems + check.check_run(whole, [after], Expect("openai.chat", ["usage"], "text", finish="length")))


@test("start.mid_stream.uvloop")
def mid_stream_uvloop(folder):
    """The same on uvicorn, with 7 streams at once."""
    with Uvicorn(folder, "uvloop") as server:
        body = {"max_tokens": 800, "gap_ms": 10, "prefill_ms": 1, "messages": []}
        streams = [Stream(server.port, body, f"/vllm{CHAT}").send() for _ in range(7)]
        for s in streams:
            s.wait_frames(5)
        with Tracer(folder, server.port) as tracer:
            for s in streams:
                s.wait_end()
            for s in streams:
                s.send({**body, "max_tokens": 13}).wait_end()
                s.close()
            witnesses = server.witnesses(14)
            records = tracer.stop()
    begun = [r for r in records if "mid_stream" in r["flags"]]
    whole = [r for r in records if "mid_stream" not in r["flags"]]
    problems = [] if len(begun) == 7 else [f"{len(begun)} records flagged mid_stream, not 7"]
    later = [w for w in witnesses if w.nr == 1]
    for w in later:
        w.nr = 0
    judge(problems + check.check_run(whole, later, uvicorn_expect("vllm", True)))


def ended_by(folder, sig):
    """A signal in the middle of a stream: the finished request and the open one are both written."""
    with TruthServer(folder) as server, Tracer(folder, server.port) as tracer:
        stream = Stream(server.port, LONG_STREAM)
        stream.send({"max_tokens": 7, "gap_us": 2000}).wait_end()
        stream.send().wait_frames(20)
        records = tracer.stop(sig)
        stream.close()
    done = only(records, "the finished request", lambda r: r["finish"] == "length")
    still = only(records, "the open request", lambda r: r["finish"] == "open")
    problems = [] if done.get("tokens") == 7 else [f"tokens {done.get('tokens')}, not 7"]
    if not 5 <= (still.get("token_frames") or 0) < 1500:
        problems.append(f"the open request has {still.get('token_frames')} token frames")
    judge(problems)


test("end.sigint", signal.SIGINT)(ended_by)
test("end.sigterm", signal.SIGTERM)(ended_by)


@test("end.sigkill")
def sigkill(folder):
    """Even killed it leaves nothing in the kernel."""
    with TruthServer(folder) as server, Tracer(folder, server.port) as tracer:
        tracer.popen.kill()
        tracer.finish(10)
        judge(check.leftovers(tracer.held))


@test("end.closed_pipe")
def closed_pipe(folder):
    """The reader of its output leaves: it ends by itself, by no signal, and leaves nothing."""
    read, write = os.pipe()
    try:
        with TruthServer(folder) as server:
            with Tracer(folder, server.port, ["--format", "jsonl", "-o", "-"], stdout=write) as tracer:
                os.close(read)
                os.close(write)
                read = write = -1
                with Load(folder, server.port, CHAT, requests=3, tokens=(3,)) as client:
                    client.log()
                status = tracer.finish(20)
                problems = [] if status in (0, 1) else [f"exit status {status}"]
                judge(problems + check.leftovers(tracer.held), tracer.err_path)
    finally:
        for fd in (read, write):
            if fd >= 0:
                os.close(fd)


@test("end.duration")
def duration(folder):
    """-d ends it."""
    with TruthServer(folder) as server:
        args = ["-d", "2", "--format", "jsonl", "--tokens", "-o", os.path.join(folder, "records.jsonl")]
        with Tracer(folder, server.port, args) as tracer:
            with Load(folder, server.port, CHAT, requests=3, tokens=(3,)) as client:
                client.log()
            status = tracer.finish(20)
            problems = [] if status == 0 else [f"exit status {status}"]
            if len(tracer.records()) != 3:
                problems.append(f"{len(tracer.records())} records of 3 requests")
            judge(problems + check.leftovers(tracer.held), tracer.err_path)


@test("end.server_dies")
def server_dies(folder):
    """The server is killed in mid-stream: the request is cut, the tracer goes on."""
    with TruthServer(folder) as server, Tracer(folder, server.port) as tracer:
        stream = Stream(server.port, LONG_STREAM).send()
        stream.wait_frames(20)
        server.popen.kill()
        server.finish(10)
        stream.thread.join(10)
        stream.close()
        records = tracer.stop()
    only(records, "the request", lambda r: r["finish"] == "cut")


# --- errors ----------------------------------------------------------------------------------------


def faults(folder, server, path, body, finish, load_more=(), status=1, outcome_tokens=None):
    """5 requests that end badly; each record says so, and its token times still hold."""
    with Tracer(folder, server.port) as tracer:
        with Load(folder, server.port, path, requests=5, tokens=(29,), body=body, more=load_more) as client:
            client.log(status)
        witnesses = server.witnesses(5)
        records = tracer.stop()
    pairs, problems = check.join(records, witnesses)
    for r, w in pairs:
        if r.get("finish") != finish:
            problems.append(f"finish {r.get('finish')}, not {finish}")
        if (r.get("error") is not None) != (finish == "error"):
            problems.append(f"error {r.get('error')} with finish {finish}")
        if set(r.get("flags") or []) - {"estimated"}:
            problems.append(f"flags {r.get('flags')}")
        times = r.get("tokens_at_ns") or []
        if outcome_tokens is not None and len(times) != outcome_tokens:
            problems.append(f"{len(times)} token times, {outcome_tokens} were sent")
        problems += [f"token {i} at {t} is outside of its send" for i, (t, a) in enumerate(zip(times, w.arrivals))
                     if not a.before <= t <= a.after]
        if r.get("slo_met"):
            problems.append("slo_met")
    judge(problems, tracer.err_path)


def truth_fault(folder, fault, finish, status):
    with TruthServer(folder) as server:
        faults(folder, server, CHAT, {"fault": fault, "fault_at": 11, "gap_us": 3000}, finish, (), status, 11)


test("error.truth.cut", "cut", "cut", 1)(truth_fault)
test("error.truth.rst", "rst", "cut", 1)(truth_fault)
test("error.truth.error_frame", "error_frame", "error", 0)(truth_fault)


@test("error.truth.no_done")
def no_done(folder):
    """A stream without [DONE] has ended well."""
    with TruthServer(folder) as server:
        expect = Expect("openai.chat", ["usage"], "text", finish="length")
        traced(folder, server, expect, CHAT, LOADS["c1"], {"fault": "no_done", "gap_us": 3000})


@test("error.truth.client_abort")
def truth_client_abort(folder):
    with TruthServer(folder) as server:
        faults(folder, server, CHAT, {"gap_us": 10000}, "aborted", ("--abort-after", "5"), 0)


def uvicorn_fault(folder, stack, shape, fault, finish, status):
    with Uvicorn(folder, stack) as server:
        body = {**SLOW, "gap_ms": 10, "fault": fault}
        faults(folder, server, f"/{shape}{CHAT}", body, finish, (), status)


for _stack in ("uvloop", "asyncio"):
    test(f"error.{_stack}.vllm.error_frame", _stack, "vllm", "error", "error", 0)(uvicorn_fault)
    test(f"error.{_stack}.vllm.cut", _stack, "vllm", "raise", "cut", 1)(uvicorn_fault)
test("error.uvloop.sglang.error_frame", "uvloop", "sglang", "error", "error", 0)(uvicorn_fault)


def uvicorn_abort(folder, stack):
    with Uvicorn(folder, stack) as server:
        faults(folder, server, f"/vllm{CHAT}", {"gap_ms": 20}, "aborted", ("--abort-after", "5"), 0)


test("error.uvloop.client_abort", "uvloop")(uvicorn_abort)
test("error.asyncio.client_abort", "asyncio")(uvicorn_abort)


@test("error.llama.client_abort")
def llama_abort(folder):
    server = llama_server()
    with Tracer(folder, server.port) as tracer:
        with Load(folder, server.port, CHAT, requests=3, tokens=(997,), body={"ignore_eos": True},
                  more=("--abort-after", "5", *ONCE)) as client:
            client.log(0)
        # the server notices at its next token
        with Load(folder, server.port, CHAT, requests=1, tokens=(7,), body={"ignore_eos": True}, more=ONCE,
                  name="after") as client:
            client.log(0)
        records = tracer.stop()
    aborted = [r for r in records if r.get("finish") == "aborted"]
    judge([] if len(records) == 4 and len(aborted) == 3 else
          [f"{len(records)} records, {len(aborted)} of them aborted, of 4 and 3"])


# --- what is not asked for ---------------------------------------------------------------------------


@test("filter.other_port")
def other_port(folder):
    """Another server's requests make no record."""
    with TruthServer(folder) as server, Tracer(folder, server.port) as tracer:
        with tempfile.TemporaryDirectory() as second, TruthServer(second) as other:
            with Load(folder, other.port, CHAT, requests=3, tokens=(3,), name="other") as client:
                client.log()
        with Load(folder, server.port, CHAT, requests=2, tokens=(3,)) as client:
            client.log()
        records = tracer.stop()
    judge([] if len(records) == 2 else [f"{len(records)} records of 2 requests"])


def filtered(folder, args, expected):
    """Records of 3 requests with these filters."""
    path = os.path.join(folder, "records.jsonl")
    with TruthServer(folder) as server:
        own = [a.replace("PID", str(server.popen.pid)) for a in args]
        with Tracer(folder, server.port, ["--format", "jsonl", "--tokens", "-o", path, *own]) as tracer:
            with Load(folder, server.port, CHAT, requests=3, tokens=(3,)) as client:
                client.log()
            records = tracer.stop()
    judge([] if len(records) == expected else [f"{len(records)} records, wanted {expected}, with {args}"])
    return records


test("filter.pid", ["-p", "PID"], 3)(filtered)
test("filter.other_pid", ["-p", "1", "--comm", "nobody"], 0)(filtered)
test("filter.comm", ["--comm", "truth_server"], 3)(filtered)
test("filter.other_comm", ["--comm", "nobody"], 0)(filtered)


@test("filter.all")
def both_sides(folder):
    """With --all each request is seen from both of its ends, in two processes."""
    records = filtered(folder, ["--all"], 6)
    comms = sorted(r["comm"][:6] for r in records)
    judge([] if comms == ["python"] * 3 + ["truth_"] * 3 else [f"records of {comms}"])


# --- running -----------------------------------------------------------------------------------------


def run(name, function, keep):
    """(word, lines) of one test."""
    with tempfile.TemporaryDirectory(prefix="tks-live-") as scratch:
        folder = os.path.join(keep, name) if keep else scratch
        os.makedirs(folder, exist_ok=True)
        try:
            function(folder)
        except Skip as e:
            return "skip", [str(e)]
        except Failure as e:
            return "fail", [str(a) for a in e.args]
        except Exception:  # a broken test must not take the others along
            return "fail", traceback.format_exc().splitlines()
    return "ok", []


def preconditions():
    if os.geteuid():
        return "needs root"
    for path in (TOOL, TRUTH):
        if not os.access(path, os.X_OK):
            return f"{os.path.relpath(path, TOP)} is not built: make all test-bins"
    return None


def main(argv):
    p = argparse.ArgumentParser(description="the live tests, as TAP")
    p.add_argument("--list", action="store_true", help="print the names and exit")
    p.add_argument("--keep", metavar="DIR", help="keep every test's files there")
    p.add_argument("patterns", nargs="*", help="names to run, e.g. 'truth.*'")
    args = p.parse_args(argv)
    chosen = [(f"live.{n}", f) for n, f in TESTS
              if not args.patterns or any(fnmatch.fnmatchcase(f"live.{n}", q) or fnmatch.fnmatchcase(n, q)
                                          for q in args.patterns)]
    if args.list:
        print("\n".join(n for n, _ in chosen))
        return 0
    why = preconditions()
    if why:
        print(f"Bail out! {why}")
        return 1
    failed = 0
    try:
        for i, (name, function) in enumerate(chosen, 1):
            start = time.monotonic()
            word, lines = run(name, function, args.keep)
            for line in lines if word == "fail" else []:
                print("#", line)
            failed += word == "fail"
            note = f" # SKIP {lines[0]}" if word == "skip" else ""
            print(f"{'not ok' if word == 'fail' else 'ok'} {i} - {name}{note}")
            print(f"# {time.monotonic() - start:.1f} s", flush=True)
    finally:
        llama_stop()
    print(f"1..{len(chosen)}")
    return 1 if failed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
