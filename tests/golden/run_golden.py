#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Golden cases: wire scripts, told as packets in many shapes, must come out of `tokensnoop report` as the records
that were worked out by hand.

  run_golden.py [-k TEXT] [--tshark] [TOKENSNOOP]

Each folder with a `wire` (see wire.py) is a case:
  expect        the records of the whole story, in order of their requests; only the fields that are listed are compared
  expect.lost   the same when the writes marked ! were not captured
  case.conf     optional: `args = ...` for report, `skip = shape shape` with the reason in a comment

What is checked of each case (TAP on standard output):
  - the plain shape gives what expect says, and every record has exactly the fields of the record schema;
  - each other shape (cut, reordered, retransmitted, other link types and file formats) gives the very same records;
  - with any one write of the server missing, or every packet cut short, no record has a wrong number: what
    the loss did not touch is as before, what it touched is flagged and says the truth or null;
  - with --tshark: tshark, as an independent reader, finds the script's bytes in the files;
  - the comparison itself: each expected value, changed, must be noticed.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import wire  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))

FIELDS = set("""type id pid comm cgroup local peer transport http stream_id method path status dialect model response_id
server streamed boundary t_request_ns t_request_end_ns t_headers_ns t_first_ns t_last_ns t_finish_ns t_end_ns
start_unix_ns frames token_frames tokens tokens_source t_last_source prompt_tokens cached_tokens reasoning_tokens
max_tokens n ttft_ns ttft_visible_ns tpot_ns e2e_ns send_wait_ns itl itl_per_token concurrency finish error flags
slo_met tokens_at_ns tokens_in_frame boundaries choices""".split())
OPTIONAL = {"stream_id", "slo_met", "tokens_at_ns", "tokens_in_frame", "boundaries", "choices"}
CLOCK = ("t_request_ns", "t_request_end_ns", "t_headers_ns", "t_first_ns", "t_last_ns", "t_finish_ns", "t_end_ns",
         "start_unix_ns")
# Figures that are either right or null, whatever was lost.
FIGURES = CLOCK + ("ttft_ns", "ttft_visible_ns", "tpot_ns", "e2e_ns", "tokens", "prompt_tokens", "status", "model",
                   "response_id", "method", "path", "max_tokens")

PLAIN = wire.Shape("plain")
NEAR_WRAP = 0xFFFFFFFF - 700
SHAPES = [
    wire.Shape("pcapng", ng=True),
    wire.Shape("nanoseconds", nano=True),
    wire.Shape("big-endian", big=True, nano=True),
    wire.Shape("bytes", cut=1),
    wire.Shape("cut-7", cut=7, isn=NEAR_WRAP),
    wire.Shape("mss", cut=536),
    wire.Shape("random-cuts", cut="random"),
    wire.Shape("reordered", cut="random", shuffle=True),
    wire.Shape("reordered-bytes", cut=3, shuffle=True, isn=NEAR_WRAP),
    wire.Shape("retransmitted", cut="random", retransmit=True),
    wire.Shape("all-at-once", cut="random", shuffle=True, retransmit=True, ng=True, isn=NEAR_WRAP),
    wire.Shape("no-acks", acks=False),
    wire.Shape("no-synack", no_synack=True),
    wire.Shape("late-syn", late_synack=True),
    wire.Shape("vlan", link="vlan"),
    wire.Shape("qinq", link="qinq", cut="random"),
    wire.Shape("sll", link="sll"),
    wire.Shape("sll2", link="sll2", ng=True),
    wire.Shape("raw", link="raw"),
    wire.Shape("ip", link="ip"),
    wire.Shape("null", link="null", big=True),
    wire.Shape("loop-ipv6", link="loop", v6=True),
    wire.Shape("ipv6", v6=True),
    wire.Shape("ipv6-options", v6="ext", link="raw", cut="random", shuffle=True),
]


