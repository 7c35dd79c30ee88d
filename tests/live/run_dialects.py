#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The live tests of the dialects, as TAP: the vendors' own clients, nginx in between, and llama.cpp's native routes.

usage: run_dialects.py [--list] [--keep DIR] [PATTERN...]     as run_live.py

What a record must say comes from the server's own log (servers/dialects_app.py: each frame's time, what it holds, and
the total), and the client must have got the very texts that the server logged.
"""
import json
import os
import re
import socket
import subprocess
import sys
import time
import zlib

import check
import run_live
from check import Arrival, Expect
from rig import HERE, READY_S, Failure, Process, Tracer, Uvicorn, free_port, tail, wait_for
from run_live import judge, llama_server, test

run_live.TESTS.clear()  # the runner is run_live.py's, the tests are these
PROMPT, CACHED = 7, 3  # as the app has them
NO_FRAME = ("comment",)
# What the dialects below call a natural end: a token more than the frames show came with the finish frame.
NATURAL = ("stop", "tool_calls", "end_turn", "tool_use", "completed", "COMPLETE", "TOOL_CALL")


# --- the app and its log ---------------------------------------------------------------------------


class App(Uvicorn):
    """servers/dialects_app.py on Debian's own Python."""

    STACKS = {"uvloop": ("--loop", "uvloop", "--http", "httptools"), "asyncio": ("--loop", "asyncio", "--http", "h11")}

    def __init__(self, folder, stack="uvloop"):
        super().__init__(folder, stack)
        self.argv = ["/usr/bin/python3", "-m", "uvicorn", "dialects_app:app", "--app-dir",
                     os.path.join(HERE, "servers"), "--host", "127.0.0.1", "--port", str(self.port), "--log-level",
                     "warning", "--no-access-log", "--no-server-header", *self.STACKS[stack]]
        self.env = {"WITNESS_LOG": self.log}

    def witnesses(self, count):
        super().witnesses(count)
        return read_log(self.log)


class Witness(check.Witness):
    """One answer by the app's log."""

    def __init__(self, peer):
        super().__init__(peer)
        self.kinds, self.said, self.visible = [], [], []  # of all frames; of token frames
        self.truth, self.model = None, None

    @property
    def frames(self):
        """For each frame, whether it is a token frame."""
        return [tokens for kind, tokens in self.kinds if kind not in NO_FRAME]


def read_log(path):
    by_request = {}
    for line in check.read_lines(path):
        w = by_request.setdefault(line["request"], Witness(line["peer"]))
        w.id, w.model, kind = line["id"], line["said_model"], line["kind"]
        if kind == "end":
            w.usage, w.outcome = line["completion_tokens"], line["outcome"]
        elif kind == "truth":
            w.truth = line
        else:
            note(w, kind, line)
    return check.number([by_request[k] for k in sorted(by_request)])


def note(w, kind, line):
    arrival = Arrival(line["before_ns"], line["after_ns"])
    w.kinds.append((kind, bool(line["tokens"])))
    if line["tokens"]:
        w.arrivals.append(arrival)
        w.said.append(line["said"])
        w.visible.append(line["visible"])
    if kind == "finish":
        w.finish = arrival


# --- what there is to be said ----------------------------------------------------------------------


class Dialect:
    """How one dialect's answers of the app must be reported, and who asks for them."""

    def __init__(self, name, path, body, *, client="curl", sources=("usage",), finishes=(None, None, None),
                 prompt=PROMPT, cached=None, reasoning=False, maximum=None, model="tiny-1", server=None, flags=(),
                 last=None, text=None):
        """finishes: of a natural end, of one by the limit, of tool calls; maximum: the limit that the body has; last:
        t_last_source where it is not by the rule of the end token ("any": a token is in the finish frame); text: the
        text of a list of frames."""
        self.name, self.path, self.body, self.client = name, path, body, client
        self.sources, self.finishes, self.prompt, self.cached = set(sources), finishes, prompt, cached
        self.reasoning, self.maximum, self.model, self.server = reasoning, maximum, model, server
        self.flags, self.last, self.text = set(flags), last, text

    def finish(self, script):
        natural, limit, tools = self.finishes
        return (tools if script.get("tools") else natural) if script.get("eos") else limit

    def expect(self, script, streamed=True):
        last = self.last
        if not last and streamed:
            one = script.get("eos") and not script.get("hidden") and self.finish(script) in NATURAL
            if self.server == "ollama" and script.get("tools"):
                one = False  # calls come whole, many tokens in a frame
            last = "finish" if one else "text"
        return Expect(self.name, self.sources, last, self.flags if streamed else (), finish=self.finish(script),
                      server=self.server)


def gemini_text(frames):
    parts = [p for f in frames for p in f["candidates"][0]["content"]["parts"]]
    return "".join(p.get("text", "") for p in parts if not p.get("thought"))


