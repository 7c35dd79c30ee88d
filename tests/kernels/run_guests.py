#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a host should not be put through, in guests (see vm.py), as TAP: kernels that are locked down, have cgroup v1 only or
no BTF, users with few rights on old kernels, a wall clock that jumps and CPUs that go and come while a trace runs.

usage: run_guests.py [--keep DIR] [--jobs N] [SCENARIO...]
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import sys

import run_kernels as rk
import vm

HERE = pathlib.Path(__file__).resolve().parent
GUEST_SECONDS = 300
REQUESTS, KEYS = 3, {"stream": "true", "max_tokens": 61, "gap_us": 20000}
WORKLOAD = " ".join([str(REQUESTS), *(f"{k}={v}" for k, v in KEYS.items())])

# refused NAME COMMAND...: doctor and trace, started by the command. traced NAME COMMAND...: a trace of a few streams; while
# they run the function that DISTURB names does its work again and again.
COMMON = r"""
refused() {
	name=$1
	shift
	for what in doctor trace; do
		"$@" tokensnoop $what >"/out/$name.$what" 2>&1
		echo $? >"/out/$name.$what.status"
	done
}
traced() {
	name=$1
	port=$((${port:-8100} + 1))
	shift
	truth_server "$port" "/out/$name.log" >/dev/null 2>&1 &
	server=$!
	"$@" trace --port "$port" --format jsonl --tokens -o "/out/$name.records" >/dev/null 2>"/out/$name.err" &
	tool=$!
	tries=900
	until grep -q '^tokensnoop: ready' "/out/$name.err" || [ "$tries" = 0 ] || ! kill -0 "$tool"; do
		tries=$((tries - 1))
		sleep 0.1
	done
	kclient "$port" WORKLOAD >"/out/$name.client" 2>&1 &
	client=$!
	while [ -n "$DISTURB" ] && kill -0 "$client"; do $DISTURB; done
	wait "$client"
	echo $? >"/out/$name.client.status"
	kill -INT "$tool"
	wait "$tool"
	echo $? >"/out/$name.status"
	kill "$server"
}
caps() {
	cp /bin/tokensnoop /tmp/tokensnoop
	/tools/setcap "$1+ep" /tmp/tokensnoop
}
cat >/tools/as_user <<'END'
#!/bin/sh
exec /tools/setpriv --reuid=1000 --regid=1000 --clear-groups --inh-caps=-all "$@"
END
chmod 755 /tools/as_user
PATH=$PATH:/tools
chmod 777 /out
""".replace("WORKLOAD", WORKLOAD)

LEAST = "cap_bpf,cap_perfmon,cap_net_admin"
CLOCK = """
clock() {
	date -s "@$(($(date +%s) + 3600))" >/dev/null
	sleep 0.2
	date -s "@$(($(date +%s) - 3600))" >/dev/null
	sleep 0.2
	echo >>/out/clock.count
}
"""
HOTPLUG = """
hotplug() {
	for on in 0 1; do
		echo $on >/sys/devices/system/cpu/cpu1/online && echo $on >>/out/hotplug.count
		sleep 0.2
	done
}
"""

# name: kernel, words of its command line, script, {what was refused: words that must be said}, [what was traced]
SCENARIOS = {
    "confidentiality": ("6.12", "lockdown=confidentiality", "mount -t securityfs s /sys/kernel/security\nrefused locked\n",
                        {"locked": ["lockdown", "the kernel is locked down (confidentiality)", "lockdown=integrity"]}, []),
    "integrity": ("6.12", "lockdown=integrity", "mount -t securityfs s /sys/kernel/security\n"
                  "cat /sys/kernel/security/lockdown >/out/lockdown\n" + CLOCK + "DISTURB=clock traced clock tokensnoop\n",
                  {}, ["clock"]),
    "hotplug": ("6.1", "", HOTPLUG + "DISTURB=hotplug traced hotplug tokensnoop\n", {}, ["hotplug"]),
    "user": ("6.1", "", f"caps {LEAST}\ntraced user as_user /tmp/tokensnoop\n"
             "echo 2 >/proc/sys/kernel/unprivileged_bpf_disabled\nrefused nobody as_user\n"
             "mkdir /empty; mount --bind /empty /sys/kernel/btf\nrefused btf\numount /sys/kernel/btf\n"
             "umount /sys/fs/cgroup; mount -t tmpfs c /sys/fs/cgroup; mkdir /sys/fs/cgroup/pids\n"
             "mount -t cgroup -o pids pids /sys/fs/cgroup/pids\nrefused v1\n",
             {"nobody": ["capabilities", "missing CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN", "sudo"],
              "btf": ["BTF", "has no BTF", "CONFIG_DEBUG_INFO_BTF=y"],
              "v1": ["cgroup v2", "a host with v1 only?", "mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified"]}, ["user"]),
    "new_user": ("6.12", "", f"caps {LEAST},cap_sys_ptrace,cap_dac_read_search,cap_checkpoint_restore\n"
                 "traced tls as_user /tmp/tokensnoop\n", {}, ["tls"]),
    "old_user": ("5.10", "", f"ulimit -l 64\ncaps {LEAST}\n"
                 "mkdir /tmp/few; cp /tmp/tokensnoop /tmp/few/; /tools/setcap " + LEAST + "+ep /tmp/few/tokensnoop\n"
                 "PATH=/tmp/few:$PATH; refused memlock as_user\n"
                 f"caps {LEAST},cap_sys_resource\ntraced user as_user /tmp/tokensnoop\n",
                 {"memlock": ["bpf()", "RLIMIT_MEMLOCK", "before Linux 5.11", "ulimit -l unlimited", "CAP_SYS_RESOURCE"]}, ["user"]),
}  # fmt: skip


