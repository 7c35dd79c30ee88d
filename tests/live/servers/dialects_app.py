# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Speaks the dialects that are not OpenAI's chat as fastapi_app.py has it: scripted answers, each frame logged.

Routes: /v1/messages (Anthropic), /api/chat and /api/generate (Ollama), /v1/responses and /v1/chat/completions
(OpenAI), /v1beta/models/NAME:streamGenerateContent (Gemini; alt=sse for events, else an array) and :generateContent,
/generate_stream (TGI), /generate (SGLang), /v2/chat (Cohere), /v2/models/NAME/generate_stream (Triton), /events
(nobody's), /health.

What is answered stands in the header x-script, a JSON object, so that every client's own body is left alone:
    thinking, text, tools   how many token frames of each kind (0, 11, 0); tools: calls, of `pieces` (3) frames each
    hidden                  tokens that no frame shows (0); they are in the server's total
    eos                     a natural end: one hidden token more, and the finish reason of its kind; else the limit's
    gap_ms, prefill_ms      time between token frames (3), and before the first (5)
    comments                a comment after every so many token frames (0: none), half a gap behind

The witness log is fastapi_app.py's, with `visible` (not reasoning) and `said` (of the counts in the frame, where the
dialect has any, by how much they rise) in each frame, and the kinds "ping" (Anthropic's event, a frame) and "comment"
(none); "truth" has what a client must have got: text, thinking, tools.
"""
import asyncio
import json
import os
import time
from typing import NamedTuple, Optional

import fastapi_app
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, StreamingResponse

from fastapi_app import PROMPT_TOKENS, WORDS, compact

CACHED, CREATED, STAMP = 3, 1750000000, "2026-01-02T03:04:05.678901234Z"
EVENTS, NDJSON, ARRAY = "text/event-stream; charset=utf-8", "application/x-ndjson", "application/json; charset=UTF-8"

app = FastAPI()


class Frame(NamedTuple):
    """Bytes that are one frame, and what they prove."""
    data: str
    tokens: int = 0
    kind: str = "other"
    visible: bool = True
    said: Optional[int] = None


class Script:
    """What is to be answered."""

    def __init__(self, request, body):
        script = json.loads(request.headers.get("x-script", "{}"))
        self.thinking, self.text = script.get("thinking", 0), script.get("text", 11)
        self.pieces = script.get("pieces", 3)
        self.tools = [self.call(i, self.pieces) for i in range(script.get("tools", 0))]
        self.eos, self.comments = bool(script.get("eos")), script.get("comments", 0)
        self.gap, self.prefill = script.get("gap_ms", 3) / 1e3, script.get("prefill_ms", 5) / 1e3
        self.shown = self.thinking + self.text + len(self.tools) * self.pieces
        self.total = self.shown + script.get("hidden", 0) + self.eos
        self.body, self.model, self.nonce = body, body.get("model") or "tiny-1", os.urandom(8).hex()

    @staticmethod
    def call(i, pieces):
        """(id, name, pieces of the arguments)"""
        text = compact({"place": f"K\u00f6ln \"{i}\"", "braces": "}{", "n": i})
        cut = [round(len(text) * p / pieces) for p in range(pieces + 1)]
        return f"call_{i}", f"get_weather_{i}", [text[a:b] for a, b in zip(cut, cut[1:])]

    def thoughts(self):
        return [f" so{i}" if i else "Hm" for i in range(self.thinking)]

    def words(self):
        return [WORDS[i % len(WORDS)] for i in range(self.text)]

    def reason(self, natural, limit, tools):
        return (tools if self.tools else natural) if self.eos else limit

    def truth(self):
        return {"text": "".join(self.words()), "thinking": "".join(self.thoughts()),
                "tools": [{"id": i, "name": n, "arguments": "".join(p)} for i, n, p in self.tools]}


class Log(fastapi_app.Witness):
    """The witness of one request."""

    def __init__(self, request, script, rid):
        super().__init__(request, rid)
        self.script = script

    def put(self, f):
        self.frame(f.kind, "", f.tokens)
        self.lines[-1].update(visible=f.visible, said=f.said)
        return f.data

    def write(self, completion_tokens, outcome):
        self.base.update(said_model=self.script.model)
        self.lines.append({"kind": "truth", "tokens": 0, "choice": 0, "before_ns": 0, "after_ns": 0,
                           **self.script.truth()})
        super().write(completion_tokens, outcome)


# --- ways to write a frame -------------------------------------------------------------------------


def event(name, obj, **more):
    return Frame(f"event: {name}\ndata: {compact(obj)}\n\n", **more)


def data(obj, end="\n\n", **more):
    return Frame(f"data: {compact(obj)}{end}", **more)


def line(obj, **more):
    return Frame(compact(obj) + "\n", **more)


DONE = Frame("data: [DONE]\n\n")


# --- Anthropic -------------------------------------------------------------------------------------


def anthropic_usage(s):
    return {"input_tokens": PROMPT_TOKENS, "cache_creation_input_tokens": 0, "cache_read_input_tokens": CACHED,
            "output_tokens": s.total, "service_tier": "standard"}


def anthropic_message(s, rid, content, stop, usage):
    return {"id": rid, "type": "message", "role": "assistant", "model": s.model, "content": content,
            "stop_reason": stop, "stop_sequence": None, "usage": usage}


def anthropic_stop(s):
    return s.reason("end_turn", "max_tokens", "tool_use")


def anthropic_block(index, start, deltas):
    """deltas: (type, its member, text, tokens, visible)"""
    yield event("content_block_start", {"type": "content_block_start", "index": index, "content_block": start})
    if not index:
        yield event("ping", {"type": "ping"}, kind="ping")
    for kind, key, text, tokens, visible in deltas:
        delta = {"type": kind, key: text}
        yield event("content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta},
                    tokens=tokens, visible=visible)
    yield event("content_block_stop", {"type": "content_block_stop", "index": index})


def anthropic_stream(s, rid):
    usage = {**anthropic_usage(s), "output_tokens": 1}
    yield event("message_start", {"type": "message_start", "message": anthropic_message(s, rid, [], None, usage)})
    index = 0
    if s.thinking:
        deltas = [("thinking_delta", "thinking", t, 1, False) for t in s.thoughts()]
        deltas.append(("signature_delta", "signature", "c2lnbmF0dXJl", 0, False))
        yield from anthropic_block(index, {"type": "thinking", "thinking": "", "signature": ""}, deltas)
        index += 1
    if s.text:
        deltas = [("text_delta", "text", t, 1, True) for t in s.words()]
        yield from anthropic_block(index, {"type": "text", "text": ""}, deltas)
        index += 1
    for number, name, pieces in s.tools:
        deltas = [("input_json_delta", "partial_json", p, int(p != ""), True) for p in ["", *pieces]]
        start = {"type": "tool_use", "id": number, "name": name, "input": {}}
        yield from anthropic_block(index, start, deltas)
        index += 1
    delta = {"stop_reason": anthropic_stop(s), "stop_sequence": None}
    yield event("message_delta", {"type": "message_delta", "delta": delta, "usage": {"output_tokens": s.total}},
                kind="finish")
    yield event("message_stop", {"type": "message_stop"})


def anthropic_whole(s, rid):
    content = [{"type": "thinking", "thinking": s.truth()["thinking"], "signature": "c2ln"}] if s.thinking else []
    content += [{"type": "text", "text": s.truth()["text"]}] if s.text else []
    content += [{"type": "tool_use", "id": i, "name": n, "input": json.loads("".join(p))} for i, n, p in s.tools]
    return anthropic_message(s, rid, content, anthropic_stop(s), anthropic_usage(s))


# --- Ollama ----------------------------------------------------------------------------------------


def ollama_stats(s):
    return {"total_duration": 4935886791, "load_duration": 534986708, "prompt_eval_count": PROMPT_TOKENS,
            "prompt_eval_duration": 107345000, "eval_count": s.total, "eval_duration": 4289432000}


def ollama_head(s, done):
    return {"model": s.model, "created_at": STAMP, **done}


def ollama_done(s):
    return {"done_reason": s.reason("stop", "length", "stop"), "done": True}


def ollama_calls(s):
    return [{"id": i, "function": {"index": k, "name": n, "arguments": json.loads("".join(p))}}
            for k, (i, n, p) in enumerate(s.tools)]


def ollama_chat(s, _):
    def part(more, visible=True, tokens=1):
        message = {"role": "assistant", "content": "", **more}
        return line({**ollama_head(s, {}), "message": message, "done": False}, tokens=tokens, visible=visible)

    for t in s.thoughts():
        yield part({"thinking": t}, False)
    for t in s.words():
        yield part({"content": t})
    if s.tools:  # whole, at the end
        yield part({"tool_calls": ollama_calls(s)})
    yield line({**ollama_head(s, {"message": {"role": "assistant", "content": ""}}), **ollama_done(s),
                **ollama_stats(s)}, kind="finish")


def ollama_generate(s, _):
    for t in s.thoughts():
        yield line({**ollama_head(s, {}), "response": "", "thinking": t, "done": False}, tokens=1, visible=False)
    for t in s.words():
        yield line({**ollama_head(s, {}), "response": t, "done": False}, tokens=1)
    yield line({**ollama_head(s, {"response": ""}), **ollama_done(s), "context": list(range(3000)),
                **ollama_stats(s)}, kind="finish")


def ollama_whole(s, chat):
    truth = s.truth()
    thinking = {"thinking": truth["thinking"]} if s.thinking else {}
    if chat:
        message = {"role": "assistant", "content": truth["text"], **thinking}
        if s.tools:
            message["tool_calls"] = ollama_calls(s)
        said = {"message": message}
    else:
        said = {"response": truth["text"], **thinking}
    return {**ollama_head(s, said), **ollama_done(s), **ollama_stats(s)}


# --- OpenAI Responses ------------------------------------------------------------------------------


class Responses:
    """The events of one answer, numbered."""

    def __init__(self, s, rid):
        self.s, self.rid, self.number, self.output = s, rid, -1, []

    def response(self, status):
        s, over = self.s, status in ("completed", "incomplete")
        usage = {"input_tokens": PROMPT_TOKENS, "input_tokens_details": {"cached_tokens": CACHED},
                 "output_tokens": s.total, "output_tokens_details": {"reasoning_tokens": s.thinking},
                 "total_tokens": PROMPT_TOKENS + s.total}
        return {"id": self.rid, "object": "response", "created_at": CREATED, "status": status, "error": None,
                "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
                "instructions": None, "max_output_tokens": s.body.get("max_output_tokens"), "model": s.model,
                "output": self.output, "parallel_tool_calls": True, "previous_response_id": None,
                "reasoning": {"effort": None, "summary": None}, "store": False, "temperature": 1.0,
                "text": {"format": {"type": "text"}}, "tool_choice": "auto", "tools": s.body.get("tools", []),
                "top_p": 1.0, "truncation": "disabled", "usage": usage if over else None, "user": None,
                "metadata": {}}

    def status(self):
        return "completed" if self.s.eos else "incomplete"

    def say(self, name, obj, **more):
        self.number += 1
        return event(name, {"type": name, "sequence_number": self.number, **obj}, **more)

    def item(self, item, done, inner):
        """An item's events, those of its inside between them."""
        index = len(self.output)
        yield self.say("response.output_item.added", {"output_index": index, "item": item})
        yield from inner({"item_id": item["id"], "output_index": index})
        self.output.append(done)
        yield self.say("response.output_item.done", {"output_index": index, "item": done})

    def part(self, where, prefix, part_type, pieces, visible, parts):
        """Text in deltas, in a content part."""
        where = {**where, "content_index": 0}
        text = "".join(pieces)
        if parts:
            yield self.say("response.content_part.added", {**where, "part": self.content(part_type, "")})
        for p in pieces:
            logprobs = {"logprobs": []} if visible else {}
            yield self.say(f"{prefix}.delta", {**where, "delta": p, **logprobs}, tokens=1, visible=visible)
        logprobs = {"logprobs": []} if visible else {}
        yield self.say(f"{prefix}.done", {**where, "text": text, **logprobs})
        if parts:
            yield self.say("response.content_part.done", {**where, "part": self.content(part_type, text)})

    @staticmethod
    def content(part_type, text):
        more = {"annotations": [], "logprobs": []} if part_type == "output_text" else {}
        return {"type": part_type, "text": text, **more}

    def thoughts(self):
        item = {"id": "rs_1", "type": "reasoning", "summary": [], "content": []}
        done = {**item, "content": [self.content("reasoning_text", "".join(self.s.thoughts()))]}
        return self.item(item, done, lambda w: self.part(w, "response.reasoning_text", "reasoning_text",
                                                         self.s.thoughts(), False, True))

    def message(self):
        item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
        done = {**item, "status": "completed", "content": [self.content("output_text", "".join(self.s.words()))]}
        return self.item(item, done, lambda w: self.part(w, "response.output_text", "output_text", self.s.words(),
                                                         True, True))

    def call(self, number, name, pieces):
        item = {"id": f"fc_{number}", "type": "function_call", "status": "in_progress", "arguments": "",
                "call_id": number, "name": name}
        whole = "".join(pieces)

        def inner(where):
            for p in pieces:
                yield self.say("response.function_call_arguments.delta", {**where, "delta": p}, tokens=1)
            yield self.say("response.function_call_arguments.done", {**where, "name": name, "arguments": whole})

        return self.item(item, {**item, "status": "completed", "arguments": whole}, inner)

    def stream(self):
        s = self.s
        yield self.say("response.created", {"response": self.response("in_progress")})
        yield self.say("response.in_progress", {"response": self.response("in_progress")})
        if s.thinking:
            yield from self.thoughts()
        if s.text:
            yield from self.message()
        for call in s.tools:
            yield from self.call(*call)
        status = self.status()
        yield self.say(f"response.{status}", {"response": self.response(status)}, kind="finish")

    def whole(self):
        for _ in self.stream():
            pass
        return self.response(self.status())


# --- OpenAI chat -----------------------------------------------------------------------------------


def chat_usage(s):
    return {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": s.total, "total_tokens": PROMPT_TOKENS + s.total,
            "prompt_tokens_details": {"cached_tokens": CACHED, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": s.thinking, "audio_tokens": 0}}


def chat_finish(s):
    return s.reason("stop", "length", "tool_calls")


def chat_stream(s, rid):
    """A call's name comes in a frame of its own."""
    want = (s.body.get("stream_options") or {}).get("include_usage")

    def chunk(delta, finish=None, **more):
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        obj = {"id": rid, "object": "chat.completion.chunk", "created": CREATED, "model": s.model,
               "service_tier": "default", "system_fingerprint": "fp_1", "choices": [choice],
               "obfuscation": "x" * (len(s.nonce) % 7)}
        return data({**obj, "usage": None} if want else obj, **more)

    yield chunk({"role": "assistant", "content": "" if s.text else None, "refusal": None})
    for t in s.thoughts():
        yield chunk({"reasoning_content": t}, tokens=1, visible=False)
    for t in s.words():
        yield chunk({"content": t}, tokens=1)
    for i, (number, name, pieces) in enumerate(s.tools):
        call = {"index": i, "id": number, "type": "function", "function": {"name": name, "arguments": ""}}
        yield chunk({"tool_calls": [call]}, tokens=1)
        for p in pieces:
            yield chunk({"tool_calls": [{"index": i, "function": {"arguments": p}}]}, tokens=1)
    yield chunk({}, chat_finish(s), kind="finish")
    if want:
        yield data({"id": rid, "object": "chat.completion.chunk", "created": CREATED, "model": s.model,
                    "choices": [], "usage": chat_usage(s)})
    yield DONE


def chat_whole(s, rid):
    truth = s.truth()
    message = {"role": "assistant", "content": truth["text"], "refusal": None}
    if s.tools:
        message["tool_calls"] = [{"id": t["id"], "type": "function", "function": {
            "name": t["name"], "arguments": t["arguments"]}} for t in truth["tools"]]
    return {"id": rid, "object": "chat.completion", "created": CREATED, "model": s.model, "choices": [
        {"index": 0, "message": message, "logprobs": None, "finish_reason": chat_finish(s)}], "usage": chat_usage(s)}


# --- Gemini ----------------------------------------------------------------------------------------


def gemini_chunks(s, rid):
    """(object, token count, visible, last): frames of 1, 3, 2, 1, 3, 2 ... tokens."""
    parts = [({"text": t, "thought": True}, False) for t in s.thoughts()] + [({"text": t}, True) for t in s.words()]
    parts += [({"functionCall": {"name": n, "args": json.loads("".join(p))}}, True) for _, n, p in s.tools]
    counts = [(1, 3, 2)[i % 3] for i in range(len(parts))]
    thoughts = answer = 0
    for i, ((part, visible), n) in enumerate(zip(parts, counts)):
        last = i == len(parts) - 1
        thoughts, answer = thoughts + (0 if visible else n), answer + (n if visible else 0)
        usage = {"promptTokenCount": PROMPT_TOKENS, "candidatesTokenCount": answer,
                 "totalTokenCount": PROMPT_TOKENS + answer + thoughts,
                 "promptTokensDetails": [{"modality": "TEXT", "tokenCount": PROMPT_TOKENS}],
                 "thoughtsTokenCount": thoughts}
        candidate = {"content": {"parts": [part], "role": "model"}, "index": 0}
        if last:
            candidate["finishReason"] = "STOP" if s.eos else "MAX_TOKENS"
        obj = {"candidates": [candidate], "usageMetadata": usage, "modelVersion": s.model, "responseId": rid}
        yield obj, n, visible, last


def gemini_total(s, rid):
    s.total = sum(n for _, n, _, _ in gemini_chunks(s, rid))


def gemini_events(s, rid):
    for obj, n, visible, last in gemini_chunks(s, rid):
        yield data(obj, "\r\n\r\n", tokens=n, visible=visible, kind="finish" if last else "other", said=n)


def gemini_array(s, rid):
    """Pretty-printed; the comma goes out before the next element."""
    for i, (obj, n, visible, last) in enumerate(gemini_chunks(s, rid)):
        text = ("," if i else "[") + json.dumps(obj, indent=2, ensure_ascii=False) + ("]\n" if last else "\n")
        yield Frame(text, tokens=n, visible=visible, kind="finish" if last else "other", said=n)


def gemini_whole(s, rid):
    last = list(gemini_chunks(s, rid))[-1][0]
    last["candidates"][0]["content"]["parts"] = [{"text": s.truth()["text"]}]
    return last


# --- TGI, SGLang, Cohere, Triton, nobody -----------------------------------------------------------


def tgi_stream(s, _):
    details = {"finish_reason": s.reason("eos_token", "length", "eos_token"), "generated_tokens": s.total, "seed": None,
               "input_length": PROMPT_TOKENS}
    words = s.words() + (["</s>"] if s.eos else [])
    for i, t in enumerate(words):
        special, last = s.eos and i == len(words) - 1, i == len(words) - 1
        token = {"id": 100 + i, "text": t, "logprob": -0.5, "special": special}
        yield data({"index": i + 1, "token": token, "generated_text": "".join(s.words()) if last else None,
                    "details": details if last and (s.body.get("parameters") or {}).get("details") else None},
                   tokens=1, kind="finish" if last else "other", said=1)


def sglang_frame(s, rid, text, count, finish):
    return {"text": text, "output_ids": list(range(100, 100 + count)), "meta_info": {
        "id": rid, "finish_reason": finish, "prompt_tokens": PROMPT_TOKENS, "weight_version": "default",
        "completion_tokens": count, "cached_tokens": CACHED, "e2e_latency": 0.1}}


def sglang_finish(s):
    return {"type": "stop", "matched": 2} if s.eos else {"type": "length", "length": s.total}


def sglang_stream(s, rid):
    """Cumulative. Every third step's text is held back: the count alone grows."""
    text, words = "", s.words()
    for i, t in enumerate(words):
        if i % 3 != 2 or i == len(words) - 1:
            text = "".join(words[:i + 1])
        last = i == len(words) - 1
        count = i + 1 + (s.total - s.shown if last else 0)
        yield data(sglang_frame(s, rid, text, count, sglang_finish(s) if last else None), tokens=1,
                   kind="finish" if last else "other", said=count - i)
    yield DONE


def sglang_whole(s, rid):
    return sglang_frame(s, rid, s.truth()["text"], s.total, sglang_finish(s))


def cohere_finish(s):
    return s.reason("COMPLETE", "MAX_TOKENS", "TOOL_CALL")


def cohere_usage(s):
    """What is billed is not what was made."""
    return {"billed_units": {"input_tokens": 2.0, "output_tokens": float(s.total - 1)},
            "tokens": {"input_tokens": float(PROMPT_TOKENS), "output_tokens": float(s.total)}}


def cohere_say(name, obj, **more):
    return event(name, {"type": name, **obj}, **more)


def cohere_stream(s, rid):
    yield cohere_say("message-start", {"id": rid, "delta": {"message": {
        "role": "assistant", "content": [], "tool_plan": "", "tool_calls": [], "citations": []}}})
    for index, (kind, pieces, visible) in enumerate((("thinking", s.thoughts(), False), ("text", s.words(), True))):
        if not pieces:
            continue
        yield cohere_say("content-start", {"index": index, "delta": {"message": {"content": {"type": kind, kind: ""}}}})
        for p in pieces:
            yield cohere_say("content-delta", {"index": index, "delta": {"message": {"content": {kind: p}}}}, tokens=1,
                             visible=visible)
        yield cohere_say("content-end", {"index": index})
    for i, (number, name, pieces) in enumerate(s.tools):
        call = {"id": number, "type": "function", "function": {"name": name, "arguments": ""}}
        yield cohere_say("tool-call-start", {"index": i, "delta": {"message": {"tool_calls": call}}}, tokens=1)
        for p in pieces:
            delta = {"message": {"tool_calls": {"function": {"arguments": p}}}}
            yield cohere_say("tool-call-delta", {"index": i, "delta": delta}, tokens=1)
        yield cohere_say("tool-call-end", {"index": i})
    yield cohere_say("message-end", {"delta": {"finish_reason": cohere_finish(s), "usage": cohere_usage(s)}},
                     kind="finish")


def cohere_whole(s, rid):
    return {"id": rid, "finish_reason": cohere_finish(s), "message": {
        "role": "assistant", "content": [{"type": "text", "text": s.truth()["text"]}]}, "usage": cohere_usage(s)}


def triton_stream(s, _):
    for t in s.words():
        yield data({"model_name": s.model, "model_version": "1", "sequence_end": False, "text_output": t}, tokens=1)


def unknown_stream(s, _):
    """Events that nobody knows, each a frame and none a token."""
    for i, t in enumerate(s.words()):
        yield event("tick", {"number": i, "words": t}, kind="paced")


# --- routes ----------------------------------------------------------------------------------------


def with_comments(frames, every):
    count = 0
    for f in frames:
        yield f
        count += f.tokens > 0
        if every and f.tokens and not count % every:
            yield Frame(": keep-alive\n\n", kind="comment")


async def play(frames, s, w):
    """Sends the frames: those with tokens by the clock, comments and pings half a gap late, the others at once."""
    at, outcome = time.monotonic() + s.prefill, "cut"
    try:
        for f in frames:
            if f.tokens or f.kind == "paced":
                await asyncio.sleep(max(0.0, at - time.monotonic()))
                at += s.gap
            elif f.kind in ("ping", "comment"):
                await asyncio.sleep(s.gap / 2)
            yield w.put(f)
        outcome = "done"
    except (asyncio.CancelledError, GeneratorExit):
        outcome = "gone"
        raise
    finally:
        w.end(s.total, outcome)


async def answer(request, prefix, stream, whole, *, kind=EVENTS, streamed=False, prepare=None, headers=None):
    """stream and whole take (script, id); streamed: what a body without `stream` means. No prefix: there is no id."""
    body = await request.json()
    s = Script(request, body)
    rid = f"{prefix}{s.nonce}" if prefix else None
    if prepare:
        prepare(s, rid)
    w = Log(request, s, rid)
    if not body.get("stream", streamed):
        await asyncio.sleep(s.prefill)
        w.end(s.total)
        return JSONResponse(whole(s, rid), headers=headers)
    frames = with_comments(stream(s, rid), s.comments if kind == EVENTS else 0)
    return StreamingResponse(play(frames, s, w), media_type=kind, headers=headers)


def names_counted(s, _):
    """Where a call's name has a frame of its own."""
    s.total += len(s.tools)


@app.post("/v1/messages")
async def messages(request: Request):
    return await answer(request, "msg_", anthropic_stream, anthropic_whole)


@app.post("/api/chat")
async def api_chat(request: Request):
    return await answer(request, "", ollama_chat, lambda s, _: ollama_whole(s, True), kind=NDJSON, streamed=True)


@app.post("/api/generate")
async def api_generate(request: Request):
    return await answer(request, "", ollama_generate, lambda s, _: ollama_whole(s, False), kind=NDJSON, streamed=True)


@app.post("/v1/responses")
async def responses(request: Request):
    return await answer(request, "resp_", lambda s, rid: Responses(s, rid).stream(),
                        lambda s, rid: Responses(s, rid).whole())


@app.post("/v1/chat/completions")
async def chat(request: Request):
    return await answer(request, "chatcmpl-", chat_stream, chat_whole, prepare=names_counted)


@app.post("/v1beta/models/{name}:streamGenerateContent")
async def gemini(request: Request, name: str):
    events = request.query_params.get("alt") == "sse"
    return await answer(request, "g-", gemini_events if events else gemini_array, gemini_whole, streamed=True,
                        kind=EVENTS if events else ARRAY, prepare=gemini_named(name))


@app.post("/v1beta/models/{name}:generateContent")
async def gemini_once(request: Request, name: str):
    return await answer(request, "g-", gemini_events, gemini_whole, prepare=gemini_named(name))


def gemini_named(name):
    def prepare(s, rid):
        s.model = name
        gemini_total(s, rid)
    return prepare


@app.post("/generate_stream")
async def tgi(request: Request):
    return await answer(request, "", tgi_stream, None, streamed=True, headers={"x-compute-type": "cpu"})


@app.post("/generate")
async def sglang(request: Request):
    return await answer(request, "r-", sglang_stream, sglang_whole, headers={"server": "uvicorn"})


@app.post("/v2/chat")
async def cohere(request: Request):
    return await answer(request, "co-", cohere_stream, cohere_whole, prepare=names_counted)


@app.post("/v2/models/{name}/generate_stream")
async def triton(request: Request, name: str):
    def prepare(s, _):
        s.model = name
    return await answer(request, "", triton_stream, None, streamed=True, prepare=prepare)


@app.post("/events")
async def unknown(request: Request):
    return await answer(request, "", unknown_stream, None, streamed=True)


@app.get("/health")
async def health():
    return {"status": "ok"}
