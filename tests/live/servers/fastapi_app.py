# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Streams answers as vLLM's Python front end and SGLang's OpenAI routes do, through FastAPI and uvicorn.

Routes: /vllm/v1/chat/completions, /vllm/v1/completions, /sglang/v1/chat/completions, /sglang/v1/completions,
/health. Besides OpenAI's own fields a request may have
    gap_ms, prefill_ms   mean time between tokens (20), time to the first one (30); floats
    eos                  ends by an end-of-sequence token (finish "stop") instead of "length"
    fault                "error" (error frame, then [DONE]), "abort" (finish_reason "abort"), "raise" (the
                         handler dies: the connection is cut); after half of the tokens
    reasoning            that many of the first tokens are reasoning

The witness log (file named by WITNESS_LOG) has one JSON object a line: for each frame request, id, peer
(port), kind, choice, tokens (in it), before_ns (CLOCK_MONOTONIC just before it is handed to the server) and
after_ns (the event loop's next round: by then the bytes are sent, unless the socket is full); at the end
kind "end" with completion_tokens.
"""
import asyncio
import itertools
import json
import os
import time

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, StreamingResponse

WORDS = ["Hi", " there", " w\u00f6rld", ' "quoted"', "\u65e5\u672c", "\n\n",
         " data: [DONE]", ' {"usage":null}', "\U0001f600"]
PROMPT_TOKENS = 7
MEDIA_TYPE = "text/event-stream"

app = FastAPI()
witness = open(os.environ.get("WITNESS_LOG", os.devnull), "w", encoding="utf-8")
numbers = itertools.count(1)


def compact(obj):
    """JSON as pydantic writes it: no spaces, raw UTF-8."""
    return json.dumps(obj, separators=(",", ":"), ensure_ascii=False)


class Witness:
    """Logs the frames of one request."""

    def __init__(self, request, rid):
        self.base = {"request": next(numbers), "id": rid, "peer": request.client.port if request.client else None}
        self.loop = asyncio.get_running_loop()
        self.lines = []

    def frame(self, kind, text, tokens=0, choice=0):
        """Notes the time, and returns the frame's bytes; the caller yields them at once."""
        line = {"kind": kind, "choice": choice, "tokens": tokens, "before_ns": 0, "after_ns": None}
        self.lines.append(line)
        self.stamp(line)
        return f"data: {text}\n\n"

    def stamp(self, line):
        def after():
            line["after_ns"] = time.monotonic_ns()

        self.loop.call_soon(after)
        line["before_ns"] = time.monotonic_ns()

    def held(self):
        """The first frame was made before there was a head: it goes out only now."""
        self.stamp(self.lines[0])

    def end(self, completion_tokens, outcome="done"):
        """Writes the request's lines, after the last frame's after_ns is known."""
        self.loop.call_soon(self.write, completion_tokens, outcome)

    def write(self, completion_tokens, outcome):
        for line in self.lines:
            witness.write(json.dumps({**self.base, **line}) + "\n")
        witness.write(json.dumps({**self.base, "kind": "end", "outcome": outcome,
                                  "completion_tokens": completion_tokens}) + "\n")
        witness.flush()


class Order:
    """What a request asks for."""

    def __init__(self, body, chat):
        options = body.get("stream_options") or {}
        self.chat = chat
        self.model = body.get("model", "tiny")
        self.max_tokens = body.get("max_tokens") or body.get("max_completion_tokens") or 16
        self.n = body.get("n") or 1
        self.stream = body.get("stream", False)
        self.include_usage = options.get("include_usage", False)
        self.continuous = options.get("continuous_usage_stats", False)
        self.logprobs = bool(body.get("logprobs"))
        self.token_ids = bool(body.get("return_token_ids"))
        self.gap = body.get("gap_ms", 20) / 1e3
        self.prefill = body.get("prefill_ms", 30) / 1e3
        self.eos = bool(body.get("eos"))
        self.fault = body.get("fault")
        self.reasoning = body.get("reasoning", 0)

    async def steps(self):
        """Waits for the engine, and yields the number of each token: gaps from half to one and a half of the mean."""
        at = time.monotonic() + self.prefill
        for i in range(self.max_tokens):
            await asyncio.sleep(max(0.0, at - time.monotonic()))
            yield i
            at += self.gap * (500 + i * 377 % 1001) / 1000

    def last(self, i):
        return i == self.max_tokens - 1

    def faulty(self, i):
        return self.fault and i == self.max_tokens // 2

    def text(self, i):
        """Text of token i; the end-of-sequence token has none."""
        return "" if self.eos and self.last(i) else WORDS[i % len(WORDS)]

    def usage(self, completion_tokens):
        return {"prompt_tokens": PROMPT_TOKENS, "total_tokens": PROMPT_TOKENS + completion_tokens,
                "completion_tokens": completion_tokens}


def error_text(message, kind="InternalServerError"):
    """An error frame as vLLM writes it: by json.dumps, with its spaces."""
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": 500}})


def logprob_entry(order, i):
    text = order.text(i)
    return {"token": text, "logprob": -0.25, "bytes": list(text.encode()), "top_logprobs": []}


# --- vLLM ----------------------------------------------------------------------------------------


class Vllm:
    """Frames of vLLM's Python front end: the finish frame carries the last token."""

    def __init__(self, order, rid):
        self.order, self.rid = order, rid

    def chunk(self, choices, usage=None):
        o = self.order
        obj = {"id": self.rid, "object": "chat.completion.chunk" if o.chat else "text_completion", "created": 1,
               "model": o.model, "choices": choices}
        if usage or not o.chat:
            obj["usage"] = usage
        return compact(obj)

    def role(self, choice):
        o = self.order
        entry = {"index": choice, "delta": {"role": "assistant", "content": ""}, "logprobs": None,
                 "finish_reason": None}
        obj = {"id": self.rid, "object": "chat.completion.chunk", "created": 1, "model": o.model,
               "choices": [entry]}
        if o.continuous:
            obj["usage"] = o.usage(0)
        if o.token_ids:
            obj["prompt_token_ids"] = list(range(PROMPT_TOKENS))
        return compact(obj)

    def token(self, choice, i, finish=None):
        o = self.order
        if o.chat:
            key = "reasoning" if i < o.reasoning else "content"
            entry = {"index": choice, "delta": {key: o.text(i)}, "logprobs": None, "finish_reason": finish}
            if o.logprobs:
                entry["logprobs"] = {"content": [logprob_entry(o, i)]}
        else:
            entry = {"index": choice, "text": o.text(i), "logprobs": None, "finish_reason": finish}
            if o.logprobs:
                entry["logprobs"] = {"text_offset": [i], "token_logprobs": [-0.25], "tokens": [o.text(i)],
                                     "top_logprobs": [None]}
            entry["stop_reason"] = None
        if finish and o.chat:
            entry["stop_reason"] = None
        if o.token_ids:
            entry["token_ids"] = [1000 + i]
        return self.chunk([entry], o.usage(i + 1) if o.continuous else None)

    async def stream(self, w):
        o, sent, outcome = self.order, 0, "cut"
        try:
            async for i in o.steps():
                if o.faulty(i):
                    if o.fault == "raise":
                        raise RuntimeError("asked to die")
                    if o.fault == "error":
                        outcome = "error"
                        yield w.frame("error", error_text("engine died"))
                        break
                aborted = o.faulty(i) and o.fault == "abort"
                finish = None
                if aborted:
                    finish = "abort"
                elif o.last(i):
                    finish = "stop" if o.eos else "length"
                for choice in range(o.n):
                    if i == 0 and o.chat:
                        yield w.frame("role", self.role(choice), 0, choice)
                    yield w.frame("token", self.token(choice, i, finish), 1, choice)
                    sent += 1
                if aborted:
                    outcome = "abort"
                    break
            else:
                outcome = "done"
            if o.include_usage and outcome != "error":
                yield w.frame("usage", self.chunk([], o.usage(sent)))
            yield w.frame("done", "[DONE]")
        except (asyncio.CancelledError, GeneratorExit):
            outcome = "gone"
            raise
        finally:
            w.end(sent, outcome)


# --- SGLang --------------------------------------------------------------------------------------


class Sglang:
    """Frames of SGLang's OpenAI routes: tokens without text send nothing, the finish frame is empty."""

    def __init__(self, order, rid):
        self.order, self.rid = order, rid

    def chunk(self, choices, usage=None):
        o = self.order
        return compact({"id": self.rid, "object": "chat.completion.chunk" if o.chat else "text_completion",
                        "created": 1, "model": o.model, "choices": choices, "usage": usage})

    def choice(self, index, delta, text, finish=None, matched=None, logprobs=None):
        if self.order.chat:
            return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish,
                    "matched_stop": matched}
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish,
                "matched_stop": matched}

    @staticmethod
    def delta(role=None, content=None, reasoning=None):
        return {"role": role, "content": content, "reasoning_content": reasoning, "tool_calls": None}

    def token(self, index, i):
        o = self.order
        thinking = i < o.reasoning
        delta = self.delta(content=None if thinking else o.text(i), reasoning=o.text(i) if thinking else None)
        logprobs = {"content": [logprob_entry(o, i)]} if o.logprobs and o.chat else None
        return self.chunk([self.choice(index, delta, o.text(i), logprobs=logprobs)],
                          o.usage(i + 1) if o.continuous else None)

    def finish(self, index, reason):
        matched = 2 if reason == "stop" else None
        return self.chunk([self.choice(index, self.delta(), "", reason, matched)])

    async def stream(self, w):
        o, made, outcome = self.order, 0, "cut"
        try:
            async for i in o.steps():
                if o.faulty(i) and o.fault == "raise":
                    raise RuntimeError("asked to die")
                if o.faulty(i) and o.fault in ("error", "abort"):
                    outcome = o.fault
                    break
                for index in range(o.n):
                    if i == 0 and o.chat:
                        yield w.frame("role", self.chunk([self.choice(index, self.delta("assistant", ""), "")]),
                                      0, index)
                    made += 1
                    if o.text(i):
                        yield w.frame("token", self.token(index, i), 1, index)
            else:
                outcome = "done"
            if outcome == "error":
                yield w.frame("error", compact({"error": {"message": "engine died", "type": "abort", "code": 500}}))
            else:
                reason = "abort" if outcome == "abort" else "stop" if o.eos else "length"
                for index in range(o.n):
                    yield w.frame("finish", self.finish(index, reason), 0, index)
                if o.include_usage:
                    yield w.frame("usage", self.chunk([], o.usage(made)))
            yield w.frame("done", "[DONE]")
        except (asyncio.CancelledError, GeneratorExit):
            outcome = "gone"
            raise
        finally:
            w.end(made, outcome)


