# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the live tests are built from: servers, clients and the tracer as processes that always end.

Every process runs in a session of its own and is killed with its group when its `with` block ends. Waiting is
for something (a line, a file, an exit) with a deadline, never for time to pass.
"""
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
TOOL = os.environ.get("TKS_TOOL", os.path.join(TOP, "build", "tokensnoop"))
TRUTH = os.path.join(os.path.dirname(TOOL), "tests", "truth_server")
READY_S, EXIT_S, CLIENT_S = 60, 30, 150

sys.path.insert(0, HERE)
import check  # noqa: E402

# Some machines don't mount it by themselves, and TLS libraries and the hook of last resort need it.
if os.geteuid() == 0 and not os.path.exists("/sys/kernel/tracing/events"):
    subprocess.run(["mount", "-t", "tracefs", "tracefs", "/sys/kernel/tracing"], check=False)


class Failure(Exception):
    """A test failed; the arguments are the problems."""


class Skip(Exception):
    """A test can't run here; the argument says why."""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(what, seconds, condition):
    """Waits until condition() is true and returns its value."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise Failure(f"{what}: not within {seconds} s")
        time.sleep(0.01)


def tail(path, lines=15):
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return [line.rstrip("\n") for line in f][-lines:]
    except OSError:
        return []


class Process:
    """A command with its output in files NAME.out and NAME.err of the test's folder."""

    def __init__(self, folder, name, argv, env=None, stdout=None):
        self.name, self.argv = name, argv
        self.out_path, self.err_path = (os.path.join(folder, f"{name}.{x}") for x in ("out", "err"))
        self.env, self.stdout, self.popen = env, stdout, None

    def __enter__(self):
        env = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", **(self.env or {}))
        with open(self.out_path, "wb") as out, open(self.err_path, "wb") as err:
            self.popen = subprocess.Popen(self.argv, stdin=subprocess.DEVNULL, stdout=self.stdout or out,
                                          stderr=err, env=env, start_new_session=True)
        try:
            self.started()
        except BaseException:
            self.__exit__()
            raise
        return self

    def started(self):
        """For those who wait for something."""

    def __exit__(self, *_):
        for sig, seconds in ((signal.SIGTERM, 10), (signal.SIGKILL, 10)):
            try:
                os.killpg(self.popen.pid, sig)
                self.popen.wait(seconds)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                pass

    def check_alive(self):
        if self.popen.poll() is not None:
            raise Failure(f"{self.name} ended with {self.popen.returncode}", *tail(self.out_path), *tail(self.err_path))

    def line(self, path, start):
        """The first line of the file that begins with start, or None; fails if the process has ended without."""
        ended = self.popen.poll() is not None
        found = next((t for t in tail(path, 1000) if t.startswith(start)), None)
        if not found and ended:
            self.check_alive()
        return found

    def finish(self, seconds):
        """Waits for the end; returns the exit status."""
        try:
            return self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failure(f"{self.name} has not ended after {seconds} s", *tail(self.err_path)) from None


# --- servers -------------------------------------------------------------------------------------


class TruthServer(Process):
    def __init__(self, folder):
        self.port, self.log = free_port(), os.path.join(folder, "truth.log")
        super().__init__(folder, "truth_server", [TRUTH, str(self.port), self.log])

    def started(self):
        wait_for("truth_server", READY_S, lambda: self.line(self.out_path, "ready"))

    def witnesses(self, count):
        wait_for("the truth server's log", EXIT_S, lambda: ends(self.log) >= count)
        return check.read_truth(self.log)


class Uvicorn(Process):
    def __init__(self, folder, stack, wrap=()):
        self.port, self.log = free_port(), os.path.join(folder, "witness.log")
        argv = [*wrap, "sh", os.path.join(HERE, "servers", "uvicorn.sh"), stack, str(self.port), self.log]
        super().__init__(folder, "uvicorn", argv)

    def started(self):
        def healthy():
            self.check_alive()
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5) as r:
                    return r.status == 200
            except (OSError, urllib.error.URLError):
                return False

        wait_for("uvicorn", READY_S, healthy)

    def witnesses(self, count):
        wait_for("the app's log", EXIT_S, lambda: ends(self.log) >= count)
        return check.read_app(self.log)


