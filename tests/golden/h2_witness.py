#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Golden cases of HTTP/2, read by other decoders: what the core calls for their bytes must be what those find.

  h2_witness.py [-k TEXT] [--dump H2_DUMP] [TOKENSNOOP]

The witnesses are Python's hyperframe and hpack, which read the bytes of the script, and tshark, which reads packets
that carry them. For each stream of each connection the method, path, status, content type, the bytes of DATA,
grpc-status, which sides ended it and who reset it are compared (TAP on standard output):
  - what h2_dump prints, which feeds the core those bytes, with each witness;
  - the method, path and status of the records of `tokensnoop report` with tshark's;
  - the comparison itself: each value found, changed, must be noticed.
Without a witness, or without a case, it fails.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

sys.dont_write_bytecode = True
DEBIANS = "/usr/bin/python3"  # Debian's packages are its own Python's

try:
    import hpack
    import hyperframe.frame
except ImportError:
    if os.path.exists(DEBIANS) and os.path.realpath(sys.executable) != os.path.realpath(DEBIANS):
        os.execv(DEBIANS, [DEBIANS, *sys.argv])
    hpack = None

import run_golden  # noqa: E402
import wire  # noqa: E402
from framers import DATA, END_STREAM, HEADERS, PREFACE, RST_STREAM  # noqa: E402

HERE = run_golden.HERE
SHAPES = [run_golden.PLAIN] + [s for s in run_golden.SHAPES if s.name in ("mss", "random-cuts", "ipv6-options")]
UNKNOWN = ("?", "<unknown>")  # how the witnesses name a field that refers to what came before the capture


class Failed(Exception):
    pass


# --- what is found --------------------------------------------------------------------------------


class View:
    """What a decoder found of a connection: {(stream, side, what): value}."""

    def __init__(self):
        self.found = {}
        self.gone = set()  # streams that were reset: what is still under way of them says nothing

    def set(self, stream, side, what, value):
        self.found.setdefault((stream, side, what), value)

    def data(self, stream, side, data):
        if stream not in self.gone:
            self.found[stream, side, "data"] = self.found.get((stream, side, "data"), b"") + data

    def all_data(self, stream, side, data):
        if stream not in self.gone:
            self.found[stream, side, "data"] = data

    def end(self, stream, side):
        if stream not in self.gone:
            self.set(stream, side, "ended", True)

    def reset(self, stream, side, code):
        if stream not in self.gone:
            self.set(stream, side, "reset", code)
        self.gone.add(stream)

    def fields(self, stream, side, fields):
        """A header block: a head, an interim one, or trailers, of which only grpc-status is of interest."""
        names = dict(reversed([f for f in fields if f[0] not in UNKNOWN]))  # the first of a name counts
        if stream in self.gone or names.get(":status", "").startswith("1"):
            return
        if side == "<" and "grpc-status" in names:
            self.set(stream, side, "grpc-status", names["grpc-status"])
        if ":method" not in names and ":status" not in names:
            return
        for name, what in ((":method", "method"), (":path", "path"), (":status", "status")):
            if name in names:
                self.set(stream, side, what, names[name])
        if "content-type" in names:
            self.set(stream, side, "type", names["content-type"].split(";")[0].strip().lower())

    def streams(self):
        return {key[0] for key in self.found}


def shown(value):
    if not isinstance(value, bytes):
        return repr(value)
    return "%d bytes, %r" % (len(value), value[:40] + (b".." if len(value) > 40 else b""))


def differences(core, witness):
    out = []
    for key in sorted(set(core) | set(witness)):
        a, b = core.get(key), witness.get(key)
        if a != b:
            out.append("stream %d %s %s: the core has %s, the witness %s" % (*key, shown(a), shown(b)))
    return out


# --- connections ----------------------------------------------------------------------------------


