#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Searches kernel logs for splats: warnings, bugs, stalls, lockups, sanitizer reports.

usage: splat.py LOG...      exit status 1 if there is one

splats.deny says which lines are splats, splats.allow which of those are none. A kernel also remembers in its
taint flags that it warned, which holds for splats whose text nobody thought of: see tainted().
"""
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent

# Documentation/admin-guide/tainted-kernels.rst; the others say what was loaded, not what went wrong.
TAINTS = {4: "machine check", 5: "bad page", 7: "oops or BUG", 9: "warning", 14: "soft lockup"}


def patterns(path):
    """The regular expressions of a file; comments and empty lines are left out."""
    lines = path.read_text().splitlines()
    return [re.compile(l) for l in lines if l.strip() and not l.startswith("#")]


def find(log, deny=None, allow=None):
    """[(line number, line)] of the splats in a log's text."""
    deny = patterns(HERE / "splats.deny") if deny is None else deny
    allow = patterns(HERE / "splats.allow") if allow is None else allow
    return [
        (n, line.rstrip())
        for n, line in enumerate(log.splitlines(), 1)
        if any(p.search(line) for p in deny) and not any(p.search(line) for p in allow)
    ]


def tainted(text):
    """What the content of /proc/sys/kernel/tainted says went wrong."""
    value = int(text)
    return [name for bit, name in TAINTS.items() if value >> bit & 1]


def main(argv):
    if not argv or argv[0].startswith("-"):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    bad = 0
    for name in argv:
        for n, line in find(pathlib.Path(name).read_text(errors="replace")):
            print(f"{name}:{n}: {line}")
            bad = 1
    return bad


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
