#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs test commands, counts what they report, and ends with "N passed, N failed, N skipped".

usage: runner.py [--kind KIND]... [--timeout SECONDS] [--skips FILE] [--jobs N] [-v] [MANIFEST | KIND:NAME:COMMAND]...

A manifest has one test a line, KIND[@SECONDS][+]:NAME:COMMAND; empty lines and # comments are left out.
COMMAND goes to sh. What it prints on standard output is read as TAP; if there is no TAP in it, its
exit status is the result of one test called KIND.NAME. Lines that begin with "# says: " are passed on. Neighbours with a +
run --jobs at once; all others run alone.

A run fails if any test failed, or if
- a command exits non-zero or is killed although all its tests passed, or runs past its time;
- a command runs no test, or another number than its plan says;
- a test was skipped that tests/lib/expected_skips doesn't list (a pattern and a reason a line; the pattern is held
  against the test's name, and against KIND.NAME.name);
- there was no command to run.
"""
import argparse
import concurrent.futures
import fnmatch
import itertools
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

DEFAULT_SECONDS = 600
KILL_SECONDS = 5
RUNNING = set()  # what an interrupt must end: the commands have sessions, so terminals, of their own
TAP_LINE = re.compile(r"(?P<bad>not )?ok\b\s*(?P<number>\d+)?\s*(?:- )?(?P<rest>.*)$")
TAP_PLAN = re.compile(r"1\.\.(\d+)\s*(?:#\s*skip\S*\s*(?P<reason>.*))?$", re.I)
DIRECTIVE = re.compile(r"(?:^|\s)#\s*skip\S*\s*(?P<reason>.*)$", re.I)


class Usage(Exception):
    """Wrong arguments or a manifest that can't be read."""


class Test:
    """One command: kind, name, shell command, seconds it may take."""

    def __init__(self, line, seconds):
        parts = line.split(":", 2)
        if len(parts) != 3 or not all(p.strip() for p in parts):
            raise Usage(f"not KIND:NAME:COMMAND: {line!r}")
        kind, _, limit = parts[0].strip().removesuffix("+").partition("@")
        if limit and not limit.isdigit():
            raise Usage(f"not a number of seconds: {line!r}")
        self.kind, self.name, self.command = kind, parts[1].strip(), parts[2].strip()
        self.seconds = int(limit) if limit else seconds
        self.beside_others = parts[0].strip().endswith("+")

    @property
    def full_name(self):
        return f"{self.kind}.{self.name}"


class Outcome:
    """What one command's tests came to: names that passed and failed, (name, reason) of the skipped."""

    def __init__(self):
        self.passed, self.failed, self.skipped = [], [], []


def read_manifest(path, seconds):
    try:
        with open(path, encoding="utf-8") as f:
            lines = [line.strip() for line in f]
    except OSError as e:
        raise Usage(f"{path}: {e.strerror}") from e
    return [Test(line, seconds) for line in lines if line and not line.startswith("#")]


def read_skips(path):
    """[(pattern, reason)]; a pattern without a reason is wrong usage: a skip must be explained."""
    if not os.path.exists(path):
        return []
    skips = []
    with open(path, encoding="utf-8") as f:
        for line in f:
            pattern, _, reason = line.strip().partition(" ")
            if not pattern or pattern.startswith("#"):
                continue
            if not reason.strip():
                raise Usage(f"{path}: {pattern}: no reason given")
            skips.append((pattern, reason.strip()))
    return skips


def parse_tap(text, out):
    """Adds the tests in text to out. Returns (tests seen, plan or None, skip-all reason or None, bailed)."""
    seen, plan, skip_all, bailed = 0, None, None, False
    for line in text.splitlines():
        if line.startswith("Bail out!"):
            bailed = True
        match = TAP_PLAN.match(line)
        if match:
            plan, skip_all = int(match[1]), match["reason"]
            continue
        match = TAP_LINE.match(line)
        if not match:
            continue
        seen += 1
        directive = DIRECTIVE.search(match["rest"])
        name = match["rest"][: directive.start()].strip() if directive else match["rest"].strip()
        if directive and not name:  # as cmocka writes it: "not ok 2 # SKIP name"
            name = directive["reason"].strip()
        name = name or f"test {match['number'] or seen}"
        if directive:
            out.skipped.append((name, directive["reason"].strip()))
        elif match["bad"]:
            out.failed.append(name)
        else:
            out.passed.append(name)
    return seen, plan, skip_all, bailed


def judge(test, text, status, timed_out):
    """The outcome of a command that printed text and ended with status (negative: a signal)."""
    out = Outcome()
    seen, plan, skip_all, bailed = parse_tap(text, out)
    if timed_out:
        out.failed.append(f"{test.full_name}: not done after {test.seconds} s")
    elif not seen and plan is None:
        (out.failed if status else out.passed).append(
            test.full_name + (f": exit status {status}" if status else ""))
    elif not seen and plan == 0 and skip_all and not status:
        out.skipped.append((test.full_name, skip_all))
    elif not seen:
        out.failed.append(f"{test.full_name}: ran no test")
    elif status and not out.failed:
        out.failed.append(f"{test.full_name}: exit status {status} although no test failed")
    if seen and plan is not None and plan != seen:
        out.failed.append(f"{test.full_name}: {seen} tests, its plan says {plan}")
    if bailed:
        out.failed.append(f"{test.full_name}: bailed out")
    return out