class Connection:
    """The writes of HTTP/2 of one connection of a case, and how it began."""

    def __init__(self, case, name):
        steps = [s for s in case.steps if s.conn.name == name and s.kind == "data"]
        self.conn, self.kind = steps[0].conn, "mid" if steps[0].conn.mid else "start"
        self.writes = [["<" if s.from_server else ">", s.data] for s in steps]
        client = b"".join(data for side, data in self.writes if side == ">")
        if self.kind == "start" and not client.startswith(PREFACE):
            self.upgrade(client)

    def upgrade(self, client):
        self.kind = "upgraded"
        head, _, rest = client.partition(b"\r\n\r\n")
        length = re.search(rb"\r\ncontent-length: *(\d+)", head, re.I)
        length = int(length.group(1)) if length else 0
        if not rest[length:].startswith(PREFACE):
            raise Failed("no preface behind the request that is upgraded, but %r" % rest[length : length + 24])
        self.drop(">", len(head) + 4 + length)
        server = b"".join(data for side, data in self.writes if side == "<")
        if not server.startswith(b"HTTP/1.1 101 "):
            raise Failed("the upgrade is not accepted")
        self.drop("<", server.index(b"\r\n\r\n") + 4)

    def drop(self, side, n):
        for write in self.writes:
            if write[0] == side:
                gone = min(n, len(write[1]))
                write[1], n = write[1][gone:], n - gone


def connections(case):
    names = dict.fromkeys(s.conn.name for s in case.steps)
    return [Connection(case, name) for name in names]


def is_http2(name):
    with open(os.path.join(HERE, name, "wire"), encoding="utf-8") as f:
        return re.search(r"[<>]h2 ", f.read()) is not None


# --- the core -------------------------------------------------------------------------------------


def dump_line(view, line, mid):
    words = line.split(" ")
    kind, stream, side = words[0], int(words[1]), words[2]
    if kind == "head":
        if "unknowable" in words[8:] and not mid:
            raise Failed("unknowable, though nothing is lost: " + line)
        for what, value in zip(("method", "path", "status", "type", "grpc-status"), words[3:8]):
            if value != ("0" if what == "status" else "-"):
                view.set(stream, side, what, value)
    elif kind == "trailers" and words[3] != "-":
        view.set(stream, side, "grpc-status", words[3])
    elif kind == "body":
        view.data(stream, side, bytes.fromhex(words[3]))
    elif kind == "end" and words[4] == "complete":
        view.set(stream, side, "ended", True)
    elif kind == "reset":
        view.set(stream, side, "reset", int(words[3]))
    elif kind == "gap":
        raise Failed("a gap, though nothing is lost: " + line)


def core_view(dump, connection):
    text = "" if connection.kind == "start" else connection.kind + "\n"
    text += "".join("%s %s\n" % (side, data.hex()) for side, data in connection.writes if data)
    run = subprocess.run([dump], input=text, capture_output=True, text=True, timeout=60, check=False)
    if run.returncode:
        raise Failed("h2_dump: exit status %d: %s" % (run.returncode, run.stderr))
    view = View()
    for line in run.stdout.splitlines():
        dump_line(view, line, connection.kind == "mid")
    return view


# --- hyperframe and hpack -------------------------------------------------------------------------


class Reader:
    """One direction."""

    def __init__(self, view, side, kind):
        self.view, self.side, self.preface = view, side, kind != "mid" and side == ">"
        self.rest, self.block = b"", b""
        self.decoder = hpack.Decoder()
        while kind == "mid" and len(self.decoder.header_table.dynamic_entries) < 100:
            self.decoder.header_table.add(b"?", b"")  # of what was sent before nobody knows what it was

    def feed(self, data):
        self.rest += data
        if self.preface and len(self.rest) >= len(PREFACE):
            if not self.rest.startswith(PREFACE):
                raise Failed("no preface")
            self.rest, self.preface = self.rest[len(PREFACE) :], False
        while not self.preface and len(self.rest) >= 9:
            frame, length = hyperframe.frame.Frame.parse_frame_header(memoryview(self.rest[:9]))
            if len(self.rest) < 9 + length:
                return
            frame.parse_body(memoryview(self.rest[9 : 9 + length]))
            self.rest = self.rest[9 + length :]
            self.frame(frame)

    def frame(self, frame):
        if isinstance(frame, hyperframe.frame.DataFrame):
            self.view.data(frame.stream_id, self.side, bytes(frame.data))
        elif isinstance(frame, (hyperframe.frame.HeadersFrame, hyperframe.frame.ContinuationFrame)):
            self.block += bytes(frame.data)
            if "END_HEADERS" in frame.flags:
                self.view.fields(frame.stream_id, self.side, self.decoder.decode(self.block))
                self.block = b""
        elif isinstance(frame, hyperframe.frame.RstStreamFrame):
            self.view.reset(frame.stream_id, self.side, frame.error_code)
        if "END_STREAM" in frame.flags:
            self.view.end(frame.stream_id, self.side)