def cohere_text(frames):
    texts = [f["delta"]["message"]["content"].get("text", "") for f in frames if f["type"] == "content-delta"]
    return "".join(texts)


USER = [{"role": "user", "content": "Hi"}]
GEMINI = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}], "generationConfig": {"maxOutputTokens": 61}}
GEMINI_MORE = {"sources": ("per_frame",), "finishes": ("STOP", "MAX_TOKENS", "STOP"), "maximum": 61,
               "model": "gemini-2.5-x", "reasoning": True, "last": "any", "text": gemini_text}
DIALECTS = {
    "anthropic": Dialect("anthropic.messages", "/v1/messages", {"max_tokens": 61}, client="npm", cached=CACHED,
                         finishes=("end_turn", "max_tokens", "tool_use"), maximum=61),
    "ollama.chat": Dialect("ollama.chat", "/api/chat", {"options": {"num_predict": 61}}, client="npm", maximum=61,
                           finishes=("stop", "length", "stop"), server="ollama"),
    "ollama.generate": Dialect("ollama.generate", "/api/generate", {"options": {"num_predict": 61}}, client="npm",
                               maximum=61, finishes=("stop", "length", "stop"), server="ollama"),
    "responses": Dialect("openai.responses", "/v1/responses", {"max_output_tokens": 61}, client="npm", cached=CACHED,
                         reasoning=True, maximum=61, finishes=("completed", "max_output_tokens", "completed")),
    "chat": Dialect("openai.chat", "/v1/chat/completions", {"max_completion_tokens": 61}, client="npm", maximum=61,
                    cached=CACHED, reasoning=True, finishes=("stop", "length", "tool_calls")),
    "gemini.sse": Dialect("gemini.generate", "/v1beta/models/gemini-2.5-x:streamGenerateContent?alt=sse", GEMINI,
                          **GEMINI_MORE),
    "gemini.array": Dialect("gemini.generate", "/v1beta/models/gemini-2.5-x:streamGenerateContent", GEMINI,
                            **GEMINI_MORE),
    "tgi": Dialect("tgi.generate_stream", "/generate_stream", {"inputs": "Hi", "parameters": {
        "max_new_tokens": 61, "details": True}}, sources=("per_frame",), finishes=("eos_token", "length", None),
        maximum=61, model=None, server="tgi", last="any",
        text=lambda frames: "".join(f["token"]["text"] for f in frames if not f["token"]["special"])),
    "sglang": Dialect("sglang.generate", "/generate", {"text": "Hi", "stream": True, "sampling_params": {
        "max_new_tokens": 61}}, sources=("per_frame",), finishes=("stop", "length", None), maximum=61, model=None,
        cached=CACHED, server="sglang", last="any", text=lambda frames: frames[-1]["text"]),
    "cohere": Dialect("cohere.v2", "/v2/chat", {"model": "command-r", "messages": USER, "stream": True,
                                                "max_tokens": 61}, finishes=("COMPLETE", "MAX_TOKENS", "TOOL_CALL"),
                      maximum=61, model="command-r", text=cohere_text),
    "triton": Dialect("triton.generate_stream", "/v2/models/ensemble/generate_stream", {
        "text_input": "Hi", "max_tokens": 61}, sources=("frames",), prompt=None, maximum=61, model="ensemble",
        server="triton", flags=("estimated",), text=lambda frames: "".join(f["text_output"] for f in frames)),
    "events": Dialect("unknown", "/events", {"stream": True}, sources=(None,), prompt=None, model=None,
                      flags=("estimated",), last="any", text=lambda frames: "".join(f["words"] for f in frames)),
}


def check_facts(r, w, d, script):
    """What a record says beside counts and times."""
    problems = []
    want = {"dialect": d.name, "server": d.server, "finish": d.finish(script), "streamed": True, "method": "POST",
            "path": d.path.partition("?")[0], "status": 200, "transport": "tcp", "boundary": "send", "model": d.model,
            "response_id": w.id, "frames": len(w.frames), "token_frames": len(w.arrivals), "prompt_tokens": d.prompt,
            "max_tokens": d.maximum, "error": None}
    if d.cached is not None:
        want["cached_tokens"] = d.cached
    if d.reasoning:
        want["reasoning_tokens"] = reasoning_of(w, d, script)
    if any(s is not None for s in w.said):
        want["tokens_in_frame"] = w.said
    if not w.arrivals:
        want.update(tokens=None, tokens_source=None, t_first_ns=None, t_last_ns=None, ttft_ns=None, tpot_ns=None)
    problems += [f"{name} {r.get(name)!r}, not {value!r}" for name, value in want.items() if r.get(name) != value]
    problems += [f"no {name}" for name in ("pid", "comm", "local", "t_end_ns") if r.get(name) in (None, "")]
    return problems + check_instants(r, w)


