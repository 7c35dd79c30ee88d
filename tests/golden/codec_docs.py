#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Prints what the golden cases' two ends wrote, and some longer texts, each followed by the streams that encoders make
of it: what our codec is to turn back. Lines of words, bytes in hexadecimal:

  doc NAME BYTES
  stream CODING ENCODER BYTES:OUT...    each BYTES ends with a flush, behind which OUT bytes of the text can be read

The encoders are zlib, libbrotlienc and libzstd, flushed where a write ended, and the programs gzip, brotli and zstd."""

import ctypes
import glob
import os
import random
import subprocess
import sys
import tempfile
import zlib

import wire

ROOT = os.path.dirname(os.path.abspath(__file__))
LEVELS = {"gzip": (1, 6, 9), "brotli": (1, 6, 11), "zstd": (1, 6, 19)}
CODINGS = {"gzip": "gzip", "brotli": "br", "zstd": "zstd"}


# --- the texts, in pieces --------------------------------------------------------------------------


def golden():
    for path in sorted(glob.glob(os.path.join(ROOT, "*", "wire"))):
        with open(path, encoding="utf-8") as f:
            steps = wire.parse(f.read())
        ends = {}
        for step in steps:
            if step.data:
                ends.setdefault((step.conn.name, step.from_server), []).append(step.data)
        for (conn, from_server), pieces in ends.items():
            yield f"{os.path.basename(os.path.dirname(path))}/{conn}/{'server' if from_server else 'client'}", pieces


def cut(rng, data, most):
    pieces = []
    while data:
        n = rng.choice((rng.randint(1, 40), rng.randint(1, most), 16384, 16383, 16385, 32768))
        pieces.append(data[:n])
        data = data[n:]
    return pieces


def long_ones():
    rng = random.Random(1)
    words = [bytes(rng.choices(b"etaoinshrdlu", k=rng.randint(1, 9))) for _ in range(2000)]
    frames = [
        b'data: {"id":"chatcmpl-1","choices":[{"index":0,"delta":{"content":" %s"}}]}\n\n' % rng.choice(words)
        for _ in range(4000)
    ]
    yield "frames", frames
    yield "words", cut(rng, b" ".join(rng.choices(words, k=100000)), 60000)
    yield "noise", cut(rng, rng.randbytes(200000), 40000)
    # Matches as far away as deflate's window goes, and one byte further.
    far = rng.randbytes(32768)
    for n in (32768, 32767, 32769, 40000, 65536):
        far += far[-n:][:300] + rng.randbytes(rng.randint(1, 50))
    yield "window", cut(rng, far, 5000)
    yield "runs", cut(rng, b"".join(bytes([rng.randrange(4)]) * rng.randint(1, 9000) for _ in range(150)), 60000)
    # Only those with larger windows have the second half in the first.
    half = rng.randbytes(1000000)
    yield "far", [half, half[:10], half[10:]]


def long(name):
    return "/" not in name


# --- encoders with flushes -------------------------------------------------------------------------


def deflated(pieces, level, bits):
    z = zlib.compressobj(level, zlib.DEFLATED, bits)
    out = [z.compress(piece) + z.flush(zlib.Z_SYNC_FLUSH) for piece in pieces]
    return out + [z.flush()]


ROOM = 1 << 17
room = ctypes.create_string_buffer(ROOM)
room_at = ctypes.addressof(room)

BR_QUALITY, BR_LGWIN, BR_FLUSH, BR_FINISH = 1, 2, 1, 2


def brotli_step(lib, state, op, data):
    given = ctypes.create_string_buffer(data, len(data) + 1)
    left, at = ctypes.c_size_t(len(data)), ctypes.c_void_p(ctypes.addressof(given))
    out = b""
    while True:
        space, to = ctypes.c_size_t(ROOM), ctypes.c_void_p(room_at)
        if not lib.BrotliEncoderCompressStream(
            state, op, ctypes.byref(left), ctypes.byref(at), ctypes.byref(space), ctypes.byref(to), None
        ):
            sys.exit("libbrotlienc: can't")
        out += ctypes.string_at(room_at, ROOM - space.value)
        if not left.value and not lib.BrotliEncoderHasMoreOutput(state):
            return out


def brotlied(pieces, quality):
    lib = ctypes.CDLL("libbrotlienc.so.1")
    lib.BrotliEncoderCreateInstance.restype = ctypes.c_void_p
    state = ctypes.c_void_p(lib.BrotliEncoderCreateInstance(None, None, None))
    lib.BrotliEncoderSetParameter(state, BR_QUALITY, quality)
    lib.BrotliEncoderSetParameter(state, BR_LGWIN, 24 if quality == 5 else 18)
    out = [brotli_step(lib, state, BR_FLUSH, piece) for piece in pieces]
    out.append(brotli_step(lib, state, BR_FINISH, b""))
    lib.BrotliEncoderDestroyInstance(state)
    return out


class ZstdSpan(ctypes.Structure):
    _fields_ = [("p", ctypes.c_void_p), ("size", ctypes.c_size_t), ("pos", ctypes.c_size_t)]


ZSTD_LEVEL, ZSTD_CHECKSUM, ZSTD_FLUSH, ZSTD_END = 100, 201, 1, 2


def zstd_step(lib, state, op, data):
    given = ctypes.create_string_buffer(data, len(data) + 1)
    source = ZstdSpan(ctypes.addressof(given), len(data), 0)
    out = b""
    while True:
        to = ZstdSpan(room_at, ROOM, 0)
        left = lib.ZSTD_compressStream2(state, ctypes.byref(to), ctypes.byref(source), op)
        if lib.ZSTD_isError(ctypes.c_size_t(left)):
            sys.exit("libzstd: can't")
        out += ctypes.string_at(room_at, to.pos)
        if not left and source.pos == source.size:
            return out


def zstded(pieces, level):
    lib = ctypes.CDLL("libzstd.so.1")
    lib.ZSTD_createCCtx.restype = ctypes.c_void_p
    lib.ZSTD_compressStream2.restype = ctypes.c_size_t
    state = ctypes.c_void_p(lib.ZSTD_createCCtx())
    lib.ZSTD_CCtx_setParameter(state, ZSTD_LEVEL, level)
    lib.ZSTD_CCtx_setParameter(state, ZSTD_CHECKSUM, level % 2)
    out = [zstd_step(lib, state, ZSTD_FLUSH, piece) for piece in pieces]
    out.append(zstd_step(lib, state, ZSTD_END, b""))
    lib.ZSTD_freeCCtx(state)
    return out


# --- the programs ----------------------------------------------------------------------------------


def by_programs(docs, folder):
    """Of each text what each program makes of it at each level: {(number of the text, program, level): bytes}."""
    names = []
    for i, (_, pieces) in enumerate(docs):
        names.append(str(i))
        with open(os.path.join(folder, str(i)), "wb") as f:
            f.write(b"".join(pieces))
    made = {}
    for program, levels in LEVELS.items():
        suffix = {"gzip": ".gz", "brotli": ".br", "zstd": ".zst"}[program]
        for level in levels:
            how = ["-q", str(level)] if program == "brotli" else [f"-{level}"]
            how += ["-q"] if program == "zstd" else []
            subprocess.run([program, "-k", *how, *names], cwd=folder, check=True)
            for i in range(len(docs)):
                path = os.path.join(folder, f"{i}{suffix}")
                with open(path, "rb") as f:
                    made[i, program, level] = f.read()
                os.unlink(path)
    return made


# --- all of it -------------------------------------------------------------------------------------


def stream(coding, encoder, encoded, pieces):
    words, out = [], 0
    for i, piece in enumerate(encoded):
        out += len(pieces[i]) if i < len(pieces) else 0
        words.append(f"{piece.hex()}:{out}")
    print("stream", coding, encoder, *words)


def flushed(name, pieces):
    for level in (1, 6, 9) if name != "far" else ():
        stream("gzip", f"zlib-{level}", deflated(pieces, level, 31), pieces)
        stream("deflate", f"zlib-{level}", deflated(pieces, level, 15), pieces)
        stream("deflate", f"zlib-raw-{level}", deflated(pieces, level, -15), pieces)
        stream("raw", f"zlib-raw-{level}", deflated(pieces, level, -15), pieces)
    for quality in (1, 5, 9):
        stream("br", f"libbrotlienc-{quality}", brotlied(pieces, quality), pieces)
    for level in (1, 6, 19) if long(name) else (1, 6):
        stream("zstd", f"libzstd-{level}", zstded(pieces, level), pieces)


def main():
    docs = [*golden(), *long_ones()]
    with tempfile.TemporaryDirectory() as folder:
        made = by_programs(docs, folder)
    for i, (name, pieces) in enumerate(docs):
        print("doc", name, b"".join(pieces).hex())
        flushed(name, pieces)
        for program, levels in LEVELS.items():
            for level in levels if name != "far" or program != "gzip" else ():
                stream(CODINGS[program], f"{program}-{level}", [made[i, program, level]], [b"".join(pieces)])


main()
