#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Speaks OpenAI's Realtime protocol, text only, over WebSockets on /v1/realtime.

usage: realtime_app.py PORT WITNESS-LOG [plain]      serves on 127.0.0.1 until killed; Debian's python3-websockets

permessage-deflate is offered as the library does by default; "plain" switches it off. Every response.create is
answered, one after another. Besides the protocol's own members its "response" may have
    gap_ms, prefill_ms   mean time between tokens (10), time to the first one (30)
    silent               tokens that are in the usage only
    fragments            every delta goes out in so many fragments, with a ping between the first two
    audio                a frame of audio behind every delta
    fault                "error": an error event after half of the tokens, then response.done, failed
An input_audio_buffer.commit starts a response of 13 tokens by itself, as voice detection does.

The witness log is that of fastapi_app.py: before_ns is taken just before the message is given to the library,
after_ns when the library is done with it, which writes at once.
"""
import asyncio
import itertools
import json
import sys
import time

import websockets

PROMPT_TOKENS = 11
WORDS = ["Hi", " there", " w\u00f6rld", ' "quoted"', "\u65e5\u672c", "\n\n", " response.done", "\U0001f600"]
numbers = itertools.count(1)


class Answer:
    """One response, and its witness."""

    def __init__(self, session, order):
        self.session, self.order = session, order
        self.rid = f"resp_{session.peer}_{next(numbers)}"
        self.base = {"request": next(numbers), "id": self.rid, "peer": session.peer}
        self.total = int(order.get("max_output_tokens") or 16)
        self.lines = []

    async def event(self, kind, name, tokens=0, **members):
        text = json.dumps({"type": name, "event_id": f"event_{next(numbers)}", **members})
        line = {"kind": kind, "choice": 0, "tokens": tokens, "before_ns": time.monotonic_ns(), "after_ns": None}
        self.lines.append(line)
        pieces = int(self.order.get("fragments") or 1) if tokens else 1
        await self.session.send(text, pieces)
        line["after_ns"] = time.monotonic_ns()

    def response(self, status, usage=None):
        details = {"type": status}
        if status == "failed":
            details["error"] = {"type": "server_error", "code": "engine_died"}
        return {"id": self.rid, "object": "realtime.response", "status": status, "output": [], "usage": usage,
                "status_details": None if status == "in_progress" else details}

    def usage(self, total):
        return {"total_tokens": PROMPT_TOKENS + total, "input_tokens": PROMPT_TOKENS, "output_tokens": total,
                "input_token_details": {"text_tokens": PROMPT_TOKENS, "audio_tokens": 0, "cached_tokens": 3},
                "output_token_details": {"text_tokens": total, "audio_tokens": 0}}

    async def deltas(self):
        gap, prefill = (float(self.order.get(k, d)) / 1e3 for k, d in (("gap_ms", 10), ("prefill_ms", 30)))
        at = time.monotonic() + prefill
        place = {"response_id": self.rid, "item_id": "item_1", "output_index": 0, "content_index": 0}
        for i in range(self.total):
            await asyncio.sleep(max(0.0, at - time.monotonic()))
            at += gap * (500 + i * 377 % 1001) / 1000
            if self.order.get("fault") == "error" and i == self.total // 2:
                await self.event("error", "error", error={"type": "server_error", "code": "engine_died",
                                                          "message": "engine died", "param": None})
                return "failed"
            await self.event("token", "response.output_text.delta", 1, **place, delta=WORDS[i % len(WORDS)])
            if self.order.get("audio"):
                await self.event("audio", "response.output_audio.delta", **place, delta="UklGRg==" * 20)
        text = "".join(WORDS[i % len(WORDS)] for i in range(self.total))
        await self.event("text", "response.output_text.done", **place, text=text)
        return "completed"

    async def run(self):
        outcome = "gone"
        try:
            await self.event("created", "response.created", response=self.response("in_progress"))
            await self.event("item", "response.output_item.added", response_id=self.rid, output_index=0,
                             item={"id": "item_1", "type": "message", "role": "assistant", "content": []})
            status = await self.deltas()
            sent = sum(line["tokens"] for line in self.lines) + int(self.order.get("silent") or 0)
            await self.event("finish", "response.done", response=self.response(status, self.usage(sent)))
            outcome = "done" if status == "completed" else "error"
            self.write(sent, outcome)
        except websockets.ConnectionClosed:
            self.write(sum(line["tokens"] for line in self.lines), outcome)

    def write(self, total, outcome):
        self.lines.append({"kind": "end", "outcome": outcome, "completion_tokens": total})
        self.session.log.write("".join(json.dumps({**self.base, **line}) + "\n" for line in self.lines))
        self.session.log.flush()


class Session:
    def __init__(self, socket, log):
        self.socket, self.log, self.peer = socket, log, socket.remote_address[1]

    async def send(self, text, pieces):
        if pieces == 1:
            await self.socket.send(text)
            return

        async def fragments():
            size = -(-len(text) // pieces)
            for i in range(pieces):
                yield text[i * size:(i + 1) * size]
                if i == 0:
                    await self.socket.ping()

        await self.socket.send(fragments())

    async def run(self):
        await self.socket.send(json.dumps({"type": "session.created", "event_id": "event_0",
                                           "session": {"id": "sess_1", "object": "realtime.session", "model": "tiny"}}))
        async for text in self.socket:
            message = json.loads(text)
            if message["type"] == "response.create":
                await Answer(self, message.get("response") or {}).run()
            elif message["type"] == "input_audio_buffer.commit":
                await Answer(self, {"max_output_tokens": 13}).run()


async def serve(port, log_path, compression):
    with open(log_path, "w", encoding="utf-8") as log:
        async def session(socket):
            if socket.path.partition("?")[0] == "/v1/realtime":
                await Session(socket, log).run()

        async with websockets.serve(session, "127.0.0.1", port, compression=compression, ping_interval=None):
            await asyncio.Future()


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    asyncio.run(serve(int(sys.argv[1]), sys.argv[2], None if sys.argv[3:] == ["plain"] else "deflate"))
