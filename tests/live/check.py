#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Holds tokensnoop's records against what independent witnesses logged about the same requests.

usage: check.py RECORDS.jsonl (--truth LOG | --app LOG) [--client LOG] [--dialect NAME] [--source NAME]...
                [--last text|finish] [--flag NAME]...

Prints one problem a line; exit status 0 if there is none.

A witness gives, for each token frame, the times between which its last byte went to the kernel: the truth
server read the clock before and after the send, the FastAPI app before it handed the frame over and in the
event loop's next round. A token time outside of these is wrong, whatever the reason. TPOT and the ITL figures
must be within 1 % of those from the witness's times, unless the witness itself left more than that open (it was
preempted between its reading of the clock and the send); most requests must be within 1 % without that excuse.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections import defaultdict

RATE = 0.01  # relative tolerance of TPOT and ITL figures
STRICT_SHARE = 0.5  # of the requests must need no excuse
UNKNOWN_NS = 50_000_000  # how wide a witness's interval is that has no end
# A percentile needs 1/(1-q) values.
QUANTILES = {"p50_ns": (0.50, 2), "p90_ns": (0.90, 10), "p99_ns": (0.99, 100)}


class Arrival:
    """A token frame: its last byte was sent between before and after."""

    def __init__(self, before, after, choice=0):
        self.before, self.after, self.choice = before, after or before + UNKNOWN_NS, choice

    @property
    def width(self):
        return self.after - self.before


class Witness:
    """What is known of one request; usage is None where the server gave no total."""

    def __init__(self, peer):
        self.peer, self.nr, self.id = peer, 0, None
        self.arrivals, self.finish = [], None
        self.usage, self.outcome = None, None

    def __str__(self):
        return f"request {self.nr} of port {self.peer}"


class Expect:
    """What the records of a run have in common."""

    def __init__(self, dialect=None, sources=("usage",), last=None, flags=(), may=(), finish=None, server=None):
        """flags must be there, those in may can be; any other is a problem."""
        self.dialect, self.sources, self.last = dialect, set(sources), last
        self.flags, self.may, self.finish, self.server = set(flags), set(may), finish, server


# --- reading -------------------------------------------------------------------------------------


def read_lines(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f if line.strip()]


def read_records(path):
    """The request records in the order in which the requests came; other lines must be JSON objects, too."""
    records = [r for r in read_lines(path) if r.get("type") == "request"]
    return sorted(records, key=lambda r: r.get("t_request_ns") or 0)


def number(witnesses):
    """Numbers the requests of each connection in their order."""
    seen = defaultdict(int)
    for w in witnesses:
        w.nr = seen[w.peer]
        seen[w.peer] += 1
    return witnesses


def read_truth(path):
    """The truth server's log. An entry of kind "unsupported" makes the outcome "unsupported"."""
    by_request = {}
    for line in read_lines(path):
        if not line["request"]:
            continue
        w = by_request.setdefault(line["request"], Witness(line["peer"]))
        kind = line["kind"]
        if kind == "unsupported":
            w.outcome = kind
        elif kind == "end":
            w.usage, w.outcome = line["usage"], w.outcome or line["outcome"]
        elif "token" in line:
            w.arrivals.append(Arrival(line["before_ns"], line["after_ns"]))
        elif kind == "finish":
            w.finish = Arrival(line["before_ns"], line["after_ns"])
    return number([by_request[k] for k in sorted(by_request)])


def read_app(path):
    """The FastAPI app's log."""
    by_request = {}
    for line in read_lines(path):
        w = by_request.setdefault(line["request"], Witness(line["peer"]))
        w.id = line["id"]
        if line["kind"] == "end":
            w.usage, w.outcome = line["completion_tokens"], line["outcome"]
        elif line["tokens"]:
            w.arrivals.append(Arrival(line["before_ns"], line["after_ns"], line["choice"]))
        elif line["kind"] == "finish":
            w.finish = Arrival(line["before_ns"], line["after_ns"], line["choice"])
    return number([by_request[k] for k in sorted(by_request)])


def read_client(path):
    """load.py's log by (port, number on the connection)."""
    return {(c["local"], c["nr"]): c for c in read_lines(path)}


def peer_port(record):
    return int((record.get("peer") or ":0").rpartition(":")[2] or 0)  # a unix socket's client has none


