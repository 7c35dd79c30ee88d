#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Checks of the sources, as TAP: format, licence lines, function lengths, what the core may link.

usage: lint.py [BUILD-DIR]
"""
import glob
import os
import re
import subprocess
import sys

MAX_FUNCTION = 80
C_FILES = sorted(
    f
    for pattern in ("src/*/*.[ch]", "include/tokensnoop/*.h", "bpf/*.[ch]", "tests/*/*.[ch]")
    for f in glob.glob(pattern)
)


def function_lengths(text):
    """(name, lines) of each function: from a brace alone in column 0 to the one that closes it."""
    lines = text.split("\n")
    start = None
    for i, line in enumerate(lines):
        if line == "{":
            start = i
        elif line == "}" and start is not None:
            head = start - 1
            while head > 0 and not re.match(r"\w", lines[head]):
                head -= 1
            match = re.search(r"(\w+)\(", lines[head])
            yield (match.group(1) if match else "?", i - start - 1)
            start = None


def check_lengths():
    long = []
    for f in C_FILES:
        for name, n in function_lengths(open(f, encoding="utf-8").read()):
            if n > MAX_FUNCTION:
                long.append(f"{f}: {name}: {n} lines, at most {MAX_FUNCTION}")
    return long


def check_format():
    out = subprocess.run(["clang-format", "--dry-run", "-Werror", *C_FILES],
                         capture_output=True, text=True)
    return [l for l in out.stderr.split("\n") if "error:" in l]


def tracked():
    out = subprocess.run(["git", "ls-files"], capture_output=True, text=True)
    return [f for f in out.stdout.split("\n") if f and os.path.isfile(f)]


def check_spdx():
    """First (or, behind #!, second) line names the licence; BPF code is GPL only."""
    bad = []
    for f in tracked():
        if not re.search(r"\.(c|h|py|sh|mjs|js)$|Makefile$", f) or "corpus" in f:
            continue
        head = open(f, encoding="utf-8", errors="replace").read(400).split("\n")[:3]
        line = next((l for l in head if "SPDX-License-Identifier:" in l), "")
        gpl = f.startswith(("bpf/", "vmlinux/")) and f.endswith((".c", ".h"))
        want = "GPL-2.0-only" if gpl else "GPL-2.0-only OR BSD-2-Clause"
        if not re.search(re.escape(want) + r"( \*/)?$", line):
            bad.append(f"{f}: not {want}")
    return bad


def check_core_symbols(build):
    """The core needs no kernel: no BPF, no sockets, no files of its own but what libpcap opens."""
    out = subprocess.run(["nm", "-u", f"{build}/libtkscore.a"], capture_output=True, text=True)
    forbidden = re.compile(r"\b(bpf_\w+|libbpf_\w+|socket|bind|listen|connect|accept|send|recv|"
                           r"sendmsg|recvmsg|printf|exit)$")
    if not out.stdout.strip():
        return ["no library to look at: " + out.stderr.strip()]
    return sorted({l.strip() for l in out.stdout.split("\n") if forbidden.search(l)})


def check_shell():
    scripts = [f for f in tracked() if f.endswith(".sh") or f == ".ci/run"]
    out = subprocess.run(["shellcheck", "-x", *scripts], capture_output=True, text=True)
    return out.stdout.strip().split("\n") if out.returncode else []


def check_self():
    """The length check must see a long function, or it checks nothing."""
    text = "int f(void)\n{\n" + "\tx();\n" * 81 + "}\n"
    return [] if list(function_lengths(text)) == [("f", 81)] else ["the length check is blind"]


def main():
    build = sys.argv[1] if len(sys.argv) > 1 else "build"
    checks = [
        ("format", check_format),
        ("spdx", check_spdx),
        ("function_length", check_lengths),
        ("length_check_sees", check_self),
        ("core_needs_no_kernel", lambda: check_core_symbols(build)),
        ("shellcheck", check_shell),
    ]
    failed = 0
    for n, (name, check) in enumerate(checks, 1):
        found = check()
        for line in found[:20]:
            print("#", line)
        failed += bool(found)
        print(f"{'not ok' if found else 'ok'} {n} - lint.{name}")
    print(f"1..{len(checks)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
