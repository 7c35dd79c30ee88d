#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Live tests of least privilege, as TAP: what a user with file capabilities sees, what is said when one is missing, and
what a trace can no longer do once it runs.

usage: run_privileges.py [--list] [--keep DIR] [PATTERN...]     as run_live.py

The program is copied and given file capabilities; it runs as one user and traces servers of another.
"""
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import run_live
import run_tls
from rig import EXIT_S, HERE, TOOL, Failure, Tracer, tail, wait_for
from run_live import judge, test
from run_tls import CASES, LOADS, Case, Server, c_program, pem, scratch

run_live.TESTS.clear()  # the runner is run_live.py's, the tests are these

USER, OTHER = 61001, 61002  # the tracer's, and the servers': of nobody here
# include/uapi/linux/capability.h
CAPS = {"cap_dac_read_search": 2, "cap_net_admin": 12, "cap_sys_ptrace": 19, "cap_sys_admin": 21, "cap_syslog": 34,
        "cap_perfmon": 38, "cap_bpf": 39, "cap_checkpoint_restore": 40}  # fmt: skip
LEAST = ("cap_bpf", "cap_perfmon", "cap_net_admin")
TLS = (*LEAST, "cap_sys_ptrace", "cap_dac_read_search", "cap_checkpoint_restore")
# What is still needed then: all but what the receive side took to attach.
LATE = [c for c in TLS if c != "cap_net_admin"]
EVERYBODY = 0o777


def as_user(uid, *argv):
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--inh-caps=-all", *argv]


def capped(caps):
    """A copy of the program with these capabilities."""
    folder = os.path.join(scratch(), "-".join(c.removeprefix("cap_") for c in caps) or "none")
    path = os.path.join(folder, "tokensnoop")
    if not os.path.exists(path):
        os.makedirs(folder)
        shutil.copy(TOOL, path)
        os.chmod(folder, 0o755)
        os.chmod(path, 0o755)
        if caps:
            subprocess.run(["setcap", f"{','.join(caps)}+ep", path], check=True)
    return path


def by_user(caps):
    """What to put before a command of the program so that the user's copy of it runs instead."""
    return as_user(USER, "sh", "-c", f'shift; exec {capped(caps)} "$@"', "sh")


def of_other(secure, late=None):
    """A server of servers/tls that another user runs; late: with a copy of libssl that nobody has used before."""
    def make(folder, _):
        os.chmod(folder, EVERYBODY)
        os.chmod(scratch(), 0o755)
        os.chmod(pem(), 0o644)
        env = {"LD_LIBRARY_PATH": os.path.dirname(run_tls.libraries(late))} if late else None
        return Server(folder, secure, lambda s: as_user(OTHER, c_program("openssl"), str(s.port), s.log, s.pem, "blocking"),
                      env=env)
    return Case(make)


def of(pid, field):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return dict(line.rstrip("\n").split(":\t", 1) for line in f)[field]


def mask(caps):
    return sum(1 << CAPS[c] for c in caps)


def check_confined(pid, caps, bounded):
    """What the kernel says of a running trace."""
    want = {"CapEff": mask(caps), "CapPrm": mask(caps), "CapInh": 0, "CapAmb": 0}
    if bounded:
        want["CapBnd"] = 0
    have = {k: int(of(pid, k), 16) for k in want}
    problems = [f"{k} {have[k]:x}, not {want[k]:x}" for k in want if have[k] != want[k]]
    problems += [f"NoNewPrivs {of(pid, 'NoNewPrivs')}"] if of(pid, "NoNewPrivs") != "1" else []
    return problems + ([f"Seccomp {of(pid, 'Seccomp')}, not 2 (a filter)"] if of(pid, "Seccomp") != "2" else [])


def records_of(folder, caps, case, secure, said, late_caps):
    """Traces a server as the user; `said`: what its standard error must hold at the start."""
    load = LOADS["c1"]
    with case.make(folder, secure) as server:
        with Tracer(folder, server.port, wrap=by_user(caps)) as tracer:
            problems = check_confined(tracer.popen.pid, late_caps, False)
            problems += [] if of(tracer.popen.pid, "Uid").split()[1] == str(USER) else ["it is not the user's"]
            clients = run_tls.stream(folder, server, "1.1", load)
            records = run_tls.stop(tracer)
        witnesses = server.witnesses(load["requests"])
        problems += run_tls.check_run(records, witnesses, clients, server, "1.1", case)
    start = "\n".join(tail(tracer.err_path, 200))
    problems += [f"not said: {w!r}" for w in said if w not in start]
    problems += ["it said that something is not traced"] if not said and re.search("not traced|within 2 s", start) else []
    judge(problems, tracer.err_path)


