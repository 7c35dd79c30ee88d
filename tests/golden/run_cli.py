#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The command line of `tokensnoop report`, and what it says of files that are not as they should be: one clear line with the
remedy, the exit status of the design, and what can be used is used. TAP on standard output.

  run_cli.py [TOKENSNOOP]
"""

import json
import os
import stat
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import run_golden  # noqa: E402
import wire  # noqa: E402

TOOL = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else
                       os.path.join(run_golden.HERE, "..", "..", "build", "tokensnoop"))
KEEP_ALIVE = run_golden.Case("keep-alive").steps


def run(*args, data=None, stdout=subprocess.PIPE):
    return subprocess.run([TOOL, *args], input=data, stdout=stdout, stderr=subprocess.PIPE, timeout=60,
                          stdin=subprocess.DEVNULL if data is None else None)


def write(name, data):
    with open(name, "wb") as f:
        f.write(data)
    return name


def requests(out):
    return [r for r in map(json.loads, out.decode().splitlines()) if r["type"] == "request"]


class Check:
    """Collects what is wrong with one run."""

    def __init__(self, got, status, said=(), silent=False):
        self.faults = []
        text = got.stderr.decode("utf-8", "replace")
        ours = [line for line in text.splitlines() if line.startswith("tokensnoop: ")]
        if got.returncode != status:
            self.faults.append("exit status %d, wanted %d" % (got.returncode, status))
        for words in said:
            if sum(words in line for line in ours) != 1:
                self.faults.append("wanted one line with: " + words)
        if len(ours) != len(said):
            self.faults.append("%d lines of messages, wanted %d" % (len(ours), len(said)))
        if silent and (got.stdout or text != "\n".join(ours) + "\n" * bool(ours)):
            self.faults.append("something else was printed")
        if self.faults:
            self.faults.append("standard error: " + text)

    def also(self, good, what):
        if not good:
            self.faults.append(what)
        return self


def usage(tap):
    cases = [
        (["report"], "report: needs a FILE (see tokensnoop report --help)"),
        (["report", "--frob", "x"], "there is no option --frob (see tokensnoop report --help)"),
        (["report", "--port", "0", "x"], '--port: "0" is not a number from 1 to 65535'),
        (["report", "--format", "xml", "x"], '--format: "xml" is not one of: table (default), jsonl or json'),
        (["report", "--slo", "ttft=soon", "x"], "--slo: can't read"),
        (["report", "-o"], "--output: needs a value"),
        (["trace", "extra"], "trace takes options only"),
        (["--duration", "never"], "is not a number of seconds above 0 and below"),
        (["frobnicate"], 'there is no command "frobnicate" (see tokensnoop --help)'),
    ]
    for args, words in cases:
        tap.ok(*verdict("wrong usage: " + " ".join(args), Check(run(*args), 2, [words], silent=True)))


def help_texts(tap):
    for args in (["--help"], ["-h"], ["report", "--help"], ["trace", "-h"], ["doctor", "--help"]):
        got = run(*args)
        tap.ok(*verdict(" ".join(args), Check(got, 0).also(got.stdout.startswith(b"Usage: tokensnoop"), "no usage")))
    for args in (["--version"], ["-V"], ["report", "-V"]):
        got = run(*args)
        tap.ok(*verdict(" ".join(args), Check(got, 0).also(got.stdout.startswith(b"tokensnoop "), "no version")))


def verdict(name, check):
    return not check.faults, name, "\n".join(check.faults)


def unusable(tap, capture):
    cases = [
        ("missing.pcap", None, "missing.pcap: No such file or directory"),
        (".", None, ".: Is a directory"),
        ("empty", b"", "empty: is empty; nothing was captured"),
        ("foreign", b"\x7fELF\2\1\1", "foreign: is neither records (JSONL) nor packets (pcap, pcapng)"),
        ("text", b"hello there\n", "text: is neither records (JSONL) nor packets (pcap, pcapng)"),
        ("x.pcap.gz", b"\x1f\x8b\x08\0", "x.pcap.gz: is compressed; unpack it first"),
        ("other.json", b'{"a": 1}\n[1]\n', "other.json: holds no request records; wanted is"),
        ("blank", b"\n\n  \n", "blank: holds no request records"),
        ("cut.jsonl", b'{"type":"request","id":1,"pi', "cut.jsonl: holds no request records"),
        ("head.pcap", capture[:20], "head.pcap: can't be read as a packet file: "),
        ("head.pcapng", b"\x0a\x0d\x0d\x0a\x1c\0\0\0", "head.pcapng: can't be read as a packet file: "),
        ("wifi.pcap", capture[:20] + b"\x69\0\0\0" + capture[24:], "wifi.pcap: can't be read as a packet file: link type"),
    ]
    for name, data, words in cases:
        if data is not None:
            write(name, data)
        tap.ok(*verdict("unusable: " + name, Check(run("report", name), 1, [words], silent=True)))


def partly_usable(tap, capture):
    args = ["report", "--format", "jsonl"]
    got = run(*args, write("cut.pcap", capture[:-7]))
    check = Check(got, 0, ["cut.pcap: ends in the middle of a packet, which is left out"])
    tap.ok(*verdict("packet file cut off", check.also(len(requests(got.stdout)) == 2, "not both requests")))

    at = 24
    for _ in range(6):
        at += 16 + int.from_bytes(capture[at + 8 : at + 12], "little")
    broken = capture[: at + 8] + b"\xff\xff\xff\x7f" + capture[at + 12 :]
    got = run(*args, write("broken.pcap", broken))
    check = Check(got, 1, ["broken.pcap: damaged, the rest is left out: "])
    tap.ok(*verdict("packet file damaged", check.also(len(requests(got.stdout)) == 1, "not the one request")))

    got = run(*args, write("none.pcap", capture[:24]))
    tap.ok(*verdict("packet file without packets", Check(got, 0).also(not requests(got.stdout), "requests")))

    got = run(*args, write("short.pcap", wire.capture(KEEP_ALIVE, wire.Shape("short", snap=50))))
    check = Check(got, 0, ["packets left out: captured too short"])
    tap.ok(*verdict("packets cut within their headers", check))

    got = run(*args, "cut.pcap", "missing.pcap", "foreign")
    check = Check(got, 1, ["cut.pcap: ends in", "missing.pcap: No such", "foreign: is neither"])
    tap.ok(*verdict("one good file among bad ones", check.also(len(requests(got.stdout)) == 2, "not both requests")))


def records(tap, capture):
    first = run("report", "--format", "jsonl", "--tokens", write("k.pcap", capture)).stdout
    write("k.jsonl", first)
    got = run("report", "--format", "jsonl", "--tokens", "k.jsonl")
    check = Check(got, 0).also(requests(got.stdout) == requests(first), "other records")
    tap.ok(*verdict("records read back are the same", check))

    got = run("report", "--format", "jsonl", "--tokens", "-", data=first)
    tap.ok(*verdict("records from a pipe", Check(got, 0).also(requests(got.stdout) == requests(first), "other records")))
    got = run("report", "--format", "jsonl", "--tokens", "-", data=capture)
    tap.ok(*verdict("packets from a pipe", Check(got, 0).also(requests(got.stdout) == requests(first), "other records")))
    ng = wire.capture(KEEP_ALIVE, wire.Shape("ng", ng=True))
    got = run("report", "--format", "jsonl", "--tokens", "-", data=ng)
    tap.ok(*verdict("pcapng from a pipe", Check(got, 0).also(requests(got.stdout) == requests(first), "other records")))
    got = run("report", "-", data=b"")
    tap.ok(*verdict("nothing from a pipe", Check(got, 1, ["standard input: is empty"], silent=True)))

    lines = first.split(b"\n")
    got = run("report", "--format", "jsonl", write("cut.jsonl", lines[0] + b"\n" + lines[1][:40]))
    check = Check(got, 0, ["cut.jsonl: ends in the middle of a record, which is left out"])
    tap.ok(*verdict("record file cut off", check.also(len(requests(got.stdout)) == 1, "not the one request")))
    got = run("report", "--format", "jsonl", write("bad.jsonl", lines[0] + b"\nnoise\n\n{\n" + lines[1] + b"\r\n"))
    check = Check(got, 0, ["bad.jsonl: 2 of 4 lines are not records and are left out"])
    tap.ok(*verdict("record file with noise", check.also(len(requests(got.stdout)) == 2, "not both requests")))

    got = run("report", "--format", "jsonl", "k.jsonl", "k.pcap")
    ids = [r["id"] for r in requests(got.stdout)]
    tap.ok(*verdict("ids of two files are told apart", Check(got, 0).also(len(set(ids)) == 4, "ids " + str(ids))))


def judged_again(tap):
    got = run("report", "--format", "jsonl", "--slo", "ttft=15ms", "k.jsonl")
    met = [r.get("slo_met") for r in requests(got.stdout)]
    # TTFT is 10 ms and 20 ms.
    tap.ok(*verdict("--slo judges records again", Check(got, 0).also(met == [True, False], "slo_met " + str(met))))
    write("judged.jsonl", got.stdout)
    got = run("report", "--format", "jsonl", "judged.jsonl")
    keys = set().union(*map(set, requests(got.stdout)))
    tap.ok(*verdict("no --slo, no verdict", Check(got, 0).also("slo_met" not in keys, "slo_met")))
    tap.ok(*verdict("no --tokens, no series", Check(got, 0).also("tokens_at_ns" not in keys, "tokens_at_ns")))


def rotated(tap):
    """A capture cut in the middle of a stream into two files is one capture; unrelated ones are not."""
    shape = wire.Shape("plain")
    pkts = wire.packets(KEEP_ALIVE, shape)
    half = len(pkts) // 2
    write("r1.pcap", wire.pcap_file(pkts[:half], shape))
    write("r2.pcap", wire.pcap_file(pkts[half:], shape))
    got = run("report", "--format", "jsonl", "r1.pcap", "r2.pcap")
    flags = [r["flags"] for r in requests(got.stdout)]
    tap.ok(*verdict("a rotated capture", Check(got, 0).also(flags == [[], []], str(flags))))
    got = run("report", "--format", "jsonl", "k.pcap", "k.pcap")
    out = requests(got.stdout)
    same = len(out) == 4 and [r["ttft_ns"] for r in out[:2]] == [r["ttft_ns"] for r in out[2:]]
    tap.ok(*verdict("the same capture twice", Check(got, 0).also(same, str(len(out)) + " requests")))


def ports(tap):
    got = run("report", "--format", "jsonl", "--port", "8000", "k.pcap")
    tap.ok(*verdict("--port of the server", Check(got, 0).also(len(requests(got.stdout)) == 2, "not both requests")))
    got = run("report", "--format", "jsonl", "--port", "9000", "k.pcap")
    tap.ok(*verdict("--port of another", Check(got, 0).also(not requests(got.stdout), "requests")))
    got = run("report", "--format", "jsonl", "--port", "40001", "k.pcap")
    tap.ok(*verdict("--port of the client", Check(got, 0).also(not requests(got.stdout), "requests")))


def output(tap):
    os.umask(0)
    got = run("report", "--format", "jsonl", "-o", "out.jsonl", "k.pcap")
    mode = stat.S_IMODE(os.stat("out.jsonl").st_mode)
    with open("out.jsonl", "rb") as f:
        n = len(requests(f.read()))
    check = Check(got, 0).also(not got.stdout, "output").also(mode == 0o600, oct(mode)).also(n == 2, "requests")
    tap.ok(*verdict("-o FILE", check))
    got = run("report", "-o", "k.jsonl", "k.jsonl")
    check = Check(got, 2, ["-o k.jsonl: is one of the inputs"], silent=True)
    tap.ok(*verdict("-o onto an input", check.also(os.path.getsize("k.jsonl") > 100, "it was emptied")))
    got = run("report", "-o", "no/such/dir", "k.jsonl")
    tap.ok(*verdict("-o where nothing can be", Check(got, 1, ["no/such/dir: No such file"], silent=True)))
    write("victim", b"v")
    os.symlink("victim", "link")
    got = run("report", "-o", "link", "k.jsonl")
    check = Check(got, 1, ["link: is a symbolic link, which is not followed"], silent=True)
    tap.ok(*verdict("-o onto a symbolic link", check.also(os.path.getsize("victim") == 1, "its target was written to")))
    got = run("report", "-o", "kept.jsonl", write("kept.jsonl", b"") and "missing.pcap")
    tap.ok(*verdict("no usable input", Check(got, 1, ["missing.pcap: No such file"], silent=True)))
    got = run("report", "-o", "/dev/full", "k.jsonl")
    tap.ok(*verdict("-o where no room is", Check(got, 1, ["No space left on device"], silent=True)))
    with open("/dev/full", "wb") as full:
        got = run("report", "k.jsonl", stdout=full)
    got.stdout = b""
    tap.ok(*verdict("no room for the output", Check(got, 1, ["No space left on device"])))
    got = run("report", "--format", "json", "k.jsonl")
    try:
        whole = json.loads(got.stdout)
        good = set(whole) == {"meta", "requests", "summary"} and len(whole["requests"]) == 2
    except ValueError:
        good = False
    tap.ok(*verdict("--format json", Check(got, 0).also(good, "not what the design says")))
    got = run("report", "k.pcap")
    tap.ok(*verdict("a table", Check(got, 0).also(b"TTFT" in got.stdout.upper(), "no TTFT")))


def reader_gone(tap):
    """The reader closes the pipe: a quiet end."""
    many = b"".join(open("k.jsonl", "rb").read() for _ in range(3000))
    write("many.jsonl", many)
    p = subprocess.Popen([TOOL, "report", "--format", "jsonl", "many.jsonl"], stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE)
    p.stdout.readline()
    p.stdout.close()
    said = p.stderr.read()
    p.stderr.close()
    status = p.wait(60)
    tap.ok(status == 0 and not said, "the reader has gone", "status %d, said %r" % (status, said))


def main():
    tap = run_golden.Tap()
    capture = wire.capture(KEEP_ALIVE, wire.Shape("plain"))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        usage(tap)
        help_texts(tap)
        unusable(tap, capture)
        partly_usable(tap, capture)
        records(tap, capture)
        judged_again(tap)
        rotated(tap)
        ports(tap)
        output(tap)
        reader_gone(tap)
        os.chdir("/")
    return tap.end()


if __name__ == "__main__":
    sys.exit(main())
