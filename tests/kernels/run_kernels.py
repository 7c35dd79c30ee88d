#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs the tracer under Debian's stock kernels, each in its own virtual machine. TAP on standard output.

usage: run_kernels.py [--build DIR] [--keep DIR] [--jobs N] [LABEL...]      default: all labels of fetch.sh

In each guest: tokensnoop doctor, a trace of the truth server for each send hook that is to work there, one with
the hook it takes by itself, and with that one the sender zoo (build/tests/zoo), if it was built; the zoo's unix sockets
with each of the hooks for them; and a trace of servers that speak TLS, kernel TLS among it, for each send hook that reads it.
expected/LABEL says which hooks must work and which must be chosen: a fallback nobody expected is a failure, not a success.
What the tracer recorded is held against the servers' own logs: they read the same clock before and after each write of
a token, so every token's time must lie between the two.
"""
import argparse
import concurrent.futures
import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import vm

HERE = pathlib.Path(__file__).resolve().parent
SERVERS = HERE.parent / "live" / "servers" / "tls"
OPENSSL = ("-lssl", "-lcrypto")
HOOKS = ("fentry", "tp_btf", "kprobe", "syscall", "uprobe_multi", "uprobe")
# Emulated, libbpf takes about ten seconds to load an object: it reads all of the kernel's BTF each time.
GUEST_SECONDS = 900
# The sender zoo's modes; those of unix sockets whose path through the kernel is another one, all of them run in tests/live.
ZOO_MODES = ("write", "single_bytes", "ipv6", "sendto", "writev3", "writev33", "writev1024", "sendmsg300", "sendmmsg",
             "msg_more", "large", "partial", "sendfile", "splice", "zerocopy", "io_uring")  # fmt: skip
MPTCP_MODES = ("mptcp_write", "mptcp_writev1024", "mptcp_large", "mptcp_partial")
UNIX_MODES = ("unix_write", "unix_partial", "unix_sendfile")
# Flags of a record that say that something is missing from it.
BAD_FLAGS = {"blind", "count_mismatch", "lost", "mid_stream", "opaque", "truncated"}

# name: (requests, keys of each request). Primes, so that no two counts can be taken for each other.
WORKLOADS = {
    "1plain": (7, {"stream": "true", "max_tokens": 13, "gap_us": 500}),
    "2fast": (3, {"stream": "true", "max_tokens": 211, "gap_us": 0}),
    "3slow": (2, {"stream": "true", "max_tokens": 5, "gap_us": 20000}),
}

# name: when it starts, its program, its mode. BLIND is the one whose answers nobody can see.
TLS = {
    "openssl": ("early", "openssl_server", "blocking"),
    "openssl_late": ("late", "openssl_server", "blocking"),
    "openssl_bio": ("early", "openssl_server", "bio"),
    "gnutls": ("early", "gnutls_server", "send"),
    "go": ("early", "go_server", "1.1"),
    "go_late": ("late", "go_server", "1.1"),
    "ktls": ("early", "openssl_server", "ktls"),
    "ktls_send": ("early", "openssl_server", "ktls-send"),
}
BLIND = "ktls_send"
TLS_REQUESTS, TLS_TOKENS = 2, 31
TLS_LOAD = f'{TLS_REQUESTS} stream=true max_tokens={TLS_TOKENS} gap_ms=120 stream_options={{"include_usage":true}}'
# The system calls that are the last resort show what kernel TLS is given, not what it sends.
TLS_HOOKS = ("fentry", "tp_btf", "kprobe")


# --- TAP -----------------------------------------------------------------------------------------


class Tap:
    """Counts and prints results; diagnostics go before the line they belong to."""

    def __init__(self):
        self.n = self.failed = self.skipped = 0

    def result(self, name, problems, skip=""):
        self.n += 1
        for line in problems[:20]:
            print(f"# {name}: {line}")
        self.failed += bool(problems)
        self.skipped += bool(skip and not problems)
        print(f"{'not ok' if problems else 'ok'} {self.n} - {name}{f' # SKIP {skip}' if skip else ''}", flush=True)

    def end(self):
        print(f"1..{self.n}")
        passed = self.n - self.failed - self.skipped
        print(f"# {passed} passed, {self.failed} failed, {self.skipped} skipped")
        return 1 if self.failed or not self.n else 0


# --- what is expected ----------------------------------------------------------------------------


POINTS = {"send": "works", "tls": "tls_works", "unix": "unix_works"}  # what is chosen: what works


def read_expected(path):
    """{"send": hook, "works": [hooks], "tls": hook, ..., "mptcp": bool, "ktls": bool}: what the kernel has and takes, of an
    expected/ file."""
    lines = [l.partition("=") for l in path.read_text().splitlines() if l and not l.startswith("#")]
    keys = {k: v.split() for k, _, v in lines}
    bad = set(keys) != {*POINTS, *POINTS.values(), "mptcp", "ktls"}
    bad = bad or any(len(keys[p]) != 1 or set(keys[w]) - set(HOOKS) for p, w in POINTS.items())
    if bad or any(keys[k] not in (["yes"], ["no"]) for k in ("mptcp", "ktls")):
        raise vm.Error(f"{path}: not send=HOOK, works=HOOK..., the same of tls and unix, mptcp and ktls yes or no")
    expected = {p: keys[p][0] for p in POINTS} | {w: keys[w] for w in POINTS.values()}
    return expected | {k: keys[k] == ["yes"] for k in ("mptcp", "ktls")}


def zoo_modes(expected):
    """With each hook of sends."""
    return ZOO_MODES + MPTCP_MODES * expected["mptcp"]


def check_doctor(text, status, expected):
    """Problems with the doctor's table: its lines are "send HOOK chosen|works|no ..."."""
    problems = [f"exit status {status}"] if status != "0" else []
    for point, key in POINTS.items():
        rows = dict(re.findall(rf"^{point}\s+(\S+)\s+(chosen|works|no)\b", text, re.M))
        chosen = [h for h, v in rows.items() if v == "chosen"]
        works = sorted(h for h, v in rows.items() if v != "no")
        if chosen != [expected[point]]:
            problems.append(f"chose {chosen or 'no'} {point} hook, expected {expected[point]}")
        if works != sorted(expected[key]):
            problems.append(f"working {point} hooks: {works}, expected {sorted(expected[key])}")
    return problems