def python_view(connection):
    view = View()
    readers = {side: Reader(view, side, connection.kind) for side in "><"}
    for side, data in connection.writes:
        readers[side].feed(data)
    for reader in readers.values():
        if reader.rest or reader.block:
            raise Failed("%s: %d bytes are no whole frame" % (reader.side, len(reader.rest)))
    return view


# --- tshark ---------------------------------------------------------------------------------------


def all_of(field, name):
    return [f for f in field.iter("field") if f.get("name") == name]


def text_of(field, name):
    return bytes.fromhex(all_of(field, name)[0].get("value") or "").decode()


def tshark_frame(view, side, frame):
    kind = [int(f.get("value"), 16) for f in all_of(frame, "http2.type")]
    if not kind:
        return  # the preface
    stream = int(all_of(frame, "http2.streamid")[0].get("show"))
    flags = int(all_of(frame, "http2.flags")[0].get("value"), 16)
    fields = [tuple(text_of(f, "http2.header." + part) for part in ("name", "value"))
              for f in all_of(frame, "http2.header")]
    if fields:
        view.fields(stream, side, fields)
    whole = [bytes.fromhex(f.get("value")) for f in all_of(frame, "http2.body.reassembled.data")]
    if kind[0] == DATA and whole:  # with the last frame comes all of it, once more
        view.all_data(stream, side, whole[0])
    elif kind[0] == DATA:
        view.data(stream, side, b"".join(bytes.fromhex(f.get("value") or "") for f in all_of(frame, "http2.data.data")))
    if kind[0] == RST_STREAM:
        view.reset(stream, side, int(all_of(frame, "http2.rst_stream.error")[0].get("value"), 16))
    if kind[0] in (DATA, HEADERS) and flags & END_STREAM:
        view.end(stream, side)


def tshark_views(path, decode_as):
    """{the client's port: its connection's view}"""
    ports = [x for port in run_golden.SERVER_PORTS for x in ("-d", "tcp.port==%s,http2" % port)] if decode_as else []
    argv = ["tshark", "-r", path, *ports, "-o", "tcp.reassemble_out_of_order:TRUE", "-Y", "http2", "-T", "pdml"]
    run = subprocess.run(argv, capture_output=True, timeout=120, check=True)
    views = {}
    for packet in xml.etree.ElementTree.fromstring(run.stdout).iter("packet"):
        tcp = [p for p in packet.iter("proto") if p.get("name") == "tcp"][0]
        source, dest = (all_of(tcp, name)[0].get("show") for name in ("tcp.srcport", "tcp.dstport"))
        server = source in run_golden.SERVER_PORTS
        view = views.setdefault(int(dest if server else source), View())
        for proto in packet.iter("proto"):
            if proto.get("name") == "http2":
                for frame in proto.findall("field[@name='http2.stream']"):
                    tshark_frame(view, "<" if server else ">", frame)
    return views


# --- comparing ------------------------------------------------------------------------------------


def mutated(value):
    if isinstance(value, bool):
        return not value
    return value + {bytes: b"x", str: "x", int: 1}[type(value)]


