#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What trace and doctor say when they can't: one clear line with the remedy, and the exit status. TAP."""
import os
import subprocess
import sys

TOOL = os.environ.get("TKS_TOOL") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "build",
                                                  "tokensnoop")
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
# A mount namespace in which the kernel's BTF is hidden, or cgroup v2 is not mounted.
NO_BTF = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /sys/kernel/btf && exec "$@"', "sh"]
# What a container is: users, process numbers or cgroups of its own.
OWN_USERS = ["unshare", "-Ur"]
OWN_PIDS = ["unshare", "-fp", "--mount-proc"]
OWN_CGROUPS = ["unshare", "-C"]
# A container's seccomp filter, and what kernels without BPF or without its ring buffer (before 5.8) answer.
NO_BPF = """
import ctypes, errno, os, sys
lib = ctypes.CDLL("libseccomp.so.2", use_errno=True)
lib.seccomp_init.restype = ctypes.c_void_p
ctx = ctypes.c_void_p(lib.seccomp_init(0x7fff0000))  # SCMP_ACT_ALLOW
call = lib.seccomp_syscall_resolve_name(b"bpf")
assert lib.seccomp_rule_add(ctx, 0x00050000 | errno.EPERM, call, 0) == 0 and lib.seccomp_load(ctx) == 0
os.execvp(sys.argv[1], sys.argv[1:])
"""
SECCOMP = [sys.executable, "-c", NO_BPF]


def answering(error):
    return ["strace", "-qq", "-o", "/dev/null", "-e", "trace=bpf", "-e", f"inject=bpf:error={error}"]


NO_CGROUP2 = ["unshare", "-m", "sh", "-c",
              'for m in $(awk \'$3 == "cgroup2" {print $2}\' /proc/mounts); do umount -l "$m"; done; exec "$@"', "sh"]

# name, wrapper, arguments, environment, exit status, words that the one line must hold
CASES = [
    ("unprivileged", NOBODY, ["trace"], {}, 3, ["missing CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN", "sudo"]),
    ("no_btf", NO_BTF, ["trace"], {}, 3, ["has no BTF", "CONFIG_DEBUG_INFO_BTF"]),
    ("no_cgroup2", NO_CGROUP2, ["trace"], {}, 3, ["cgroup v2 is not mounted", "mount -t cgroup2"]),
    ("own_users", OWN_USERS, ["trace"], {}, 3, ["namespaces: ", "container with users of its own", "on the host"]),
    ("own_pids", OWN_PIDS, ["trace"], {}, 3, ["namespaces: ", "--pid=host", "hostPID: true"]),
    ("own_cgroups", OWN_CGROUPS, ["trace"], {}, 3, ["namespaces: ", "--cgroupns=host"]),
    ("seccomp", SECCOMP, ["trace"], {}, 3, ["bpf(): ", "by this process's seccomp filter", "seccomp=unconfined"]),
    ("refused", answering("EPERM"), ["trace"], {}, 3, ["bpf(): ", "security module"]),
    ("too_old", answering("EINVAL"), ["trace"], {}, 3, ["kernel: ", "is too old", "5.10 and newer"]),
    ("no_bpf", answering("ENOSYS"), ["trace"], {}, 3, ["kernel: ", "has no bpf()", "CONFIG_BPF_SYSCALL"]),
    ("no_such_hook", [], ["trace"], {"TOKENSNOOP_HOOK_SEND": "nonsense"}, 3, ["no send hook works here", "doctor"]),
    ("no_such_pid", [], ["trace", "-p", "4194304"], {}, 1, ["--pid 4194304", "no such process"]),
    ("no_such_cgroup", [], ["trace", "--cgroup", "/nowhere"], {}, 1, ["--cgroup /nowhere", "not a directory"]),
    ("no_such_folder", [], ["trace", "-o", "/nowhere/x"], {}, 1, ["/nowhere/x", "No such file or directory"]),
    ("bad_port", [], ["trace", "--port", "0"], {}, 2, ["--port", "from 1 to 65535", "--help"]),
    ("bad_slo", [], ["trace", "--slo", "ttft=fast"], {}, 2, ["--slo", "ttft=500ms"]),
    ("bad_format", [], ["--format", "xml"], {}, 2, ["--format", "table (default), jsonl or json"]),
    ("operand", [], ["trace", "x"], {}, 2, ['"x"', "--help"]),
    ("full_disk", [], ["trace", "-d", "0.2", "--format", "jsonl", "-o", "/dev/full"], {}, 1, ["No space left on device"]),
]


def ours(text):
    return [l for l in text.splitlines() if l.startswith("tokensnoop: ") and not l.startswith("tokensnoop: ready")]


def check_error(wrap, args, env, status, words):
    got = subprocess.run([*wrap, TOOL, *args], capture_output=True, text=True, timeout=60,
                         env={**os.environ, **env}, stdin=subprocess.DEVNULL)
    lines = ours(got.stderr)
    problems = [] if got.returncode == status else [f"exit status {got.returncode}, wanted {status}"]
    if len(lines) != 1:
        problems.append(f"{len(lines)} lines, wanted 1: {lines}")
    problems += [f"not said: {w!r} in {lines}" for w in words if not any(w in l for l in lines)]
    return problems


def check_doctor(wrap, status, last, words):
    got = subprocess.run([*wrap, TOOL, "doctor"], capture_output=True, text=True, timeout=60)
    problems = [] if got.returncode == status else [f"exit status {got.returncode}, wanted {status}"]
    if got.stdout.rstrip().splitlines()[-1:] != [last]:
        problems.append(f"ends with {got.stdout.rstrip().splitlines()[-1:]}, wanted {last!r}")
    return problems + [f"not said: {w!r}" for w in words if w not in got.stdout]


def check_same_words(wrap):
    """doctor names what trace ends with, in the same words."""
    said = ours(subprocess.run([*wrap, TOOL, "trace"], capture_output=True, text=True, timeout=60).stderr)
    name, _, text = said[0].removeprefix("tokensnoop: ").partition(": ") if said else ("", "", "")
    got = subprocess.run([*wrap, TOOL, "doctor"], capture_output=True, text=True, timeout=60)
    want = f"{name:13} NO: {text}"
    problems = [] if got.returncode == 3 else [f"exit status {got.returncode}, wanted 3"]
    return problems + ([] if text and want in got.stdout.splitlines() else [f"not said: {want!r}"])


def main():
    results = [(f"trace.{name}", check_error(*case)) for name, *case in CASES]
    results += [(f"doctor.{name}", check_same_words(wrap)) for name, wrap, _, _, status, _ in CASES if status == 3 and wrap]
    results += [
        ("doctor.works", check_doctor([], 0, "tracing can work here", ["chosen", "cgroup_skb", "inet_sock_set_state"])),
        ("doctor.ends", check_doctor(NOBODY, 3, "tracing can't work here", ["missing CAP_BPF", "sudo"])),
    ]
    for n, (name, problems) in enumerate(results, 1):
        for p in problems:
            print("#", p)
        print(f"{'not ok' if problems else 'ok'} {n} - errors.{name}")
    print(f"1..{len(results)}")
    return 1 if any(p for _, p in results) else 0


if __name__ == "__main__":
    sys.exit(main())