def check_ready(err, hook):
    """The tracer names the hook that it attached."""
    line = re.search(r"^tokensnoop: ready.*", err, re.M)
    if not line:
        return ["never ready: " + (err.strip() or "no message")]
    if not re.search(rf"\bsend[= ]{hook}\b", line[0]):
        return [f"{line[0]!r}: not with send hook {hook}"]
    return []


# --- records against the server's log ------------------------------------------------------------


def parse_log(text):
    """The truth server's log: [{"tokens": [(before_ns, after_ns), ...]}], a request each, as they came.

    Lines: {"request":N,"token":K,"before_ns":B,"after_ns":A}
    """
    requests = {}
    for line in text.splitlines():
        o = json.loads(line)
        if "token" in o:
            requests.setdefault(o["request"], []).append((o["before_ns"], o["after_ns"]))
    return [{"tokens": t} for _, t in sorted(requests.items())]


def check_record(r, truth, want_tokens):
    """Problems of one record against its request's entry in the log."""
    problems = []
    times = r.get("tokens_at_ns") or []
    if r.get("status") != 200 or not r.get("streamed"):
        problems.append(f"status {r.get('status')}, streamed {r.get('streamed')}")
    if r.get("tokens") != want_tokens or len(truth["tokens"]) != want_tokens:
        problems.append(f"{r.get('tokens')} tokens, asked for {want_tokens}, sent {len(truth['tokens'])}")
    if len(times) != len(truth["tokens"]):
        return problems + [f"{len(times)} token times, the server wrote {len(truth['tokens'])}"]
    if BAD_FLAGS & set(r.get("flags", [])):
        problems.append(f"flags {r['flags']}")
    for i, (t, (before, after)) in enumerate(zip(times, truth["tokens"])):
        if not before <= t <= after:
            problems.append(f"token {i} at {t}: {before - t} ns too early" if t < before
                            else f"token {i} at {t}: {t - after} ns too late")  # fmt: skip
    if want_tokens > 1 and r.get("tpot_ns") is not None:
        tpot = (r["t_last_ns"] - r["t_first_ns"]) / (want_tokens - 1)
        if abs(r["tpot_ns"] - tpot) > 1:
            problems.append(f"tpot {r['tpot_ns']}, its own times give {tpot:.0f}")
    return problems


