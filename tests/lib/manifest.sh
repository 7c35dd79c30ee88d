#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# Prints the list of all tests for runner.py, in the order in which a fault is found soonest. The
# programs must have been built (make check does). Those with a + may run beside each other. FUZZ_SECONDS: time a fuzzer gets
# (10 minutes for all of them).
set -eu
cd "$(dirname "$0")/../.."
tap='CMOCKA_MESSAGE_OUTPUT=TAP'

echo "lint@300+:sources:python3 tests/lib/lint.py build"
echo "selftest@300+:runner:python3 tests/lib/test_runner.py"
for source in tests/unit/test_*.c; do
	name=$(basename "$source" .c)
	echo "unit@300+:$name:$tap build/tests/$name"
	echo "san@600+:$name:$tap build/san/tests/$name"
done
echo "golden@1200+:cases:python3 tests/golden/run_golden.py --tshark"
echo "golden@300+:cli:python3 tests/golden/run_cli.py"
echo "golden@300+:h2_witness:python3 tests/golden/h2_witness.py"
echo "san@1200+:golden:python3 tests/golden/run_golden.py build/san/tokensnoop"
echo "san@900+:oom:python3 tests/golden/run_oom.py"
for source in tests/unit/test_*.c; do
	name=$(basename "$source" .c)
	echo "valgrind@900+:$name:valgrind -q --error-exitcode=9 --leak-check=full build/tests/$name"
done
# About a minute a case: one with choices, one with counters, one with several requests.
for case in vllm-n2 llamacpp-timings keep-alive; do
	echo "valgrind@900+:golden_$case:python3 tests/golden/run_golden.py -k $case tests/golden/under_valgrind.sh"
done
set -- tests/fuzz/fuzz_*.c
seconds=${FUZZ_SECONDS:-$((600 / $#))}
for source in tests/fuzz/fuzz_*.c; do
	name=$(basename "$source" .c)
	echo "fuzz@300+:$name:sh tests/fuzz/run_one.sh build/fuzz/$name $seconds"
done
# Light, and no figure of it is a time.
echo "live@900+:soak:python3 tests/live/soak.py --seconds 300"
for tool in clang tidy cppcheck scan; do
	echo "analysis@900+:$tool:python3 tests/analysis/run_analysis.py $tool"
done
echo "analysis@300+:coverage:sh tests/analysis/coverage.sh"
echo "supply@900+:all:python3 tests/supply/run_supply.py"
echo "live@300:errors:python3 tests/live/run_errors.py"
echo "live@300:privileges:python3 tests/live/run_privileges.py"
echo "live@300:zoo:build/tests/zoo"
echo "live@300:zoo_syscall:sh tests/live/zoo_syscall.sh"
echo "live@300:loss:python3 tests/live/run_loss.py"
echo "live@600:faults:python3 tests/live/run_faults.py"
echo "selftest@300:live_check:python3 tests/live/test_check.py"
echo "live@1200:dialects:python3 tests/live/run_dialects.py"
echo "live@900:wires:python3 tests/live/run_wires.py"
# Of TLS each server at 64 streams, beside plaintext; run_tls.py alone runs all.
echo "live@2700:tls:python3 tests/live/run_tls.py 'tls.*.tls.c64' 'tls.client.*' 'tls.late.*.c64' 'tls.workers.*.tls' 'tls.namespaces.*.tls' 'tls.replaced.*' tls.slow.tls tls.blind tls.crowd tls.few_descriptors tls.killed"
echo "live@600:unix:python3 tests/live/run_unix.py 'unix.*.c64' 'unix.[!uang]*'"
echo "live@1800:servers:python3 tests/live/run_live.py"
echo "selftest@900:kernels:python3 tests/kernels/selftest.py"
echo "kernels@900:guests:python3 tests/kernels/run_guests.py"
echo "kernels@3000:matrix:python3 tests/kernels/run_kernels.py"
