#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Live tests of unix stream sockets, as TAP: each server over TCP and over a unix socket, from the same script.

usage: run_unix.py [--list] [--keep DIR] [PATTERN...]     as run_live.py

The tracer has no port to go by, so it is told the server's process. Witnesses are as in run_tls.py; there are no ports
to tell requests apart, but each asks for a model of its own.
"""
import contextlib
import json
import os
import socket
import sys

import run_live
import run_tls
from rig import EXIT_S, Failure, Llama, Process, Tracer, tail, wait_for
from run_live import judge, test
from run_tls import LOADS, Case, Server
from run_wires import PYTHON, wrong

run_live.TESTS.clear()  # the runner is run_live.py's, the tests are these


class Local(Server):
    """A server of servers/tls, made by make, on a unix socket: its port is a path."""

    # With tp_btf the time is that of the send's return, and the client may have read before.
    late_ns = 2_000_000

    def __init__(self, folder, make):
        made = make(folder, False)
        self.__dict__.update(made.__dict__)
        self.port = os.path.join(folder, "s p\u00e4ce.sock")
        self.argv = [self.port if x == str(made.port) else x for x in made.argv]

    def started(self):
        wait_for(self.name, EXIT_S, lambda: (self.check_alive(), os.path.exists(self.port))[1])

    def tracer(self, folder):
        return Tracer(folder, None, pid=self.popen.pid)

    def identity(self, w):
        shown = "".join(chr(b) if 0x20 <= b < 0x7f else "?" for b in os.fsencode(self.port))
        return {"transport": "unix", "local": f"unix:{shown}", "peer": "unix:"}


def unix(make):
    return Case(lambda folder, secure: Local(folder, make))


def matrix(folder, make, load):
    """Over TCP, and over a unix socket, and the records are the same."""
    plain = run_tls.traced(os.path.join(folder, "tcp"), Case(make), False, load)
    records = run_tls.traced(folder, unix(make), False, load)
    judge(run_tls.check_same(plain, records, "a unix socket"))


for _name, _make in (("uvloop", run_tls.app("uvloop")), ("asyncio", run_tls.app("asyncio")),
                     ("node", run_tls.node("1.1")), ("go", run_tls.go("1.1"))):
    for _load in LOADS:
        test(f"unix.{_name}.{_load}", _make, _load)(matrix)


# --- the tracer beside one server --------------------------------------------------------------------------


class Stream:
    """One answer over a unix socket, read by hand."""

    def __init__(self, path, model, tokens, gap_ms=20):
        body = json.dumps({"model": model, "max_tokens": tokens, "gap_ms": gap_ms, "stream": True,
                           "stream_options": {"include_usage": True}, "messages": []}).encode()
        self.sock, self.text = socket.socket(socket.AF_UNIX), b""
        self.sock.settimeout(EXIT_S)
        self.sock.connect(path)
        self.head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
        self.body = body

    def ask(self):
        self.sock.sendall(self.head + self.body)
        return self

    def read_until(self, what, count=1):
        while self.text.count(what) < count:
            piece = self.sock.recv(65536)
            if not piece:
                raise Failure(f"the server closed after {self.text[-200:]}")
            self.text += piece
        return self

    def whole(self):
        return self.ask().read_until(b"[DONE]")


@contextlib.contextmanager
def beside(folder, make):
    """(server, the tracer's records once it was stopped)"""
    server, records = Local(folder, make), []
    with server, server.tracer(folder) as tracer:
        yield server, records
        records += tracer.stop()


def check_models(records, **want):
    """want: by model, what its record must say."""
    got = {r.get("model"): r for r in records}
    problems = [f"the records are of {sorted(map(str, got))}"] if set(got) != set(want) else []
    problems += ["a model has two records"] if len(got) != len(records) else []
    judge(problems + [f"{m}: {p}" for m, w in want.items() if m in got for p in wrong(got[m], **w)])


NODE = run_tls.node("1.1")
DONE = {"transport": "unix", "finish": "length", "flags": []}


@test("unix.client_leaves")
def client_leaves(folder):
    with beside(folder, NODE) as (server, records):
        stream = Stream(server.port, "gone", 500).ask().read_until(b"gone:", 3)
        stream.sock.close()
        Stream(server.port, "after", 3).whole()
    check_models(records, gone={"finish": "aborted", "transport": "unix"}, after={**DONE, "tokens": 3})


@test("unix.half_closed")
def half_closed(folder):
    """The client says that it has no more to send, and reads on."""
    with beside(folder, run_tls.go("1.1")) as (server, records):
        stream = Stream(server.port, "half", 7).ask()
        stream.sock.shutdown(socket.SHUT_WR)
        stream.read_until(b"[DONE]")
    check_models(records, half={**DONE, "tokens": 7})


@test("unix.server_dies")
def server_dies(folder):
    with beside(folder, NODE) as (server, records):
        stream = Stream(server.port, "cut", 500).ask().read_until(b"cut:", 3)
        server.popen.kill()
        while stream.sock.recv(65536):
            pass
        stream.sock.close()
    check_models(records, cut={"finish": "cut", "transport": "unix"})


@test("unix.mid_stream")
def mid_stream(folder):
    """The tracer comes in the midst of an answer; the next on the connection is whole."""
    server = Local(folder, NODE)
    with server:
        stream = Stream(server.port, "first", 200, 40).ask().read_until(b"first:", 2)
        with server.tracer(folder) as tracer:
            stream.read_until(b"\r\n0\r\n\r\n")
            second = Stream(server.port, "second", 5)
            second.sock.close()
            second.sock, second.text = stream.sock, b""
            second.whole()
            records = tracer.stop()
    first = next((r for r in records if r.get("model") == "first"), {})
    problems = [] if "mid_stream" in first.get("flags", []) and first.get("ttft_ns") is None else [f"first: {first}"]
    judge(problems)
    check_models([r for r in records if r is not first], second={**DONE, "tokens": 5})


@test("unix.in_pieces")
def in_pieces(folder):
    """A request byte by byte, and two at once."""
    with beside(folder, NODE) as (server, records):
        slow = Stream(server.port, "slow", 3)
        for i in range(len(slow.head + slow.body)):
            slow.sock.sendall((slow.head + slow.body)[i:i + 1])
        slow.read_until(b"[DONE]")
        both, other = Stream(server.port, "one", 4), Stream(server.port, "two", 2)
        both.sock.sendall(both.head + both.body + other.head + other.body)
        both.read_until(b"[DONE]", 2)
    check_models(records, slow={**DONE, "tokens": 3}, one={**DONE, "tokens": 4}, two={"finish": "length", "tokens": 2})


@test("unix.many")
def many(folder):
    """A connection a request, one after the other: sockets' addresses come again in the kernel."""
    with beside(folder, NODE) as (server, records):
        for i in range(300):
            stream = Stream(server.port, f"m{i}", 1 + i % 3, 1).whole()
            stream.sock.close()
    check_models(records, **{f"m{i}": {**DONE, "tokens": 1 + i % 3} for i in range(300)})


@test("unix.with_port")
def with_port(folder):
    """A unix socket has no port."""
    server = Local(folder, NODE)
    with server, Tracer(folder, 9) as tracer:
        Stream(server.port, "unseen", 3).whole()
        if "unix=none" not in "\n".join(tail(tracer.err_path)):
            raise Failure("the tracer doesn't say that it has no hook", *tail(tracer.err_path))
        judge([f"a record: {r}" for r in tracer.stop()])


ECHO = """import os, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
peer, _ = listener.accept()
while data := peer.recv(65536):
    peer.sendall(data)
"""


@test("unix.other_protocol")
def other_protocol(folder):
    """Bytes that are no HTTP are left alone soon, and make no record."""
    path = os.path.join(folder, "echo.sock")
    with Process(folder, "echo", [PYTHON, "-c", ECHO, path]) as server:
        wait_for("the socket", EXIT_S, lambda: os.path.exists(path))
        with Tracer(folder, None, pid=server.popen.pid) as tracer, socket.socket(socket.AF_UNIX) as client:
            client.connect(path)
            for _ in range(800):
                client.sendall(os.urandom(32768))
                left = 32768
                while left:
                    left -= len(client.recv(left))
            judge([f"a record: {r}" for r in tracer.stop()])
        events = next(int(line.split()[1]) for line in tail(tracer.err_path, 200) if line.startswith("events"))
    # 25 MiB each way are 3200 records; at most 4 MiB are looked through.
    judge([] if events < 1200 else [f"{events} events"])


# --- others' servers ---------------------------------------------------------------------------------------


@test("unix.nginx.c64")
def nginx(folder):
    """nginx on TCP in front of a unix socket: both ends' records, of the same answers."""
    load, back = LOADS["c64"], Local(folder, run_tls.app("uvloop"))
    front = run_tls.Behind(folder, False, lambda s: nginx_argv(s, back), back, "nginx")
    with front:
        with Tracer(folder, None, pid=os.getpid()) as tracer:
            clients = run_tls.stream(folder, front, "1.1", load)
            witnesses = front.witnesses(load["requests"])
            records = run_tls.stop(tracer)
        far = [r for r in records if r["transport"] == "unix"]
        near = [r for r in records if r["transport"] == "tcp"]
        inner = [{**c, "local": None} for c in clients]
        judge(run_tls.check_run(far, witnesses, inner, back, "1.1", Case(None, behind=True)), tracer.err_path)
        judge(run_tls.check_run(near, front.witnesses(load["requests"]), clients, front, "1.1", Case(None, behind=True)),
              tracer.err_path)
    judge(run_tls.check_same(near, far, "the unix socket"))


def nginx_argv(server, back):
    values = {"FOLDER": server.folder, "LISTEN": server.port, "PEM": "-", "WORKERS": 1, "REUSE": "", "HTTP2": "",
              "UPSTREAM": "0"}
    path = run_tls.filled(server.folder, "nginx.conf", False, values)
    with open(path, encoding="utf-8") as f:
        text = f.read().replace("http://127.0.0.1:0", f"'http://unix:{back.port}'")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    return ["nginx", "-c", path, "-p", server.folder]


class LocalLlama(Llama):
    """llama-server on a unix socket within the folder that it runs in."""

    def __init__(self, folder):
        super().__init__(folder)
        cache = os.environ.get("TKS_CACHE", os.path.join(run_live.TOP, "build", "cache"))
        self.inner = f"/tmp/tks-{os.getpid()}.sock"
        self.path = os.path.realpath(os.path.join(cache, "sid")) + self.inner
        self.env = {"LLAMA_SOCKET": self.inner}

    def __exit__(self, *_):
        super().__exit__()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)


@test("unix.llama")
def llama(folder):
    server = LocalLlama(folder)
    with server, Tracer(folder, None, pid=server.popen.pid) as tracer:
        streams = [Stream(server.path, "tiny", n) for n in (29, 13, 7)]
        for s, n in zip(streams, (29, 13, 7)):
            order = {"max_tokens": n, "stream": True, "ignore_eos": True, "cache_prompt": False,
                     "stream_options": {"include_usage": True}, "messages": [{"role": "user", "content": "Hi"}]}
            s.body = json.dumps(order).encode()
            s.head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(s.body)
            s.whole()
        records = tracer.stop()
    want = {"transport": "unix", "local": f"unix:{server.inner}", "server": "llama.cpp", "tokens_source": "usage"}
    problems = [p for r in records for p in wrong(r, **want)]
    judge(problems + ([] if [r["tokens"] for r in records] == [29, 13, 7] else [f"tokens {[r['tokens'] for r in records]}"]),
          tracer.err_path)


def main(argv):
    try:
        return run_live.main(argv)
    finally:
        if "folder" in run_tls.SCRATCH:
            run_tls.SCRATCH["folder"].cleanup()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