def check_records(jsonl, log, workloads):
    """Problems of a trace's records: workloads is [(requests, keys)] in the order they were run."""
    records = [r for r in map(json.loads, jsonl.splitlines()) if r.get("type") == "request"]
    records.sort(key=lambda r: r["t_request_ns"])
    truth = parse_log(log)
    want = [int(keys["max_tokens"]) for n, keys in workloads for _ in range(n)]
    if not len(records) == len(truth) == len(want):
        return [f"{len(records)} records, {len(truth)} requests in the log, {len(want)} made"]
    problems = []
    for i, (r, t, n) in enumerate(zip(records, truth, want)):
        problems += [f"request {i}: {p}" for p in check_record(r, t, n)]
    return problems


# --- TLS ------------------------------------------------------------------------------------------


def parse_witness(text):
    """The log of a server of tests/live/servers/tls: as parse_log's, with the client's port."""
    requests = {}
    for line in text.splitlines():
        o = json.loads(line)
        r = requests.setdefault(o["request"], {"tokens": [], "peer": o["peer"]})
        if o["kind"] == "token":
            r["tokens"].append((o["before_ns"], o["after_ns"]))
    return list(requests.values())


def check_tls_record(r, truth, port, pid):
    """Problems of one record of a server whose plaintext is seen."""
    want = {"transport": "tls", "boundary": "send", "dialect": "openai.chat", "tokens_source": "usage",
            "local": f"127.0.0.1:{port}", "peer": f"127.0.0.1:{truth['peer']}", "pid": pid}  # fmt: skip
    problems = [f"{k} {r.get(k)}, not {v}" for k, v in want.items() if r.get(k) != v]
    at_tls = (r.get("boundaries") or {}).get("tls") or {}
    if at_tls.get("ttft_ns") is None or r.get("ttft_ns") is None or at_tls["ttft_ns"] > r["ttft_ns"]:
        problems.append(f"ttft {at_tls.get('ttft_ns')} at TLS, {r.get('ttft_ns')} at the send")
    return problems + check_record(r, truth, TLS_TOKENS)


def check_blind_record(r, truth, port):
    """Problems of one record of a server whose answers are not seen, only what it was asked: it says so."""
    want = {"transport": "tls", "boundary": "send", "dialect": "openai.chat", "model": "truth", "status": None,
            "tokens": None, "token_frames": 0, "ttft_ns": None, "flags": ["blind"], "local": f"127.0.0.1:{port}",
            "peer": f"127.0.0.1:{truth['peer']}"}  # fmt: skip
    return [f"{k} {r.get(k)}, not {v}" for k, v in want.items() if r.get(k) != v]


