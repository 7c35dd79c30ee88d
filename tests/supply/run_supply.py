#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What is given to others, as TAP: the sources, the package, the manual, the completion, the static program.

usage: run_supply.py

The package is built twice from the tarball of the last commit, in two folders, time zones, languages and file modes, and
must come out the same; what is in it is then tested.
"""
import functools
import glob
import gzip
import os
import re
import subprocess
import sys
import tarfile
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COMMANDS = ("trace", "report", "doctor")
TESTS = []
WAYS = ({"TZ": "UTC", "LC_ALL": "C.UTF-8"}, {"TZ": "Pacific/Auckland", "LC_ALL": "C"})
UMASKS = (0o022, 0o027)


class Failure(Exception):
    """The arguments are the problems."""


def test(function):
    TESTS.append((function.__name__, function))
    return function


def run(*argv, **more):
    """Its standard output; it must end well."""
    got = subprocess.run(argv, capture_output=True, text=True, **more)
    if got.returncode:
        raise Failure(f"{' '.join(argv)}: exit status {got.returncode}", *(got.stdout + got.stderr).splitlines()[-30:])
    return got.stdout


def make(*argv, **more):
    return run("make", "--no-print-directory", "-C", TOP, *argv, **more)


def need(*problems):
    found = [p for p in problems if p]
    if found:
        raise Failure(*found)


@functools.cache
def scratch():
    return tempfile.TemporaryDirectory(prefix="tks-supply-")


def version():
    return run(os.path.join(TOP, "build", "tokensnoop"), "--version").split()[1]


@functools.cache
def package(way):
    """The folder in which the package was built that way."""
    folder = os.path.join(scratch().name, "packages", "first" if not way else "second/deeper")
    env = {k: v for k, v in os.environ.items() if k not in ("LANG", "LANGUAGE", "MAKEFLAGS")}
    make("deb", f"DEB_DIR={folder}", env=env | WAYS[way], umask=UMASKS[way])
    return folder


@functools.cache
def unpacked():
    folder = os.path.join(scratch().name, "unpacked")
    run("dpkg-deb", "-x", one(package(0), "tokensnoop_*.deb"), folder)
    return folder


def one(folder, pattern):
    found = glob.glob(os.path.join(folder, pattern))
    need(len(found) != 1 and f"{len(found)} files {pattern}")
    return found[0]


def contents(path):
    with open(path, "rb") as f:
        return f.read()


# --- the sources ---------------------------------------------------------------------------------------


@test
def dist_same_twice():
    name = os.path.join(TOP, make("dist").strip())
    first = contents(name)
    make("dist", env=os.environ | WAYS[1], umask=0o077)
    need(contents(name) != first and "two tarballs of one commit differ")


@test
def dist_is_the_commit():
    name = os.path.join(TOP, make("dist").strip())
    with tarfile.open(name) as tar:
        have = {m.name for m in tar.getmembers() if m.isfile() or m.issym()}
    want = {f"tokensnoop-{version()}/{f}" for f in run("git", "-C", TOP, "ls-tree", "-r", "--name-only", "HEAD").splitlines()}
    need(have != want and f"not the files of the commit: {sorted(have ^ want)[:5]}")


# --- the package ---------------------------------------------------------------------------------------


@test
def deb_same_twice():
    for pattern in ("tokensnoop_*.deb", "tokensnoop-dbgsym_*.deb"):
        a, b = (contents(one(package(way), pattern)) for way in (0, 1))
        need(a != b and f"{pattern}: two builds differ")


@test
def deb_version():
    need(run("dpkg-deb", "-f", one(package(0), "tokensnoop_*.deb"), "Version").strip() != version() and
         "the changelog has another version than the program")


@test
def deb_lintian():
    out = run("lintian", "--fail-on", "error,warning", "--allow-root", one(package(0), "tokensnoop_*.changes"))
    need(*(line for line in out.splitlines() if line.startswith(("E:", "W:"))))


@test
def deb_files():
    have = {os.path.relpath(f, unpacked()) for f in glob.glob(f"{unpacked()}/**", recursive=True) if not os.path.isdir(f)}
    man = {f"usr/share/man/man1/tokensnoop{c}.1.gz" for c in ("", *(f"-{c}" for c in COMMANDS))}
    want = {"usr/bin/tokensnoop", "usr/share/bash-completion/completions/tokensnoop", "usr/share/doc/tokensnoop/copyright", *man}
    need(*(f"not in the package: {f}" for f in want - have))


@test
def deb_runs():
    """The program that was packaged, on a golden."""
    tool = f"{unpacked()}/usr/bin/tokensnoop"
    out = run(sys.executable, os.path.join(TOP, "tests", "golden", "run_golden.py"), "--few", "-k", "vllm-chat", tool)
    need("ok 1 - vllm-chat" not in out and f"the golden was not run: {out}")


@test
def deb_says_nothing_of_its_maker():
    data = contents(f"{unpacked()}/usr/bin/tokensnoop")
    need(*(f"{where} is in the program" for where in (scratch().name, TOP) if where.encode() in data))


@test
def install_elsewhere():
    dest = os.path.join(scratch().name, "dest")
    make("install", f"DESTDIR={dest}", "PREFIX=/opt/t")
    have = {os.path.relpath(f, dest) for f in glob.glob(f"{dest}/**", recursive=True) if not os.path.isdir(f)}
    need(not all(f.startswith("opt/t/") for f in have) and f"outside of PREFIX: {have}",
         run(f"{dest}/opt/t/bin/tokensnoop", "--version") != f"tokensnoop {version()}\n" and "the program is another",
         oct(os.stat(f"{dest}/opt/t/bin/tokensnoop").st_mode & 0o7777) != "0o755" and "the program's mode",
         "opt/t/share/man/man1/tokensnoop.1" not in have and "no manual page")


# --- what it is built with -----------------------------------------------------------------------------


def hardening(path):
    """What is missing in a program, by its headers and symbols."""
    headers, dynamic = run("readelf", "-hlW", path), run("readelf", "-dW", path)
    symbols, stack = run("readelf", "-sW", path), re.search(r"GNU_STACK .* (R.?.?) +0x", headers)
    marks = {
        "PIE": re.search(r"Type:\s+DYN", headers),
        "RELRO": "GNU_RELRO" in headers,
        "BIND_NOW": re.search(r"BIND_NOW|Flags: .*NOW", dynamic),
        "no executable stack": stack and "E" not in stack[1],
        "stack protector": "__stack_chk_fail" in symbols,
        "FORTIFY": re.search(r"__\w+_chk\b(?<!__stack_chk)", symbols),
        # Debian's start files are built without, so the program as a whole isn't marked: endbr64.
        "CET": contents(path).count(b"\xf3\x0f\x1e\xfa") > 100 or os.uname().machine != "x86_64",
    }
    return [f"no {name}" for name, there in marks.items() if not there]


@test
def hardened():
    need(*hardening(os.path.join(TOP, "build", "tokensnoop")))


@test
def hardened_deb():
    need(*hardening(f"{unpacked()}/usr/bin/tokensnoop"))


@test
def hardening_is_seen():
    """A program without all that: each must be missed."""
    source, soft = (os.path.join(scratch().name, f"soft{x}") for x in (".c", ""))
    with open(source, "w", encoding="utf-8") as f:
        f.write("int main(void)\n{\n\treturn 0;\n}\n")
    run("gcc", "-no-pie", "-fno-stack-protector", "-fcf-protection=none", "-z", "norelro", "-z", "lazy", "-z", "execstack", "-o",
        soft, source)
    have = hardening(soft)
    need(len(have) != 7 and f"of 7 only these were missed: {have}")


@test
def stack_clash():
    """-fstack-clash-protection leaves no mark; the compiler notes its arguments in the debug information."""
    out = run("readelf", "--debug-dump=info", os.path.join(TOP, "build", "obj", "src", "core", "sse.o"))
    need("-fstack-clash-protection" not in out and "the compiler was not asked for it")


# --- the static program --------------------------------------------------------------------------------


@test
def static():
    make("static")
    path = os.path.join(TOP, "build", "tokensnoop-static")
    out = run(sys.executable, os.path.join(TOP, "tests", "golden", "run_golden.py"), "--few", "-k", "vllm-chat", path)
    need("statically linked" not in run("ldd", path) and "it needs libraries", "INTERP" in run("readelf", "-lW", path) and "it has a loader",
         "ok 1 - vllm-chat" not in out and f"the golden was not run: {out}", *hardening(path))


@test
def static_alone():
    """In a root that has nothing else."""
    root = os.path.join(scratch().name, "root")
    os.makedirs(root)
    run("cp", os.path.join(TOP, "build", "tokensnoop-static"), root)
    need(run("chroot", root, "/tokensnoop-static", "--version") != f"tokensnoop {version()}\n" and "another version")


# --- the manual and the completion ---------------------------------------------------------------------


def options(command):
    """Those that --help lists: (short or None, long)."""
    text = run(os.path.join(TOP, "build", "tokensnoop"), command, "--help")
    return set(re.findall(r"^  (?:(-\w), |    )(--[\w-]+)", text, re.M))


def check_manual(command):
    with open(os.path.join(TOP, "docs", "man", f"tokensnoop-{command}.1"), encoding="utf-8") as f:
        items = re.findall(r"^\.It Fl (?:(\w) , Fl )?-([\w-]+)", f.read(), re.M)
    have = {(f"-{short}" if short else "", f"--{name}") for short, name in items}
    return [f"{command}: {' '.join(o)} is in one of --help and the manual only" for o in have ^ options(command)]


@test
def manual_has_the_options():
    need(*(p for c in COMMANDS for p in check_manual(c)))


@test
def manual_lint():
    need(*run("mandoc", "-Tlint", "-W", "warning", *glob.glob(os.path.join(TOP, "docs", "man", "*.1"))).splitlines())


@test
def manual_in_the_package():
    with gzip.open(f"{unpacked()}/usr/share/man/man1/tokensnoop-trace.1.gz") as f:
        need(f.read() != contents(os.path.join(TOP, "docs", "man", "tokensnoop-trace.1")) and "another manual page")


def complete(*words):
    """What bash offers for the last word."""
    script = 'source /usr/share/bash-completion/bash_completion; source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); ' \
             'COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}; _tokensnoop; printf "%s\\n" "${COMPREPLY[@]}"'
    out = run("bash", "-c", script, os.path.join(TOP, "deploy", "completion", "tokensnoop.bash"), "tokensnoop", *words,
              cwd=os.path.join(TOP, "docs"))
    return {line for line in out.splitlines() if line}


@test
def completion_of_options():
    for command in COMMANDS:
        want = {name for _, name in options(command)}
        have = complete(command, "--")
        need(have != want and f"{command}: {sorted(have ^ want)} is in one of --help and the completion only")
    need(complete("--po") != {"--port"} and "without a command the options are trace's")


@test
def completion_of_words():
    need(complete("") != set(COMMANDS) and f"commands: {complete('')}",
         complete("trace", "--format", "j") != {"jsonl", "json"} and "formats",
         complete("report", "rec") != {"records.md"} and f"files: {complete('report', 'rec')}",
         complete("trace", "--port", "8") and "a port is nobody's guess")


def main():
    failed = 0
    for n, (name, function) in enumerate(TESTS, 1):
        problems = []
        try:
            function()
        except Failure as e:
            problems = e.args
        for p in problems:
            print("#", p)
        failed += bool(problems)
        print(f"{'not ok' if problems else 'ok'} {n} - supply.{name}", flush=True)
    print(f"1..{len(TESTS)}")
    scratch().cleanup()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
