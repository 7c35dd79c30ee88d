#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Boots a kernel under qemu with an initramfs made on the fly, runs a script in it, brings files home.

usage: vm.py --kernel LABEL|VMLINUZ --run SCRIPT [--bin PROGRAM[:GUESTPATH]]... [--file SOURCE:GUESTPATH]...
             [--timeout SECONDS] [--append WORDS] [--out FOLDER]

The guest has busybox, the given programs with their shared libraries (found with ldd), and the given files.
The script is /bin/sh's; what it leaves in /out is copied to FOLDER, its exit status becomes this one's
(124: out of time, 125: the guest died). No acceleration is used (qemu's TCG), no disk and no network
but the guest's own loopback.
"""
import argparse
import base64
import binascii
import dataclasses
import gzip
import io
import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import time

import splat

HERE = pathlib.Path(__file__).resolve().parent
TIMED_OUT, DIED = 124, 125
# Of the host's time: for booting, and for bringing files home after the guest's own time-out.
BOOT_SECONDS = 60
# Under emulation on a busy host a virtual CPU can stand still for seconds: no fault of the kernel's.
CMDLINE = "console=ttyS0 loglevel=5 panic=-1 rcupdate.rcu_cpu_stall_timeout=60 no_timer_check"


class Error(Exception):
    """The guest could not be built or started: no verdict on the kernel."""


@dataclasses.dataclass
class Result:
    status: int | None  # of the script; None: it didn't come to an end
    timed_out: bool  # the host or the guest stopped it
    booted: bool  # the script was reached
    seconds: float
    console: str
    files: pathlib.Path  # folder with what was in /out
    problem: str  # why the run is no good as a whole, else ""

    def splats(self):
        """Everything in the logs that must not be there, a line each."""
        logs = {"console": self.console}
        dmesg = self.files / ".dmesg"
        if dmesg.exists():
            logs = {"dmesg": dmesg.read_text(errors="replace"), **logs}
        found = {line: f"{log}: {line}" for log, text in logs.items() for _, line in splat.find(text)}
        flags = self.files / ".tainted"
        marks = splat.tainted(flags.read_text()) if flags.exists() else []
        return list(found.values()) + [f"tainted: {m}" for m in marks]


# --- the initramfs -------------------------------------------------------------------------------


class Cpio:
    """Writes the "newc" archive that the kernel unpacks; uncompressed, which is quickest here."""

    def __init__(self):
        self.out, self.names, self.ino = io.BytesIO(), set(), 0

    def _entry(self, name, mode, data=b"", rdev=(0, 0)):
        self.ino += 1
        raw = name.encode() + b"\0"
        fields = (self.ino, mode, 0, 0, 1, 0, len(data), 0, 0, *rdev, len(raw), 0)
        self.out.write(b"070701" + b"".join(b"%08x" % f for f in fields) + raw)
        self._pad()
        self.out.write(data)
        self._pad()

    def _pad(self):
        self.out.write(b"\0" * (-self.out.tell() % 4))

    def folder(self, path):
        path = path.strip("/")
        if not path or path in self.names:
            return
        self.folder(os.path.dirname(path))
        self.names.add(path)
        self._entry(path, stat.S_IFDIR | 0o755)

    def file(self, path, data, mode=0o644):
        path = path.strip("/")
        if path in self.names:
            return
        self.folder(os.path.dirname(path))
        self.names.add(path)
        self._entry(path, stat.S_IFREG | mode, data)

    def device(self, path, major, minor):
        self.folder(os.path.dirname(path))
        self._entry(path.strip("/"), stat.S_IFCHR | 0o600, rdev=(major, minor))

    def bytes(self):
        self._entry("TRAILER!!!", 0)
        return self.out.getvalue()


def libraries(program):
    """The shared libraries and the loader of a program; [] for a static one or a script."""
    with open(program, "rb") as f:
        if f.read(4) != b"\x7fELF":
            return []
    run = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
    if "not found" in run.stdout:
        raise Error(f"{program}: {run.stdout.strip()}")
    return re.findall(r"(?:=>\s*|^\s*)(/\S+)\s+\(0x", run.stdout, re.M)


def busybox():
    path = shutil.which("busybox")
    if not path or libraries(path):
        raise Error("no static busybox: apt-get install busybox-static")
    return path


def initramfs(script, programs, files, seconds):
    """programs, files: {path in the guest: path on the host, or bytes}."""
    cpio = Cpio()
    cpio.device("/dev/console", 5, 1)
    cpio.file("/bin/busybox", pathlib.Path(programs.get("/bin/busybox") or busybox()).read_bytes(), 0o755)
    cpio.file("/init", b"#!/bin/busybox sh\n" + (HERE / "init.sh").read_bytes(), 0o755)
    cpio.file("/run.sh", script.encode(), 0o755)
    cpio.file("/etc/tks-seconds", b"%d\n" % seconds)
    cpio.file("/etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n")
    cpio.file("/etc/group", b"root:x:0:\n")
    cpio.file("/etc/hosts", b"127.0.0.1 localhost\n::1 localhost\n")
    for guest, host in programs.items():
        cpio.file(guest, pathlib.Path(host).read_bytes(), 0o755)
        for lib in libraries(host):
            cpio.file(lib, pathlib.Path(lib).read_bytes(), 0o755)
    for guest, host in files.items():
        cpio.file(guest, host if isinstance(host, bytes) else pathlib.Path(host).read_bytes())
    return cpio.bytes()


# --- running -------------------------------------------------------------------------------------


def kernel_image(kernel):
    """A path to a vmlinuz, or a label of fetch.sh."""
    if os.path.isfile(kernel):
        return kernel
    run = subprocess.run([HERE / "fetch.sh", kernel], stdout=subprocess.PIPE, text=True, check=False)
    if run.returncode:
        raise Error(f"no kernel {kernel}")
    return os.path.join(run.stdout.strip(), "vmlinuz")


def is_arm64(image):
    """Documentation/arch/arm64/booting.rst: the magic number at 56."""
    with open(image, "rb") as f:
        return f.read(60)[56:] == b"ARM\x64"


def qemu_command(image, initrd, append, console, results, cpus):
    """Two lines home: what the kernel says, and the results; arm64's board has one serial port only."""
    x86 = ["qemu-system-x86_64", "-serial", f"file:{console}", "-serial", f"file:{results}"]
    arm = ["qemu-system-aarch64", "-machine", "virt", "-cpu", "cortex-a57", "-serial", f"file:{console}",
           "-device", "virtio-serial-pci", "-chardev", f"file,id=results,path={results}", "-device", "virtconsole,chardev=results"]  # fmt: skip
    arm64 = is_arm64(image)
    words = CMDLINE.replace("ttyS0", "ttyAMA0") if arm64 else CMDLINE
    return [
        *(arm if arm64 else x86), "-accel", "tcg,thread=single", "-m", "1024", "-smp", str(cpus),
        "-nodefaults", "-display", "none", "-no-reboot",
        "-kernel", image, "-initrd", initrd, "-append", f"{words} {append}".strip(),
    ]  # fmt: skip


def unpack(text, out):
    """Reads the guest's messages: (booted, status, problem); unpacks the files into `out`."""
    booted = "TKS-BOOTED\n" in text
    status = re.search(r"^TKS-STATUS (\d+)$", text, re.M)
    body = re.search(r"^TKS-FILES\n(.*)^TKS-END$", text, re.M | re.S)
    if not status or not body:
        return booted, None, "the guest sent no results" if booted else "the guest didn't boot"
    try:
        data = gzip.decompress(base64.b64decode("".join(body[1].split()), validate=True))
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            members = [m for m in tar if m.isreg() or m.isdir()]
            for m in members:
                if m.name.startswith("/") or ".." in m.name.split("/"):
                    raise Error(f"a result file is named {m.name}")
                m.mode = 0o755 if m.isdir() else 0o644
            tar.extractall(out, members)
    except (binascii.Error, OSError, EOFError, tarfile.TarError) as e:
        return booted, int(status[1]), f"the results came home damaged: {e}"
    return booted, int(status[1]), ""


def boot(kernel, script, programs=None, files=None, timeout=120, out=None, append="", cpus=2):
    """Runs `script` under `kernel` for at most `timeout` seconds, booting not counted."""
    out = pathlib.Path(out or tempfile.mkdtemp(prefix="tks-vm-"))
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    image = kernel_image(kernel)
    emulator = qemu_command(image, "", "", "", "", 1)[0]
    if not shutil.which(emulator):
        raise Error(f"no {emulator}: apt-get install qemu-system-x86 qemu-system-arm")
    with tempfile.TemporaryDirectory(prefix="tks-vm-") as tmp:
        initrd, console, results = (os.path.join(tmp, n) for n in ("initrd", "console", "results"))
        pathlib.Path(initrd).write_bytes(initramfs(script, programs or {}, files or {}, timeout))
        command = qemu_command(image, initrd, append, console, results, cpus)
        began, late, qemu_error = time.monotonic(), False, ""
        with open(os.path.join(tmp, "stderr"), "w+", encoding="utf-8") as err:
            try:
                code = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=err, stderr=err,
                                      timeout=timeout + BOOT_SECONDS, check=False).returncode  # fmt: skip
            except subprocess.TimeoutExpired:
                code, late = 0, True
            err.seek(0)
            qemu_error = err.read().strip()
        seconds = time.monotonic() - began
        if code:
            raise Error(f"qemu: status {code}: {qemu_error}")
        text = pathlib.Path(console).read_text(errors="replace").replace("\r", "")
        sent = pathlib.Path(results).read_text(errors="replace").replace("\r", "")
    (out / ".console").write_text(text)
    booted, status, problem = unpack(sent, out)
    # busybox's timeout ends with 128 + SIGKILL.
    late_in_guest = status == 137
    if late:
        problem = f"no end after {timeout + BOOT_SECONDS} s"
    elif late_in_guest:
        status, problem = None, problem or f"the script didn't end within {timeout} s"
    return Result(status, late or late_in_guest, booted, seconds, text, out, problem)


# --- command line --------------------------------------------------------------------------------


def pair(text):
    source, _, guest = text.partition(":")
    return (guest or "/bin/" + os.path.basename(source)), source


def main(argv):
    ap = argparse.ArgumentParser(usage=__doc__)
    ap.add_argument("--kernel", required=True)
    ap.add_argument("--run", required=True)
    ap.add_argument("--bin", action="append", default=[], type=pair)
    ap.add_argument("--file", action="append", default=[], type=pair)
    ap.add_argument("--timeout", type=int, default=120)
    ap.add_argument("--append", default="")
    ap.add_argument("--out")
    a = ap.parse_args(argv)
    try:
        r = boot(a.kernel, pathlib.Path(a.run).read_text(), dict(a.bin), dict(a.file), a.timeout, a.out, a.append)
    except Error as e:
        print(f"vm.py: {e}", file=sys.stderr)
        return 2
    sys.stdout.write(r.console)
    for line in ([r.problem] if r.problem else []) + r.splats():
        print(f"vm.py: {line}", file=sys.stderr)
    print(f"vm.py: {r.seconds:.1f} s; files in {r.files}", file=sys.stderr)
    if r.timed_out:
        return TIMED_OUT
    return DIED if r.status is None else r.status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