def check_tls(folder, name, hook, tls):
    """Problems of what was recorded of one server in the traced run in `folder`."""
    out, err = folder / name, text_of(folder / "tool.err")
    problems = check_ready(err, hook)
    if not problems and f" tls={tls} " not in err:
        problems = [f"it took another hook for TLS than {tls}"]
    if problems:
        return problems
    status = text_of(folder / "tool.status").strip(), text_of(out / "client.status").strip()
    if status != ("0", "0"):
        problems.append(f"exit status of the tracer and of the client {status}: {text_of(out / 'server.out')}")
    port, pid = int(text_of(out / "port")), int(text_of(out / "pid"))
    truth = parse_witness(text_of(out / "log"))
    records = [r for r in map(json.loads, text_of(folder / "records.jsonl").splitlines())
               if r.get("type") == "request" and r.get("local", "").endswith(f":{port}")]  # fmt: skip
    records.sort(key=lambda r: r["t_request_ns"])
    if not len(records) == len(truth) == TLS_REQUESTS:
        return problems + [f"{len(records)} records, {len(truth)} requests in the log, {TLS_REQUESTS} made"]
    for i, (r, t) in enumerate(zip(records, truth)):
        found = check_blind_record(r, t, port) if name == BLIND else check_tls_record(r, t, port, pid)
        problems += [f"request {i}: {p}" for p in found]
    return problems + check_told(err, name, port, pid, (out / "blind_in_time").exists())


def tls_problems(folder, name, hook, tls):
    try:
        return check_tls(folder, name, hook, tls)
    except (ValueError, KeyError, TypeError) as e:
        return [f"records or log can't be read: {e!r}"]


def check_told(err, name, port, pid, in_time):
    """Problems of what the tracer said of a server while it answered."""
    said = re.findall(rf"^tokensnoop: blind to TLS of (\S+) at 127\.0\.0\.1:{port}: (.*)$", err, re.M)
    if name != BLIND:
        return [f"said to be blind: {s}" for s in said]
    if len(said) != 1 or said[0][0] != f"openssl_server[{pid}]" or not said[0][1].startswith("kernel TLS"):
        return [f"said to be blind: {said}"]
    return [] if in_time else ["said to be blind when all was over"]


# --- one kernel ----------------------------------------------------------------------------------


def text_of(path):
    return path.read_text(errors="replace") if path.is_file() else ""


def check_trace(folder, hook):
    """Problems of the traced run in `folder`, made with `hook`."""
    err = text_of(folder / "tool.err")
    problems = check_ready(err, hook)
    if problems:
        return problems
    status = text_of(folder / "tool.status").strip()
    if status != "0":
        problems.append(f"tokensnoop: exit status {status}: {err.strip()[-300:]}")
    for name in WORKLOADS:
        if text_of(folder / f"client.{name}.status").strip() != "0":
            problems.append(f"client {name}: {text_of(folder / f'client.{name}').strip()[-200:]}")
    try:
        problems += check_records(text_of(folder / "records.jsonl"), text_of(folder / "log"), list(WORKLOADS.values()))
    except (ValueError, KeyError, TypeError) as e:
        problems.append(f"records or log can't be read: {e!r}")
    return problems


def check_zoo(text, mode, hook):
    """Problems of one mode in the sender zoo's output: a line "# MODE: figures", then its TAP line."""
    line = re.search(rf"^(not )?ok \d+ - zoo\.(\w+)\.{mode}\b.*", text, re.M)
    if not line:
        return ["not run: " + (text.strip()[-200:] or "no output")]
    figures = re.findall(rf"^# ({mode}: .*|no send hook .*)", text, re.M)
    problems = figures or ["failed"] if line[1] else []
    return problems + ([f"ran with {line[2]}, not {hook}"] if line[2] != hook else [])


def guest_script(expected, zoo):
    values = {"HOOKS": " ".join(["default", *expected["works"]]), "WORKLOADS": "/etc/workloads",
              "ZOO": " ".join(zoo_modes(expected)) if zoo else "",
              "ZOO_UNIX": " ".join(UNIX_MODES) if zoo else "", "UNIX_HOOKS": " ".join(expected["unix_works"]), "TLS": "/etc/tls", "TLS_LOAD": TLS_LOAD,
              "TLS_HOOKS": " ".join(f"{send}:{tls}" for send, tls in tls_hooks(expected))}  # fmt: skip
    return "".join(f"{k}='{v}'\n" for k, v in values.items()) + (HERE / "guest.sh").read_text()


