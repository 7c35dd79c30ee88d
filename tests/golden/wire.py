# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Wire scripts -> packets -> capture files.

A wire script says what each end of a connection wrote, and when. From it packet files are made in many
shapes that all tell the same story. The packets are built here byte by byte, from the RFCs, and share
nothing with the reader under test.

The script, line by line (# begins a comment, blank lines are nothing):

  let NAME = TEXT         ${NAME} stands for TEXT in the lines below
  conn NAME [client=ADDR:PORT] [server=ADDR:PORT] [mid]
                          the lines below belong to this connection; mid: its beginning was not captured
  TIME >TEXT  TIME <TEXT  a write of the client, of the server; TIME in milliseconds, may have a fraction;
                          `+` as TIME: further bytes of the write in the line above
                          `!` before TIME: in the variant "lost" this write was not captured
  TIME fin >              an end closes its direction;  rst > : it resets the connection

TEXT behind > or < may begin with a word that frames it:
  >post PATH JSON         a request with that body (literal)
  >get PATH
  <head STATUS FIELD: VALUE | ...     a response head
  <sse JSON               an HTTP chunk holding the frame "data: JSON" LF LF (literal)
  <SSE JSON               the same, chunk size in upper-case hex
  <event NAME JSON        the same with "event: NAME" LF before;  <EVENT  upper-case
  <line JSON              an HTTP chunk holding JSON LF
  <chunk TEXT             an HTTP chunk of that text;  <CHUNK  upper-case
  <coded CODING TEXT      an HTTP chunk of what gzip, deflate or raw make of it, flushed;  <coded CODING end
  <aws TYPE JSON          an HTTP chunk with a message of an AWS event stream;  <aws-exception TYPE JSON
  <aws-chunk JSON         the same, the JSON in base64 as InvokeModelWithResponseStream has it
  <last                   the last chunk, without trailers
  >h2 preface  <h2 settings  >h2 ack  h2 ping  h2 goaway N  h2 window STREAM  h2 rst STREAM CODE
  >h2 post STREAM PATH JSON    >h2 get STREAM PATH    >h2 grpc-call STREAM PATH
  <h2 head STREAM STATUS FIELD: VALUE | ...   (head-split: with CONTINUATION; head-end: ends the stream)
  <h2 sse STREAM JSON   h2 line STREAM JSON   h2 data STREAM TEXT   h2 padded STREAM TEXT   h2 end STREAM TEXT
  h2 grpc STREAM PB       a message, written as 1:"text" 2:{1:5 3:[1 2 3]};  <h2 trailers STREAM FIELD: VALUE | ...
  >upgrade PATH [EXTENSIONS]   <switched [EXTENSIONS]   ws text JSON   ws deflated JSON   ws fragments A | B   ws ping
Anything else is the bytes themselves. TEXT that is not literal has the escapes \\r \\n \\t \\\\ \\xHH.
"""

import ipaddress
import random
import re
import struct

from framers import ScriptError, frame

BASE_NS = 1_700_000_000 * 1_000_000_000  # the script's time 0

FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16


class Step:
    """One write, or the end of a direction. from_server, kind in data, fin, rst."""

    def __init__(self, conn, time_ns, from_server, kind, data=b"", lossy=False):
        self.conn, self.time_ns, self.from_server = conn, time_ns, from_server
        self.kind, self.data, self.lossy = kind, data, lossy


class Conn:
    def __init__(self, name, number):
        self.name, self.mid = name, False
        self.memory = {"<": {}, ">": {}}  # of each end, for its framers
        self.client = ("10.0.0.1", 40000 + number)
        self.server = ("10.0.0.2", 8000)


def parse_conn(conns, words):
    if not words:
        raise ScriptError("conn needs a name")
    conn = conns.setdefault(words[0], Conn(words[0], len(conns) + 1))
    for word in words[1:]:
        key, _, value = word.partition("=")
        if key == "mid":
            conn.mid = True
        elif key in ("client", "server"):
            addr, _, port = value.rpartition(":")
            setattr(conn, key, (addr, int(port)))
        else:
            raise ScriptError("conn: " + word)
    return conn


def parse_time(word):
    return BASE_NS + round(float(word) * 1000) * 1000


def parse_step(steps, conn, line):
    m = re.fullmatch(r"(!?)(\+|[0-9.]+)\s+(fin|rst)?\s*([<>])(.*)", line, re.S)
    if not m or conn is None:
        raise ScriptError("can't read: " + line)
    lossy, when, end, arrow, text = m.groups()
    data = b"" if end else frame(text, conn.memory[arrow], arrow == ">")
    if when == "+":
        steps[-1].data += data
        return
    step = Step(conn, parse_time(when), arrow == "<", end or "data", lossy=bool(lossy))
    step.data = data
    if steps and step.time_ns < steps[-1].time_ns:
        raise ScriptError("time runs backwards: " + line)
    steps.append(step)


def parse(text):
    """The steps of a script."""
    steps, conns, lets, conn = [], {}, {}, None
    for line in text.split("\n"):
        line = line.lstrip()
        if not line or line.startswith("#"):
            continue
        line = re.sub(r"\$\{(\w+)\}", lambda m: lets[m.group(1)], line)
        if line.startswith("let "):
            name, _, value = line[4:].partition(" = ")
            lets[name.strip()] = value
        elif line.startswith("conn "):
            conn = parse_conn(conns, line[5:].split())
        else:
            parse_step(steps, conn, line)
    return steps


# --- packets --------------------------------------------------------------------------------------


class Packet:
    def __init__(self, time_ns, conn, from_server, flags, seq, ack, data=b""):
        self.time_ns, self.conn, self.from_server = time_ns, conn, from_server
        self.flags, self.seq, self.ack, self.data = flags, seq, ack, data


class Shape:
    """How the same story looks as packets, and as a file."""

    def __init__(self, name, cut=60000, shuffle=False, retransmit=False, acks=True, link="ether",
                 v6=False, isn=1000, ng=False, nano=False, big=False, snap=0, no_synack=False,
                 late_synack=False):
        self.name, self.cut, self.shuffle, self.retransmit = name, cut, shuffle, retransmit
        self.acks, self.link, self.v6, self.isn = acks, link, v6, isn
        self.ng, self.nano, self.big, self.snap = ng, nano, big, snap
        self.no_synack, self.late_synack = no_synack, late_synack


def cuts(data, how, rng):
    """Pieces of a write: of at most `how` bytes, or at random places."""
    pieces, at = [], 0
    while at < len(data):
        size = rng.choice((1, 2, 3, 7, 40, 300, 1400)) if how == "random" else how
        pieces.append((at, data[at : at + size]))
        at += size
    return pieces


class Builder:
    def __init__(self, shape, seed):
        self.shape, self.rng = shape, random.Random(seed)
        self.packets = []
        self.next = {}  # (conn name, from_server) -> sequence number
        self.sent = {}  # the same -> (sequence number, data) of the last write

    def add(self, step, flags, data=b"", from_server=None, seq=None):
        side = step.from_server if from_server is None else from_server
        me, other = (step.conn.name, side), (step.conn.name, not side)
        packet = Packet(step.time_ns, step.conn, side, flags,
                        (self.next[me] if seq is None else seq) & 0xFFFFFFFF,
                        self.next[other] & 0xFFFFFFFF if flags & ACK else 0, data)
        self.packets.append(packet)
        return packet

    def open(self, step):
        name = step.conn.name
        self.next[name, False] = self.shape.isn + 77 * len(self.next)
        self.next[name, True] = self.shape.isn + 501 * len(self.next)
        if step.conn.mid:
            return
        self.add(step, SYN, from_server=False)
        self.next[name, False] += 1
        synack = self.add(step, SYN | ACK, from_server=True)
        self.next[name, True] += 1
        self.add(step, ACK, from_server=False)
        if self.shape.no_synack:
            self.packets.remove(synack)
        if self.shape.late_synack:
            self.packets[-3:] = [synack, self.packets[-3], self.packets[-1]]

    def write(self, step):
        me = (step.conn.name, step.from_server)
        start = self.next[me]
        pieces = cuts(step.data, self.shape.cut, self.rng)
        if self.shape.shuffle:
            self.rng.shuffle(pieces)
        for at, piece in pieces:
            self.add(step, ACK | PSH, piece, seq=start + at)
            if self.shape.retransmit:
                self.add(step, ACK | PSH, piece, seq=start + at)
        self.next[me] = start + len(step.data)
        if self.shape.acks:
            self.add(step, ACK, from_server=not step.from_server)
        if self.shape.retransmit:
            self.again(step, me)
        self.sent[me] = (start, step.data)

    def again(self, step, me):
        """The write before this one comes again, later, cut otherwise, and overlapping this one."""
        if me in self.sent:
            start, data = self.sent[me]
            both = data + step.data[:5]
            for at, piece in cuts(both[1:], 1000, self.rng):
                self.add(step, ACK, piece, seq=start + 1 + at)

    def step(self, step, lost):
        if (step.conn.name, True) not in self.next:
            self.open(step)
        me = (step.conn.name, step.from_server)
        if step.kind == "rst":
            self.add(step, RST | ACK)
        elif step.kind == "fin":
            self.add(step, FIN | ACK)
            self.next[me] += 1
            if self.shape.acks:
                self.add(step, ACK, from_server=not step.from_server)
        elif lost:  # the other end got it, and says so
            self.next[me] += len(step.data)
            if self.shape.acks:
                self.add(step, ACK, from_server=not step.from_server)
        else:
            self.write(step)


def packets(steps, shape, seed=1, lost=()):
    """lost: the steps that the capture missed."""
    b = Builder(shape, seed)
    for step in steps:
        b.step(step, step in lost)
    return b.packets


# --- bytes ----------------------------------------------------------------------------------------


def tcp_bytes(p):
    sport, dport = p.conn.client[1], p.conn.server[1]
    if p.from_server:
        sport, dport = dport, sport
    options = b"\x02\x04\x05\xb4" if p.flags & SYN else b"\x01\x01\x08\x0a" + b"\0" * 8
    offset = (20 + len(options)) // 4
    return struct.pack(">HHIIBBHHH", sport, dport, p.seq, p.ack, offset << 4, p.flags, 65535, 0,
                       0) + options + p.data


def v6_of(addr):
    return b"\x20\x01\x0d\xb8" + b"\0" * 8 + ipaddress.ip_address(addr).packed


def ip_bytes(p, shape):
    src, dst = p.conn.client[0], p.conn.server[0]
    if p.from_server:
        src, dst = dst, src
    tcp = tcp_bytes(p)
    if not shape.v6:
        head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0x4000, 64, 6, 0)
        return head + ipaddress.ip_address(src).packed + ipaddress.ip_address(dst).packed + tcp
    ext, first = b"", 6
    if shape.v6 == "ext":  # hop-by-hop, destination options, and a fragment header of a whole packet
        ext, first = b"\x3c\0\x01\x04\0\0\0\0" + b"\x2c\0\x01\x04\0\0\0\0" + b"\x06\0\0\0\0\0\0\x01", 0
    head = struct.pack(">IHBB", 0x60000000, len(ext + tcp), first, 64)
    return head + v6_of(src) + v6_of(dst) + ext + tcp


LINKTYPES = {"ether": 1, "vlan": 1, "qinq": 1, "sll": 113, "sll2": 276, "raw": 101, "null": 0,
             "loop": 108, "ip": 228}


def link_bytes(p, shape):
    ip = ip_bytes(p, shape)
    proto = 0x86DD if shape.v6 else 0x0800
    macs = b"\x02\0\0\0\0\x01\x02\0\0\0\0\x02"
    family = 10 if shape.v6 else 2
    if shape.link == "sll":
        return struct.pack(">HHH8sH", 0, 1, 6, macs[:6], proto) + ip
    if shape.link == "sll2":
        return struct.pack(">HHIHBB8s", proto, 0, 3, 1, 0, 6, macs[:6]) + ip
    if shape.link == "null":
        return struct.pack(">I" if shape.big else "<I", family) + ip
    if shape.link == "loop":
        return struct.pack(">I", family) + ip
    if shape.link in ("raw", "ip"):
        return ip
    tags = {"vlan": b"\x81\0\0\x05", "qinq": b"\x88\xa8\0\x05\x81\0\0\x06"}.get(shape.link, b"")
    frame_bytes = macs + tags + struct.pack(">H", proto) + ip
    return frame_bytes + b"\xee" * (60 - len(frame_bytes))  # Ethernet's least, padded with noise


def pcap_file(pkts, shape):
    order = ">" if shape.big else "<"
    magic = 0xA1B23C4D if shape.nano else 0xA1B2C3D4
    out = [struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, 262144, LINKTYPES[shape.link])]
    for p in pkts:
        data = link_bytes(p, shape)
        cap = data[: shape.snap] if shape.snap else data
        sub = p.time_ns % 10**9 // (1 if shape.nano else 1000)
        out.append(struct.pack(order + "IIII", p.time_ns // 10**9, sub, len(cap), len(data)) + cap)
    return b"".join(out)


def block(kind, body):
    size = 12 + len(body)
    return struct.pack("<II", kind, size) + body + struct.pack("<I", size)


def pcapng_file(pkts, shape):
    out = [block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))]
    # One interface, time stamps in nanoseconds (if_tsresol 9).
    out.append(block(1, struct.pack("<HHI", LINKTYPES[shape.link], 0, 262144) +
                     struct.pack("<HHB3x", 9, 1, 9) + struct.pack("<HH", 0, 0)))
    out.append(block(0x0BAD, b"to be passed over.. "))
    for p in pkts:
        data = link_bytes(p, shape)
        cap = data[: shape.snap] if shape.snap else data
        head = struct.pack("<IIIII", 0, p.time_ns >> 32, p.time_ns & 0xFFFFFFFF, len(cap), len(data))
        out.append(block(6, head + cap + b"\0" * (-len(cap) % 4)))
    return b"".join(out)


def capture(steps, shape, seed=1, lost=()):
    """The bytes of a capture file."""
    pkts = packets(steps, shape, seed, lost)
    return pcapng_file(pkts, shape) if shape.ng else pcap_file(pkts, shape)
