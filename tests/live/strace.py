# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""strace as a witness: which system call carried which frames, and between which times.

strace reads the wall clock when a call enters, prints the arguments, and measures from there to the call's return;
the offset to CLOCK_MONOTONIC is taken beside the run. EARLY_NS covers rounding and the clock's slewing, LATE_NS the
printing, too.
"""
import codecs
import json
import re
import time

EARLY_NS, LATE_NS = 50_000, 1_000_000
CALL = re.compile(rb"^(?:\d+\s+)?(\d+\.\d+) (\w+)\((\d+)<?.*?, (.*)\)\s+= (\d+) <([\d.]+)>$")
FRAME = re.compile(rb"\r\ndata: (\{[^\n]*\})\n\n\r\n")
STRING = re.compile(rb'"((?:[^"\\]|\\.)*)"')


def command(log):
    """What goes in front of a command to trace its sends."""
    return ["strace", "-f", "-ttt", "-T", "-s", "65536", "-e", "trace=write,writev,sendto,sendmsg", "-e", "signal=none",
            "-o", log]


def clock_offset():
    """Wall clock minus monotonic clock, nanoseconds: the tightest of some readings."""
    best = None
    for _ in range(50):
        a, wall, b = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        if best is None or b - a < best[0]:
            best = (b - a, wall - (a + b) // 2)
    return best[1]


def read(path):
    """[(enter_ns, leave_ns, bytes)] of the calls that sent something, wall clock."""
    calls = []
    with open(path, "rb") as f:
        for line in f:
            match = CALL.match(line.rstrip(b"\n"))
            if not match:
                continue
            enter = int(float(match[1].split(b".")[0]) * 10**9) + int(match[1].split(b".")[1].ljust(9, b"0"))
            data = b"".join(codecs.escape_decode(s)[0] for s in STRING.findall(match[4]))
            calls.append((enter, enter + int(float(match[6]) * 10**9), data[: int(match[5])]))
    return calls


def is_token(obj):
    """vLLM's chat shape: any delta that is not the role's, the finish frame too."""
    return any("role" not in c.get("delta", {}) for c in obj.get("choices", []))


def token_sends(calls):
    """{response id: [(enter, leave) of each token frame]}"""
    sends = {}
    for enter, leave, data in calls:
        for text in FRAME.findall(data):
            obj = json.loads(text)
            if is_token(obj):
                sends.setdefault(obj["id"], []).append((enter, leave))
    return sends


def compare(records, calls, offset):
    """Problems: a token time outside of its system call."""
    sends, problems = token_sends(calls), []
    if len(records) != len(sends) or not sends:
        problems.append(f"{len(records)} records, strace saw {len(sends)} answers")
    for r in records:
        mine, times = sends.get(r.get("response_id"), []), r.get("tokens_at_ns") or []
        if len(mine) != len(times):
            problems.append(f"{r.get('response_id')}: {len(times)} token times, strace saw {len(mine)} token frames")
        for i, (t, (enter, leave)) in enumerate(zip(times, mine)):
            early, late = enter - EARLY_NS - (t + offset), t + offset - leave - LATE_NS
            if early > 0 or late > 0:
                problems.append(f"{r.get('response_id')}: token {i} is {max(early, late)} ns outside of its "
                                "system call")
    return problems