def join(records, witnesses):
    """([(record, witness)], problems): by connection and order on it, the id must then agree."""
    by_peer = defaultdict(list)
    for r in records:
        by_peer[peer_port(r)].append(r)
    pairs, problems = [], []
    for w in witnesses:
        mine = by_peer[w.peer]
        if w.nr >= len(mine):
            problems.append(f"{w}: no record")
            continue
        r = mine[w.nr]
        if w.id and r.get("response_id") != w.id:
            problems.append(f"{w}: response_id {r.get('response_id')}, not {w.id}")
        pairs.append((r, w))
    if len(records) != len(witnesses):
        problems.append(f"{len(records)} records of {len(witnesses)} requests")
    return pairs, problems


# --- figures -------------------------------------------------------------------------------------


def percentile(values, q):
    """Linear interpolation between closest ranks, as numpy's default."""
    values = sorted(values)
    at = q * (len(values) - 1)
    low = int(at)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (at - low)


def gaps(times, choices):
    """Gaps between consecutive times of the same choice."""
    last, out = {}, []
    for t, c in zip(times, choices):
        if c in last:
            out.append(t - last[c])
        last[c] = t
    return out


def figures(values):
    """The record's itl object for these gaps; None if there are none."""
    if not values:
        return None
    out = {"n": len(values), "min_ns": min(values), "mean_ns": sum(values) / len(values), "max_ns": max(values)}
    for name, (q, least) in QUANTILES.items():
        out[name] = percentile(values, q) if len(values) >= least else None
    return out


def differ(have, want, tolerance):
    """The first figure of two itl objects that differs by more than tolerance(value); None: they agree."""
    if have is None or want is None:
        return None if have is want else f"itl {have} where the times give {want}"
    for name, value in want.items():
        got = have.get(name, "absent")
        if value is None or got is None or got == "absent":
            # one value has a median, too: printing it is as good as not
            if got is not value and not (want["n"] < 2 and name == "p50_ns"):
                return f"itl.{name} is {got}, expected {value}"
        elif abs(got - value) > (0 if name == "n" else tolerance(value)):
            return f"itl.{name} is {got}, expected {value:.0f}"
    return None


# --- checks: each returns a list of problems -------------------------------------------------------


def check_counts(r, w, expect):
    problems = []
    if w.usage is not None and r.get("tokens") != w.usage:
        problems.append(f"tokens {r.get('tokens')}, the server says {w.usage}")
    if r.get("tokens_source") not in expect.sources:
        problems.append(f"tokens_source {r.get('tokens_source')}, not {sorted(expect.sources)}")
    if expect.last and r.get("t_last_source") != expect.last and r.get("tokens"):
        problems.append(f"t_last_source {r.get('t_last_source')}, not {expect.last}")
    return problems


def check_identity(r, expect):
    problems = []
    want = {"dialect": expect.dialect, "finish": expect.finish, "server": expect.server, "streamed": True,
            "method": "POST", "status": 200, "http": "1.1", "transport": "tcp", "boundary": "send"}
    for name, value in want.items():
        if value is not None and r.get(name) != value:
            problems.append(f"{name} {r.get(name)!r}, not {value!r}")
    for name in ("pid", "comm", "model", "response_id", "local"):
        if r.get(name) in (None, ""):
            problems.append(f"no {name}")
    return problems


def check_flags(r, expect):
    flags = set(r.get("flags") or [])
    problems = []
    if flags - expect.flags - expect.may:
        problems.append(f"flags {sorted(flags - expect.flags - expect.may)}")
    if expect.flags - flags:
        problems.append(f"flags {sorted(expect.flags - flags)} are absent")
    if list(r.get("flags") or []) != sorted(flags):
        problems.append(f"flags are not sorted: {r.get('flags')}")
    return problems


def arrivals_of(r, w):
    """The witness's arrivals that tokens_at_ns is to match: the finish frame too if it was an arrival."""
    times = r.get("tokens_at_ns") or []
    if r.get("t_last_source") == "finish" and w.finish and len(times) == len(w.arrivals) + 1:
        return w.arrivals + [w.finish]
    return w.arrivals