class Tap:
    def __init__(self):
        self.count = self.failed = self.skipped = 0

    def ok(self, good, name, why=""):
        self.count += 1
        print("%sok %d - %s" % ("" if good else "not ", self.count, name))
        if not good:
            self.failed += 1
            for line in str(why).splitlines()[:40]:
                print("#   " + line)

    def skip(self, name, why):
        self.count += 1
        self.skipped += 1
        print("ok %d - %s # SKIP %s" % (self.count, name, why))

    def end(self):
        print("1..%d" % self.count)
        print("# %d passed, %d failed, %d skipped" %
              (self.count - self.failed - self.skipped, self.failed, self.skipped))
        return 1 if self.failed else 0


# --- expectations ---------------------------------------------------------------------------------

UNITS = {"ns": 1, "us": 1000, "ms": 10**6, "s": 10**9}


def duration(word):
    m = re.fullmatch(r"([0-9.]+)(ns|us|ms|s)", word)
    return round(float(m.group(1)) * UNITS[m.group(2)]) if m else None


def value_of(key, text):
    words = text.split()
    times = [duration(w) for w in words]
    if all(t is not None for t in times):
        return times if key == "tokens_at_ns" else times[0]
    return json.loads(text)


def read_expect(path):
    records = []
    with open(path, encoding="utf-8") as f:
        for line in f:
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            if line == "[record]":
                records.append({})
                continue
            key, _, text = line.partition("=")
            records[-1][key.strip()] = value_of(key.strip(), text.strip())
    return records


MISSING = object()


def lookup(record, key):
    value = record
    for part in key.split("."):
        if isinstance(value, list):
            value = value[int(part)] if int(part) < len(value) else MISSING
        elif isinstance(value, dict):
            value = value.get(part, MISSING)
        else:
            return MISSING
    return value


def differences(expected, records):
    if len(expected) != len(records):
        return ["%d records, wanted %d" % (len(records), len(expected))]
    out = []
    for i, (want, got) in enumerate(zip(expected, records)):
        for key, value in want.items():
            have = lookup(got, key)
            if have is MISSING or have != value or isinstance(have, bool) != isinstance(value, bool):
                out.append("record %d: %s: %s, wanted %s" %
                           (i, key, "missing" if have is MISSING else json.dumps(have), json.dumps(value)))
    return out


def schema_faults(records):
    out = []
    for i, record in enumerate(records):
        out += ["record %d: unknown field %s" % (i, k) for k in sorted(set(record) - FIELDS)]
        out += ["record %d: no field %s" % (i, k) for k in sorted(FIELDS - OPTIONAL - set(record))]
        if record.get("flags") != sorted(record.get("flags") or []):
            out.append("record %d: flags are not sorted" % i)
    return out


# --- running --------------------------------------------------------------------------------------


def relative(record):
    """Times since the script's time 0."""
    out = dict(record)
    for key in CLOCK:
        if out.get(key) is not None:
            out[key] -= wire.BASE_NS
    if out.get("tokens_at_ns"):
        out["tokens_at_ns"] = [t - wire.BASE_NS for t in out["tokens_at_ns"]]
    return out


class Failed(Exception):
    pass