# --- routes --------------------------------------------------------------------------------------


def whole(order, rid):
    """The answer in one piece."""
    text = "".join(order.text(i) for i in range(order.max_tokens))
    finish = "stop" if order.eos else "length"
    choices = []
    for index in range(order.n):
        body = {"message": {"role": "assistant", "content": text}} if order.chat else {"text": text}
        choices.append({"index": index, **body, "finish_reason": finish})
    return {"id": rid, "object": "chat.completion" if order.chat else "text_completion", "created": 1,
            "model": order.model, "choices": choices, "usage": order.usage(order.max_tokens * order.n)}


async def primed(generator, w):
    """The generator again, once its first item is there: SGLang's head leaves with the first token."""
    first = await generator.__anext__()

    async def again():
        w.held()
        yield first
        async for item in generator:
            yield item

    return again()


async def answer(request, make, chat, prime):
    order = Order(await request.json(), chat)
    rid = f"{'chatcmpl' if chat else 'cmpl'}-{os.urandom(8).hex()}"
    w = Witness(request, rid)
    if not order.stream:
        async for _ in order.steps():
            pass
        w.end(order.max_tokens * order.n)
        return JSONResponse(whole(order, rid))
    generator = make(order, rid).stream(w)
    if prime:
        generator = await primed(generator, w)
    return StreamingResponse(generator, media_type=MEDIA_TYPE)


@app.post("/vllm/v1/chat/completions")
async def vllm_chat(request: Request):
    return await answer(request, Vllm, True, False)


@app.post("/vllm/v1/completions")
async def vllm_completions(request: Request):
    return await answer(request, Vllm, False, False)


@app.post("/sglang/v1/chat/completions")
async def sglang_chat(request: Request):
    return await answer(request, Sglang, True, True)


@app.post("/sglang/v1/completions")
async def sglang_completions(request: Request):
    return await answer(request, Sglang, False, True)


@app.get("/health")
async def health():
    return {"status": "ok"}
