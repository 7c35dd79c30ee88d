#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Measures what tracing costs.

usage: bench.py [--json] [--rounds N] [NAME...]      default: all benches, 7 rounds

NAME: tls (all that begin so) or tls.openssl.

Each figure is of one run on one machine, with interleaved rounds, and given as median and quartiles over the rounds.
Nothing passes or fails on time: figures of two machines, or of two hours on one, are compared by their ratios only.
Exit status 1 if a bench could not measure what it is to measure.
"""
import argparse
import functools
import json
import os
import sys
import tempfile

import bench_tls
import rig

# A bench: a function (folder, rounds) gives what JSON can hold, and one makes lines of that for people.
BENCHES = {
    **{f"tls.{x}": (functools.partial(bench_tls.run, name=x), bench_tls.lines) for x in bench_tls.LIBRARIES},
}


def chosen(names):
    """The benches of these names, all without a name; fails with a name that is none's."""
    for name in names:
        if not any(x == name or x.startswith(f"{name}.") for x in BENCHES):
            raise LookupError(f"no bench {name}: there are {', '.join(BENCHES)}")
    return [x for x in BENCHES if not names or any(x == n or x.startswith(f"{n}.") for n in names)]


def main(argv):
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].removeprefix("usage: "))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args(argv)
    if args.rounds < 1:
        parser.error("at least one round")
    try:
        names = chosen(args.names)
    except LookupError as e:
        parser.error(str(e))
    results = {"kernel": os.uname().release, "cpus": os.cpu_count(), "rounds": args.rounds, "benches": {}}
    if not args.json:
        print(f"kernel {results['kernel']}, {results['cpus']} CPUs, {args.rounds} interleaved rounds", flush=True)
    for name in names:
        run, lines = BENCHES[name]
        try:
            with tempfile.TemporaryDirectory(prefix="tks-bench-") as folder:
                results["benches"][name] = run(folder, args.rounds)
        except rig.Failure as e:
            print(f"bench.py: {name}:", *e.args, sep="\n  ", file=sys.stderr)
            return 1
        if not args.json:
            print("", name, *lines(results["benches"][name]), sep="\n", flush=True)
    if args.json:
        print(json.dumps(results))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
