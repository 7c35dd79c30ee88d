# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The framings that wire scripts can ask for by a word, byte by byte from their specifications. Nothing here is
shared with the reader under test, nor with a library it uses, but for zlib (which makes what is to be inflated)."""

import base64
import binascii
import re
import struct
import zlib


class ScriptError(Exception):
    pass


def unescape(text):
    out = bytearray()
    raw = text.encode()
    i = 0
    simple = {ord("r"): 13, ord("n"): 10, ord("t"): 9, ord("\\"): 92}
    while i < len(raw):
        if raw[i] != 92:
            out.append(raw[i])
            i += 1
        elif raw[i + 1] in simple:
            out.append(simple[raw[i + 1]])
            i += 2
        elif raw[i + 1] == ord("x"):
            out.append(int(raw[i + 2 : i + 4], 16))
            i += 4
        else:
            raise ScriptError("bad escape in: " + text)
    return bytes(out)


# --- HTTP/1.1 (RFC 9112) ---------------------------------------------------------------------------

REASONS = {"101": "Switching Protocols", "200": "OK", "400": "Bad Request", "404": "Not Found", "429": "Too Many Requests",
           "500": "Internal Server Error", "503": "Service Unavailable"}


def chunk(data, upper=False):
    return b"%s\r\n%s\r\n" % ((b"%X" if upper else b"%x") % len(data), data)


def request(method, rest):
    path, _, body = rest.partition(" ")
    head = "%s %s HTTP/1.1\r\nhost: llm.example\r\n" % (method, path)
    if body:
        head += "content-type: application/json\r\ncontent-length: %d\r\n" % len(body.encode())
    return (head + "\r\n" + body).encode()


def fields_of(text):
    return [tuple(part.strip() for part in field.split(":", 1)) for field in text.split("|") if field.strip()]


def response_head(rest):
    status, _, fields = rest.partition(" ")
    lines = ["HTTP/1.1 %s %s" % (status, REASONS[status])]
    lines += ["%s: %s" % field for field in fields_of(fields)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def sse(text):
    return b"data: " + text.encode() + b"\n\n"


def event(rest):
    name, _, data = rest.partition(" ")
    return ("event: %s\ndata: %s\n\n" % (name, data)).encode()


# --- content codings: one stream a connection, flushed after each write ----------------------------


def deflater(coding):
    wbits = {"gzip": 31, "deflate": 15, "raw": -15}[coding]
    return zlib.compressobj(6, zlib.DEFLATED, wbits)


def coded(state, rest):
    """CODING TEXT: what the coder puts out for the text and a flush. CODING end: the end of its stream."""
    coding, _, text = rest.partition(" ")
    coder = state.setdefault("coder", None) or deflater(coding)
    state["coder"] = coder
    if text == "end":
        return coder.flush(zlib.Z_FINISH)
    return coder.compress(unescape(text)) + coder.flush(zlib.Z_SYNC_FLUSH)


# --- AWS event stream ------------------------------------------------------------------------------


def aws_header(name, value):
    return struct.pack(">B", len(name)) + name.encode() + struct.pack(">BH", 7, len(value)) + value.encode()


def aws_message(kind, name, payload):
    key = {"event": ":event-type", "exception": ":exception-type"}[kind]
    headers = aws_header(":message-type", kind) + aws_header(key, name) + aws_header(":content-type", "application/json")
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    message = prelude + struct.pack(">I", binascii.crc32(prelude)) + headers + payload
    return message + struct.pack(">I", binascii.crc32(message))


def aws(rest):
    name, _, payload = rest.partition(" ")
    return aws_message("event", name, payload.encode())


def aws_exception(rest):
    name, _, payload = rest.partition(" ")
    return aws_message("exception", name, payload.encode())


def aws_chunk(rest):
    wrapped = '{"bytes":"%s","p":"abcdefgh"}' % base64.b64encode(rest.encode()).decode()
    return aws_message("event", "chunk", wrapped.encode())


# --- protobuf and gRPC -----------------------------------------------------------------------------


def varint(n):
    out = bytearray()
    while n >= 128:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


PB_TOKEN = re.compile(r'\s*(?:(\d+):|(\d+)|"([^"]*)"|([{}\[\]]))')


def protobuf(text):
    """1:"text" 2:{1:5 3:[1 2 3]}: a string, a message, a varint, a packed row of varints."""
    tokens = [m.groups() for m in PB_TOKEN.finditer(text)]

    def value(i):
        _, number, string, bracket = tokens[i]
        if number is not None:
            return 0, varint(int(number)), i + 1
        if string is not None:
            return 2, unescape(string), i + 1
        if bracket == "[":
            out, i = b"", i + 1
            while tokens[i][3] != "]":
                out += varint(int(tokens[i][1]))
                i += 1
            return 2, out, i + 1
        out, i = message(i + 1)
        return 2, out, i + 1

    def message(i):
        out = b""
        while i < len(tokens) and tokens[i][3] != "}":
            wire, data, j = value(i + 1)
            out += varint(int(tokens[i][0]) << 3 | wire)
            out += varint(len(data)) + data if wire == 2 else data
            i = j
        return out, i

    return message(0)[0]


def grpc(data, compressed=False):
    return struct.pack(">BI", compressed, len(data)) + data


# --- HTTP/2 (RFC 9113), HPACK (RFC 7541) -----------------------------------------------------------

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM = ACK = 1
END_HEADERS, PADDED = 4, 8


def h2_frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def hpack_int(first, bits, n):
    top = (1 << bits) - 1
    return bytes([first | n]) if n < top else bytes([first | top]) + varint(n - top)


def hpack_string(text):
    return hpack_int(0, 7, len(text)) + text.encode()


def hpack(table, fields):
    """Literals with incremental indexing; what the table has is referred to. table: newest first."""
    out = b""
    for field in fields:
        if field in table:
            out += hpack_int(0x80, 7, 62 + table.index(field))
            continue
        out += b"\x40" + hpack_string(field[0]) + hpack_string(field[1])
        table.insert(0, field)
    return out


def h2_headers(state, stream, fields, flags, split=0):
    block = hpack(state.setdefault("hpack", []), fields)
    if not split:
        return h2_frame(HEADERS, flags | END_HEADERS, stream, block)
    return h2_frame(HEADERS, flags, stream, block[:split]) + h2_frame(CONTINUATION, END_HEADERS, stream, block[split:])


def h2_data(stream, data, flags=0, pad=None):
    if pad is None:
        return h2_frame(DATA, flags, stream, data)
    return h2_frame(DATA, flags | PADDED, stream, bytes([pad]) + data + bytes(pad))


def h2_request(state, stream, method, rest, flags):
    path, _, body = rest.partition(" ")
    fields = [(":method", method), (":scheme", "http"), (":authority", "llm.example"), (":path", path)]
    if body:
        fields.append(("content-type", "application/json"))
    out = h2_headers(state, stream, fields, flags if not body else 0)
    return out + h2_data(stream, body.encode(), flags) if body else out


def h2(state, rest):
    word, _, rest = rest.partition(" ")
    if word == "preface":
        return PREFACE + h2_frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 1 << 20))
    if word == "settings":
        return h2_frame(SETTINGS, 0, 0)
    if word == "ack":
        return h2_frame(SETTINGS, ACK, 0)
    if word == "ping":
        return h2_frame(PING, 0, 0, b"tokensno")
    if word == "goaway":
        return h2_frame(GOAWAY, 0, 0, struct.pack(">II", int(rest or 0), 0))
    number, _, rest = rest.partition(" ")
    stream = int(number)
    if word in ("post", "get"):
        return h2_request(state, stream, word.upper(), rest, END_STREAM)
    if word == "grpc-call":  # PATH: its messages follow
        fields = [(":method", "POST"), (":scheme", "http"), (":path", rest), ("te", "trailers"),
                  ("content-type", "application/grpc")]
        return h2_headers(state, stream, fields, 0)
    if word == "call-known":  # POST, http; path, te and content type as in a table from before the capture
        return h2_frame(HEADERS, END_HEADERS, stream, b"\x83\x86\xc0\xbf\xbe")
    if word == "head-known":  # 200; the content type from there
        return h2_frame(HEADERS, END_HEADERS, stream, b"\x88\xbe")
    if word in ("head", "head-split", "head-end"):
        status, _, fields = rest.partition(" ")
        flags = END_STREAM if word == "head-end" else 0
        return h2_headers(state, stream, [(":status", status)] + fields_of(fields), flags, 7 if word == "head-split" else 0)
    if word == "trailers":
        return h2_headers(state, stream, fields_of(rest), END_STREAM)
    if word == "sse":
        return h2_data(stream, sse(rest))
    if word == "line":
        return h2_data(stream, rest.encode() + b"\n")
    if word == "data":
        return h2_data(stream, unescape(rest))
    if word == "padded":
        return h2_data(stream, unescape(rest), pad=33)
    if word == "grpc":
        return h2_data(stream, grpc(protobuf(rest)))
    if word == "end":
        return h2_data(stream, unescape(rest), END_STREAM)
    if word == "window":
        return h2_frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", 65535))
    if word == "rst":
        return h2_frame(RST_STREAM, 0, stream, struct.pack(">I", int(rest)))
    raise ScriptError("h2: " + word)


# --- WebSocket (RFC 6455), permessage-deflate (RFC 7692) -------------------------------------------

MASK = b"\x37\xfa\x21\x3d"


def ws_frame(payload, opcode, fin=True, rsv1=False, masked=False):
    first = opcode | (0x80 if fin else 0) | (0x40 if rsv1 else 0)
    top = 0x80 if masked else 0
    n = len(payload)
    if n < 126:
        head = struct.pack(">BB", first, top | n)
    elif n < 65536:
        head = struct.pack(">BBH", first, top | 126, n)
    else:
        head = struct.pack(">BBQ", first, top | 127, n)
    if masked:
        return head + MASK + bytes(b ^ MASK[i % 4] for i, b in enumerate(payload))
    return head + payload


def ws(state, masked, rest):
    """text JSON | deflated JSON (context takeover) | fragments A | B | ping | pong | close"""
    word, _, text = rest.partition(" ")
    if word == "text":
        return ws_frame(text.encode(), 1, masked=masked)
    if word == "deflated":
        coder = state.setdefault("ws", deflater("raw"))
        data = coder.compress(text.encode()) + coder.flush(zlib.Z_SYNC_FLUSH)
        return ws_frame(data[:-4], 1, rsv1=True, masked=masked)
    if word == "fragments":
        parts = text.split(" | ")
        return b"".join(ws_frame(part.encode(), 0 if i else 1, i == len(parts) - 1, masked=masked)
                        for i, part in enumerate(parts))
    opcode = {"close": 8, "ping": 9, "pong": 10}[word]
    return ws_frame(struct.pack(">H", 1000) if opcode == 8 else b"hi", opcode, masked=masked)


def upgrade(rest):
    path, _, extensions = rest.partition(" ")
    head = ("GET %s HTTP/1.1\r\nHost: llm.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n" % path)
    if extensions:
        head += "Sec-WebSocket-Extensions: %s\r\n" % extensions
    return (head + "\r\n").encode()


def switched(rest):
    head = ("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n")
    if rest:
        head += "Sec-WebSocket-Extensions: %s\r\n" % rest
    return (head + "\r\n").encode()


# --- by word ---------------------------------------------------------------------------------------

STATELESS = {
    "post": lambda rest: request("POST", rest),
    "get": lambda rest: request("GET", rest),
    "head": response_head,
    "sse": lambda rest: chunk(sse(rest)),
    "SSE": lambda rest: chunk(sse(rest), True),
    "event": lambda rest: chunk(event(rest)),
    "EVENT": lambda rest: chunk(event(rest), True),
    "line": lambda rest: chunk(rest.encode() + b"\n"),
    "chunk": lambda rest: chunk(unescape(rest)),
    "CHUNK": lambda rest: chunk(unescape(rest), True),
    "last": lambda rest: b"0\r\n\r\n",
    "aws": lambda rest: chunk(aws(rest)),
    "aws-exception": lambda rest: chunk(aws_exception(rest)),
    "aws-chunk": lambda rest: chunk(aws_chunk(rest)),
    "upgrade": upgrade,
    "switched": switched,
}


def frame(text, state, masked):
    """state: what the end that writes remembers, a dictionary of its own. masked: it is the client."""
    word, _, rest = text.partition(" ")
    if word in STATELESS:
        return STATELESS[word](rest)
    if word == "coded":
        return chunk(coded(state, rest))
    if word == "h2":
        return h2(state, rest)
    if word == "ws":
        return ws(state, masked, rest)
    return unescape(text[1:] if text.startswith(" ") else text)