def reasoning_of(w, d, script):
    if d.name == "gemini.generate":
        return sum(n for n, visible in zip(w.said, w.visible) if not visible)
    return script.get("thinking", 0)


def check_instants(r, w):
    """The finish frame's time, and the first token that can be seen."""
    problems, t = [], r.get("t_finish_ns")
    if w.finish and not w.finish.before <= (t or 0) <= w.finish.after:
        problems.append(f"t_finish_ns {t} is not within [{w.finish.before}, {w.finish.after}]")
    if not w.finish and t is not None:
        problems.append(f"t_finish_ns {t} without a finish frame")
    times = r.get("tokens_at_ns") or []
    if len(times) == len(w.visible) and r.get("t_request_end_ns"):
        seen = next((t for t, visible in zip(times, w.visible) if visible), None)
        want = None if seen is None else seen - r["t_request_end_ns"]
        if r.get("ttft_visible_ns") != want:
            problems.append(f"ttft_visible_ns {r.get('ttft_visible_ns')}, the first visible token gives {want}")
    return problems


def check_gaps_of_frames(r, w):
    """An unknown stream: the gaps are between its frames."""
    if (r.get("itl") or {}).get("n") != len(w.frames) - 1:
        return [f"itl {r.get('itl')} of {len(w.frames)} frames"]
    return []


def check_answer(r, w, d, script):
    expect = d.expect(script)
    if any((n or 0) > 1 for n in w.said):
        expect.flags.add("multi_token_frames")
    problems = check_facts(r, w, d, script) + check.check_flags(r, expect)
    if not w.arrivals:
        return problems + check_gaps_of_frames(r, w), True
    if expect.last == "any":
        expect.last = None
    if d.name == "triton.generate_stream":  # nothing tells it a total
        w.usage = len(w.arrivals)
    rates, strict = check.check_rates(r, w)
    problems += check.check_counts(r, w, expect) + check.check_times(r, w) + check.check_consistency(r, w)
    return problems + rates, strict


def check_answers(records, witnesses, d, script, loose=False):
    pairs, problems = check.join(records, witnesses)
    stricts = 0
    for r, w in pairs:
        found, strict = check_answer(r, w, d, script)
        stricts += strict
        problems += [f"{w}: {p}" for p in found]
    if not loose and stricts < check.STRICT_SHARE * len(pairs):
        problems.append(f"only {stricts} of {len(pairs)} requests have their TPOT within {check.RATE:.0%}")
    return problems


# --- clients ---------------------------------------------------------------------------------------


def npm_modules():
    npm = subprocess.run(["sh", os.path.join(HERE, "clients", "npm.sh")], capture_output=True, text=True, check=False)
    if npm.returncode:
        raise Failure("npm install failed", *npm.stderr.splitlines()[-8:])
    return npm.stdout.strip()


def ask_npm(folder, port, kind, body, script, count):
    """The vendor's package; what it made of each answer."""
    argv = ["node", os.path.join(HERE, "clients", "dialects_client.mjs"), npm_modules(), f"http://127.0.0.1:{port}",
            kind, json.dumps(script), json.dumps(body), str(count)]
    with Process(folder, "node", argv) as client:
        if client.finish(120):
            raise Failure("the npm client failed", *tail(client.out_path, 3), *tail(client.err_path))
    return check.read_lines(client.out_path)


def ask_curl(folder, port, path, body, script, count):
    """Bodies of the answers to `count` requests on one connection."""
    outs = [os.path.join(folder, f"answer.{i}") for i in range(count)]
    argv = ["curl", "-sSN", "--fail", "-H", "Content-Type: application/json", "-H", f"x-script: {json.dumps(script)}",
            "--data-binary", json.dumps(body)]
    for out in outs:
        argv += ["-o", out, f"http://127.0.0.1:{port}{path}"]
    with Process(folder, "curl", argv) as curl:
        if curl.finish(60):
            raise Failure("curl failed", *tail(curl.err_path))
    bodies = []
    for out in outs:
        with open(out, encoding="utf-8") as f:
            bodies.append(f.read())
    return bodies


def documents(body):
    """The JSON documents of an event stream, of lines, or of an array."""
    if body.startswith("["):
        return json.loads(body)
    lines = [x[5:].strip() if x.startswith("data:") else x for x in body.replace("\r", "").split("\n")
             if x.startswith(("data:", "{"))]
    return [json.loads(x) for x in lines if x != "[DONE]"]