class Llama(Process):
    def __init__(self, folder):
        self.port = free_port()
        super().__init__(folder, "llama", ["sh", os.path.join(HERE, "servers", "llama.sh"), "run", str(self.port),
                                           os.path.join(folder, "llama.log")])

    def started(self):
        wait_for("llama-server (and its first fetch)", 900, lambda: self.line(self.out_path, "ready"))


def ends(path):
    """Requests that a witness's log tells to be over."""
    with open(path, encoding="utf-8") as f:
        return sum('"kind":"end"' in line.replace(" ", "") for line in f if line.endswith("\n"))


# --- the tracer ------------------------------------------------------------------------------------


class Tracer(Process):
    """tokensnoop trace on one port, or of one process; records go to records.jsonl unless args say otherwise."""

    def __init__(self, folder, port, args=None, stdout=None, wrap=(), pid=None):
        self.records_path = os.path.join(folder, "records.jsonl")
        self.held = {}
        if args is None:
            args = ["--format", "jsonl", "--tokens", "-o", self.records_path]
        of = ["-p", str(pid)] if pid else ["--port", str(port)]
        super().__init__(folder, "tokensnoop", [*wrap, TOOL, "trace", *of, *args], stdout=stdout)

    def started(self):
        wait_for("tokensnoop's ready line", READY_S, lambda: self.line(self.err_path, "tokensnoop: ready"))
        self.held = check.held_by(self.popen.pid)
        if not any(kind == "prog" for kind, _ in self.held):
            raise Failure("the tracer has no program open: the check for leftovers would be blind")

    def stop(self, sig=signal.SIGINT):
        """Ends it by a signal; it must end well, with a summary, and leave nothing in the kernel."""
        self.check_alive()
        self.popen.send_signal(sig)
        status = self.finish(EXIT_S)
        problems = [] if status == 0 else [f"tokensnoop's exit status is {status}"]
        summary = "\n".join(tail(self.out_path, 200) + tail(self.err_path, 200))
        if "send" not in summary:
            problems.append("no summary that names the boundary")
        problems += check.leftovers(self.held)
        if problems:
            raise Failure(*problems, *tail(self.err_path))
        return self.records()

    def records(self):
        return check.read_records(self.records_path)


# --- clients -------------------------------------------------------------------------------------


class Load(Process):
    """load.py; log() gives what it wrote."""

    def __init__(self, folder, port, path, *, requests=1, concurrency=1, tokens=(), body=None, more=(), name="load"):
        self.log_path = os.path.join(folder, f"{name}.log")
        argv = [sys.executable, os.path.join(HERE, "clients", "load.py"), str(port), "--path", path,
                "--requests", str(requests), "--concurrency", str(concurrency), "--body", json.dumps(body or {}),
                "-o", self.log_path, *more]
        if tokens:
            argv += ["--max-tokens", ",".join(map(str, tokens))]
        super().__init__(folder, name, argv)

    def log(self, status=0):
        """Waits for the end, and returns the log by connection; the exit status must be this one (None: any)."""
        got = self.finish(CLIENT_S)
        if status is not None and got != status:
            raise Failure(f"the client's exit status is {got}", *tail(self.err_path), *tail(self.log_path, 3))
        return check.read_client(self.log_path)


class Stream:
    """A streamed request in a thread of its own, on a connection that can be kept for the next one."""

    def __init__(self, port, body, path="/v1/chat/completions"):
        self.port, self.path, self.body = port, path, body
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.local = self.sock.getsockname()[1]
        self.frames, self.ended, self.thread = 0, False, None
        self.error = None

    def send(self, body=None):
        body = json.dumps({"model": "tiny", "stream": True, "stream_options": {"include_usage": True},
                           **(body or self.body)}).encode()
        self.frames, self.ended = 0, False
        self.sock.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                          b"Content-Length: %d\r\n\r\n%s" % (self.path.encode(), len(body), body))
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()
        return self

    def read(self):
        data, seen = b"", 0
        try:
            while not data.endswith(b"0\r\n\r\n"):
                piece = self.sock.recv(65536)
                if not piece:
                    return
                seen += piece.count(b"\n\n")
                self.frames = seen
                data = data[-4:] + piece
            self.ended = True
        except OSError as e:
            self.error = e

    def wait_frames(self, n):
        wait_for(f"frame {n} of a stream", EXIT_S, lambda: self.frames >= n or self.ended)

    def wait_end(self):
        self.thread.join(CLIENT_S)
        if not self.ended:
            raise Failure("a stream did not come to its end")

    def close(self):
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.sock.close()