def tls_hooks(expected):
    """The runs over TLS: each hook of sends, and in turn each of TLS libraries."""
    sends = [h for h in expected["works"] if h in TLS_HOOKS]
    return list(zip(sends, itertools.cycle(expected["tls_works"])))


def is_arm64(label):
    return label.endswith("-arm64")


def tls_servers(label, expected):
    """Not all programs are there for arm64."""
    return {name: v for name, v in TLS.items() if (expected["ktls"] or not v[2].startswith("ktls")) and
            not (is_arm64(label) and (v[1] == "gnutls_server" or v[0] == "late"))}


def guest_files(label, expected, pem):
    """The workloads, the servers over TLS with their certificate, the kernel's modules."""
    words = {w: [str(n), *(f"{k}={v}" for k, v in keys.items())] for w, (n, keys) in WORKLOADS.items()}
    files = {f"/etc/workloads/{w}": " ".join(v).encode() + b"\n" for w, v in words.items()}
    files |= {f"/etc/tls/{name}": " ".join(v).encode() + b"\n" for name, v in tls_servers(label, expected).items()}
    top = pathlib.Path(vm.kernel_image(label)).parent / "modules"
    return files | {f"/{p.relative_to(top)}": p for p in top.rglob("*.ko")} | {"/etc/tls.pem": pem}


def boot_kernel(label, programs, pem, keep):
    expected = read_expected(HERE / "expected" / label)
    script = guest_script(expected, "/bin/zoo" in programs)
    return expected, vm.boot(label, script, programs, guest_files(label, expected, pem), GUEST_SECONDS, keep / label)


def judge_kernel(tap, label, expected, r, zoo):
    name, out = f"kernels.{label}", r.files
    package = text_of(pathlib.Path(vm.kernel_image(label)).parent / "package").strip()
    print(f"# {label}: {package}: {r.seconds:.0f} s; {out}")
    tap.result(f"{name}.boot", [r.problem] if r.problem else [])
    tap.result(f"{name}.log_clean", r.splats())
    if not r.booted:
        return
    status = text_of(out / "doctor.status").strip()
    tap.result(f"{name}.doctor", check_doctor(text_of(out / "doctor.out"), status, expected))
    for hook in ("default", *expected["works"]):
        want = expected["send"] if hook == "default" else hook
        tap.result(f"{name}.trace.{hook}", check_trace(out / f"trace.{hook}", want))
    for hook, tls in tls_hooks(expected):
        for server in tls_servers(label, expected):
            tap.result(f"{name}.tls.{hook}.{tls}.{server}", tls_problems(out / f"tls.{hook}", server, hook, tls))
    modes = [(mode, hook, f"zoo.send.{hook}.out") for hook in expected["works"] for mode in zoo_modes(expected)]
    modes += [(mode, hook, f"zoo.{hook}.out") for hook in expected["unix_works"] for mode in UNIX_MODES]
    for mode, hook, file in modes:
        if zoo:
            tap.result(f"{name}.zoo.{mode}.{hook}", check_zoo(text_of(out / file), mode, hook))
        else:
            tap.result(f"{name}.zoo.{mode}.{hook}", [], skip="no zoo in the build folder")
    if not is_arm64(label):
        left = text_of(out / "left").splitlines() if (out / "left").exists() else ["not looked"]
        tap.result(f"{name}.nothing_left", left)


# --- set-up --------------------------------------------------------------------------------------


def build_program(build, source, *libraries):
    """A C program, made here so that this folder needs nothing from the Makefile."""
    target, headers = build / "tests" / source.stem, source.parent.glob("*.h")
    if not target.exists() or target.stat().st_mtime < max(f.stat().st_mtime for f in (source, *headers)):
        target.parent.mkdir(parents=True, exist_ok=True)
        cc = os.environ.get("CC", "cc").split()
        subprocess.run([*cc, "-D_GNU_SOURCE", "-O2", "-Wall", "-o", target, source, *libraries], check=True)
    return target