def kill_group(process):
    """Ends what the command left: its process group first politely, then for certain."""
    for sig in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sig)
        except ProcessLookupError:
            return
        try:
            process.wait(timeout=KILL_SECONDS)
        except subprocess.TimeoutExpired:
            continue


def run_command(test):
    """(stdout, stderr, exit status, timed out)"""
    env = dict(os.environ, CMOCKA_MESSAGE_OUTPUT="TAP", PYTHONDONTWRITEBYTECODE="1")
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        process = subprocess.Popen(["sh", "-c", test.command], stdin=subprocess.DEVNULL, stdout=stdout,
                                   stderr=stderr, env=env, start_new_session=True)
        timed_out = False
        RUNNING.add(process)
        try:
            process.wait(timeout=test.seconds)
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            kill_group(process)
            RUNNING.discard(process)
        texts = []
        for f in (stdout, stderr):
            f.seek(0)
            texts.append(f.read().decode("utf-8", "replace"))
    return texts[0], texts[1], process.returncode, timed_out


def unexpected(test, skipped, skips):
    def listed(name):
        return any(fnmatch.fnmatchcase(n, p) for n in (name, f"{test.full_name}.{name}") for p, _ in skips)

    return [(name, reason) for name, reason in skipped if not listed(name)]


def indent(text):
    return "".join(f"    {line}\n" for line in text.rstrip("\n").split("\n")) if text else ""


def run_test(test, skips, verbose):
    """Runs. Returns the outcome, and what is to be printed: a line, and the command's output if it failed."""
    start = time.monotonic()
    stdout, stderr, status, timed_out = run_command(test)
    out = judge(test, stdout, status, timed_out)
    surprises = unexpected(test, out.skipped, skips)
    for name, reason in surprises:
        out.failed.append(f"{name}: skipped, which {reason and f'({reason}) '}is not expected")
    out.skipped = [s for s in out.skipped if s not in surprises]
    word = "FAIL" if out.failed else "ok"
    counts = f"{len(out.passed)} passed, {len(out.failed)} failed, {len(out.skipped)} skipped"
    text = f"{word:4} {test.full_name}: {counts} ({time.monotonic() - start:.1f} s)\n"
    text += "".join(f"  {line[8:].strip()}\n" for line in stdout.splitlines() if line.startswith("# says: "))
    for name, reason in out.skipped:
        text += f"  skipped: {name}: {reason}\n"
    for name in out.failed:
        text += f"  failed: {name}\n"
    if out.failed or verbose:
        text += indent(stdout) + indent(stderr)
    return out, text


def run_all(tests, skips, args):
    """Yields each test's outcome when it is there, having printed its text."""
    pool = concurrent.futures.ThreadPoolExecutor(args.jobs)
    try:
        for beside_others, group in itertools.groupby(tests, lambda t: t.beside_others):
            if beside_others:
                futures = [pool.submit(run_test, t, skips, args.verbose) for t in group]
                done = (f.result() for f in concurrent.futures.as_completed(futures))
            else:
                done = (run_test(t, skips, args.verbose) for t in group)
            for out, text in done:
                print(text, end="", flush=True)
                yield out
    except KeyboardInterrupt:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in list(RUNNING):
            kill_group(process)
        raise
    finally:
        pool.shutdown()


def collect(arguments, kinds, seconds):
    tests = []
    for argument in arguments:
        if ":" in argument and not os.path.exists(argument):
            tests.append(Test(argument, seconds))
        else:
            tests += read_manifest(argument, seconds)
    return [t for t in tests if not kinds or t.kind in kinds]


def parse_arguments(argv):
    here = os.path.dirname(os.path.abspath(__file__))
    p = argparse.ArgumentParser(prog="runner.py", description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--kind", action="append", default=[], help="only tests of this kind")
    p.add_argument("--timeout", type=int, default=DEFAULT_SECONDS, help="seconds a command may take")
    p.add_argument("--skips", default=os.path.join(here, "expected_skips"), help="list of allowed skips")
    p.add_argument("--jobs", type=int, default=1, help="how many of those with a + run at once")
    p.add_argument("-v", "--verbose", action="store_true", help="print every command's output")
    p.add_argument("tests", nargs="+", metavar="MANIFEST|KIND:NAME:COMMAND")
    return p.parse_args(argv)


def main(argv):
    args = parse_arguments(argv)
    try:
        tests = collect(args.tests, args.kind, args.timeout)
        skips = read_skips(args.skips)
    except Usage as e:
        print(f"runner.py: {e}", file=sys.stderr)
        return 2
    passed = failed = skipped = 0
    for out in run_all(tests, skips, args):
        passed += len(out.passed)
        failed += len(out.failed)
        skipped += len(out.skipped)
    if not tests:
        print("no test to run")
        failed += 1
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
