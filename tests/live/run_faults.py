#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Live tests of what goes wrong around a trace, as TAP: outputs that don't take anything, servers that die, a tracer that
doesn't get to run, tables that are full. After each the records are right, or say what is missing.

usage: run_faults.py [--list] [--keep DIR] [PATTERN...]     as run_live.py
"""
import fcntl
import json
import os
import pty
import re
import resource
import signal
import socket
import subprocess
import sys
import termios
import threading
import time

import check
import run_live
from check import Expect
from rig import (EXIT_S, Failure, Load, Process, Stream, TOOL, Tracer, TruthServer, free_port, tail,  # fmt: skip
                 wait_for)
from run_live import CHAT, LOADS, judge, test

run_live.TESTS.clear()  # the runner is run_live.py's, the tests are these

EXPECT = Expect("openai.chat", ["usage"], "text", finish="length")
PACE = {"gap_us": 5000, "prefill_us": 10000}


def lines_of(path):
    with open(path, "rb") as f:
        return f.read().split(b"\n")


def meta_of(path):
    """The last line of a trace's output."""
    meta = json.loads(lines_of(path)[-2])
    if meta.get("type") != "summary" and "drops" not in meta:
        raise Failure(f"the last line is no summary: {meta}")
    return meta


def nothing_lost(path):
    drops = meta_of(path)["drops"]
    return [f"{n} {v}, nothing should be lost" for n, v in drops.items() if v]


def load_and_check(folder, server, tracer, load="c32", body=None, name="load"):
    """One load, all of whose records must be right."""
    with Load(folder, server.port, CHAT, body=body or PACE, name=name, **LOADS[load]) as client:
        clients = client.log()
    witnesses = server.witnesses(LOADS[load]["requests"])
    return check.check_run(tracer.stop(), witnesses, EXPECT, clients)


# --- outputs -------------------------------------------------------------------------------------------


@test("output.slow_pipe")
def slow_pipe(folder):
    """A reader that reads nothing for a while: the trace waits for it, what came meanwhile is right or counted."""
    path = os.path.join(folder, "records.jsonl")
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    with TruthServer(folder) as server, Tracer(folder, server.port, ["--format", "jsonl", "--tokens"], stdout=write) as tracer:
        os.close(write)
        with Load(folder, server.port, CHAT, body={"gap_us": 1000}, requests=64, concurrency=32, tokens=(211, 307)) as client:
            clients = client.log()
        witnesses = server.witnesses(64)  # all of it while nobody reads: more than a pipe holds
        tracer.popen.send_signal(signal.SIGINT)
        with open(path, "wb") as f, os.fdopen(read, "rb") as pipe:
            f.write(pipe.read())
        status = tracer.finish(EXIT_S)
        problems = [f"exit status {status}"] if status else []
        problems += check.leftovers(tracer.held)
    problems += [f"only {os.path.getsize(path)} bytes came: the pipe was never full"] if os.path.getsize(path) < 16384 else []
    judge(problems + nothing_lost(path) + check.check_run(check.read_records(path), witnesses, EXPECT, clients))


@test("output.full_disk")
def full_disk(folder):
    """The file system is full in the middle: said, exit status 1, and what was written are whole lines."""
    small = os.path.join(folder, "small")
    os.makedirs(small)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tks", small], check=True)
    try:
        path = os.path.join(small, "records.jsonl")
        with TruthServer(folder) as server, Tracer(folder, server.port, ["--format", "jsonl", "--tokens", "-o", path]) as tracer:
            with Load(folder, server.port, CHAT, body={"gap_us": 1000}, requests=64, concurrency=32, tokens=(211, 307)) as client:
                client.log()
            status = tracer.finish(EXIT_S)
            problems = [f"exit status {status}, not 1"] if status != 1 else []
            problems += check.leftovers(tracer.held)
        said = "\n".join(tail(tracer.err_path, 50))
        problems += [] if "No space left on device" in said else [f"not said: {said[-300:]}"]
        lines = lines_of(path)
        problems += [] if len(lines) > 2 else ["nothing was written"]
        for line in lines[:-1]:
            json.loads(line)
        # The kernel takes a part of what no longer fits: the last line alone may lack its end.
    finally:
        subprocess.run(["umount", small], check=True)
    judge(problems)


