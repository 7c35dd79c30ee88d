#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Tests of the kernel tests: each check must see the fault that it is there for. TAP on standard output.

usage: selftest.py [--no-vm] [LABEL...]     kernels for the cases that boot one; default: 6.12
"""
import copy
import hashlib
import json
import os
import sys
import tempfile

import run_kernels as rk
import splat
import vm

# --- the log's judge -----------------------------------------------------------------------------

PLANTED = """
[    5.1] BUG: kernel NULL pointer dereference, address: 0000000000000000
[    5.1] WARNING: CPU: 1 PID: 77 at kernel/bpf/verifier.c:123 check_mem+0x1/0x2
[    5.1] WARNING: kernel/bpf/verifier.c:123 at check_mem+0x1/0x2, CPU#1: tokensnoop/77
[    5.1] WARNING: possible circular locking dependency detected
[    5.1] WARNING: suspicious RCU usage
[    5.1] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:
[    5.1] rcu: INFO: rcu_sched self-detected stall on CPU
[    5.1] INFO: task tokensnoop:77 blocked for more than 120 seconds.
[    5.1] watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [tokensnoop:77]
[    5.1] NMI watchdog: Watchdog detected hard LOCKUP on cpu 0
[    5.1] BUG: KASAN: slab-out-of-bounds in tcp_sendmsg+0x1/0x2
[    5.1] Call Trace:
[    5.1] Oops: 0000 [#1] SMP NOPTI
[    5.1] Kernel panic - not syncing: Fatal exception
[    5.1] tokensnoop[77]: segfault at 0 ip 0000 sp 0000 error 4 in tokensnoop
[    5.1] BUG: sleeping function called from invalid context at mm/slab.h:1
[    5.1] refcount_t: underflow; use-after-free.
[    5.1] UBSAN: array-index-out-of-bounds in net/ipv4/tcp.c:1:2
""".strip().splitlines()

HARMLESS = """
[    0.0] rcu: Hierarchical RCU implementation.
[    0.0] rcu: \tRCU restricting CPUs from NR_CPUS=512 to nr_cpu_ids=2.
[    0.0] mtrr: your CPUs had inconsistent fixed MTRR settings
[    0.1] kfence: initialized - using 2097152 bytes for 255 objects
[    0.1] Spectre V1 : Mitigation: usercopy/swapgs barriers and __user pointer sanitization
[    0.1] DEBUG: nothing
""".strip().splitlines()


def test_splats(tap):
    tap.result("selftest.splat.found", [f"not seen: {l}" for l in PLANTED if not splat.find(l)])
    tap.result("selftest.splat.harmless", [f"taken for one: {l}" for l in HARMLESS if splat.find(l)])
    allow = [splat.re.compile("lockup")]
    tap.result("selftest.splat.allowlist", [l for _, l in splat.find(PLANTED[8], allow=allow)])
    seen = [splat.tainted("512"), splat.tainted("0"), splat.tainted("4096")]
    tap.result("selftest.splat.taint", [] if seen == [["warning"], [], []] else [str(seen)])


# --- the records' judge --------------------------------------------------------------------------


def sample():
    """Two requests of three tokens: records, log, workload."""
    records, log = [], []
    for r in range(2):
        times = [1000 * (r + 1) + 100 * i for i in range(3)]
        records.append(
            {"type": "request", "t_request_ns": times[0] - 50, "status": 200, "streamed": True, "tokens": 3,
             "flags": [], "tokens_at_ns": times, "t_first_ns": times[0], "t_last_ns": times[-1], "tpot_ns": 100}
        )  # fmt: skip
        log += [{"request": r, "token": i, "before_ns": t - 5, "after_ns": t + 5} for i, t in enumerate(times)]
    return records, log, [(2, {"max_tokens": 3})]


def judge(records, log, workload):
    lines = ["\n".join(map(json.dumps, x)) for x in (records, log)]
    return rk.check_records(*lines, workload)


MUTATIONS = {
    "early": lambda r: r[1]["tokens_at_ns"].__setitem__(1, r[1]["tokens_at_ns"][1] - 6),
    "late": lambda r: r[1]["tokens_at_ns"].__setitem__(2, r[1]["tokens_at_ns"][2] + 6),
    "token_missing": lambda r: r[0]["tokens_at_ns"].pop(),
    "wrong_count": lambda r: r[0].update(tokens=4),
    "lost": lambda r: r[0].update(flags=["lost"]),
    "record_missing": lambda r: r.pop(),
    "record_twice": lambda r: r.append(r[0]),
    "error_status": lambda r: r[0].update(status=500),
    "wrong_tpot": lambda r: r[0].update(tpot_ns=150),
}


def test_records(tap):
    records, log, workload = sample()
    tap.result("selftest.records.good", judge(records, log, workload))
    for name, mutate in MUTATIONS.items():
        bad = copy.deepcopy(records)
        mutate(bad)
        tap.result(f"selftest.records.{name}", [] if judge(bad, log, workload) else ["passed as good"])


DOCTOR = "send  fentry      chosen    x\nsend  kprobe      works     x\nsend  tp_btf      no        x\n"
DOCTOR += "tls   uprobe      chosen    x\nunix  fentry      no        x\nunix  tp_btf      chosen    x\n"


def test_hooks(tap):
    fine = {"send": "fentry", "works": ["fentry", "kprobe"], "tls": "uprobe", "tls_works": ["uprobe"], "unix": "tp_btf", "unix_works": ["tp_btf"]}
    tap.result("selftest.doctor.good", rk.check_doctor(DOCTOR, "0", fine))
    fallback = DOCTOR.replace("fentry      chosen", "fentry      no    ").replace("works", "chosen")
    for name, text, status in (("fallback", fallback, "0"), ("no_tls", DOCTOR.replace("tls ", "lts "), "0"),
                               ("no_unix", DOCTOR.replace("tp_btf      chosen", "tp_btf      no    "), "0"), ("status", DOCTOR, "3"), ("silent", "", "0"),
                               ("more_than_expected", DOCTOR.replace("no  ", "works"), "0")):  # fmt: skip
        bad = rk.check_doctor(text, status, fine)
        tap.result(f"selftest.doctor.{name}", [] if bad else ["passed as good"])
    ready = "tokensnoop: ready (send=fentry recv=cgroup_skb)\n"
    tap.result("selftest.ready.good", rk.check_ready(ready, "fentry"))
    tap.result("selftest.ready.other_hook", [] if rk.check_ready(ready, "kprobe") else ["passed as good"])
    tap.result("selftest.ready.never", [] if rk.check_ready("", "kprobe") else ["passed as good"])


ZOO = "# splice: sent 9 captured 0\nnot ok 1 - zoo.fentry.splice\n# write: sent 9\nok 2 - zoo.fentry.write\n1..2\n"


def test_zoo(tap):
    tap.result("selftest.zoo.good", rk.check_zoo(ZOO, "write", "fentry"))
    for name, mode, hook in (("failed", "splice", "fentry"), ("not_run", "sendfile", "fentry"),
                             ("other_hook", "write", "kprobe")):  # fmt: skip
        bad = rk.check_zoo(ZOO, mode, hook)
        tap.result(f"selftest.zoo.{name}", [] if bad else ["passed as good"])


# --- the virtual machine -------------------------------------------------------------------------


def expect(*facts):
    return [what for what, true in facts if not true]


def test_files(tap, label, out):
    blob = os.urandom(200_001)
    script = "mkdir /out/deep; cp /etc/blob /out/deep/blob; uname -r; ls /sys/kernel/btf/vmlinux || exit 9; exit 7"
    r = vm.boot(label, script, {}, {"/etc/blob": blob}, 60, out)
    home = r.files / "deep" / "blob"
    same = home.exists() and hashlib.sha256(home.read_bytes()).digest() == hashlib.sha256(blob).digest()
    tap.result(f"selftest.vm.{label}.files",
               expect(("exit status", r.status == 7), ("file differs", same), (r.problem, not r.problem)))  # fmt: skip
    tap.result(f"selftest.vm.{label}.log_clean", r.splats())


def test_hang(tap, label, out):
    r = vm.boot(label, "echo before >/out/x; sleep 1000", timeout=3, out=out)
    tap.result(f"selftest.vm.{label}.hang",
               expect(("no time-out", r.timed_out), ("has a status", r.status is None),
                      ("file not saved", (r.files / "x").exists())))  # fmt: skip


def test_panic(tap, label, out):
    r = vm.boot(label, "echo c >/proc/sysrq-trigger; sleep 100", timeout=60, out=out)
    tap.result(f"selftest.vm.{label}.panic",
               expect(("has a status", r.status is None), ("no problem told", r.problem), ("not booted", r.booted),
                      ("panic not seen", any("Kernel panic" in s for s in r.splats())),
                      ("waited for the time-out", not r.timed_out)))  # fmt: skip


def test_planted(tap, label, out):
    line = "WARNING: CPU: 0 PID: 1 at planted/splat.c:1 planted+0x0/0x1"
    r = vm.boot(label, f"echo '<6>{line}' >/dev/kmsg", timeout=60, out=out)
    tap.result(f"selftest.vm.{label}.planted_splat",
               expect(("not seen", any(line in s for s in r.splats())), ("exit status", r.status == 0)))  # fmt: skip


def test_frozen(tap, label, out):
    """The guest's own time-out is stopped too: the host must end it."""
    seconds, vm.BOOT_SECONDS = vm.BOOT_SECONDS, 15
    try:
        r = vm.boot(label, "kill -STOP $PPID; sleep 1000", timeout=1, out=out)
    finally:
        vm.BOOT_SECONDS = seconds
    tap.result(f"selftest.vm.{label}.frozen",
               expect(("no time-out", r.timed_out), ("has a status", r.status is None), ("no problem told", r.problem),
                      ("ran on", r.seconds < 30)))  # fmt: skip


def main(argv):
    tap = rk.Tap()
    test_splats(tap)
    test_records(tap)
    test_hooks(tap)
    test_zoo(tap)
    labels = [] if "--no-vm" in argv else [a for a in argv if not a.startswith("-")] or ["6.12"]
    with tempfile.TemporaryDirectory(prefix="tks-selftest-") as tmp:
        for label in labels:
            for test in (test_files, test_hang, test_frozen, test_panic, test_planted):
                try:
                    test(tap, label, os.path.join(tmp, "out"))
                except vm.Error as e:
                    tap.result(f"selftest.vm.{label}.{test.__name__}", [str(e)])
    return tap.end()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
