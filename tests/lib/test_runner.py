#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Tests of the runner, as TAP: what must pass passes, and what must fail fails."""
import os
import signal
import subprocess
import sys
import tempfile
import time

RUNNER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "runner.py")

# name, commands, lines of expected_skips, arguments, exit status, last line, a text that must be in the output
CASES = [
    ("tap_passes", ["echo 'ok 1 - a'; echo 'ok 2 - b'; echo 1..2"], [], [], 0,
     "2 passed, 0 failed, 0 skipped", ""),
    ("plain_command_passes", ["true"], [], [], 0, "1 passed, 0 failed, 0 skipped", "k.t0"),
    ("output_without_tap_passes", ["echo fine"], [], [], 0, "1 passed, 0 failed, 0 skipped", ""),
    ("plain_command_fails", ["false"], [], [], 1, "0 passed, 1 failed, 0 skipped", "exit status 1"),
    ("not_ok_fails", ["echo 'ok 1 - a'; echo 'not ok 2 - b'"], [], [], 1,
     "1 passed, 1 failed, 0 skipped", "failed: b"),
    ("not_ok_and_status_count_once", ["echo 'not ok 1 - b'; exit 1"], [], [], 1,
     "0 passed, 1 failed, 0 skipped", ""),
    ("status_fails_although_all_ok", ["echo 'ok 1 - a'; exit 3"], [], [], 1,
     "1 passed, 1 failed, 0 skipped", "exit status 3"),
    ("signal_fails", ["echo 'ok 1 - a'; kill -SEGV $$"], [], [], 1, "1 passed, 1 failed, 0 skipped", "-11"),
    ("timeout_fails", ["echo 'ok 1 - a'; sleep 60"], [], ["--timeout", "1"], 1,
     "1 passed, 1 failed, 0 skipped", "not done after 1 s"),
    ("timeout_kills_children", ["echo 'ok 1 - a'; (trap '' TERM; sleep 60) & wait"], [], ["--timeout", "1"], 1,
     "1 passed, 1 failed, 0 skipped", ""),
    ("no_test_fails", ["echo 1..0"], [], [], 1, "0 passed, 1 failed, 0 skipped", "ran no test"),
    ("plan_too_large_fails", ["echo 1..3; echo 'ok 1'; echo 'ok 2'"], [], [], 1,
     "2 passed, 1 failed, 0 skipped", "plan says 3"),
    ("plan_too_small_fails", ["echo 'ok 1'; echo 'ok 2'; echo 1..1"], [], [], 1,
     "2 passed, 1 failed, 0 skipped", "plan says 1"),
    ("bail_out_fails", ["echo 'ok 1'; echo 'Bail out! no disk'"], [], [], 1,
     "1 passed, 1 failed, 0 skipped", "bailed out"),
    ("unlisted_skip_fails", ["echo 'ok 1 - a'; echo 'ok 2 - b # SKIP no such kernel'"], [], [], 1,
     "1 passed, 1 failed, 0 skipped", "no such kernel"),
    ("listed_skip_passes", ["echo 'ok 1 - a'; echo 'ok 2 - x.b # SKIP no such kernel'"], ["x.* a reason"], [],
     0, "1 passed, 0 failed, 1 skipped", "skipped: x.b: no such kernel"),
    ("cmocka_skip_is_a_skip", ["echo 'ok 1 - a'; echo 'not ok 2 # SKIP x.b'"], ["x.b a reason"], [], 0,
     "1 passed, 0 failed, 1 skipped", ""),
    ("skip_needs_the_whole_name", ["echo 'ok 1 - a'; echo 'ok 2 - x.bc # SKIP r'"], ["x.b a reason"], [], 1,
     "1 passed, 1 failed, 0 skipped", ""),
    ("listed_failure_still_fails", ["echo 'not ok 1 - x.b'"], ["x.* a reason"], [], 1,
     "0 passed, 1 failed, 0 skipped", ""),
    ("only_skips_fails", ["echo 'ok 1 - x.b # SKIP r'"], ["x.* a reason"], [], 1,
     "0 passed, 0 failed, 1 skipped", ""),
    ("skip_all_listed", ["true", "echo '1..0 # SKIP not here'"], ["k.t1 a reason"], [], 0,
     "1 passed, 0 failed, 1 skipped", ""),
    ("skip_all_unlisted_fails", ["true", "echo '1..0 # SKIP not here'"], [], [], 1,
     "1 passed, 1 failed, 0 skipped", ""),
    ("skip_without_reason_is_usage", ["true"], ["x.*"], [], 2, "", "no reason given"),
    ("wrong_kind_runs_nothing_fails", ["true"], [], ["--kind", "other"], 1,
     "0 passed, 1 failed, 0 skipped", "no test to run"),
    ("kinds_filter", ["true", "true"], [], ["--kind", "k"], 0, "2 passed, 0 failed, 0 skipped", ""),
    ("output_of_failures_shown", ["echo 'not ok 1 - a'; echo on-stdout; echo on-stderr >&2"], [], [], 1,
     "0 passed, 1 failed, 0 skipped", "on-stderr"),
    ("what_it_says_is_passed_on", ["echo '# says: 93 % of lines'; echo 'ok 1 - a'"], [], [], 0,
     "1 passed, 0 failed, 0 skipped", "\n  93 % of lines\n"),
    ("tap_on_stderr_is_not_tap", ["echo 'ok 1 - a' >&2; exit 1"], [], [], 1,
     "0 passed, 1 failed, 0 skipped", ""),
    ("skip_by_full_name", ["true", "echo 'not ok 1 # SKIP b'"], ["k.t1.b a reason"], [], 0,
     "1 passed, 0 failed, 1 skipped", ""),
    ("skip_by_another_name_fails", ["echo 'not ok 1 # SKIP b'"], ["k.t1.b a reason"], [], 1,
     "0 passed, 1 failed, 0 skipped", ""),
    ("one_bad_of_three_fails", ["true", "false", "true"], [], [], 1, "2 passed, 1 failed, 0 skipped", ""),
]