class Runner:
    def __init__(self, tool, folder):
        self.tool, self.folder, self.number = tool, folder, 0

    def report(self, data, args=()):
        self.number += 1
        path = os.path.join(self.folder, "capture")
        with open(path, "wb") as f:
            f.write(data)
        run = subprocess.run([self.tool, "report", "--format", "jsonl", "--tokens", *args, path],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
        if run.returncode:
            raise Failed("exit status %d: %s" % (run.returncode, run.stderr.decode("utf-8", "replace")))
        records = [json.loads(line) for line in run.stdout.decode("utf-8").splitlines()]
        records = [relative(r) for r in records if r.get("type") == "request"]
        # By connection, then time: the order of ends is compared by the ids only.
        return sorted(records, key=lambda r: (r["t_request_ns"] if r["t_request_ns"] is not None else -1, r["id"]))


class Case:
    def __init__(self, name):
        self.name = name
        folder = os.path.join(HERE, name)
        with open(os.path.join(folder, "wire"), encoding="utf-8") as f:
            self.steps = wire.parse(f.read())
        self.expect = read_expect(os.path.join(folder, "expect"))
        lost = os.path.join(folder, "expect.lost")
        self.expect_lost = read_expect(lost) if os.path.exists(lost) else None
        self.args, self.skips = [], set()
        conf = os.path.join(folder, "case.conf")
        if os.path.exists(conf):
            self.read_conf(conf)

    def read_conf(self, path):
        with open(path, encoding="utf-8") as f:
            for line in f:
                key, _, value = line.split("#")[0].partition("=")
                if key.strip() == "args":
                    self.args = value.split()
                elif key.strip() == "skip":
                    self.skips = set(value.split())

    def mid(self):
        return any(s.conn.mid for s in self.steps)


def comparable(record, shape):
    """What must be the same in each shape."""
    out = dict(record)
    if shape.v6:
        for key in ("local", "peer"):
            out[key] = re.sub(r"^\[2001:db8::(\w+):(\w+)\]",
                              lambda m: ".".join(str(int(w.zfill(4)[i : i + 2], 16))
                                                 for w in m.groups() for i in (0, 2)), out[key])
    return out


def shape_difference(plain, records, shape):
    records = [comparable(r, shape) for r in records]
    if records == plain:
        return ""
    if len(records) != len(plain):
        return "%d records, wanted %d" % (len(records), len(plain))
    return "\n".join("record %d: %s: %s, wanted %s" % (i, k, json.dumps(b.get(k)), json.dumps(a.get(k)))
                     for i, (a, b) in enumerate(zip(plain, records))
                     for k in sorted(set(a) | set(b)) if a.get(k, MISSING) != b.get(k, MISSING))


# --- losses ---------------------------------------------------------------------------------------


def without_context(record):
    """A record less what other requests have a say in."""
    return {k: v for k, v in record.items() if k not in ("id", "concurrency")}


def gaps_of(record):
    """Where no frame can be read there is no series, but the smallest and the largest gap between arrivals."""
    at = record.get("tokens_at_ns") or []
    if not at and record["itl"]:
        return {record["itl"]["min_ns"], record["itl"]["max_ns"]}
    return {b - a for a, b in zip(at, at[1:])}


def wrong_figures(record, truths):
    """Figures of a record hit by a loss that no request on its connection had."""
    out = []
    for key in FIGURES:
        if record[key] is not None and record[key] not in [t[key] for t in truths]:
            out.append("%s: %s, the truth is null or %s" % (key, record[key], [t[key] for t in truths]))
    gaps = set().union(*map(gaps_of, truths)) if truths else set()
    if {"opaque", "estimated"} <= set(record["flags"]):
        return out  # the gaps are those between sends, whatever was in them
    for key in ("min_ns", "max_ns"):
        if record["itl"] and record["itl"][key] not in gaps:
            out.append("itl.%s: %s is no gap of the stream's" % (key, record["itl"][key]))
    times = set().union(*(set(t.get("tokens_at_ns") or []) for t in truths))
    if not set(record.get("tokens_at_ns") or []) <= times:
        out.append("tokens_at_ns: %s, in truth %s" % (record["tokens_at_ns"], sorted(times)))
    return out


def touched(record, step):
    """Can the loss of this write have touched the record?"""
    begin, end = record["t_request_ns"], record["t_end_ns"]
    at = step.time_ns - wire.BASE_NS
    peer = "%s:%d" % step.conn.client
    # HTTP/2's header fields refer to earlier ones, and streams begin while others wait; a WebSocket's messages are
    # compressed with what was in earlier ones.
    later = record["http"] == "2" or record["status"] == 101 or begin is None or begin <= at
    return record["peer"] == peer and later and (end is None or at <= end)


def only_unknowable(record, truths):
    """All that it lacks is what the heads of its stream said: lost, or told by reference to ones that were."""
    for truth in truths:
        differ = {k for k, v in without_context(record).items() if v != truth[k]}
        by_reference = record["http"] == "2" or record["status"] == 101
        if by_reference and all(record[k] is None for k in differ) and differ <= {"method", "path", "status"}:
            return True
    return False


def loss_faults(plain, records, lost):
    """lost: the step that is missing, None: all were cut short."""
    out = []
    for record in records:
        truths = [t for t in plain if t["peer"] == record["peer"]]
        if without_context(record) in [without_context(t) for t in truths]:
            continue
        if not {"lost", "mid_stream"} & set(record["flags"]) and not only_unknowable(record, truths):
            out.append("differs but is not flagged: " + json.dumps(record))
        out += wrong_figures(record, truths)
    seen = [without_context(r) for r in records]
    for truth in plain:
        if lost and not touched(truth, lost) and without_context(truth) not in seen:
            out.append("not touched, but no more as it was: %s at %s" % (truth["response_id"], truth["t_request_ns"]))
    return out


def check_losses(case, runner, plain, tap):
    faults = []
    for i, step in enumerate(s for s in case.steps if s.kind == "data" and s.from_server):
        for cut in (60000,) if case.mid() else (60000, 40):  # how it is cut matters there, see its case.conf
            records = runner.report(wire.capture(case.steps, wire.Shape("loss", cut=cut), lost=[step]), case.args)
            faults += ["server's write %d, at %g ms, missing (cut %d): %s" %
                       (i, (step.time_ns - wire.BASE_NS) / 1e6, cut, f) for f in loss_faults(plain, records, step)]
    tap.ok(not faults, "%s: any one write missing: nothing wrong" % case.name, "\n".join(faults))
    faults = []
    for snap in (60, 110, 200, 300):
        records = runner.report(wire.capture(case.steps, wire.Shape("snap", snap=snap)), case.args)
        faults += ["snapshot length %d: %s" % (snap, f) for f in loss_faults(plain, records, None)]
    tap.ok(not faults, "%s: packets cut short: nothing wrong" % case.name, "\n".join(faults))


# --- other checks ---------------------------------------------------------------------------------


# Where the servers of all cases listen.
SERVER_PORTS = ("8000", "9000")


def tshark_streams(path):
    """By tshark: for each TCP stream its payload bytes from the lower and the higher port, in order."""
    out = subprocess.run(["tshark", "-r", path, "-o", "tcp.desegment_tcp_streams:FALSE", "-Y", "tcp.len > 0",
                          "-T", "fields", "-e", "tcp.stream", "-e", "tcp.srcport", "-e", "tcp.seq", "-e", "tcp.payload"],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60, check=True).stdout.decode()
    streams = {}
    for line in out.splitlines():
        stream, port, seq, payload = line.split("\t")
        at = int(seq) - (1 << 32 if int(seq) >> 31 else 0)  # counted from the first one seen, which may not be the first
        streams.setdefault((int(stream), port in SERVER_PORTS), {}).setdefault(at, bytes.fromhex(payload))
    return streams


def joined(segments):
    data, at = b"", min(segments)
    first = at
    for seq in sorted(segments):
        piece = segments[seq]
        if seq > at:
            raise Failed("tshark sees a hole at %d" % (at - first))
        data += piece[at - seq :]
        at = max(at, seq + len(piece))
    return data


def check_tshark(case, shape, folder):
    path = os.path.join(folder, "capture")
    with open(path, "wb") as f:
        f.write(wire.capture(case.steps, shape))
    names = list(dict.fromkeys(s.conn.name for s in case.steps))
    seen = {key: joined(segments) for key, segments in tshark_streams(path).items()}
    for i, name in enumerate(names):
        for server in (False, True):
            want = b"".join(s.data for s in case.steps if s.conn.name == name and s.from_server == server)
            if seen.get((i, server), b"") != want:
                return "connection %s, %s: other bytes" % (name, "server" if server else "client")
    return ""


def mutated(value):
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1
    if isinstance(value, str):
        return value + "x"
    if isinstance(value, list):
        return value + [1]
    return 0


def check_mutations(case, plain, tap):
    """Each expected value, changed, must be noticed."""
    asleep = []
    for i, want in enumerate(case.expect):
        for key in want:
            changed = [dict(w) for w in case.expect]
            changed[i][key] = mutated(want[key])
            if not differences(changed, plain):
                asleep.append("record %d: %s" % (i, key))
    if not differences(case.expect + [{}], plain):
        asleep.append("a missing record")
    tap.ok(not asleep, "%s: changed expectations are noticed" % case.name, "\n".join(asleep))


def run_shapes(case, runner, plain, tap):
    for shape in SHAPES:
        name = "%s: %s" % (case.name, shape.name)
        if shape.name in case.skips or (case.mid() and shape.name in ("no-synack", "late-syn")):
            continue
        try:
            records = runner.report(wire.capture(case.steps, shape), case.args)
            why = shape_difference(plain, records, shape)
        except Failed as e:
            why = str(e)
        tap.ok(not why, name, why)


def run_case(case, runner, tap, few):
    try:
        plain = runner.report(wire.capture(case.steps, PLAIN), case.args)
        why = differences(case.expect, plain) + schema_faults(plain)
        tap.ok(not why, case.name, "\n".join(why))
        if few:
            return
        run_shapes(case, runner, plain, tap)
        if case.expect_lost is not None:
            lost = [s for s in case.steps if s.lossy]
            why = differences(case.expect_lost, runner.report(wire.capture(case.steps, PLAIN, lost=lost), case.args))
            tap.ok(not why, case.name + ": lost", "\n".join(why))
        if "losses" not in case.skips:
            check_losses(case, runner, plain, tap)
        check_mutations(case, plain, tap)
    except Failed as e:
        tap.ok(False, case.name, e)


def run_tshark(case, folder, tap):
    if case.name in ("port-reuse", "mid-stream"):  # tshark numbers and guesses streams in its own way there
        return
    for shape in (PLAIN, SHAPES[10], SHAPES[17], SHAPES[23]):
        try:
            why = check_tshark(case, shape, folder)
        except Failed as e:
            why = str(e)
        tap.ok(not why, "%s: %s, read by tshark" % (case.name, shape.name), why)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-k", default="", help="only cases whose name has this in it")
    parser.add_argument("--few", action="store_true", help="each case as it is, and not in other shapes or with losses")
    parser.add_argument("--no-tool", action="store_true", help="only check the generated files with tshark")
    parser.add_argument("--tshark", action="store_true", help="check the generated files with tshark, too")
    parser.add_argument("--write", metavar="CASE", help="write CASE's plain capture to standard output, and end")
    parser.add_argument("tool", nargs="?", default=os.path.join(HERE, "..", "..", "build", "tokensnoop"))
    opts = parser.parse_args()
    if opts.write:
        sys.stdout.buffer.write(wire.capture(Case(opts.write).steps, PLAIN))
        return 0
    tap = Tap()
    names = sorted(n for n in os.listdir(HERE) if os.path.exists(os.path.join(HERE, n, "wire")) and opts.k in n)
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            case = Case(name)
            if not opts.no_tool:
                run_case(case, Runner(opts.tool, folder), tap, opts.few)
            if opts.tshark and shutil.which("tshark"):
                run_tshark(case, folder, tap)
            elif opts.tshark:
                tap.skip(name + ": read by tshark", "tshark is not installed")
    return tap.end()


if __name__ == "__main__":
    sys.exit(main())
