# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a frame costs its sender when its plaintext is read at the TLS library's door.

A server of tests/live/servers/tls writes bursts of token frames, each in one write, over TLS 1.3 on loopback; the other
end reads nothing before the end. The sender reads its own clocks around each burst. Bursts alternate between
nothing attached, an empty program at the entry of the write function, one at the entries of all functions of a write that
the tracer has probes on, one where in them the tracer has its probes, the tracer, and the tracer with --no-tls. BPF's run-time statistics are on wherever there is a program.
"""
import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess

import measure  # the live tests' folder is on the path with it
import check
import rig
import run_tls

SIZES = {64: 6000, 250: 6000, 1024: 4000, 16384: 400}  # bytes of a frame: frames of a burst
BURSTS = 3  # of each size in a round; the middle one counts
SO_RCVBUFFORCE, BUFFER = 33, 64 << 20  # asm-generic/socket.h; more than a burst with what the kernel needs for it
SETUPS = {"nothing": "nothing", "one": "empty, write", "all": "empty, all", "same": "empty, all, as the tracer's",
          "trace": "trace", "no_tls": "trace --no-tls"}
RATIOS = (("trace", "one"), ("trace", "all"), ("trace", "same"))
QUIET_S = 120
NEAR = 64  # bytes from a function's entry in which the tracer's probe on it is


def mapped(server, name):
    """The file that the server has mapped under a name that begins so."""
    with open(f"/proc/{server.popen.pid}/maps", encoding="utf-8") as f:
        return next(line.split()[5] for line in f if f"/{name}" in line)


class Library:
    """A server, and its write's functions: the write itself, then others that the tracer probes. (file, function)"""

    def __init__(self, make, *functions):
        self.make, self.functions = make, functions

    def probes(self, server):
        return [f"{mapped(server, file)}:{function}" for file, function in self.functions]


LIBRARIES = {
    "openssl": Library(run_tls.c_server("openssl", "blocking"), ("libssl.so", "SSL_write"), ("libcrypto.so", "BIO_write")),
    "gnutls": Library(run_tls.c_server("gnutls", "send"), ("libgnutls.so", "gnutls_record_send2")),
    "nss": Library(run_tls.nss, ("libnspr4.so", "PR_Write")),
    "go": Library(run_tls.go("1.1"), ("go_server", "crypto/tls.(*Conn).Write")),
}


# --- setups --------------------------------------------------------------------------------------------


def uprobes():
    """Every uprobe that some process holds, as bpftool tells of it."""
    listed = subprocess.run(["bpftool", "-j", "perf", "list"], capture_output=True, text=True, check=True).stdout
    return [p for p in json.loads(listed) if p["fd_type"] == "uprobe"]


@contextlib.contextmanager
def nothing():
    rig.wait_for("the end of others' uprobes, which the sender might hit", QUIET_S, lambda: not uprobes())
    yield None


@contextlib.contextmanager
def empty(probes):
    argv = [os.path.join(measure.BUILT, "empty_probe"), os.path.join(measure.BUILT, "empty.bpf.o"), *probes]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as p:
        try:
            if p.stdout.readline() != "ready\n":
                raise rig.Failure("no empty probe on " + " ".join(probes))
            yield p.pid
        finally:
            p.stdin.close()


@contextlib.contextmanager
def traced(folder, server, *more):
    """The tracer; it must have seen each frame of each burst, or what was measured is not a trace."""
    path, wanted = os.path.join(folder, "records.jsonl"), len(SIZES) * BURSTS
    with rig.Tracer(folder, server.port, ["--format", "jsonl", "-o", path, *more]) as tracer:
        yield tracer.popen.pid
        if not more:
            rig.wait_for("the bursts' records", rig.EXIT_S, lambda: len(check.read_records(path)) >= wanted)
        tracer.popen.send_signal(signal.SIGINT)
        tracer.finish(rig.EXIT_S)
    seen = [(r["token_frames"], r["flags"]) for r in check.read_records(path)]
    if not more and seen != [(count, ["estimated"]) for count in SIZES.values() for _ in range(BURSTS)]:
        raise rig.Failure("the tracer did not see all that was sent:", *map(str, seen), *rig.tail(tracer.err_path))


def offsets(pid):
    return [p["offset"] for p in uprobes() if p["pid"] == pid]


def as_tracer(folder, server, probes):
    """The same functions, and how far behind their entries the tracer has its probes."""
    with rig.Tracer(folder, server.port) as tracer:
        theirs = offsets(tracer.popen.pid)
    spots = []
    for probe in probes:
        with empty([probe]) as pid:
            [entry] = offsets(pid)
        behind = [at - entry for at in theirs if entry <= at < entry + NEAR]
        if not behind:
            raise rig.Failure(f"the tracer has no probe on {probe}")
        spots.append(f"{probe}+{min(behind)}")
    return spots