def check_npm(seen, records, witnesses, d):
    """The package must have got what the server said, and nothing before it was sent."""
    problems = [] if len(seen) == len(witnesses) else [f"the client got {len(seen)} answers of {len(witnesses)}"]
    for c, r, w in zip(seen, records, witnesses):
        calls = [{**t, "arguments": json.loads(t["arguments"])} for t in c["tools"]]
        want = [{**t, "arguments": json.loads(t["arguments"])} for t in w.truth["tools"]]
        if d.name == "ollama.generate":
            want = []
        for what, got, told in (("text", c["text"], w.truth["text"]), ("tools", calls, want), ("id", c["id"], w.id),
                                ("finish", c["finish"], r.get("finish")), ("model", c["model"], w.model)):
            if got != told:
                problems.append(f"{what}: the client has {got!r}, not {told!r}")
        sent = r.get("tokens_at_ns") or []
        if r.get("streamed"):
            problems += check_read(c["times"], sent)
    return problems


def check_read(read, sent):
    if len(read) != len(sent):
        return [f"the client got {len(read)} pieces, {len(sent)} token times"]
    early = [(i, s - t) for i, (t, s) in enumerate(zip(read, sent)) if s > t]
    return [f"token {i} was read {ns} ns before it was sent" for i, ns in early[:1]]


# --- a dialect at a time ---------------------------------------------------------------------------

# What is answered: by the limit; to a natural end; with everything there is.
SCRIPTS = {
    "limit": {"text": 11, "gap_ms": 13},
    "natural": {"text": 13, "eos": True, "gap_ms": 11, "comments": 3},
    "mixed": {"thinking": 5, "text": 7, "tools": 2, "pieces": 3, "eos": True, "hidden": 3, "gap_ms": 9},
    "tools": {"text": 0, "tools": 3, "pieces": 5, "eos": True, "gap_ms": 9},
}
COUNT = 3


def streamed(folder, name, script):
    d, script = DIALECTS[name], SCRIPTS[script]
    seen = bodies = None
    with App(folder) as server:
        with Tracer(folder, server.port) as tracer:
            if d.client == "npm":
                seen = ask_npm(folder, server.port, name, d.body, script, COUNT)
            else:
                bodies = ask_curl(folder, server.port, d.path, d.body, script, COUNT)
            witnesses = server.witnesses(COUNT)
            records = tracer.stop()
    problems = check_answers(records, witnesses, d, script)
    if seen is not None:
        problems += check_npm(seen, records, witnesses, d)
    for body, w in zip(bodies or (), witnesses):
        if d.text(documents(body)) != w.truth["text"]:
            problems.append(f"curl got {d.text(documents(body))!r}, the server sent {w.truth['text']!r}")
    judge(problems, tracer.err_path)


for _name, _d in DIALECTS.items():
    for _script, _s in SCRIPTS.items():
        if not _s.get("tools") or _d.finishes[2] and (_s["text"] or _name != "ollama.generate"):
            test(f"dialect.{_name}.{_script}", _name, _script)(streamed)


def whole(folder, name, path, off):
    """Answers in one piece: the total, and no times of tokens."""
    d, script = DIALECTS[name], {"text": 13, "eos": True}
    with App(folder) as server, Tracer(folder, server.port) as tracer:
        if d.client == "npm":
            check_seen = ask_npm(folder, server.port, name, {**d.body, **off}, script, COUNT)
        else:
            check_seen = ask_curl(folder, server.port, path, {**d.body, **off}, script, COUNT)
        witnesses = server.witnesses(COUNT)
        records = tracer.stop()
    pairs, problems = check.join(records, witnesses)
    if len(check_seen) != COUNT:
        problems.append(f"the client got {len(check_seen)} answers of {COUNT}")
    for r, w in pairs:
        want = {"dialect": d.name, "streamed": False, "tokens": w.usage, "tokens_source": "usage", "status": 200,
                "finish": d.finish(script), "model": d.model, "response_id": w.id, "prompt_tokens": PROMPT, "flags": [],
                "max_tokens": d.maximum, "path": path, **dict.fromkeys(("ttft_ns", "tpot_ns", "itl", "t_first_ns"))}
        problems += [f"{k} {r.get(k)!r}, not {v!r}" for k, v in want.items() if r.get(k) != v]
        if not (r.get("e2e_ns") or 0) > 4_000_000:  # the app sleeps 5 ms
            problems.append(f"e2e_ns {r.get('e2e_ns')}")
    judge(problems, tracer.err_path)


OFF = {"stream": False}
for _name in ("anthropic", "ollama.chat", "ollama.generate", "responses", "chat", "sglang", "cohere"):
    test(f"whole.{_name}", _name, DIALECTS[_name].path, OFF)(whole)
test("whole.gemini", "gemini.sse", "/v1beta/models/gemini-2.5-x:generateContent", {})(whole)


# --- a reader of its own ---------------------------------------------------------------------------


