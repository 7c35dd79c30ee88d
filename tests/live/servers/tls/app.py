#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Streams chat completions through uvicorn or hypercorn, over TLS or without.

usage: app.py STACK PORT WITNESS-LOG PEM [WORKERS]      serves until killed; Debian's Python

PORT is one of 127.0.0.1, or (uvicorn) the path of a unix socket. STACK is uvloop (with httptools), asyncio (with h11) or hypercorn (HTTP/1.1 and 2). PEM holds the certificate and its
key; "-": no TLS. Besides OpenAI's own fields a request may have gap_ms and prefill_ms (floats).

Every token's text is "MODEL:NUMBER ", and the id holds the model's name: what comes on another's answer shows. The
shape is SGLang's: a role frame, a frame a token, an empty frame with the finish reason, usage if asked for, [DONE].

The witness log is that of h2_app.py, and says each request's model. All servers of this folder answer and log alike.
"""
import asyncio
import itertools
import os
import socket
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import h2_app  # noqa: E402

numbers = itertools.count(1)


class Answer:
    def __init__(self, order, rid, witness, send):
        self.order, self.rid, self.witness, self.send = order, rid, witness, send
        self.model = str(order.get("model", "tiny"))
        self.total = int(order.get("max_tokens") or 16)
        self.gap, self.prefill = (float(order.get(k, d)) / 1e3 for k, d in (("gap_ms", 20), ("prefill_ms", 30)))

    async def frame(self, kind, obj, tokens=0):
        text = obj if isinstance(obj, str) else h2_app.compact(obj)
        self.witness.frame(kind, tokens)
        await self.send({"type": "http.response.body", "body": f"data: {text}\n\n".encode(), "more_body": True})

    def chunk(self, delta, finish=None):
        return {"id": self.rid, "object": "chat.completion.chunk", "created": 1, "model": self.model,
                "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    def usage(self):
        return {"prompt_tokens": 7, "total_tokens": 7 + self.total, "completion_tokens": self.total}

    async def stream(self):
        # Not at once: Go's proxies (caddy) break an answer that begins while they look for the end of the request
        await asyncio.sleep(0.02)
        at = time.monotonic() + self.prefill
        await self.send({"type": "http.response.start", "status": 200,
                         "headers": [(b"content-type", b"text/event-stream")]})
        await self.frame("role", self.chunk({"role": "assistant", "content": ""}))
        for i in range(self.total):
            await asyncio.sleep(max(0.0, at - time.monotonic()))
            at += self.gap * (500 + i * 377 % 1001) / 1000
            await self.frame("token", self.chunk({"content": f"{self.model}:{i} "}), 1)
        await self.frame("finish", self.chunk({}, "length"))
        if (self.order.get("stream_options") or {}).get("include_usage"):
            await self.frame("usage", {**self.chunk({}), "choices": [], "usage": self.usage()})
        await self.frame("done", "[DONE]")


class App:
    def __init__(self, log):
        self.log = log

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            await h2_app.lifespan(receive, send)
        elif scope["path"] == "/v1/chat/completions":
            await self.answer(scope, receive, send)
        else:
            await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})

    async def answer(self, scope, receive, send):
        order = await h2_app.request_of(scope, receive)
        rid = f"chatcmpl-{order.get('model')}-{os.getpid()}-{next(numbers)}"
        w = h2_app.Witness(self.log, scope, rid)
        w.base.update(request=rid, model=order.get("model"), pid=os.getpid())
        outcome = "gone"
        try:
            await Answer(order, rid, w, send).stream()
            outcome = "done"
        finally:
            await w.end(outcome)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def __getattr__(name):
    """uvicorn's workers import the module and ask for `app`."""
    if name != "app":
        raise AttributeError(name)
    return App(open(os.environ["WITNESS_LOG"], "a", encoding="utf-8"))


def uvicorn(stack, port, log, pem, workers="1"):
    os.environ["WITNESS_LOG"] = log
    parts = {"uvloop": ["--loop", "uvloop", "--http", "httptools"], "asyncio": ["--loop", "asyncio", "--http", "h11"]}
    tls = [] if pem == "-" else ["--ssl-keyfile", pem, "--ssl-certfile", pem]
    where = ["--uds", port] if "/" in port else ["--host", "127.0.0.1", "--port", port]
    argv = [sys.executable, "-m", "uvicorn", "app:app", "--app-dir", HERE, *where,
            "--log-level", "warning", "--no-access-log", *parts[stack], *tls]
    os.execv(sys.executable, argv + (["--workers", workers] if workers != "1" else []))


def hypercorn(port, log_path, pem):
    import hypercorn.asyncio
    import hypercorn.config

    # asyncio switches Nagle's algorithm off only on sockets that say that they are TCP; hypercorn's own don't
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", int(port)))
    config = hypercorn.config.Config()
    config.bind, config.loglevel, config.keep_alive_timeout = [f"fd://{listener.fileno()}"], "WARNING", 300
    config.graceful_timeout = 0.1
    if pem != "-":
        config.certfile, config.keyfile, config.alpn_protocols = pem, pem, ["h2", "http/1.1"]
    with open(log_path, "a", encoding="utf-8") as log:
        asyncio.run(hypercorn.asyncio.serve(App(log), config))


def main(argv):
    if len(argv) not in (4, 5) or argv[0] not in ("uvloop", "asyncio", "hypercorn"):
        sys.exit(__doc__)
    open(argv[2], "a", encoding="utf-8").close()
    if argv[0] == "hypercorn":
        hypercorn(*argv[1:4])
    else:
        uvicorn(*argv)


if __name__ == "__main__":
    main(sys.argv[1:])
