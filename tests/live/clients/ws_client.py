#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Asks for OpenAI Realtime responses over a WebSocket, and logs what came, and when.

usage: ws_client.py PORT --tokens LIST [--connections N] [--body JSON] [--voice] [--plain] [--abort-after N [--close]]
                    [--go FILE] -o FILE       Debian's Python (python3-websockets)

Each connection asks for a response a token number of LIST, one after another; --body is merged into each. --voice
sends audio instead of asking: the server begins by itself. --plain offers no permessage-deflate. --abort-after
leaves in the last response, after so many deltas: with --close by a Close frame, else by dropping the connection.
A line "under way" says that a response has 5 deltas. With --go the last response is asked for once FILE exists.

The log has a line a response: local (port), nr (of the response on its connection), id, usage, status, outcome,
t_send_ns, t_end_ns, extensions (as agreed), and frames: [time, "token" or "other"].
"""
import argparse
import asyncio
import json
import os
import sys
import time

import websockets


class Seen:
    def __init__(self, socket, nr):
        extensions = ", ".join(socket.response_headers.get_all("Sec-WebSocket-Extensions"))
        self.log = {"local": socket.local_address[1], "nr": nr, "id": None, "usage": None, "status": None,
                    "outcome": "cut", "t_send_ns": time.monotonic_ns(), "t_end_ns": None, "error": None, "frames": [],
                    "extensions": extensions}

    def message(self, message):
        """Takes one event; true when the response is over."""
        log, kind = self.log, message["type"]
        token = kind == "response.output_text.delta"
        log["frames"].append([time.monotonic_ns(), "token" if token else "other"])
        log["error"] = message.get("error") or log["error"]
        if kind == "response.created":
            log["id"] = message["response"]["id"]
        if kind == "response.done":
            done = message["response"]
            log.update(usage=done["usage"], status=done["status"], outcome="done", t_end_ns=time.monotonic_ns())
        return kind == "response.done"

    @property
    def tokens(self):
        return sum(kind == "token" for _, kind in self.log["frames"])


async def leave(socket, seen, close):
    seen.log.update(outcome="aborted", t_end_ns=time.monotonic_ns())
    if close:
        await socket.close()
    else:
        socket.transport.abort()


async def respond(socket, seen, abort_after, close):
    """False once the connection was dropped."""
    async for text in socket:
        if seen.message(json.loads(text)):
            return True
        if seen.tokens == 5:
            print("under way", flush=True)
        if abort_after and seen.tokens >= abort_after:
            await leave(socket, seen, close)
            return False
    return True


async def connection(args, logs):
    url = f"ws://127.0.0.1:{args.port}/v1/realtime?model=tiny"
    async with websockets.connect(url, compression=None if args.plain else "deflate", ping_interval=None) as socket:
        assert json.loads(await socket.recv())["type"] == "session.created"
        await socket.send(json.dumps({"type": "conversation.item.create", "item": {
            "type": "message", "role": "user", "content": [{"type": "input_text", "text": "response.create"}]}}))
        for nr, tokens in enumerate(args.tokens):
            last = nr == len(args.tokens) - 1
            while last and args.go and not os.path.exists(args.go):
                await asyncio.sleep(0.01)
            seen = Seen(socket, nr)
            logs.append(seen.log)
            if args.voice:
                await socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": "UklGRg==" * 300}))
                await socket.send('{"type": "input_audio_buffer.commit"}')
            else:
                await socket.send(json.dumps({"type": "response.create",
                                              "response": {"max_output_tokens": tokens, **args.body}}))
            if not await respond(socket, seen, args.abort_after if last else 0, args.close):
                break


async def run(args):
    logs = []
    await asyncio.gather(*(connection(args, logs) for _ in range(args.connections)))
    return logs


def main(argv):
    p = argparse.ArgumentParser(description="asks for Realtime responses and logs what came, and when")
    p.add_argument("port", type=int)
    p.add_argument("--tokens", type=lambda s: [int(n) for n in s.split(",")], required=True)
    p.add_argument("--connections", type=int, default=1)
    p.add_argument("--body", type=json.loads, default={})
    p.add_argument("--voice", action="store_true")
    p.add_argument("--plain", action="store_true")
    p.add_argument("--abort-after", type=int, default=0)
    p.add_argument("--close", action="store_true")
    p.add_argument("--go")
    p.add_argument("-o", "--output", required=True)
    args = p.parse_args(argv)
    logs = asyncio.run(run(args))
    with open(args.output, "w", encoding="utf-8") as f:
        f.write("".join(json.dumps(log) + "\n" for log in logs))
    return 0 if len(logs) == len(args.tokens) * args.connections and all(log["outcome"] != "cut" for log in logs) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
