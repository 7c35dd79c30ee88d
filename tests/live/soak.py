#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""One trace for a long time under mixed traffic, as TAP: every request is accounted for, and what the trace holds stays as
it is.

usage: soak.py [--seconds N] [--keep DIR]      4 hours by default

Traffic, each in a thread of its own until the time is over: requests on one connection, a connection a request, requests
that the client gives up, connections without a request, requests over TLS, and processes that map a TLS library and end.
Each request asks for a model of its own, by which its record is found.

Memory: each figure of the summary keeps its values, 16 bytes each in arrays that double, so that much the trace may grow
by; of all else it may not grow.
"""
import argparse
import collections
import http.client
import json
import os
import re
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time

import check
import run_tls
from rig import EXIT_S, Failure, Tracer, TruthServer, tail

PAUSE_S = 0.05  # between two requests of a thread
VALUE_BYTES, SPARE_KIB = 16, 2048
ABORT_TOKENS = 400


class Traffic:
    """What was asked for, and how it ended."""

    def __init__(self, plain, secure):
        self.plain, self.secure, self.over = plain, secure, threading.Event()
        self.asked, self.lock, self.errors = {}, threading.Lock(), []
        self.empty = 0  # connections without a request

    def ask(self, connection, kind, tokens):
        """One request, read to its end; the client gives up after the first bytes of kind "abort"."""
        with self.lock:
            model = f"{kind}-{len(self.asked)}"
            self.asked[model] = tokens
        body = {"model": model, "stream": True, "max_tokens": tokens, "gap_us": 2000, "gap_ms": 2, "prefill_us": 2000,
                "prefill_ms": 2, "stream_options": {"include_usage": True}, "messages": []}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if kind == "abort":
            answer.read(1000)
            connection.sock.shutdown(socket.SHUT_RDWR)
            connection.close()
        elif b"[DONE]" not in answer.read():
            raise Failure(f"{model}: the answer has no end")

    def kept(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.plain)
        while True:
            yield lambda: self.ask(connection, "kept", 23)

    def fresh(self, kind="fresh", tokens=7):
        while True:
            yield lambda: self.ask(http.client.HTTPConnection("127.0.0.1", self.plain), kind, tokens)

    def tls(self):
        context = ssl._create_unverified_context()
        while True:
            yield lambda: self.ask(http.client.HTTPSConnection("127.0.0.1", self.secure, context=context), "tls", 13)

    def nothing(self):
        while True:
            yield lambda: socket.create_connection(("127.0.0.1", self.plain)).close()

    @staticmethod
    def processes():
        while True:
            yield lambda: subprocess.run([run_tls.c_program("storm")], check=True)

    def run(self, what):
        try:
            for step in what:
                if self.over.wait(PAUSE_S):
                    return
                step()
        except (OSError, http.client.HTTPException, Failure, subprocess.SubprocessError) as e:
            self.errors.append(f"a client failed: {e!r}")

    def start(self):
        kinds = (self.kept(), self.fresh(), self.fresh("abort", ABORT_TOKENS), self.tls(), self.nothing(), self.processes())
        threads = [threading.Thread(target=self.run, args=(k,)) for k in kinds]
        for t in threads:
            t.start()
        return threads


def held_now(pid):
    """What the trace holds: resident KiB, descriptors, bytes of its BPF maps."""
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        resident = int(re.search(r"^VmRSS:\s+(\d+)", f.read(), re.M)[1])
    maps = check.bpf_objects("map")
    held = [n for kind, n in check.held_by(pid) if kind == "map"]
    return resident, len(os.listdir(f"/proc/{pid}/fd")), sum(maps[n]["bytes_memlock"] for n in held if n in maps)


def check_held(samples, values):
    """The second half of the time against the first, in which it fills its tables."""
    half = len(samples) // 2
    (resident, files, maps), (later, files_later, maps_later) = (
        [max(s[i] for s in part) for i in range(3)] for part in (samples[:half], samples[half:]))
    may = SPARE_KIB + 2 * VALUE_BYTES * values // 1024
    problems = [f"it grew from {resident} to {later} KiB, by more than {may}"] if later > resident + may else []
    problems += [f"it had {files} descriptors, then {files_later}"] if files_later > files else []
    problems += [f"its maps had {maps} bytes, then {maps_later}"] if maps_later > maps else []
    return problems, f"resident {resident} then {later} KiB, descriptors {files} then {files_later}, maps {maps >> 10} KiB"


def check_records(records, asked):
    found = collections.Counter(r["model"] for r in records)
    problems = [f"{found[m]} records of {m}" for m in asked if found[m] != 1]
    problems += [f"a record of {m}, which nobody asked for" for m in found if m not in asked]
    for r in records:
        kind, tokens = str(r["model"]).split("-", maxsplit=1)[0], asked.get(r["model"])
        good = r["finish"] == "length" and r["tokens"] == tokens
        if kind == "abort":
            good = r["finish"] == "aborted" and 0 < (r["tokens"] or 0) < tokens
        if not good or {"lost", "mid_stream", "blind"} & set(r["flags"]):
            problems.append(f"{r['model']}: {r['tokens']} tokens, {r['finish']}, {r['flags']}")
    return problems


def soak(folder, seconds):
    servers = TruthServer(folder), run_tls.CASES["openssl_blocking"].make(folder, True)
    plain, secure = servers
    path = os.path.join(folder, "records.jsonl")
    args = ["--port", str(secure.port), "--format", "jsonl", "-o", path]
    with plain, secure, Tracer(folder, plain.port, args) as tracer:
        traffic, samples = Traffic(plain.port, secure.port), []
        threads, end = traffic.start(), time.monotonic() + seconds
        while time.monotonic() < end and not traffic.errors:
            time.sleep(min(5, seconds / 20))
            samples.append(held_now(tracer.popen.pid))
        traffic.over.set()
        for t in threads:
            t.join(EXIT_S)
        values = 0
        records = tracer.stop()
    with open(path, encoding="utf-8") as f:
        drops = json.loads(f.readlines()[-1])["drops"]
    values = sum(8 + (r["tokens"] or 0) for r in records)  # each figure of a request, and its gaps
    problems, told = check_held(samples, values)
    kinds = collections.Counter(m.split("-", maxsplit=1)[0] for m in traffic.asked)
    print(f"# says: {len(records)} requests in {seconds} s ({', '.join(f'{n} {k}' for k, n in kinds.items())}): {told}")
    problems += traffic.errors + check_records(records, traffic.asked)
    problems += [f"{n} {v}" for n, v in drops.items() if v]
    problems += [f"no request of the kind {k}" for k in ("kept", "fresh", "abort", "tls") if not kinds[k]]
    return problems + ([] if not problems else tail(tracer.err_path, 12))


def main(argv):
    p = argparse.ArgumentParser()
    p.add_argument("--seconds", type=int, default=4 * 3600)
    p.add_argument("--keep", metavar="DIR", help="keep the files there")
    options = p.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="tks-soak-") as folder:
        if options.keep:
            os.makedirs(options.keep, exist_ok=True)
        try:
            problems = soak(options.keep or folder, options.seconds)
        except Failure as e:
            problems = list(e.args)
    for line in problems[:40]:
        print("#", line)
    print(f"{'not ok' if problems else 'ok'} 1 - live.soak\n1..1")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
