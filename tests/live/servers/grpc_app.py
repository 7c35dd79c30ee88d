#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Streams answers over gRPC as engines do, through grpcio; the messages are written by hand, without protoc.

usage: grpc_app.py PORT WITNESS-LOG [gzip]      serves on 127.0.0.1 until killed; Debian's Python (python3-grpcio)

    /sglang.grpc.scheduler.SglangScheduler/Generate      GenerateRequest -> stream of chunks, then Complete
    /inference.GRPCInferenceService/ModelStreamInfer     requests -> answers, told apart by their ids

The number of tokens is sampling_params.max_new_tokens of the one, the parameter max_tokens of the other. Metadata of
the call: gap-ms, prefill-ms, step (ids a chunk), fault ("abort": status RESOURCE_EXHAUSTED after half of the tokens,
"refuse": UNAVAILABLE at once; of ModelStreamInfer "error": an error message in place of the second half of the
answers whose id ends in "-bad").

The witness log is that of fastapi_app.py: before_ns is taken just before grpcio is given the message, after_ns when
it asks for the next one, which it does once the message is written.
"""
import json
import queue
import struct
import sys
import threading
import time
from concurrent import futures

import grpc

SGLANG = "/sglang.grpc.scheduler.SglangScheduler/Generate"
TRITON = "/inference.GRPCInferenceService/ModelStreamInfer"
PROMPT_TOKENS = 5


# --- protobuf, as much as is needed --------------------------------------------------------------------


def varint(n):
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes(out) + bytes([n])


def field(number, value):
    """An integer, text or bytes, or (packed) a list of integers."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, list):
        value = b"".join(map(varint, value))
    return varint(number << 3 | 2) + varint(len(value)) + value


def read_varint(data, at):
    n = shift = 0
    while True:
        byte = data[at]
        n, shift, at = n | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return n, at


def parse(data):
    """{number: [values]}: integers, and bytes."""
    out, at = {}, 0
    while at < len(data):
        key, at = read_varint(data, at)
        value, at = read_varint(data, at)
        if key & 7 == 2:
            value, at = data[at:at + value], at + value
        out.setdefault(key >> 3, []).append(value)
    return out


# --- the witness ---------------------------------------------------------------------------------------


class Witness:
    """Logs the messages of one request."""

    lock, count, log = threading.Lock(), 0, None

    def __init__(self, context, rid):
        with Witness.lock:
            Witness.count += 1
            self.base = {"request": Witness.count, "id": rid, "peer": int(context.peer().rpartition(":")[2])}
        self.lines = []

    def message(self, kind, tokens=0):
        self.lines.append({"kind": kind, "choice": 0, "tokens": tokens, "before_ns": time.monotonic_ns(),
                           "after_ns": None})

    def sent(self):
        self.lines[-1]["after_ns"] = time.monotonic_ns()

    def end(self, outcome):
        total = sum(line["tokens"] for line in self.lines)
        self.lines.append({"kind": "end", "outcome": outcome, "completion_tokens": total})
        with Witness.lock:
            Witness.log.write("".join(json.dumps({**self.base, **line}) + "\n" for line in self.lines))
            Witness.log.flush()


class Order:
    """What the call's metadata asks for."""

    def __init__(self, context):
        said = dict(context.invocation_metadata())
        self.gap, self.prefill = (float(said.get(k, d)) / 1e3 for k, d in (("gap-ms", 10), ("prefill-ms", 30)))
        self.step, self.fault = int(said.get("step", 1)), said.get("fault")

    def steps(self, count):
        at = time.monotonic() + self.prefill
        for i in range(count):
            time.sleep(max(0.0, at - time.monotonic()))
            yield i
            at += self.gap * (500 + i * 377 % 1001) / 1000


# --- SGLang's scheduler --------------------------------------------------------------------------------