test("privileges.user.plain", LEAST, of_other(False), False, ["found within 2 s, not at once: tracefs", "CAP_DAC_READ_SEARCH"],
     ["cap_bpf", "cap_perfmon"])(records_of)
test("privileges.user.tls", TLS, of_other(True), True, [], LATE)(records_of)


def late(folder, hide):
    """A server that starts when the rights have been given up, with a library of its own; hide: where the kernel does not
    tell of mappings."""
    os.chmod(folder, 0o755)
    case, load = of_other(True, folder), LOADS["c1"]
    server = case.make(folder, True)
    with Tracer(folder, server.port, wrap=[*hide, *by_user(TLS)]) as tracer, server:
        run_tls.stream(folder, server, "1.1", load, name="first")
        time.sleep(2.5)
        run_tls.stream(folder, server, "1.1", load, name="second")  # it has been looked at
        records = run_tls.stop(tracer)
    seen = [r for r in records if r["boundary"] == "send" and r["transport"] == "tls" and r["tokens"]]
    judge([] if seen else [f"no request of the late server was read: {[r['flags'] for r in records]}"], tracer.err_path)


test("privileges.user.late", [])(late)
test("privileges.user.late_without_tracefs", ["unshare", "-m", "sh", "-c", 'umount /sys/kernel/tracing; exec "$@"', "sh"])(late)


@test("privileges.user.blind")
def blind(folder):
    """Without the right to look into other users' processes: named."""
    caps = [c for c in TLS if c != "cap_sys_ptrace"]
    case = of_other(True)
    with case.make(folder, True) as server, Tracer(folder, server.port, wrap=by_user(caps)) as tracer:
        run_tls.stream(folder, server, "1.1", LOADS["c1"])
        records = run_tls.stop(tracer)
    said = "\n".join(tail(tracer.err_path, 200))
    problems = [] if re.search(r"^tokensnoop: blind .*CAP_SYS_PTRACE", said, re.M) else ["CAP_SYS_PTRACE is not named"]
    problems += [] if records and all("blind" in r["flags"] for r in records) else ["a record is not flagged blind"]
    judge(problems, tracer.err_path)


def missing(folder, cap):
    """Without one that everything needs: doctor and trace say the same."""
    tool = capped([c for c in TLS if c != cap])
    runs = {what: subprocess.run(as_user(USER, tool, what), capture_output=True, text=True, timeout=EXIT_S)
            for what in ("trace", "doctor")}
    words = f"missing {cap.upper()}: run it as root (sudo), or give it these capabilities"
    problems = [f"{what}: exit status {r.returncode}, not 3" for what, r in runs.items() if r.returncode != 3]
    problems += [] if f"tokensnoop: capabilities: {words}" in runs["trace"].stderr else [f"trace says {runs['trace'].stderr!r}"]
    return judge(problems + ([] if words in runs["doctor"].stdout else [f"doctor says {runs['doctor'].stdout!r}"]))


for _cap in LEAST:
    test(f"privileges.missing.{_cap}", _cap)(missing)


@test("privileges.root")
def as_root(folder):
    """Root's trace keeps no more than a user's, and can't get it back."""
    with Tracer(folder, 9) as tracer:
        problems = check_confined(tracer.popen.pid, LATE, True)
        run_tls.stop(tracer)
    judge(problems, tracer.err_path)


@test("privileges.report")
def report(folder):
    """The capabilities of the program's file are not lent to who has it read a file."""
    secret = os.path.join(folder, "secret.jsonl")
    with open(secret, "w", encoding="utf-8") as f:
        f.write('{"type":"request"}\n')
    os.chmod(folder, 0o755)
    os.chmod(secret, 0o600)
    got = subprocess.run(as_user(USER, capped(TLS), "report", secret), capture_output=True, text=True, timeout=EXIT_S)
    judge([] if got.returncode == 1 and "Permission denied" in got.stderr else [f"exit status {got.returncode}: {got.stderr}"])