def check_times(r, w):
    """Every token time lies between the witness's readings of the clock around its send."""
    times, arrivals = r.get("tokens_at_ns") or [], arrivals_of(r, w)
    if len(times) != len(arrivals):
        return [f"{len(times)} token times, the server sent {len(arrivals)} token frames"]
    problems = []
    for i, (t, a) in enumerate(zip(times, arrivals)):
        if t < a.before:
            problems.append(f"token {i} at {t}: {a.before - t} ns too early")
        elif t > a.after:
            problems.append(f"token {i} at {t}: {t - a.after} ns too late")
    if r.get("t_last_source") == "finish" and w.finish and arrivals is w.arrivals:
        if not w.finish.before <= (r.get("t_last_ns") or 0) <= w.finish.after:
            problems.append(f"t_last_ns {r.get('t_last_ns')} is not the finish frame's time")
    return problems


def check_consistency(r, w):
    """The record's figures follow from its own times."""
    times, problems = r.get("tokens_at_ns") or [], []
    if not times:
        return problems
    several = len({a.choice for a in w.arrivals}) > 1
    want = {"t_first_ns": times[0], "ttft_ns": times[0] - (r.get("t_request_end_ns") or 0),
            "e2e_ns": (r.get("t_end_ns") or 0) - (r.get("t_request_end_ns") or 0)}
    if r.get("t_last_source") != "finish":
        want["t_last_ns"] = times[-1]
    n = r.get("tokens") or 0
    want["tpot_ns"] = None
    if n > 1 and not several:
        want["tpot_ns"] = ((r.get("t_last_ns") or 0) - times[0]) / (n - 1)
    for name, value in want.items():
        got = r.get(name)
        if value is None or got is None:
            if got is not value:
                problems.append(f"{name} {got}, its own times give {value}")
        elif abs(got - value) > 1:
            problems.append(f"{name} {got}, its own times give {value:.0f}")
    order = ["t_request_ns", "t_request_end_ns", "t_headers_ns", "t_first_ns", "t_last_ns", "t_end_ns"]
    present = [r.get(name) for name in order]
    if None in present or present != sorted(present):
        problems.append(f"times out of order: {dict(zip(order, present))}")
    choices = [a.choice for a in arrivals_of(r, w)]
    ways = [gaps(times, choices)]
    if several:  # over all choices' frames in time order
        ways.append(gaps(times, [0] * len(times)))
    elif r.get("t_last_source") == "finish" and r.get("t_last_ns") != times[-1]:
        ways.append(gaps(times + [r["t_last_ns"]], choices + [0]))
    differences = [differ(r.get("itl"), figures(way), lambda v: 1) for way in ways]
    if None not in differences:
        problems.append(f"{differences[0]} by its own times")
    return problems


def check_rates(r, w):
    """(problems, strict): TPOT and ITL against the witness's times; strict: within 1 % without excuse."""
    arrivals, n = list(arrivals_of(r, w)), r.get("tokens") or 0
    finish_counts = r.get("t_last_source") == "finish" and w.finish and arrivals[-1:] != [w.finish] and \
        len(arrivals) < n
    ends = arrivals + [w.finish] if finish_counts else arrivals
    several = len({a.choice for a in w.arrivals}) > 1
    problems, strict = [], True
    if n > 1 and len(ends) > 1 and not several and r.get("tpot_ns") is not None:
        tpot = (ends[-1].before - ends[0].before) / (n - 1)
        off = abs(r["tpot_ns"] - tpot)
        strict = off <= RATE * tpot
        if off > max(RATE * tpot, max(ends[0].width, ends[-1].width) / (n - 1)):
            problems.append(f"tpot_ns {r['tpot_ns']}, the witness's times give {tpot:.0f}")
    differences = []
    for way, split in ((arrivals, True), (ends, True), (arrivals, not several)):
        slack = max((a.width + b.width for a, b in zip(way, way[1:])), default=0)
        want = figures(gaps([a.before for a in way], [a.choice if split else 0 for a in way]))
        differences.append(differ(r.get("itl"), want, lambda v, slack=slack: max(RATE * v, slack)))
    if None not in differences:
        problems.append(f"{differences[0]} by the witness's times")
    return problems, strict


