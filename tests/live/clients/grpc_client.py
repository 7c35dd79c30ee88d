#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Calls servers/grpc_app.py over one channel, and logs what came, and when.

usage: grpc_client.py PORT sglang|triton --tokens LIST [--rounds N] [--metadata JSON] [--gzip] [--cancel I:MESSAGES]
                      [--bad I]... [--staggered] [--go FILE] -o FILE

sglang: a call for each entry of --tokens, all at once, N times; with --go the last round begins once FILE exists.
triton: one call, with a request for each entry, N times; with --staggered a request goes out only after the first
answer to the one before. --bad gives request I an id that asks for trouble. --cancel cancels the last round's call
number I after so many messages.

The log has a line a request: id, t_send_ns, t_end_ns, status (gRPC's, by name), outcome (done, aborted, error) and
frames: [time, "token" or "other"].
"""
import argparse
import json
import os
import queue
import sys
import threading
import time

import grpc

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "servers"))
from grpc_app import SGLANG, TRITON, field, parse  # noqa: E402

TIMEOUT_S = 60


class Seen:
    """What one request got."""

    def __init__(self, rid, tokens):
        self.tokens, self.ended = tokens, threading.Event()
        self.begun = threading.Event()
        self.log = {"id": rid, "t_send_ns": None, "t_end_ns": None, "status": None, "outcome": "open", "frames": []}

    def frame(self, kind):
        self.log["frames"].append([time.monotonic_ns(), kind])
        self.begun.set()

    def end(self, outcome, status=None):
        if not self.ended.is_set():
            self.log.update(outcome=outcome, status=status, t_end_ns=time.monotonic_ns())
        self.begun.set()
        self.ended.set()


class Client:
    def __init__(self, args):
        self.args, self.logs = args, []
        algorithm = grpc.Compression.Gzip if args.gzip else grpc.Compression.NoCompression
        self.channel = grpc.insecure_channel(f"127.0.0.1:{args.port}", compression=algorithm)
        self.metadata = [(k, str(v)) for k, v in args.metadata.items()]
        self.cancel = dict([map(int, args.cancel.split(":"))] if args.cancel else [])

    def call(self, kind, method, request):
        return getattr(self.channel, kind)(method)(request, metadata=self.metadata, timeout=TIMEOUT_S)

    # --- sglang ---

    def generate(self, seen, cancel_after):
        log = seen.log
        request = field(1, log["id"]) + field(2, field(1, "Hi") + field(2, [1, 2, 3, 4, 5])) + \
            field(4, field(8, seen.tokens)) + field(17, 1)
        log["t_send_ns"] = time.monotonic_ns()
        call = self.call("unary_stream", SGLANG, request)
        try:
            for message in call:
                seen.frame("token" if 2 in parse(message) else "other")
                if cancel_after and len(log["frames"]) >= cancel_after:
                    call.cancel()
            seen.end("done", call.code().name)
        except grpc.RpcError as e:
            seen.end("aborted" if e.code() == grpc.StatusCode.CANCELLED else "error", e.code().name)

    def sglang(self):
        for n in range(self.args.rounds):
            last = n == self.args.rounds - 1
            while last and self.args.go and not os.path.exists(self.args.go):
                time.sleep(0.01)
            cancel = self.cancel if last else {}
            round_ = [Seen(f"rid-{n}-{i}", tokens) for i, tokens in enumerate(self.args.tokens)]
            threads = [threading.Thread(target=self.generate, args=(s, cancel.get(i))) for i, s in enumerate(round_)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            self.logs += round_

    # --- triton ---

    def requests(self, outbox):
        for seen in iter(outbox.get, None):
            seen.log["t_send_ns"] = time.monotonic_ns()
            parameters = field(1, "max_tokens") + field(2, field(2, seen.tokens))
            tensor = field(1, "text_input") + field(2, "BYTES") + field(3, [1])
            yield field(1, "ens") + field(3, seen.log["id"]) + field(4, parameters) + field(5, tensor) + \
                field(7, b"\x02\0\0\0Hi")

    def receive(self, call, by_id, cancel_after):
        count = 0
        try:
            for count, message in enumerate(call, 1):
                self.message(parse(message), by_id)
                if count == cancel_after:
                    call.cancel()
            outcome, status = "cut", call.code().name
        except grpc.RpcError as e:
            outcome, status = "aborted" if e.code() == grpc.StatusCode.CANCELLED else "error", e.code().name
        for seen in by_id.values():
            seen.end(outcome, status)

    def message(self, outer, by_id):
        inner = parse(outer[2][0])
        seen = by_id[inner[3][0].decode()]
        if 1 in outer:
            seen.frame("other")
            seen.end("error")
        else:
            seen.frame("token" if 6 in inner else "other")
            if 6 not in inner:
                seen.end("done")

    def triton(self):
        args, outbox = self.args, queue.Queue()
        made = [[Seen(f"req-{n}-{i}{'-bad' if i in args.bad else ''}", tokens) for i, tokens in enumerate(args.tokens)]
                for n in range(args.rounds)]
        self.logs = [s for round_ in made for s in round_]
        call = self.call("stream_stream", TRITON, self.requests(outbox))
        reader = threading.Thread(target=self.receive, args=(call, {s.log["id"]: s for s in self.logs},
                                                             self.cancel.get(0)))
        reader.start()
        for round_ in made:
            for seen in round_:
                outbox.put(seen)
                if args.staggered:
                    seen.begun.wait(TIMEOUT_S)
            for seen in round_:
                seen.ended.wait(TIMEOUT_S)
        outbox.put(None)
        reader.join()


def parse_arguments(argv):
    p = argparse.ArgumentParser(description="streams answers over gRPC and logs what came, and when")
    p.add_argument("port", type=int)
    p.add_argument("service", choices=("sglang", "triton"))
    p.add_argument("--tokens", type=lambda s: [int(n) for n in s.split(",")], required=True)
    p.add_argument("--rounds", type=int, default=1)
    p.add_argument("--metadata", type=json.loads, default={})
    p.add_argument("--gzip", action="store_true")
    p.add_argument("--cancel")
    p.add_argument("--bad", type=int, action="append", default=[])
    p.add_argument("--staggered", action="store_true")
    p.add_argument("--go")
    p.add_argument("-o", "--output", required=True)
    return p.parse_args(argv)


def main(argv):
    args = parse_arguments(argv)
    client = Client(args)
    getattr(client, args.service)()
    client.channel.close()
    with open(args.output, "w", encoding="utf-8") as f:
        f.write("".join(json.dumps(s.log) + "\n" for s in client.logs))
    return 1 if any(s.log["outcome"] in ("open", "cut") for s in client.logs) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