class Reader:
    """Reads one answer from a socket, and knows when each frame of it could be read. It undoes chunks and gzip with
    nothing of the tool's."""

    def __init__(self, port, path, body, script, *headers):
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.local = self.sock.getsockname()[1]
        body = json.dumps(body).encode()
        lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json",
                 f"Content-Length: {len(body)}", f"x-script: {json.dumps(script)}", "Connection: close", *headers]
        self.sock.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        self.raw, self.head, self.text, self.frames, self.pieces = b"", None, b"", [], 0
        self.unzip = None

    def run(self):
        while True:
            data = self.sock.recv(65536)
            now = time.monotonic_ns()
            if not data:
                break
            self.raw += data
            self.take(now)
        self.sock.close()
        return self

    def take(self, now):
        if self.head is None:
            head, mark, rest = self.raw.partition(b"\r\n\r\n")
            if not mark:
                return
            self.head, self.raw = head.decode().lower(), rest
            self.unzip = zlib.decompressobj(31) if "content-encoding: gzip" in self.head else None
        for piece in self.body():
            self.pieces += 1
            self.text += self.unzip.decompress(piece) if self.unzip else piece
        self.cut(now)

    def body(self):
        """Bytes of the body that have come."""
        if "transfer-encoding: chunked" not in self.head:
            piece, self.raw = self.raw, b""
            yield piece
            return
        while b"\r\n" in self.raw:
            size, _, rest = self.raw.partition(b"\r\n")
            n = int(size, 16)
            if len(rest) < n + 2:
                return
            self.raw = rest[n + 2:]
            yield rest[:n]

    def cut(self, now):
        """Frames that are whole: (time, data). Comments are none."""
        end = b"\n" if "ndjson" in self.head else b"\n\n"
        self.text = self.text.replace(b"\r\n", b"\n")
        while end in self.text:
            frame, _, self.text = self.text.partition(end)
            data = b"".join(x[5:].strip() if x.startswith(b"data:") else x for x in frame.split(b"\n")
                            if x.startswith((b"data:", b"{")))
            if data:
                self.frames.append((now, data))


# --- nginx -----------------------------------------------------------------------------------------


class Nginx(Process):
    def __init__(self, folder, upstream, more):
        self.port, self.log = free_port(), os.path.join(folder, "nginx.log")
        self.conf = os.path.join(folder, "nginx.conf")
        with open(os.path.join(HERE, "servers", "nginx.conf"), encoding="utf-8") as f:
            text = f.read()
        for mark, value in (("FOLDER", folder), ("LISTEN", self.port), ("UPSTREAM", upstream), ("MORE", more)):
            text = text.replace(f"@{mark}@", str(value))
        with open(self.conf, "w", encoding="utf-8") as f:
            f.write(text)
        super().__init__(folder, "nginx", ["/usr/sbin/nginx", "-c", self.conf, "-e", os.path.join(folder, "nginx.err")])

    def started(self):
        def listens():
            self.check_alive()
            with socket.socket() as s:
                return s.connect_ex(("127.0.0.1", self.port)) == 0

        wait_for("nginx", READY_S, listens)

    def workers(self):
        """Of a master that listens before it has them."""
        def found():
            with open(f"/proc/{self.popen.pid}/task/{self.popen.pid}/children", encoding="utf-8") as f:
                return [int(p) for p in f.read().split()]

        return wait_for("nginx's workers", READY_S, found)


GZIP = "gzip on; gzip_types text/event-stream application/x-ndjson application/json; "
UPGRADED = "proxy_http_version 1.1; proxy_set_header Connection ''; "
# nginx's directives, and what must be so at its client's side. Buffering packs frames where zlib is not flushed and
# where the upstream sends no chunks; what comes in chunks it hands on as it comes, buffering or not. Asked by HTTP/1.0,
# which is nginx's default, httptools sends chunks all the same; h11 does not, and the answer ends with the connection.
NGINX = {
    "buffered": (UPGRADED + "proxy_buffering on;", "uvloop", {}),
    "unbuffered": (UPGRADED + "proxy_buffering off;", "uvloop", {}),
    "gzip": (GZIP + UPGRADED + "proxy_buffering off;", "uvloop", {"gzip": True}),
    "gzip_buffered": (GZIP + UPGRADED + "proxy_buffering on;", "uvloop", {"gzip": True, "held": True}),
    "http10": ("proxy_buffering off;", "uvloop", {}),
    "http10_buffered": ("", "uvloop", {}),
    "closed": ("proxy_buffering off;", "asyncio", {}),
    "closed_buffered": ("", "asyncio", {"held": True}),
    "closed_gzip": (GZIP + "proxy_buffering off;", "asyncio", {"gzip": True}),
}
SAME = ("tokens", "tokens_source", "token_frames", "frames", "finish", "model", "response_id", "dialect",
        "status", "streamed", "prompt_tokens", "max_tokens", "path", "tokens_in_frame", "error")