def asleep(core, witness):
    """Values that could change without notice."""
    out = [key for key, value in witness.items() if not differences(core, {**witness, key: mutated(value)})]
    out += [key for key in witness if not differences(core, {k: v for k, v in witness.items() if k != key})]
    return ["stream %d %s %s" % key for key in out]


def record_faults(records, conns, views):
    out, upgraded = [], {c.conn.client[1] for c in conns if c.kind == "upgraded"}
    for r in records:
        port, stream = int(r["peer"].rpartition(":")[2]), r.get("stream_id")
        found = views[port].found if port in views else {}
        for side, what in ((">", "method"), (">", "path"), ("<", "status")):
            if side == ">" and stream == 1 and port in upgraded:
                continue  # HTTP/1 carried it
            have = None if r[what] is None else str(r[what])
            want = found.get((stream, side, what))
            if have != (want.partition("?")[0] if want else None):
                out.append("stream %s: %s: the record has %s, the witness %s" % (stream, what, have, want))
    return out


def on_packets(case, conns, cores, opts, folder, tap):
    path = os.path.join(folder, "capture")
    for shape in SHAPES:
        if shape.name in case.skips:
            continue
        with open(path, "wb") as f:
            f.write(wire.capture(case.steps, shape))
        views = tshark_views(path, all(c.kind != "upgraded" for c in conns))
        why = []
        for c, core in zip(conns, cores):
            view = views.get(c.conn.client[1], View())
            why += differences(core.found, view.found)
        tap.ok(not why, "%s: tshark, %s" % (case.name, shape.name), "\n".join(why))
        if shape is run_golden.PLAIN:
            runner = run_golden.Runner(opts.tool, folder)
            records = [r for r in runner.report(wire.capture(case.steps, shape), case.args) if r["http"] == "2"]
            why = record_faults(records, conns, views)
            why += [] if records or not case.expect else ["no records"]
            tap.ok(not why, "%s: records" % case.name, "\n".join(why))


def run_case(case, opts, folder, tap):
    """How many streams it has."""
    conns = connections(case)
    cores = [core_view(opts.dump, c) for c in conns]
    why, blind = [], []
    for c, core in zip(conns, cores):
        view = python_view(c)
        why += differences(core.found, view.found)
        blind += asleep(core.found, view.found)
    tap.ok(not why, "%s: hyperframe and hpack" % case.name, "\n".join(why))
    tap.ok(not blind, "%s: changes are noticed" % case.name, "\n".join(blind))
    on_packets(case, conns, cores, opts, folder, tap)
    return sum(len(core.streams()) for core in cores)


def missing(opts):
    out = [] if hpack else ["Python's hpack and hyperframe (Debian: python3-hpack, python3-hyperframe)"]
    out += [] if shutil.which("tshark") else ["tshark"]
    return out + [path for path in (opts.dump, opts.tool) if not os.path.exists(path)]


def main():
    build = os.path.join(HERE, "..", "..", "build")
    parser = argparse.ArgumentParser()
    parser.add_argument("-k", default="", help="only cases whose name has this in it")
    parser.add_argument("--dump", default=os.path.join(build, "tests", "h2_dump"))
    parser.add_argument("tool", nargs="?", default=os.path.join(build, "tokensnoop"))
    opts = parser.parse_args()
    tap = run_golden.Tap()
    lacking = missing(opts)
    tap.ok(not lacking, "the witnesses are there", "\n".join(lacking))
    names = sorted(n for n in os.listdir(HERE) if os.path.exists(os.path.join(HERE, n, "wire")) and opts.k in n)
    names = [] if lacking else [n for n in names if is_http2(n)]
    streams = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            try:
                found = run_case(run_golden.Case(name), opts, folder, tap)
                tap.ok(found, "%s: has streams" % name)
                streams += found
            except (Failed, run_golden.Failed, subprocess.SubprocessError) as e:
                tap.ok(False, name, e)
    tap.ok(streams, "there are streams of HTTP/2 to compare")
    print("# %d streams of %d cases" % (streams, len(names)))
    return tap.end()


if __name__ == "__main__":
    sys.exit(main())