def generate(request, context):
    message, order = parse(request), Order(context)
    rid = message[1][0].decode()
    total = parse(message[4][0])[8][0]
    w, ids, outcome = Witness(context, rid), [], "gone"
    try:
        if order.fault == "refuse":
            outcome = "error"
            context.abort(grpc.StatusCode.UNAVAILABLE, "no engine")
        for _ in order.steps(-(-total // order.step)):
            if order.fault == "abort" and len(ids) >= total // 2:
                outcome = "error"
                context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "out of memory")
            new = [1000 + i for i in range(len(ids), min(total, len(ids) + order.step))]
            ids += new
            w.message("token", len(new))
            yield field(1, rid) + field(2, field(1, new) + field(2, PROMPT_TOKENS) + field(3, len(ids)))
            w.sent()
        w.message("finish")
        yield field(1, rid) + field(3, field(1, ids) + field(2, "length") + field(3, PROMPT_TOKENS) +
                                    field(4, len(ids)))
        w.sent()
        outcome = "done"
    finally:
        w.end(outcome)


# --- Triton --------------------------------------------------------------------------------------------


def response(model, rid, final, text=None):
    """A ModelInferResponse; the final one has no outputs."""
    out = field(1, model) + field(2, "1") + field(3, rid)
    out += field(4, field(1, "triton_final_response") + field(2, field(1, int(final))))
    if text is not None:
        raw = struct.pack("<I", len(text)) + text
        out += field(5, field(1, "text_output") + field(2, "BYTES") + field(3, [1])) + field(6, raw)
    return field(2, out)


class Infer:
    """One request of a stream: a thread that puts its messages into the stream's queue."""

    def __init__(self, stream, message):
        self.stream, message = stream, parse(message)
        self.model, self.rid = message[1][0].decode(), message[3][0].decode()
        parameters = {p[1][0]: parse(p[2][0]) for p in map(parse, message[4])}
        self.total = parameters[b"max_tokens"][2][0]
        self.w = Witness(stream.context, self.rid)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        order, put = self.stream.order, self.stream.queue.put
        for i in order.steps(self.total):
            if order.fault == "error" and self.rid.endswith("-bad") and i >= self.total // 2:
                put((self, "error", 0, field(1, f"in ensemble '{self.model}', out of memory") +
                     field(2, field(1, self.model) + field(3, self.rid))))
                break
            put((self, "token", 1, response(self.model, self.rid, False, b" token" * (1 + i % 40))))
        else:
            put((self, "finish", 0, response(self.model, self.rid, True)))


class InferStream:
    def __init__(self, requests, context):
        self.context, self.order, self.queue = context, Order(context), queue.Queue()
        self.open = []
        threading.Thread(target=self.read, args=(requests,), daemon=True).start()

    def read(self, requests):
        try:
            for message in requests:
                self.open.append(Infer(self, message))
        except grpc.RpcError:  # the client has left
            pass
        for infer in self.open:
            infer.thread.join()
        self.queue.put(None)

    def answers(self):
        ended = set()
        try:
            for infer, kind, tokens, message in iter(self.queue.get, None):
                infer.w.message(kind, tokens)
                yield message
                infer.w.sent()
                if kind != "token":
                    ended.add(infer)
                    infer.w.end("done" if kind == "finish" else "error")
        finally:
            for infer in self.open:
                if infer not in ended:
                    infer.w.end("gone")


def infer(requests, context):
    return InferStream(requests, context).answers()


class Handlers(grpc.GenericRpcHandler):
    def service(self, details):
        if details.method == SGLANG:
            return grpc.unary_stream_rpc_method_handler(generate)
        if details.method == TRITON:
            return grpc.stream_stream_rpc_method_handler(infer)
        return None


def main(port, log_path, compression="none"):
    Witness.log = open(log_path, "w", encoding="utf-8")
    algorithm = grpc.Compression.Gzip if compression == "gzip" else grpc.Compression.NoCompression
    server = grpc.server(futures.ThreadPoolExecutor(64), handlers=[Handlers()], compression=algorithm,
                         options=[("grpc.so_reuseport", 0)])
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    main(*sys.argv[1:])