# What the vendors' packages put into a body.
ASKED = {"chat": {"model": "tiny-1", "messages": USER, "stream_options": {"include_usage": True}},
         "anthropic": {"model": "tiny-1", "messages": USER}, "ollama.chat": {"model": "tiny-1", "messages": USER},
         "responses": {"model": "tiny-1", "input": "Hi"}}


def check_hops(near, far, w, reader, expect, nginx):
    """near: the record at the server's socket, far: at nginx's."""
    problems = [f"{n}: {far.get(n)!r} at nginx, {near.get(n)!r} at the server" for n in SAME
                if far.get(n) != near.get(n)]
    if far.get("server") not in (near.get("server"), None):  # nginx's own header may hide it
        problems.append(f"server {far.get('server')!r} at nginx, {near.get('server')!r} at the server")
    flags = set(far["flags"]) - set(near["flags"])
    if flags - {"coalesced"} or "opaque" in far["flags"]:
        problems.append(f"flags {far['flags']} at nginx, {near['flags']} at the server")
    if far.get("pid") not in nginx["workers"] or far.get("comm") != "nginx":
        problems.append(f"pid {far.get('pid')} ({far.get('comm')}), nginx's workers are {nginx['workers']}")
    sent, passed = near.get("tokens_at_ns") or [], far.get("tokens_at_ns") or []
    read = [t for (t, _), token in zip(reader.frames, w.frames) if token]
    if len(reader.frames) != len(w.frames):
        problems.append(f"the client read {len(reader.frames)} frames, the server sent {len(w.frames)}")
    for i, (a, b, c) in enumerate(zip(sent, passed, read)):
        if not a <= b <= c:
            problems.append(f"token {i}: {a} at the server, {b} at nginx, {c} at the client")
    return problems + check_held(passed, flags, w, reader, expect)


def check_held(passed, flags, w, reader, expect):
    """What nginx does to the stream: kept back and packed, or handed on."""
    problems, sends = [], len(set(passed))
    if ("content-encoding: gzip" in reader.head) != bool(expect.get("gzip")):
        problems.append(f"nginx's head is {reader.head!r}")
    if expect.get("held"):
        if "coalesced" not in flags or sends > len(w.arrivals) // 2:
            problems.append(f"{sends} sends of {len(w.arrivals)} token frames, flags {sorted(flags)}: not coalesced?")
    elif sends < 0.8 * len(w.arrivals):
        problems.append(f"{sends} sends of {len(w.arrivals)} token frames of an unbuffered stream")
    return problems


def through_nginx(folder, name, mode):
    d, script = DIALECTS[name], {"thinking": 0, "text": 47, "gap_ms": 4}
    directives, stack, expect = NGINX[mode]
    body = {**ASKED.get(name, {}), **d.body, "stream": True}
    with App(folder, stack) as server, Nginx(folder, server.port, directives) as nginx:
        known = {"workers": nginx.workers()}
        records_path = os.path.join(folder, "records.jsonl")
        args = ["--port", str(nginx.port), "--format", "jsonl", "--tokens", "-o", records_path]
        with Tracer(folder, server.port, args) as tracer:
            headers = ["Accept-Encoding: gzip"] if expect.get("gzip") else []
            readers = [Reader(nginx.port, d.path, body, script, *headers).run() for _ in range(COUNT)]
            witnesses = server.witnesses(COUNT)
            records = tracer.stop()
    near = [r for r in records if r.get("local") == f"127.0.0.1:{server.port}"]
    far = [r for r in records if r.get("local") == f"127.0.0.1:{nginx.port}"]
    problems = check_answers(near, witnesses, d, script, True)
    if len(near) != COUNT or len(far) != COUNT or len(records) != 2 * COUNT:
        problems.append(f"{len(near)} records at the server, {len(far)} at nginx, {len(records)} in all, of {COUNT}")
    for a, b, w, reader in zip(near, far, witnesses, readers):
        problems += [f"{w}: {p}" for p in check_hops(a, b, w, reader, expect, known)]
    judge(problems, tracer.err_path, nginx.log, os.path.join(folder, "nginx.err"))


for _mode in NGINX:
    for _name in ("chat", "anthropic", "ollama.chat"):
        test(f"nginx.{_mode}.{_name}", _name, _mode)(through_nginx)
test("nginx.gzip.responses", "responses", "gzip")(through_nginx)
test("nginx.gzip.gemini.sse", "gemini.sse", "gzip")(through_nginx)
test("nginx.closed_buffered.sglang", "sglang", "closed_buffered")(through_nginx)


# --- llama.cpp -------------------------------------------------------------------------------------