@test("output.stopped_terminal")
def stopped_terminal(folder):
    """Ctrl-S on the terminal, then Ctrl-Q: all that was traced meanwhile is printed."""
    master, slave = pty.openpty()
    with TruthServer(folder) as server, Tracer(folder, server.port, [], stdout=slave) as tracer:
        os.close(slave)
        termios.tcflow(master, termios.TCOOFF)
        with Load(folder, server.port, CHAT, body=PACE, **LOADS["c32"]) as client:
            client.log()
        termios.tcflow(master, termios.TCOON)
        text = read_terminal(master, tracer)
    rows = re.findall(r"^\d\d:\d\d:\d\d .* length\r?$", text, re.M)
    requests = LOADS["c32"]["requests"]
    judge(([] if len(rows) == requests else [f"{len(rows)} lines of {requests} requests"]) +
          ([] if re.search(r"^drops +none\r?$", text, re.M) else ["something was lost"]), tracer.err_path)


def read_terminal(master, tracer):
    """All that comes until the tracer, which is interrupted once its lines are there, has ended."""
    text, asked = b"", False
    deadline = time.monotonic() + EXIT_S
    while time.monotonic() < deadline:
        try:
            piece = os.read(master, 65536)
        except OSError:  # the other end is closed
            break
        text += piece
        if not asked and text.count(b" length") >= LOADS["c32"]["requests"]:
            tracer.popen.send_signal(signal.SIGINT)
            asked = True
    os.close(master)
    tracer.finish(EXIT_S)
    return text.decode()


# --- a tracer that doesn't get to run ------------------------------------------------------------------


@test("tracer.stopped")
def stopped(folder):
    """SIGSTOP for 5 s under load: the times are the kernel's, and the ring held it all."""
    with TruthServer(folder) as server, Tracer(folder, server.port) as tracer:
        with Load(folder, server.port, CHAT, body={"gap_us": 20000}, requests=16, concurrency=8, tokens=(251, 257)) as client:
            time.sleep(0.5)
            tracer.popen.send_signal(signal.SIGSTOP)
            time.sleep(5)
            tracer.popen.send_signal(signal.SIGCONT)
            clients = client.log()
        witnesses = server.witnesses(16)
        records = tracer.stop()
    judge(check.check_run(records, witnesses, EXPECT, clients) + nothing_lost(tracer.records_path), tracer.err_path)


@test("tracer.pinned")
def pinned(folder):
    """On one CPU with the server and the client."""
    cpu = min(os.sched_getaffinity(0))
    with TruthServer(folder) as server, Tracer(folder, server.port, wrap=["taskset", "-c", str(cpu)]) as tracer:
        subprocess.run(["taskset", "-a", "-p", "-c", str(cpu), str(server.popen.pid)], check=True, capture_output=True)
        problems = load_and_check(folder, server, tracer)
    judge(problems + nothing_lost(tracer.records_path), tracer.err_path)


@test("tracer.two")
def two(folder):
    """Two at once say the same; one that is killed doesn't disturb the other."""
    paths = [os.path.join(folder, str(i)) for i in range(3)]
    for p in paths:
        os.makedirs(p)
    with TruthServer(folder) as server, Tracer(paths[0], server.port) as a, Tracer(paths[1], server.port) as b, \
            Tracer(paths[2], server.port) as c:
        with Load(folder, server.port, CHAT, body=PACE, **LOADS["c32"]) as client:
            time.sleep(0.3)
            c.popen.kill()
            clients = client.log()
        witnesses = server.witnesses(LOADS["c32"]["requests"])
        both = [t.stop() for t in (a, b)]
    problems = [p for records in both for p in check.check_run(records, witnesses, EXPECT, clients)]
    same = ("peer", "model", "tokens", "token_frames", "frames", "finish", "flags")
    a_says, b_says = (sorted(json.dumps([r[k] for k in same]) for r in records) for records in both)
    problems += [] if a_says == b_says else ["they differ"]
    judge(problems, a.err_path, b.err_path)