def setups(folder, library, server):
    probes = library.probes(server)
    spots = as_tracer(folder, server, probes)
    made = {"nothing": nothing, "one": lambda: empty(probes[:1]), "all": lambda: empty(probes), "same": lambda: empty(spots),
            "trace": lambda: traced(folder, server), "no_tls": lambda: traced(folder, server, "--no-tls")}
    return {name: made[name] for name in SETUPS if name != "all" or len(probes) > 1}


# --- a burst -------------------------------------------------------------------------------------------


def ask(server, size, done):
    """Has a burst sent, and reads nothing of it until it is done: all of it is in the socket's buffer. A reader would
    be waked by each frame or by none, as it is faster or slower than the sender, and that costs more than a probe."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode, context.minimum_version = False, ssl.CERT_NONE, ssl.TLSVersion.TLSv1_3
    body = json.dumps({"model": "m", "burst": SIZES[size], "frame": size})
    request = f"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER)
    sock.connect(("127.0.0.1", server.port))
    with context.wrap_socket(sock) as plain:
        plain.sendall(request.encode())
        return rig.wait_for("the server's log of a burst", rig.EXIT_S, done)


def burst(server, size):
    """(CPU, wall) ns a frame, by the sender's clocks."""
    before = os.path.getsize(server.log)

    def logged():
        with open(server.log, encoding="utf-8") as f:
            f.seek(before)
            line = f.read()
        return line.endswith("\n") and json.loads(line)

    told = ask(server, size, logged)
    return told["cpu_ns"] / told["frames"], told["wall_ns"] / told["frames"]


def bursts(server, pid):
    """{size: what a frame of it took, and which programs it ran}"""
    got = {}
    for size, count in SIZES.items():
        before = measure.programs(pid) if pid else {}
        took = [burst(server, size) for _ in range(BURSTS)]
        after, frames = measure.programs(pid) if pid else {}, count * BURSTS
        got[size] = {"cpu": measure.quantile([cpu for cpu, _ in took], 0.5),
                     "wall": measure.quantile([wall for _, wall in took], 0.5),
                     "programs": {name: ((runs - before[name][0]) / frames, (ns - before[name][1]) / frames)
                                  for name, (runs, ns) in after.items()}}
    return got


# --- results -------------------------------------------------------------------------------------------


def of_programs(rounds):
    """{name: runs and ns a frame} of the programs that run with most of the frames; medians."""
    figures = {name: [measure.quantile([r[name][k] for r in rounds], 0.5) for k in (0, 1)] for name in rounds[0]}
    return {name: {"runs": runs, "ns": ns} for name, (runs, ns) in sorted(figures.items()) if runs > 0.5}


def of_size(got, size):
    rounds = {name: [r[size] for r in measured] for name, measured in got.items()}
    added = {clock: {name: [r[clock] - base[clock] for r, base in zip(measured, rounds["nothing"])]
                     for name, measured in rounds.items() if name != "nothing"} for clock in ("cpu", "wall")}
    return {
        "base": {clock: measure.spread([r[clock] for r in rounds["nothing"]]) for clock in ("cpu", "wall")},
        "added": {clock: {name: measure.spread(v) for name, v in names.items()} for clock, names in added.items()},
        "ratios": {f"{a}:{b}": measure.spread([x / y for x, y in zip(added["cpu"][a], added["cpu"][b])])
                   for a, b in RATIOS if b in added["cpu"]},
        "programs": {name: of_programs([r["programs"] for r in measured])
                     for name, measured in rounds.items() if name != "nothing"},
    }


def run(folder, rounds, name):
    library = LIBRARIES[name]
    with library.make(folder, True) as server:
        got = measure.interleaved(rounds, setups(folder, library, server), lambda pid: bursts(server, pid))
    return {str(size): of_size(got, size) for size in SIZES}


def cell(s, form="{:.0f}"):
    return f"{form} [{form}..{form}]".format(s["median"], s["p25"], s["p75"])


def lines(sizes):
    first, none = next(iter(sizes.values())), {"runs": 0, "ns": 0}
    rows = [["", *(f"{size} bytes" for size in sizes)],
            ["nothing attached", *(cell(s["base"]["cpu"]) for s in sizes.values())]]
    rows += [[f"{SETUPS[k]}: adds", *(cell(s["added"]["cpu"][k]) for s in sizes.values())] for k in first["added"]["cpu"]]
    rows += [["{} : {}".format(*(SETUPS[x] for x in k.split(":"))),
              *(cell(s["ratios"][k], "{:.2f}") for s in sizes.values())] for k in first["ratios"]]
    for setup in first["programs"]:
        for p in sorted({p for s in sizes.values() for p in s["programs"][setup]}):
            told = [s["programs"][setup].get(p, none) for s in sizes.values()]
            rows.append([f"{SETUPS[setup]}: {p}", *("{runs:.2f} runs, {ns:.0f} ns".format(**f) for f in told)])
    return ["CPU time of the sender, ns a frame: median [quartiles]. Programs: runs a frame, and their ns in it.",
            *measure.table(rows)]