EVAL = re.compile(r"(?<!prompt )eval time = .*?/ +(\d+) tokens")
LLAMA_MODEL, ASKED_MODEL = "/srv/tiny.gguf", "tiny"
# Offered; a model of random weights picks none.
TOOLS = [{"type": "function", "function": {"name": "pick", "description": "picks", "parameters": {
    "type": "object", "properties": {"color": {"enum": ["red", "blue"]}}, "required": ["color"]}}}]


def llama_counts():
    """How many tokens each task generated, as the server's log tells it."""
    path = os.path.join(run_live.LLAMA["folder"].name, "llama.log")
    with open(path, encoding="utf-8", errors="replace") as f:
        return [int(n) for n in EVAL.findall(f.read())]


class Native:
    """/completion: what the counters in the frames prove, by index."""

    dialect = "llamacpp.completion"
    model = LLAMA_MODEL

    def __init__(self, frames):
        self.total, self.finish, self.tokens, self.maybe, last = 0, None, [], [], {}
        for t, obj in frames:
            if obj is None:  # a server with several prompts begins so
                continue
            index, count = obj["index"], obj.get("tokens_predicted", 0)
            step, last[index] = count - last.get(index, 0), count
            if step > 0 or obj["content"]:
                (self.maybe if obj["stop"] else self.tokens).append((t, step))
            if obj["stop"]:
                self.finish = self.finish or obj["stop_type"]
        self.total = sum(last.values())


class Chat:
    dialect = "openai.chat"
    model = LLAMA_MODEL

    def __init__(self, frames):
        self.total, self.finish, self.tokens, self.maybe = 0, None, [], []
        for t, obj in frames:
            usage = obj.get("usage") or {"completion_tokens": (obj.get("timings") or {}).get("predicted_n")}
            self.total = usage["completion_tokens"] or self.total
            for choice in obj["choices"]:
                delta = choice["delta"]
                if delta.get("content") or delta.get("reasoning_content") or delta.get("tool_calls"):
                    self.tokens.append((t, None))
                self.finish = self.finish or choice["finish_reason"]


class Messages:
    """When the first token is a piece of a character, llama-server leaves message_start out, and with it the model."""

    dialect = "anthropic.messages"

    def __init__(self, frames):
        self.total, self.finish, self.tokens, self.maybe, self.model = 0, None, [], [], ASKED_MODEL
        for t, obj in frames:
            delta = obj.get("delta") or {}
            if obj["type"] == "content_block_delta" and (delta.get("text") or delta.get("thinking") or
                                                         delta.get("partial_json")):
                self.tokens.append((t, None))
            if obj["type"] == "message_start":
                self.model = obj["message"]["model"]
            if obj["type"] == "message_delta":
                self.total, self.finish = obj["usage"]["output_tokens"], delta["stop_reason"]


class Responses:
    dialect = "openai.responses"
    model = LLAMA_MODEL

    def __init__(self, frames):
        self.total, self.finish, self.tokens, self.maybe = 0, None, [], []
        for t, obj in frames:
            if obj["type"].endswith(".delta") and obj["delta"]:
                self.tokens.append((t, None))
            if obj["type"] == "response.completed":
                self.total, self.finish = obj["response"]["usage"]["output_tokens"], obj["response"]["status"]


LLAMA_ROUTES = {"/completion": Native, "/v1/chat/completions": Chat, "/v1/messages": Messages,
                "/v1/responses": Responses}


def check_llama(r, seen, frames, counted, sources, flags):
    """A record against what was read, and against the server's log."""
    problems = []
    if seen.total != counted:
        problems.append(f"the server's answer says {seen.total} tokens, its log {counted}: the test is wrong")
    want = {"dialect": seen.dialect, "server": "llama.cpp", "model": seen.model, "streamed": True, "status": 200,
            "tokens": counted, "frames": len(frames), "error": None}
    finishes = {"limit": ("limit", "length"), "word": ("word", "stop"), "eos": ("eos", "stop")}
    problems += [f"{k} {r.get(k)!r}, not {v!r}" for k, v in want.items() if r.get(k) != v]
    if r.get("finish") not in finishes.get(seen.finish, (seen.finish,)):
        problems.append(f"finish {r.get('finish')!r}, the server says {seen.finish!r}")
    if r.get("tokens_source") not in sources:
        problems.append(f"tokens_source {r.get('tokens_source')}, not {sources}")
    if set(r["flags"]) - {"coalesced", "multi_token_frames", *flags}:
        problems.append(f"flags {r['flags']}")
    return problems + check_llama_frames(r, seen)