@test("tracer.unloads_under_load")
def unloads_under_load(folder):
    """Attached to and taken off a busy server eight times: it serves on, nothing stays in the kernel, the output is whole."""
    problems = []
    with TruthServer(folder) as server:
        with Load(folder, server.port, CHAT, body={"gap_us": 4000}, requests=32, concurrency=32, tokens=(9000,)) as client:
            for i in range(8):
                with Tracer(folder, server.port) as tracer:
                    time.sleep(0.1 * (i % 3))
                    records = tracer.stop()  # fails if anything is left
                problems += [f"run {i}: a stream that was under way is not flagged" for r in records
                             if "mid_stream" not in r["flags"]]
                problems += nothing_lost(tracer.records_path)
            if client.popen.poll() is not None:
                raise Failure("the load was over before the last tracer")
            client.log()  # each stream is whole
        whole = [w.outcome for w in server.witnesses(32)]
    judge(problems + [f"outcome {o}" for o in whole if o != "done"])


@test("tracer.few_descriptors")
def few_descriptors(folder):
    """So few that it can't start: one clear line, exit status 1, and nothing left."""
    for limit in (5, 8, 12, 20, 30, 63):
        got = subprocess.run([TOOL, "trace", "-d", "1", "--no-tls"], capture_output=True, text=True, timeout=60,
                             preexec_fn=lambda n=limit: resource.setrlimit(resource.RLIMIT_NOFILE, (n, n)))
        said = [l for l in got.stderr.splitlines() if l.startswith("tokensnoop: ")]
        if got.returncode == 0:
            raise Failure(f"{limit} descriptors were enough: the test shows nothing")
        if got.returncode != 1 or len(said) != 1:
            raise Failure(f"with {limit} descriptors: exit status {got.returncode}, {said}")
        if f"only {limit} files may be open" not in said[0] or "ulimit -n" not in said[0]:
            raise Failure(f"with {limit} descriptors: not named: {said}")


# --- servers -------------------------------------------------------------------------------------------


@test("server.restarted")
def restarted(folder):
    """Killed in the middle of a frame and started again on its port: its request is cut, the next server's are whole."""
    with TruthServer(folder) as server, Tracer(folder, server.port) as tracer:
        # A byte a send: the kill is in the middle of a frame.
        stream = Stream(server.port, {"max_tokens": 400, "gap_us": 20000, "send_mode": "split1"}).send()
        stream.wait_frames(5)
        first = server.popen.pid
        server.popen.kill()
        server.popen.wait()
        stream.thread.join(EXIT_S)
        again = Process(folder, "again", [server.argv[0], str(server.port), server.log + ".again"])
        with again:
            wait_for("the port", EXIT_S, lambda: again.line(again.out_path, "ready"))
            with Load(folder, server.port, CHAT, body=PACE, **LOADS["c1"]) as client:
                clients = client.log()
            records = tracer.stop()
        witnesses = check.read_truth(server.log + ".again")
    cut = [r for r in records if r["pid"] == first]
    problems = [] if [r["finish"] for r in cut] == ["cut"] else [f"the killed server's: {[r['finish'] for r in cut]}"]
    problems += [f"{n} {r[n]} of a request that was cut" for r in cut for n in ("tokens",) if r[n] not in (None,) and
                 r["tokens_source"] == "usage"]
    others = [r for r in records if r["pid"] == again.popen.pid]
    judge(problems + check.check_run(others, witnesses, EXPECT, clients) + nothing_lost(tracer.records_path), tracer.err_path)