def check_client(r, c):
    """Order, by the one clock of the host: sent before it arrived, sent by the server before it was read."""
    problems = []
    if not c["t_send_ns"] <= (r.get("t_request_ns") or 0):
        problems.append("the request arrived before the client sent it")
    if c["usage"] and r.get("tokens") != c["usage"]["completion_tokens"]:
        problems.append(f"tokens {r.get('tokens')}, the client was told {c['usage']['completion_tokens']}")
    if c["usage"] and r.get("prompt_tokens") != c["usage"]["prompt_tokens"]:
        problems.append(f"prompt_tokens {r.get('prompt_tokens')}, not {c['usage']['prompt_tokens']}")
    if c["id"] and r.get("response_id") != c["id"]:
        problems.append(f"response_id {r.get('response_id')}, the client got {c['id']}")
    if c["outcome"] == "done" and r.get("frames") != len(c["frames"]):
        problems.append(f"frames {r.get('frames')}, the client got {len(c['frames'])}")
    read = [t for t, kind in c["frames"] if kind == "token"]
    sent = r.get("tokens_at_ns") or []
    late = [i for i, (t, s) in enumerate(zip(read, sent)) if s > t]
    if late:
        problems.append(f"token {late[0]} was read {sent[late[0]] - read[late[0]]} ns before it was sent")
    return problems


def check_run(records, witnesses, expect, clients=None):
    """All checks over one run: expect is an Expect, or a function from a witness to one."""
    pairs, problems = join(records, witnesses)
    strict = 0
    for r, w in pairs:
        e = expect(w) if callable(expect) else expect
        rates, ok = check_rates(r, w)
        strict += ok
        found = check_identity(r, e) + check_counts(r, w, e) + check_flags(r, e) + check_times(r, w)
        found += check_consistency(r, w) + rates
        if clients is not None:
            c = clients.get((w.peer, w.nr))
            found += check_client(r, c) if c else ["the client knows nothing of it"]
        problems += [f"{w}: {p}" for p in found]
    if not pairs:
        problems.append("nothing to check")
    elif strict < STRICT_SHARE * len(pairs):
        problems.append(f"only {strict} of {len(pairs)} requests have their TPOT within {RATE:.0%}")
    return problems


# --- what is left in the kernel --------------------------------------------------------------------


def bpf_objects(kind):
    """{id: object} of the programs, maps or links that the kernel holds."""
    for _ in range(5):  # one that goes while they are listed makes bpftool fail
        out = subprocess.run(["bpftool", "-j", kind, "list"], capture_output=True, text=True, check=False)
        if not out.returncode:
            return {o["id"]: o for o in json.loads(out.stdout or "[]")}
    raise AssertionError(f"bpftool {kind} list: {out.stderr.strip() or out.stdout.strip()}")


def held_by(pid):
    """The BPF objects that the process has open, as {(kind, id): name}; a link names its program, too."""
    held = {}
    names = {kind: bpf_objects(kind) for kind in ("prog", "map", "link")}
    for fd in os.listdir(f"/proc/{pid}/fdinfo"):
        try:
            with open(f"/proc/{pid}/fdinfo/{fd}", encoding="utf-8") as f:
                found = re.findall(r"^(prog|map|link)_id:\s+(\d+)$", f.read(), re.M)
        except OSError:  # closed meanwhile
            continue
        for kind, number_ in found:
            held[kind, int(number_)] = names[kind].get(int(number_), {}).get("name", "")
    return held


def leftovers(held, seconds=5):
    """Those of the objects that are still there; the kernel frees them a moment after the last user is gone."""
    deadline = time.monotonic() + seconds
    while True:
        left = {k: n for k, n in held.items() if k[1] in bpf_objects(k[0])}
        if not left or time.monotonic() > deadline:
            return [f"{kind} {number_} {name} is still loaded" for (kind, number_), name in left.items()]
        time.sleep(0.05)


def main(argv):
    p = argparse.ArgumentParser(description="holds records against a witness's log")
    p.add_argument("records")
    which = p.add_mutually_exclusive_group(required=True)
    which.add_argument("--truth")
    which.add_argument("--app")
    p.add_argument("--client")
    p.add_argument("--dialect")
    p.add_argument("--source", action="append")
    p.add_argument("--last", choices=("text", "finish"))
    p.add_argument("--flag", action="append", default=[])
    args = p.parse_args(argv)
    witnesses = read_truth(args.truth) if args.truth else read_app(args.app)
    expect = Expect(args.dialect, args.source or ["usage"], args.last, args.flag)
    problems = check_run(read_records(args.records), witnesses, expect,
                         read_client(args.client) if args.client else None)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
