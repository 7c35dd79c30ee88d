#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Every golden case, replayed with its allocations failing: see oom.c. TAP.

  run_oom.py [-k TEXT] [OOM]
"""
import argparse
import os
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import run_golden  # noqa: E402
import wire  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-k", default="", help="cases whose names hold this")
    parser.add_argument("oom", nargs="?", default=os.path.join(run_golden.HERE, "../../build/san/tests/oom"))
    args = parser.parse_args()
    names = sorted(n for n in os.listdir(run_golden.HERE)
                   if args.k in n and os.path.exists(os.path.join(run_golden.HERE, n, "wire")))
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, name) for name in names]
        for name, path in zip(names, paths):
            with open(path, "wb") as f:
                f.write(wire.capture(run_golden.Case(name).steps, run_golden.PLAIN))
        return subprocess.run([args.oom, *paths], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
