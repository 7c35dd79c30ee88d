#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What other readers of the sources find, as TAP: clang with -Werror, clang-tidy, cppcheck, scan-build. Each reads the
sources, and a file with a planted fault, which it must find.

usage: run_analysis.py [clang|tidy|cppcheck|scan]...
"""
import concurrent.futures
import glob
import os
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DEFINES = ["-D_GNU_SOURCE", '-DTKS_VERSION="x"']
INCLUDES = ["include", "src/core", "src/report", "src/capture", "build/gen"]
FLAGS = ["-std=gnu11", *DEFINES, *(f"-I{i}" for i in INCLUDES), "-isystem", "/usr/share/include/llhttp"]
# selfAssignment: it reads "a = b ?: a" as "a = a". The macros are the libraries'.
CPPCHECK = ["cppcheck", "-q", "--std=c11", "--enable=warning,performance,portability", "--error-exitcode=1", "--inline-suppr",
            "--suppress=missingIncludeSystem", "--suppress=selfAssignment", *DEFINES, *(f"-I{i}" for i in INCLUDES[:-1]),
            "-DLIBBPF_OPTS(type,name,...)=struct type name={__VA_ARGS__}", "-Djson_array_foreach(a,i,e)=if(1)"]  # fmt: skip


def make(folder, *more):
    return ["make", "--no-print-directory", "-k", f"B=build/{folder}", *more]


def run(argv):
    """Lines of its output if it failed."""
    got = subprocess.run(argv, capture_output=True, text=True, cwd=TOP)
    lines = [l for l in (got.stdout + got.stderr).splitlines() if not l.startswith("  ")]
    return (lines or [f"exit status {got.returncode}"]) if got.returncode else []


def clang():
    return run(make("clang", "CC=clang", "all", "unit-bins", "test-bins"))


def tidy():
    """A file at a time, as many at once as there are CPUs."""
    files = sorted(glob.glob("src/*/*.c", root_dir=TOP))
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return [l for lines in pool.map(lambda f: run(["clang-tidy", "--quiet", f, "--", *FLAGS]), files) for l in lines]


def cppcheck():
    files = [f for p in ("src/*/*.c", "tests/*/*.c") for f in glob.glob(p, root_dir=TOP) if not f.endswith(".bpf.c")]
    return run([*CPPCHECK, *files])


def scan():
    """All is built anew: what is there already it would not see."""
    subprocess.run(["rm", "-rf", "build/scan/obj", "build/scan/tokensnoop"], cwd=TOP, check=True)
    return run(["scan-build", "--status-bugs", "--use-cc=clang", "-o", "build/scan/report", *make("scan", "all")])


# The tool's check, how it reads one file, and a fault of a kind that it is there for.
CHECKS = {
    "clang": (clang, ["clang", "-Wall", "-Wextra", "-Werror", "-c", "-o", "/dev/null"],
              "int f(void);\nint f(void)\n{\n\tint x;\n\n\treturn x;\n}\n"),
    "tidy": (tidy, ["clang-tidy", "--quiet", f"--config-file={TOP}/.clang-tidy"],
             "int f(int a);\nint f(int a)\n{\n\tif (a)\n\t\treturn 1;\n\telse\n\t\treturn 1;\n}\n"),
    "cppcheck": (cppcheck, CPPCHECK, "int f(void)\n{\n\tint a[2] = { 1, 2 };\n\n\treturn a[2];\n}\n"),
    "scan": (scan, ["scan-build", "--status-bugs", "--use-cc=clang", "clang", "-c", "-o", "/dev/null"],
             "int f(int *p);\nint f(int *p)\n{\n\tif (!p)\n\t\treturn *p;\n\treturn 0;\n}\n"),
}  # fmt: skip


def finds(argv, fault):
    """The planted fault, and nothing in the file without it."""
    problems = []
    with tempfile.TemporaryDirectory(prefix="tks-analysis-") as folder:
        for name, text, wanted in (("bad.c", fault, True), ("good.c", "int f(int a);\nint f(int a)\n{\n\treturn a;\n}\n", False)):
            path = os.path.join(folder, name)
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
            got = run([*argv, path, *(["--", *FLAGS] if argv[0] == "clang-tidy" else [])])
            if bool(got) != wanted:
                problems += [f"{name}: {'nothing was found' if wanted else got}"]
    return problems


def main(names):
    results = []
    for name in names or CHECKS:
        check, one, fault = CHECKS[name]
        results += [(f"analysis.{name}", check()), (f"analysis.{name}_sees", finds(one, fault))]
    for n, (name, problems) in enumerate(results, 1):
        for p in problems[:60]:
            print("#", p)
        print(f"{'not ok' if problems else 'ok'} {n} - {name}")
    print(f"1..{len(results)}")
    return 1 if any(p for _, p in results) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
