#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Streams chat requests from an LLM server and logs what came, and when.

usage: load.py PORT [--path PATH] [--requests N] [--concurrency C] [--body JSON] [--max-tokens LIST]
               [--no-keep-alive] [--abort-after FRAMES] [-o FILE]

--body is merged into each request; request i takes entry i (modulo the length) of --max-tokens.
--abort-after closes the connection once so many token frames have come.

The log has one JSON object a request: index, local (port), nr (of the request on its connection), status,
id, usage, timings, finish, error, outcome (done, aborted, cut), t_send_ns, t_end_ns (CLOCK_MONOTONIC), and
frames: a list of [time, "token" or "other"], the time being when the frame's blank line was read.
"""
import argparse
import http.client
import itertools
import json
import sys
import threading
import time

HOST = "127.0.0.1"
TIMEOUT_S = 120


def is_token(obj):
    """Whether a frame shows text; a token without any (end of sequence) can't be seen here."""
    for choice in obj.get("choices") or []:
        delta = choice.get("delta") or {}
        if choice.get("text") or any(delta.get(k) for k in ("content", "reasoning", "reasoning_content")):
            return True
    return False


class Seen:
    """What one request got."""

    def __init__(self, index, local, nr):
        self.log = {"index": index, "local": local, "nr": nr, "status": None, "id": None, "usage": None,
                    "timings": None, "finish": None, "error": None, "outcome": "cut", "t_send_ns": None,
                    "t_end_ns": None, "frames": []}

    def frame(self, data, now):
        """Takes one frame's data; returns whether it was a token frame."""
        log = self.log
        if data == b"[DONE]":
            log["frames"].append([now, "other"])
            return False
        obj = json.loads(data)
        token = is_token(obj)
        log["frames"].append([now, "token" if token else "other"])
        log["id"] = obj.get("id") or log["id"]
        for key in ("usage", "timings", "error"):
            log[key] = obj.get(key) or log[key]
        for choice in obj.get("choices") or []:
            log["finish"] = choice.get("finish_reason") or log["finish"]
        return token


def read_stream(response, seen, abort_after):
    """Reads frames to the end of the answer; False once as many token frames as wanted have come."""
    tokens, data = 0, b""
    while True:
        line = response.readline()
        if not line:
            return True
        if line.startswith(b"data:"):
            data += line[5:].strip()
        elif not line.strip() and data:
            tokens += seen.frame(data, time.monotonic_ns())
            data = b""
            if abort_after and tokens >= abort_after:
                return False


def exchange(connection, seen, args, body):
    log = seen.log
    payload = json.dumps(body).encode()
    headers = {"Content-Type": "application/json", "Connection": "keep-alive" if args.keep_alive else "close"}
    log["t_send_ns"] = time.monotonic_ns()
    connection.request("POST", args.path, payload, headers)
    response = connection.getresponse()
    log["status"] = response.status
    if "event-stream" not in (response.getheader("content-type") or ""):
        obj = json.loads(response.read())
        for key in ("id", "usage", "timings", "error"):
            log[key] = obj.get(key)
        log["outcome"] = "done"
    elif not read_stream(response, seen, args.abort_after):
        log["outcome"] = "aborted"
    elif log["finish"] or log["error"]:  # http.client doesn't tell an end from a cut
        log["outcome"] = "done"


class Load:
    """The requests of one run, and their logs."""

    def __init__(self, args):
        self.args = args
        self.indexes = iter(range(args.requests))
        self.lock = threading.Lock()
        self.logs = []

    def body(self, index):
        args = self.args
        body = {"model": "tiny", "stream": True, "stream_options": {"include_usage": True}}
        if "chat" in args.path:
            body["messages"] = [{"role": "user", "content": "Hi"}]
        else:
            body["prompt"] = "Hi"
        if args.max_tokens:
            body["max_tokens"] = args.max_tokens[index % len(args.max_tokens)]
        body.update(args.body)
        return body

    def one(self, connection, index, nr):
        seen = Seen(index, connection.sock.getsockname()[1], nr)
        try:
            exchange(connection, seen, self.args, self.body(index))
        except (OSError, http.client.HTTPException, ValueError) as e:
            seen.log["error"] = seen.log["error"] or f"{type(e).__name__}: {e}"
        seen.log["t_end_ns"] = time.monotonic_ns()
        with self.lock:
            self.logs.append(seen.log)
        return seen.log["outcome"] == "done"

    def worker(self):
        connection = None
        for nr in itertools.count():
            with self.lock:
                index = next(self.indexes, None)
            if index is None:
                break
            if connection is None or connection.sock is None:
                connection = http.client.HTTPConnection(HOST, self.args.port, timeout=TIMEOUT_S)
                connection.connect()
                first = nr
            if not self.one(connection, index, nr - first) or not self.args.keep_alive:
                connection.close()
                connection = None
        if connection:
            connection.close()

    def run(self):
        threads = [threading.Thread(target=self.worker) for _ in range(self.args.concurrency)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        return sorted(self.logs, key=lambda log: log["index"])


def parse_arguments(argv):
    p = argparse.ArgumentParser(description="streams requests and logs what came, and when")
    p.add_argument("port", type=int)
    p.add_argument("--path", default="/v1/chat/completions")
    p.add_argument("--requests", type=int, default=1)
    p.add_argument("--concurrency", type=int, default=1, choices=range(1, 65), metavar="1..64")
    p.add_argument("--body", type=json.loads, default={})
    p.add_argument("--max-tokens", type=lambda s: [int(n) for n in s.split(",")], default=[])
    p.add_argument("--no-keep-alive", dest="keep_alive", action="store_false")
    p.add_argument("--abort-after", type=int, default=0)
    p.add_argument("-o", "--output", default="-")
    return p.parse_args(argv)


def main(argv):
    args = parse_arguments(argv)
    logs = Load(args).run()
    text = "".join(json.dumps(log) + "\n" for log in logs)
    if args.output == "-":
        sys.stdout.write(text)
    else:
        with open(args.output, "w", encoding="utf-8") as f:
            f.write(text)
    wanted = "aborted" if args.abort_after else "done"
    return 0 if len(logs) == args.requests and all(log["outcome"] == wanted for log in logs) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