# --- core dumps ---------------------------------------------------------------------------------------

CORE_PATTERN = "/proc/sys/kernel/core_pattern"


@contextlib.contextmanager
def core_pattern(pattern):
    with open(CORE_PATTERN, encoding="ascii") as f:
        before = f.read()
    with open(CORE_PATTERN, "w", encoding="ascii") as f:
        f.write(pattern)
    try:
        yield
    finally:
        with open(CORE_PATTERN, "w", encoding="ascii") as f:
            f.write(before)


def dumps(folder):
    return [name for name in os.listdir(folder) if name.startswith("dump")]


def core(folder, piped, command):
    """What dies leaves no dump, by a file or a pipe, where another program does."""
    collect = os.path.join(folder, "collect")
    with open(collect, "w", encoding="ascii") as f:
        f.write(f"#!/bin/sh\ncat >{folder}/dump.$1\n")
    os.chmod(collect, 0o755)
    unlimited = ["sh", "-c", 'ulimit -c unlimited; exec "$@"', "sh"]
    problems = []
    with core_pattern(f"|{collect} %p" if piped else f"{folder}/dump.%p"):
        if command == "trace":
            with Tracer(folder, 9, wrap=unlimited) as tracer:
                tracer.popen.send_signal(signal.SIGSEGV)
                status = tracer.finish(EXIT_S)
        else:
            with subprocess.Popen([*unlimited, TOOL, "report", "-"], stdin=subprocess.PIPE) as reader:
                reader.stdin.write(b'{"type":"request"')
                reader.stdin.flush()
                # It ignores SIGPIPE from its beginning on.
                wait_for("a report that reads", EXIT_S,
                         lambda: int(of(reader.pid, "SigIgn"), 16) & 1 << (signal.SIGPIPE - 1))
                reader.send_signal(signal.SIGSEGV)
                status = reader.wait(EXIT_S)
        problems += [] if status == -signal.SIGSEGV else [f"exit status {status}, not SIGSEGV"]
        with subprocess.Popen([*unlimited, "sleep", "60"]) as other:
            wait_for("sleep", EXIT_S, lambda: of(other.pid, "Name") == "sleep")
            other.send_signal(signal.SIGSEGV)
            other.wait(EXIT_S)
        # The kernel waits for neither a pipe's program nor its end.
        wait_for("the other program's dump", EXIT_S, lambda: f"dump.{other.pid}" in dumps(folder))
    problems += [f"there is {name}" for name in dumps(folder) if name != f"dump.{other.pid}"]
    judge(problems)


for _command in ("trace", "report"):
    test(f"privileges.core.{_command}.file", False, _command)(core)
    test(f"privileges.core.{_command}.pipe", True, _command)(core)


# --- forbidden calls -----------------------------------------------------------------------------------


def intruder():
    path = os.path.join(scratch(), "forbidden.so")
    if not os.path.exists(path):
        subprocess.run(["gcc", "-shared", "-fPIC", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-o", path,
                        os.path.join(HERE, "forbidden.c")], check=True)
    return path


def forbidden(folder, call, dies):
    """A running trace that makes the call ends by SIGSYS before anything has come of it."""
    wrap = ["env", f"LD_PRELOAD={intruder()}", f"FORBIDDEN={call}"]
    with Tracer(folder, 9, wrap=wrap) as tracer:
        tracer.popen.send_signal(signal.SIGUSR1)
        if dies:
            status = tracer.finish(EXIT_S)
            problems = [] if status == -signal.SIGSYS else [f"exit status {status}, not SIGSYS"]
        else:
            wait_for("the answer", EXIT_S, lambda: tracer.line(tracer.err_path, f"forbidden {call}: 0"))
            run_tls.stop(tracer)
            problems = []
    problems += ["the call came back"] if dies and any(l.startswith("forbidden ") for l in tail(tracer.err_path)) else []
    judge(problems, tracer.err_path)


for _call in ("execve", "fork", "socket", "ptrace", "kill", "write_open", "unlink", "chmod", "mmap_exec", "bpf_load",
              "process_vm_writev", "setuid"):
    test(f"privileges.forbidden.{_call}", _call, True)(forbidden)
test("privileges.permitted.getpid", "getpid", False)(forbidden)


if __name__ == "__main__":
    sys.exit(run_tls.main(sys.argv[1:]))