def check_llama_frames(r, seen):
    """Token frames: as many as were read, each sent before it was read, with the tokens that its counter says."""
    sent, problems = r.get("tokens_at_ns") or [], []
    tokens = seen.tokens if len(sent) == len(seen.tokens) else seen.tokens + seen.maybe
    if len(sent) != len(tokens) or r.get("token_frames") != len(sent):
        problems.append(f"{len(sent)} token times, {r.get('token_frames')} token frames, {len(tokens)} were read")
    late = [i for i, ((read, _), t) in enumerate(zip(sorted(tokens, key=lambda x: x[0]), sent)) if t > read]
    if late:
        problems.append(f"token {late[0]} was read before it was sent")
    steps = [n for _, n in tokens]
    if tokens and steps[0] is not None and not seen.maybe and r.get("tokens_in_frame") != steps:
        problems.append(f"tokens_in_frame {r.get('tokens_in_frame')}, by the counter {steps}")
    if len(tokens) >= 100 and r.get("tpot_ns") and r.get("t_last_source") == "text":
        tpot = (tokens[-1][0] - tokens[0][0]) / (r["tokens"] - 1)
        if abs(r["tpot_ns"] - tpot) > 0.1 * tpot:  # the client reads late on a busy host
            problems.append(f"tpot_ns {r['tpot_ns']}, by the client {tpot:.0f}")
    return problems


def llama_routes(folder, path, body, sources, flags=(), tasks=1):
    server, body = llama_server(), {"stream": True, "seed": 11, "cache_prompt": False, **body}
    with Tracer(folder, server.port) as tracer:
        before = len(llama_counts())
        readers = [Reader(server.port, path, body, {}).run() for _ in range(COUNT)]
        wait_for("llama-server's log", 30, lambda: len(llama_counts()) >= before + COUNT * tasks)
        records = tracer.stop()
    counts = llama_counts()[before:]
    problems = [] if len(records) == COUNT else [f"{len(records)} records of {COUNT} requests"]
    for i, (r, reader) in enumerate(zip(records, readers)):
        frames = [(t, json.loads(x)) for t, x in reader.frames if x != b"[DONE]"]
        counted = sum(counts[i * tasks: (i + 1) * tasks])
        found = check_llama(r, LLAMA_ROUTES[path](frames), reader.frames, counted, sources, flags)
        problems += [f"request {i}: {p}" for p in found]
    judge(problems, tracer.err_path)


NATIVE, FORCED = {"prompt": "Hi there", "n_predict": 131, "ignore_eos": True}, {"ignore_eos": True, "max_tokens": 61}
EACH, TOTAL = ("per_frame",), ("usage",)
for _name, _path, _body, _more in (
        ("native.limit", "/completion", NATIVE, {"sources": EACH}),
        ("native.tokens", "/completion", {**NATIVE, "return_tokens": True, "n_predict": 37}, {"sources": EACH}),
        ("native.timings", "/completion", {**NATIVE, "timings_per_token": True}, {"sources": EACH}),
        ("native.progress", "/completion", {**NATIVE, "return_progress": True, "prompt": "Hi there " * 70},
         {"sources": EACH}),
        ("native.stop", "/completion", {"prompt": "Hi", "n_predict": 400, "stop": ["ba", "du", "ri"]}, {
            "sources": EACH + TOTAL}),
        ("native.natural", "/completion", {"prompt": "Hi", "n_predict": 400, "logit_bias": [[2, 3.0]]}, {
            "sources": EACH + TOTAL}),
        ("native.n", "/completion", {**NATIVE, "n_predict": 23, "n": 2}, {"sources": EACH, "tasks": 2}),
        ("native.prompts", "/completion", {**NATIVE, "n_predict": 23, "prompt": ["Hi", "there"]}, {
            "sources": EACH, "tasks": 2}),
        ("chat.timings", "/v1/chat/completions", {**FORCED, "messages": USER, "timings_per_token": True,
                                                  "return_progress": True}, {"sources": EACH + TOTAL}),
        ("chat.tools", "/v1/chat/completions", {**FORCED, "messages": USER, "tools": TOOLS, "tool_choice": "required",
                                                "stream_options": {"include_usage": True}}, {"sources": TOTAL}),
        ("messages", "/v1/messages", {**FORCED, "messages": USER, "model": ASKED_MODEL}, {"sources": TOTAL}),
        ("messages.tools", "/v1/messages", {**FORCED, "messages": USER, "model": ASKED_MODEL, "tools": [{
            "name": "pick", "input_schema": TOOLS[0]["function"]["parameters"]}]}, {"sources": TOTAL}),
        ("responses", "/v1/responses", {"ignore_eos": True, "max_output_tokens": 61, "input": "Hi", "model": ASKED_MODEL}, {
            "sources": TOTAL})):
    test(f"llama.{_name}", _path, _body, *(_more.get(k, v) for k, v in (("sources", ()), ("flags", ()), ("tasks", 1))))(
        llama_routes)


if __name__ == "__main__":
    sys.exit(run_live.main(sys.argv[1:]))
