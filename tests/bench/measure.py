# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the benches have in common: interleaved rounds, spreads, run-time statistics of BPF programs, tables."""
import contextlib
import math
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "live"))
import check  # noqa: E402
import rig  # noqa: E402

BUILT = os.path.join(rig.TOP, "build", "tests")


def quantile(values, q):
    """Linearly between the closest ranks."""
    ordered = sorted(values)
    at = q * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def spread(values):
    """Median and quartiles; a figure that a round could not give (None) makes none."""
    if None in values:
        return None
    return {"p25": quantile(values, 0.25), "median": quantile(values, 0.5), "p75": quantile(values, 0.75)}


def interleaved(rounds, setups, measure):
    """{name: [measure() of each round]}, A B C A B C ...; setups: {name: a function that gives a context}. Slow changes
    of the machine hit all alike, and what is compared is of one round."""
    got = {name: [] for name in setups}
    for i in range(rounds):
        for name, setup in setups.items():
            if sys.stderr.isatty():
                print(f"\r\033[Kround {i + 1} of {rounds}: {name}", end="", file=sys.stderr, flush=True)
            with setup() as held:
                got[name].append(measure(held))
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    return got


def programs(pid):
    """{name: (runs, ns)} of the BPF programs that the process has open, since they were loaded."""
    ids = set()
    for fd in os.listdir(f"/proc/{pid}/fdinfo"):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/fdinfo/{fd}", encoding="utf-8") as f:
            ids |= set(re.findall(r"^prog_id:\s+(\d+)$", f.read(), re.M))
    loaded = check.bpf_objects("prog")
    return {p["name"]: (p.get("run_cnt", 0), p.get("run_time_ns", 0)) for p in map(loaded.get, map(int, ids)) if p}


def table(rows):
    """Rows of strings, the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return [f"{row[0]:<{widths[0]}}" + "".join(f"  {x:>{w}}" for x, w in zip(row[1:], widths[1:])) for row in rows]
