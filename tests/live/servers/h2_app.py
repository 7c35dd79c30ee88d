#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Streams chat completions over HTTP/2 without TLS, through hypercorn: prior knowledge, and Upgrade: h2c.

usage: h2_app.py PORT WITNESS-LOG        serves on 127.0.0.1 until killed; Debian's Python (python3-hypercorn)

Any path that ends in /chat/completions answers. The request is JSON, or, of a GET, its query. Besides OpenAI's
own fields it may have
    gap_ms, prefill_ms   mean time between tokens (20), time to the first one (30)
    pad                  bytes that are added to every token's text: above 16384 a token needs several DATA frames
    coding               "gzip": the body is compressed, flushed at every frame
    fault                "error": an error frame, then [DONE], after half of the tokens

The shape is SGLang's: a role frame, a frame a token, an empty frame with the finish reason, usage, [DONE].

The witness log is that of fastapi_app.py. before_ns is taken just before the frame is handed to hypercorn, after_ns
several rounds of the event loop later: hypercorn's own task needs some to write.
"""
import asyncio
import itertools
import json
import socket
import sys
import time
import urllib.parse
import zlib

import hypercorn.asyncio
import hypercorn.config

ROUNDS = 12
PROMPT_TOKENS = 7
WORDS = ["Hi", " there", " w\u00f6rld", ' "quoted"', "\u65e5\u672c", "\n\n", " data: [DONE]", "\U0001f600"]
numbers = itertools.count(1)


def compact(obj):
    return json.dumps(obj, separators=(",", ":"), ensure_ascii=False)


class Witness:
    """Logs the frames of one request."""

    def __init__(self, log, scope, rid):
        peer = scope["client"][1] if scope.get("client") else None
        self.log, self.lines = log, []
        self.base = {"request": next(numbers), "id": rid, "peer": peer, "http": scope["http_version"]}

    def frame(self, kind, tokens=0):
        line = {"kind": kind, "choice": 0, "tokens": tokens, "before_ns": time.monotonic_ns(), "after_ns": None}
        self.lines.append(line)
        asyncio.get_running_loop().call_soon(self.round, line, ROUNDS)

    def round(self, line, left):
        if left:
            asyncio.get_running_loop().call_soon(self.round, line, left - 1)
        else:
            line["after_ns"] = time.monotonic_ns()

    async def end(self, outcome):
        while any(line["after_ns"] is None for line in self.lines):
            await asyncio.sleep(0)
        total = sum(line["tokens"] for line in self.lines)
        self.lines.append({"kind": "end", "outcome": outcome, "completion_tokens": total})
        self.log.write("".join(json.dumps({**self.base, **line}) + "\n" for line in self.lines))
        self.log.flush()


class Answer:
    """One request's answer as ASGI messages."""

    def __init__(self, order, rid, send):
        self.order, self.rid, self.send = order, rid, send
        self.deflate = zlib.compressobj(wbits=31) if order.get("coding") == "gzip" else None
        self.total = int(order.get("max_tokens") or 16)
        self.gap, self.prefill = (float(order.get(k, d)) / 1e3 for k, d in (("gap_ms", 20), ("prefill_ms", 30)))

    async def head(self, status, kind):
        headers = [(b"content-type", kind), (b"x-request-id", self.rid.encode())]
        if self.deflate:
            headers.append((b"content-encoding", b"gzip"))
        await self.send({"type": "http.response.start", "status": status, "headers": headers})

    async def body(self, data, more=True):
        if self.deflate:
            data = self.deflate.compress(data) + self.deflate.flush(zlib.Z_SYNC_FLUSH if more else zlib.Z_FINISH)
        await self.send({"type": "http.response.body", "body": data, "more_body": more})

    def chunk(self, delta, finish=None):
        return {"id": self.rid, "object": "chat.completion.chunk", "created": 1,
                "model": self.order.get("model", "tiny"),
                "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}], "usage": None}

    def usage(self):
        return {"prompt_tokens": PROMPT_TOKENS, "total_tokens": PROMPT_TOKENS + self.total,
                "completion_tokens": self.total}

    async def frame(self, w, kind, obj, tokens=0):
        text = obj if isinstance(obj, str) else compact(obj)
        w.frame(kind, tokens)
        await self.body(f"data: {text}\n\n".encode())

    async def stream(self, w):
        at = time.monotonic() + self.prefill
        await self.head(200, b"text/event-stream")
        await self.frame(w, "role", self.chunk({"role": "assistant", "content": ""}))
        for i in range(self.total):
            await asyncio.sleep(max(0.0, at - time.monotonic()))
            at += self.gap * (500 + i * 377 % 1001) / 1000
            if self.order.get("fault") == "error" and i == self.total // 2:
                await self.frame(w, "error", {"error": {"message": "engine died", "type": "server_error", "code": 500}})
                await self.frame(w, "done", "[DONE]")
                return "error"
            text = WORDS[i % len(WORDS)] + "x" * int(self.order.get("pad") or 0)
            await self.frame(w, "token", self.chunk({"content": text}), 1)
        await self.frame(w, "finish", self.chunk({}, "length"))
        await self.frame(w, "usage", {**self.chunk({}), "choices": [], "usage": self.usage()})
        await self.frame(w, "done", "[DONE]")
        return "done"

    async def whole(self):
        choice = {"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "length"}
        await asyncio.sleep(self.prefill)
        await self.head(200, b"application/json")
        await self.body(compact({"id": self.rid, "object": "chat.completion", "model": "tiny", "choices": [choice],
                                 "usage": self.usage()}).encode())


async def request_of(scope, receive):
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    if scope["method"] == "GET":
        return {"stream": True, **dict(urllib.parse.parse_qsl(scope["query_string"].decode()))}
    return json.loads(body)


async def gone(receive):
    while (await receive())["type"] != "http.disconnect":
        pass


async def lifespan(receive, send):
    for step in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{step}.complete"})


class App:
    def __init__(self, log):
        self.log = log

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
        elif scope["path"].endswith("/chat/completions") and scope["method"] in ("GET", "POST"):
            await self.answer(scope, receive, send)
        else:
            await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})

    async def answer(self, scope, receive, send):
        order = await request_of(scope, receive)
        rid = f"chatcmpl-{scope['client'][1]}-{next(numbers)}"
        w, a = Witness(self.log, scope, rid), Answer(order, rid, send)
        work = asyncio.ensure_future(a.stream(w) if order.get("stream") else a.whole())
        leave = asyncio.ensure_future(gone(receive))
        await asyncio.wait({work, leave}, return_when=asyncio.FIRST_COMPLETED)
        left = not work.done()
        work.cancel() if left else leave.cancel()
        await asyncio.gather(work, leave, return_exceptions=True)
        if not left:
            work.result()
            await w.end("done" if not order.get("stream") else work.result())
            await a.body(b"", more=False)
        else:
            await w.end("gone")


def main(port, log_path):
    # asyncio switches Nagle's algorithm off only on sockets that say that they are TCP; hypercorn's own don't
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", int(port)))
    config = hypercorn.config.Config()
    config.bind, config.loglevel, config.keep_alive_timeout = [f"fd://{listener.fileno()}"], "WARNING", 300
    config.graceful_timeout = 0.1
    with open(log_path, "w", encoding="utf-8") as log:
        asyncio.run(hypercorn.asyncio.serve(App(log), config))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