def build_go(build, arch, cache):
    source, target = SERVERS / "main.go", build / "tests" / "go_server"
    if not target.exists() or target.stat().st_mtime < source.stat().st_mtime:
        env = {**os.environ, "GO111MODULE": "off", "GOCACHE": str(cache / "go"), "CGO_ENABLED": "0", "GOARCH": arch}
        subprocess.run(["go", "build", "-o", target, source], check=True, env=env)
    return target


def make_pem():
    """A certificate and its key."""
    run = subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                          "-nodes", "-keyout", "-", "-days", "3650", "-subj", "/CN=localhost"],
                         check=True, capture_output=True)  # fmt: skip
    return run.stdout


def find_programs(build):
    """{path in the guest: path on the host}; the sender zoo may be missing."""
    bpftool = shutil.which("bpftool", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    programs = {
        "/bin/tokensnoop": build / "tokensnoop",
        "/bin/truth_server": build / "tests" / "truth_server",
        "/bin/kclient": build_program(build, HERE / "kclient.c", *OPENSSL),
        "/bin/openssl_server": build_program(build, SERVERS / "openssl_server.c", *OPENSSL, "-lpthread"),
        "/bin/gnutls_server": build_program(build, SERVERS / "gnutls_server.c", "-lgnutls", "-lpthread"),
        "/bin/go_server": build_go(build, "amd64", build / "cache"),
        "/bin/bpftool": pathlib.Path(bpftool or "bpftool"),
        "/bin/zoo": build / "tests" / "zoo",
    }
    if not programs["/bin/zoo"].exists():
        del programs["/bin/zoo"]
    missing = [str(p) for p in programs.values() if not p.exists()]
    return programs, [f"{p} is missing" for p in missing]


def find_programs_arm64(build):
    """What make arm64 has built, all static; without GnuTLS and bpftool."""
    sysroot = subprocess.run(["sh", HERE / "sysroot.sh"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    arm = build / "arm64"
    programs = {"/bin/tokensnoop": arm / "tokensnoop-static", "/bin/busybox": pathlib.Path(sysroot) / "bin/busybox",
                **{f"/bin/{p}": arm / "tests" / p for p in ("truth_server", "kclient", "openssl_server", "zoo")}}  # fmt: skip
    programs["/bin/go_server"] = build_go(arm, "arm64", build / "cache")
    return programs, [f"{p} is missing" for p in programs.values() if not p.exists()]


def main(argv):
    ap = argparse.ArgumentParser(usage=__doc__)
    ap.add_argument("--build", type=pathlib.Path, default=HERE / "../../build")
    ap.add_argument("--keep", type=pathlib.Path, help="folder for logs and results")
    ap.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="guests at a time")
    ap.add_argument("labels", nargs="*")
    a = ap.parse_args(argv)
    build = a.build.resolve()
    fetch = subprocess.run([HERE / "fetch.sh", "--list"], capture_output=True, text=True, check=True)
    tap = Tap()
    labels = a.labels or fetch.stdout.split()
    x86, missing = find_programs(build)
    arm64, missing_arm64 = find_programs_arm64(build) if any(map(is_arm64, labels)) else ({}, [])
    tap.result("kernels.programs", missing + missing_arm64)
    labels = [] if missing + missing_arm64 else labels
    pem = make_pem()
    keep = (a.keep or build / "tests/kernels").resolve()
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        runs = [(l, pool.submit(boot_kernel, l, arm64 if is_arm64(l) else x86, pem, keep)) for l in labels]
        for label, run in runs:
            try:
                judge_kernel(tap, label, *run.result(), "/bin/zoo" in x86)
            except (vm.Error, OSError) as e:
                tap.result(f"kernels.{label}.boot", [str(e)])
    return tap.end()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