FORKING = r"""
import os, socket, sys, time
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("ready", flush=True)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
def chunk(text):
    data = b"data: " + text + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(data), data)
def token(i):
    return chunk(b'{"id":"c%d","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"content":"t%d"}}]}'
                 % (os.getppid(), i))
while True:
    conn, _ = listener.accept()
    data = b""
    while b"}" not in data:
        data += conn.recv(65536)
    conn.sendall(HEAD + token(0))
    for i in range(1, 4):  # each token from a process of its own, the parent of the next
        if os.fork():
            os.wait()
            os._exit(0) if i > 1 else None
            break
        time.sleep(0.02)
        conn.sendall(token(i))
    else:
        conn.sendall(chunk(b'{"id":"c","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{},'
                     b'"finish_reason":"stop"}]}') + chunk(b"[DONE]") + b"0\r\n\r\n")
        os._exit(0)
    conn.close()
"""


@test("server.forks")
def forks(folder):
    """A connection that is handed on from fork to fork: one request with all its tokens."""
    port = free_port()
    server = Process(folder, "forking", [sys.executable, "-c", FORKING, str(port)])
    with server, Tracer(folder, port) as tracer:
        wait_for("the server", EXIT_S, lambda: server.line(server.out_path, "ready"))
        for _ in range(3):
            s = Stream(port, {"max_tokens": 4}).send()
            s.wait_end()
            s.close()
        records = tracer.stop()
    got = [(r["token_frames"], r["finish"], r["flags"]) for r in records]
    want = [(4, "stop", ["estimated"])] * 3
    judge([] if got == want else [f"{got}, not {want}"], tracer.err_path)


# --- many connections ----------------------------------------------------------------------------------

MANY = 20000


def memory_of(pid):
    """Resident KiB."""
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return int(re.search(r"^VmRSS:\s+(\d+)", f.read(), re.M)[1])


def in_and_out(port, count):
    for _ in range(count):
        with socket.create_connection(("127.0.0.1", port)) as s:
            # A reset in the end: no TIME_WAIT, of which there are too few ports.
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")


@test("many.connections")
def many_connections(folder):
    """20,000 connections that come and go: none is kept, and requests in between are right."""
    with TruthServer(folder) as server, Tracer(folder, server.port) as tracer:
        pid, sizes, descriptors = tracer.popen.pid, [], []
        for _ in range(4):
            threads = [threading.Thread(target=in_and_out, args=(server.port, MANY // 16)) for _ in range(4)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            sizes.append(memory_of(pid))
            descriptors.append(len(os.listdir(f"/proc/{pid}/fd")))
        problems = load_and_check(folder, server, tracer)
    problems += [f"it grew from {sizes[0]} to {sizes[-1]} KiB"] if sizes[-1] > sizes[0] + 2048 else []
    problems += [f"descriptors {descriptors}"] if len(set(descriptors)) > 1 else []
    meta = meta_of(tracer.records_path)
    problems += [] if meta["connections"] >= MANY else [f"it saw {meta['connections']} connections of more than {MANY}"]
    judge(problems + nothing_lost(tracer.records_path), tracer.err_path)


@test("many.table_full")
def table_full(folder):
    """More connections than the table holds: those idle longest go, and are counted; who is busy stays."""
    limit, idle = 20, 50
    with TruthServer(folder) as server, Tracer(folder, server.port, wrap=["env", f"TOKENSNOOP_CONNECTIONS={limit}"]) as tracer:
        stream = Stream(server.port, {"max_tokens": 300, "gap_us": 10000}).send()
        stream.wait_frames(5)
        others = []
        for _ in range(idle):
            others.append(socket.create_connection(("127.0.0.1", server.port)))
            seen = stream.frames
            wait_for("a token in between", EXIT_S, lambda n=seen: stream.frames > n)
        stream.wait_end()
        stream.send({"max_tokens": 7}).wait_end()
        stream.close()
        witnesses = server.witnesses(2)
        records = tracer.stop()
        for s in others:
            s.close()
    evicted, want = meta_of(tracer.records_path)["drops"]["evicted"], idle + 1 - limit
    problems = [] if evicted == want else [f"{evicted} evicted, {want} were too many"]
    judge(problems + check.check_run(records, witnesses, EXPECT), tracer.err_path)


if __name__ == "__main__":
    sys.exit(run_live.main(sys.argv[1:]))
