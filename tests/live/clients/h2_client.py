#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Streams chat requests over one HTTP/2 connection (prior knowledge), many at once, and logs what came, and when.

usage: h2_client.py PORT --max-tokens LIST [--path PATH] [--body JSON] [--rounds N] [--go FILE] [--abort I:FRAMES]...
                    [-o FILE]        Debian's Python (python3-h2)

A round opens a stream for each entry of --max-tokens, all in one write; the next one begins when all have ended.
A line "under way" says that each stream of a round has 5 token frames.
With --go the last round waits until FILE exists; the rounds before are announced by a line "round N done". --abort
resets the last round's stream number I (from 0) with CANCEL once it has so many token frames.

The log is that of load.py, a line a stream, with stream_id in place of nr.
"""
import argparse
import json
import os
import select
import socket
import sys
import time
import zlib

import h2.config
import h2.connection
import h2.errors
import h2.events

HOST, TIMEOUT_S = "127.0.0.1", 120


class Seen:
    """What one stream got."""

    def __init__(self, index, local, stream_id):
        self.pending, self.inflate = b"", None
        self.log = {"index": index, "local": local, "stream_id": stream_id, "status": None, "id": None, "usage": None,
                    "timings": None, "finish": None, "error": None, "outcome": "open",
                    "t_send_ns": time.monotonic_ns(), "t_end_ns": None, "data_frames": 0, "frames": []}

    def head(self, headers):
        headers = dict(headers)
        self.log["status"] = int(headers[":status"])
        if headers.get("content-encoding") == "gzip":
            self.inflate = zlib.decompressobj(wbits=31)

    def data(self, data):
        now = time.monotonic_ns()
        self.log["data_frames"] += 1
        *whole, self.pending = (self.pending + (self.inflate.decompress(data) if self.inflate else data)).split(b"\n\n")
        for frame in whole:
            self.frame(frame.removeprefix(b"data: "), now)

    def frame(self, data, now):
        log, token = self.log, False
        if data != b"[DONE]":
            obj = json.loads(data)
            log["id"] = obj.get("id") or log["id"]
            log["usage"], log["error"] = obj.get("usage") or log["usage"], obj.get("error") or log["error"]
            for choice in obj.get("choices") or []:
                token |= bool(choice["delta"].get("content"))
                log["finish"] = choice.get("finish_reason") or log["finish"]
        log["frames"].append([now, "token" if token else "other"])

    def end(self, outcome):
        self.log.update(outcome=outcome, t_end_ns=time.monotonic_ns())

    @property
    def tokens(self):
        return sum(kind == "token" for _, kind in self.log["frames"])


class Client:
    def __init__(self, args):
        self.args = args
        self.aborts = dict(map(int, a.split(":")) for a in args.abort)
        self.sock = socket.create_connection((HOST, args.port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self.h2.initiate_connection()
        self.streams, self.closed = {}, False

    def flush(self):
        data = self.h2.data_to_send()
        if data:
            self.sock.sendall(data)

    def open(self, index, tokens):
        stream_id = self.h2.get_next_available_stream_id()
        body = {"model": "tiny", "stream": True, "stream_options": {"include_usage": True}, "max_tokens": tokens,
                "messages": [{"role": "user", "content": "Hi"}], **self.args.body}
        headers = [(":method", "POST"), (":scheme", "http"), (":authority", f"{HOST}:{self.args.port}"),
                   (":path", self.args.path), ("content-type", "application/json"), ("user-agent", "h2_client")]
        self.streams[stream_id] = Seen(index, self.sock.getsockname()[1], stream_id)
        self.h2.send_headers(stream_id, headers)
        self.h2.send_data(stream_id, json.dumps(body).encode(), end_stream=True)

    def event(self, e):
        seen = self.streams.get(getattr(e, "stream_id", None))
        if isinstance(e, h2.events.ResponseReceived):
            seen.head(e.headers)
        elif isinstance(e, h2.events.DataReceived):
            self.h2.acknowledge_received_data(e.flow_controlled_length, e.stream_id)
            seen.data(e.data)
        elif isinstance(e, h2.events.StreamEnded):
            seen.end("done")
        elif isinstance(e, h2.events.StreamReset) and seen.log["outcome"] == "open":
            seen.end("reset")
        elif isinstance(e, h2.events.ConnectionTerminated):
            self.closed = True

    def abort(self, last):
        """Resets those of the last round's streams whose time has come."""
        for seen in self.streams.values() if last else ():
            want = self.aborts.get(seen.log["index"])
            if want and seen.log["outcome"] == "open" and seen.tokens >= want:
                self.h2.reset_stream(seen.log["stream_id"], h2.errors.ErrorCodes.CANCEL)
                seen.end("aborted")

    def pump(self, wanted, last=False):
        """Reads until wanted() is true, or nothing more comes."""
        deadline, under_way = time.monotonic() + TIMEOUT_S, False
        while not wanted() and not self.closed and time.monotonic() < deadline:
            if select.select([self.sock], [], [], 0.02)[0]:
                data = self.sock.recv(65536)
                self.closed |= not data
                for e in self.h2.receive_data(data):
                    self.event(e)
            if not under_way and self.streams and all(s.tokens >= 5 for s in self.streams.values()):
                under_way = True
                print("under way", flush=True)
            self.abort(last)
            self.flush()

    def run(self):
        args = self.args
        for n in range(args.rounds):
            last = n == args.rounds - 1
            if last and args.go:
                self.pump(lambda: os.path.exists(args.go))
            done, self.streams = self.streams, {}
            for index, tokens in enumerate(args.max_tokens):
                self.open(index, tokens)
            self.flush()
            self.pump(lambda: all(s.log["outcome"] != "open" for s in self.streams.values()), last)
            self.streams = {**done, **self.streams}
            print(f"round {n} done", flush=True)
        self.h2.close_connection()
        if not self.closed:
            self.flush()
        self.sock.close()
        return [s.log for s in self.streams.values()]


def parse_arguments(argv):
    p = argparse.ArgumentParser(description="streams requests over HTTP/2 and logs what came, and when")
    p.add_argument("port", type=int)
    p.add_argument("--path", default="/v1/chat/completions")
    p.add_argument("--max-tokens", type=lambda s: [int(n) for n in s.split(",")], required=True)
    p.add_argument("--body", type=json.loads, default={})
    p.add_argument("--rounds", type=int, default=1)
    p.add_argument("--go")
    p.add_argument("--abort", action="append", default=[])
    p.add_argument("-o", "--output", required=True)
    return p.parse_args(argv)


def main(argv):
    args = parse_arguments(argv)
    client = Client(args)
    logs = client.run()
    with open(args.output, "w", encoding="utf-8") as f:
        f.write("".join(json.dumps(log) + "\n" for log in logs))
    wanted = args.rounds * len(args.max_tokens)
    return 0 if len(logs) == wanted and all(log["outcome"] in ("done", "aborted") for log in logs) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
