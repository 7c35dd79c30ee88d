#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Streams chat requests, each of a model name of its own, over TLS or without, and logs what came, and when.

usage: client.py PORT|PATH --max-tokens LIST [--requests N] [--concurrency C] [--tls] [--h2] [--body JSON] [--prefix NAME]
                 [--any] [--slow MS] [--host ADDRESS] -o FILE        Debian's Python (python3-h2)

Request i asks model NAME-i for entry i (modulo the length) of the list. HTTP/1.1: C connections, each for one request
after the other. --h2: one connection, of which C streams are open at a time. Certificates are not verified.
A line "under way" says that the first frame has come. --any: a server that does not repeat the model. --slow: a small
buffer, and a rest after each frame (HTTP/1.1).

The log is that of ../../clients/load.py (with --h2 that of h2_client.py), and has model, version (of TLS) and foreign:
the frames that are not this request's, by id, model or text. Exit status 1 if a request did not end well.
"""
import argparse
import http.client
import itertools
import json
import os
import socket
import ssl
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "clients"))
import h2_client  # noqa: E402
import load  # noqa: E402


def context(alpn):
    c = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    c.check_hostname, c.verify_mode = False, ssl.CERT_NONE
    c.set_alpn_protocols([alpn])
    return c


def foreign(log, obj, last):
    """Whether a frame is not of this request, or not the next one."""
    text = "".join((c.get("delta") or {}).get("content") or "" for c in obj.get("choices") or [])
    want, rid = f"{log['model']}:{last} ", obj.get("id")
    return obj.get("model") != log["model"] or (log["id"] or rid) != rid or text.rstrip("x") not in ("", want)


class Own:
    """Mixed into the readers of both clients: checks whose each frame is."""

    def own(self, model, args):
        self.log.update(model=model, foreign=0, version=None)
        self.args = args
        return self

    def frame(self, data, now):
        if data != b"[DONE]" and not self.args.any:
            self.log["foreign"] += foreign(self.log, json.loads(data), sum(k == "token" for _, k in self.log["frames"]))
        if not self.args.announced:
            self.args.announced = True
            print("under way", flush=True)
        time.sleep(self.args.slow / 1e3)
        return super().frame(data, now)


class Seen1(Own, load.Seen):
    pass


class Seen2(Own, h2_client.Seen):
    pass


def small_socket(address, *_):
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(address)
    return sock


class Unix(http.client.HTTPConnection):
    """Over a unix socket."""

    def __init__(self, path):
        super().__init__("localhost", timeout=load.TIMEOUT_S)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


def local_port(sock):
    return None if sock.family == socket.AF_UNIX else sock.getsockname()[1]


class Client1(load.Load):
    """HTTP/1.1: the worker threads of load.py."""

    def connection(self):
        if isinstance(self.args.port, str):
            return Unix(self.args.port)
        where = {"host": self.args.host, "port": self.args.port, "timeout": load.TIMEOUT_S}
        tls = self.args.tls
        c = http.client.HTTPSConnection(**where, context=context("http/1.1")) if tls else \
            http.client.HTTPConnection(**where)
        if self.args.slow:
            c._create_connection = small_socket
        return c

    def one(self, connection, index, nr):
        model = f"{self.args.prefix}-{index}"
        seen = Seen1(index, local_port(connection.sock), nr).own(model, self.args)
        seen.log["version"] = connection.sock.version() if self.args.tls else None
        try:
            load.exchange(connection, seen, self.args, {**self.body(index), "model": model})
        except (OSError, http.client.HTTPException, ValueError) as e:
            seen.log["error"] = seen.log["error"] or f"{type(e).__name__}: {e}"
        seen.log["t_end_ns"] = time.monotonic_ns()
        with self.lock:
            self.logs.append(seen.log)
        return seen.log["outcome"] == "done"

    def worker(self):
        connection, first = None, 0
        for nr in itertools.count():
            with self.lock:
                index = next(self.indexes, None)
            if index is None:
                break
            if connection is None or connection.sock is None:
                connection, first = self.connection(), nr
                connection.connect()
            if not self.one(connection, index, nr - first):
                connection.close()
                connection = None
        if connection:
            connection.close()


class Client2(h2_client.Client):
    """HTTP/2: the one connection of h2_client.py."""

    def __init__(self, args):
        args.abort = []
        super().__init__(args)
        if args.tls:
            self.sock = context("h2").wrap_socket(self.sock, server_hostname="localhost")
            if self.sock.selected_alpn_protocol() != "h2":
                sys.exit("the server speaks no HTTP/2")

    def start(self, index):
        args, model = self.args, f"{self.args.prefix}-{index}"
        self.args.body["model"] = model
        before = set(self.streams)
        self.open(index, args.max_tokens[index % len(args.max_tokens)])
        stream_id = next(iter(set(self.streams) - before))
        seen = Seen2(index, self.sock.getsockname()[1], stream_id).own(model, self.args)
        seen.log["version"] = self.sock.version() if args.tls else None
        self.streams[stream_id] = seen

    def left(self):
        return sum(s.log["outcome"] == "open" for s in self.streams.values())

    def run(self):
        for index in range(self.args.requests):
            self.start(index)
            last = index == self.args.requests - 1
            if last or self.left() >= self.args.concurrency:
                self.flush()
                self.pump(lambda last=last: self.left() < (1 if last else self.args.concurrency))
        self.h2.close_connection()
        if not self.closed:
            self.flush()
        self.sock.close()
        return [s.log for s in self.streams.values()]


def parse_arguments(argv):
    p = argparse.ArgumentParser(description="streams requests over TLS or without and logs what came, and when")
    p.add_argument("port", type=lambda s: int(s) if s.isdigit() else s)
    p.add_argument("--path", default="/v1/chat/completions")
    p.add_argument("--max-tokens", type=lambda s: [int(n) for n in s.split(",")], required=True)
    p.add_argument("--requests", type=int, default=1)
    p.add_argument("--concurrency", type=int, default=1)
    p.add_argument("--tls", action="store_true")
    p.add_argument("--h2", action="store_true")
    p.add_argument("--body", type=json.loads, default={})
    p.add_argument("--prefix", default="model")
    p.add_argument("--any", action="store_true")
    p.add_argument("--slow", type=float, default=0)
    p.add_argument("--host", default=load.HOST)
    p.add_argument("-o", "--output", required=True)
    p.set_defaults(keep_alive=True, abort_after=0, announced=False)
    return p.parse_args(argv)


def main(argv):
    args = parse_arguments(argv)
    logs = (Client2 if args.h2 else Client1)(args).run()
    with open(args.output, "w", encoding="utf-8") as f:
        f.write("".join(json.dumps(log) + "\n" for log in logs))
    good = [log for log in logs if log["outcome"] == "done" and log["usage"] and not log["foreign"]]
    return 0 if len(good) == args.requests else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