def text_of(path):
    return path.read_text(errors="replace") if path.exists() else ""


def check_refused(out, name, words):
    """doctor and trace end with 3, and say the same."""
    said, doctor = text_of(out / f"{name}.trace"), text_of(out / f"{name}.doctor")
    status = [text_of(out / f"{name}.{what}.status").strip() for what in ("doctor", "trace")]
    problems = [f"exit statuses {status}, not 3: {said!r}"] if status != ["3", "3"] else []
    line = re.search(r"^tokensnoop: ([^:]+): (.*)$", said, re.M)
    if not line:
        return problems + [f"trace said {said!r}"]
    problems += [f"{line[1]!r}, not {words[0]!r}"] if line[1] != words[0] else []
    problems += [f"not said: {w!r} in {line[2]!r}" for w in words[1:] if w not in line[2]]
    return problems + ([] if f"{line[1]:13} NO: {line[2]}" in doctor.splitlines() else [f"doctor said otherwise: {doctor!r}"])


def check_traced(out, name):
    status = [text_of(out / f"{name}.{what}").strip() for what in ("client.status", "status")]
    if status != ["0", "0"]:
        return [f"exit statuses of client and trace {status}: {text_of(out / f'{name}.err')[-500:]}"]
    if name == "tls" and " tls=uprobe_multi " not in text_of(out / "tls.err"):
        return [f"TLS is not traced: {text_of(out / 'tls.err')[:300]}"]
    return rk.check_records(text_of(out / f"{name}.records"), text_of(out / f"{name}.log"), [(REQUESTS, KEYS)])


def run(name, programs, keep):
    kernel, append, script, _, _ = SCENARIOS[name]
    return vm.boot(kernel, COMMON + script, programs, {}, GUEST_SECONDS, keep / name, append)


def judge(tap, name, r):
    _, append, _, refused, traced = SCENARIOS[name]
    print(f"# {name}: {r.seconds:.0f} s; {r.files}")
    tap.result(f"guests.{name}.boot", [r.problem] if r.problem else [])
    tap.result(f"guests.{name}.log_clean", r.splats())
    for what, words in refused.items():
        tap.result(f"guests.{name}.refused.{what}", check_refused(r.files, what, words))
    for what in traced:
        tap.result(f"guests.{name}.traced.{what}", check_traced(r.files, what))
    for what in ("clock", "hotplug"):
        if what in traced:
            times = len(text_of(r.files / f"{what}.count").splitlines())
            tap.result(f"guests.{name}.disturbed.{what}", [] if times > 2 else [f"only {times} times"])
    if append == "lockdown=integrity":
        mode = text_of(r.files / "lockdown")
        tap.result(f"guests.{name}.is_locked_down", [] if "[integrity]" in mode else [f"lockdown is {mode!r}"])


def main(argv):
    ap = argparse.ArgumentParser(usage=__doc__)
    ap.add_argument("--build", type=pathlib.Path, default=HERE / "../../build")
    ap.add_argument("--keep", type=pathlib.Path, help="folder for logs and results")
    ap.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="guests at a time")
    ap.add_argument("scenarios", nargs="*")
    a = ap.parse_args(argv)
    build, tap = a.build.resolve(), rk.Tap()
    programs = {"/bin/tokensnoop": build / "tokensnoop", "/bin/truth_server": build / "tests" / "truth_server",
                "/bin/kclient": rk.build_program(build, HERE / "kclient.c", *rk.OPENSSL)}
    for tool in ("setpriv", "setcap"):
        programs[f"/tools/{tool}"] = shutil.which(tool, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin") or tool
    keep = (a.keep or build / "tests/guests").resolve()
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        runs = [(n, pool.submit(run, n, programs, keep)) for n in a.scenarios or SCENARIOS]
        for name, result in runs:
            try:
                judge(tap, name, result.result())
            except (vm.Error, OSError) as e:
                tap.result(f"guests.{name}.boot", [str(e)])
    return tap.end()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