def run(folder, commands, skips, arguments):
    manifest, list_ = os.path.join(folder, "manifest"), os.path.join(folder, "skips")
    with open(manifest, "w", encoding="utf-8") as f:
        f.write("# a comment\n\n" + "".join(f"k:t{i}:{c}\n" for i, c in enumerate(commands)))
    with open(list_, "w", encoding="utf-8") as f:
        f.write("# a comment\n" + "".join(f"{s}\n" for s in skips))
    return subprocess.run([sys.executable, RUNNER, "--skips", list_, *arguments, manifest],
                          capture_output=True, text=True, timeout=60, check=False)


def check(folder, case):
    name, commands, skips, arguments, status, last, text = case
    start = time.monotonic()
    result = run(folder, commands, skips, arguments)
    lines = result.stdout.rstrip("\n").split("\n")
    problems = []
    if result.returncode != status:
        problems.append(f"exit status {result.returncode}, not {status}")
    if lines[-1] != last:
        problems.append(f"last line {lines[-1]!r}, not {last!r}")
    if text not in result.stdout + result.stderr:
        problems.append(f"{text!r} is not in the output")
    if time.monotonic() - start > 20:
        problems.append("took too long")
    return name, problems


def check_usage():
    problems = []
    for arguments in (["no-such-manifest"], ["k:only-two"], ["k@x:n:true"], []):
        result = subprocess.run([sys.executable, RUNNER, *arguments], capture_output=True, text=True,
                                check=False)
        if result.returncode != 2:
            problems.append(f"{arguments}: exit status {result.returncode}, not 2")
    return "usage", problems


def check_own_limit(folder):
    """A time limit in the manifest goes before --timeout."""
    result = subprocess.run([sys.executable, RUNNER, "k@1:t:sleep 60"], capture_output=True, text=True,
                            timeout=60, check=False, cwd=folder)
    return "own_limit", [] if result.returncode == 1 and "not done after 1 s" in result.stdout else [result.stdout]


def check_beside_others(folder):
    """Two with a + meet; the one without comes when both have gone, and starts before the next with one does."""
    meet = "touch {0}; for i in $(seq 100); do [ -e {1} ] && exit 0; sleep 0.1; done; exit 1"
    alone = "[ -e a ] && [ -e b ] && ! [ -e c ]"
    lines = [f"k@20+:a:{meet.format('a', 'b')}", f"k@20+:b:{meet.format('b', 'a')} ", f"k:alone:{alone}",
             "k+:c:touch c", "k+:bad:false"]
    result = subprocess.run([sys.executable, RUNNER, "--jobs", "2", *lines], capture_output=True, text=True,
                            timeout=60, check=False, cwd=folder)
    want = "4 passed, 1 failed, 0 skipped"
    return "beside_others", [] if result.returncode == 1 and want in result.stdout else [result.stdout + result.stderr]


def check_interrupt(folder):
    """Ctrl-C ends the commands, too, although they have sessions of their own."""
    lines = ["k+:a:echo $$ >a.pid; exec sleep 60", "k+:b:echo $$ >b.pid; exec sleep 60"]
    runner = subprocess.Popen([sys.executable, RUNNER, "--jobs", "2", *lines], cwd=folder, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    files = [os.path.join(folder, f"{name}.pid") for name in "ab"]
    for _ in range(100):
        if all(os.path.exists(f) and os.path.getsize(f) for f in files):
            break
        time.sleep(0.1)
    runner.send_signal(signal.SIGINT)
    status = runner.wait(timeout=30)
    left = [f for f in files if os.path.exists(f"/proc/{open(f, encoding='utf-8').read().strip()}")]
    return "interrupt", [f"status {status}, left: {left}"] if left or not status else []


def main():
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        results = [check(folder, case) for case in CASES]
        results += [check_usage(), check_own_limit(folder), check_beside_others(folder), check_interrupt(folder)]
    for number, (name, problems) in enumerate(results, 1):
        for problem in problems:
            print("#", problem)
        failed += bool(problems)
        print(f"{'not ok' if problems else 'ok'} {number} - runner.{name}")
    print(f"1..{len(results)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
