#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# The lines of src/core, src/report and src/cmd that the unit tests and the goldens (each as it is) reach: a figure, pages
# in build/coverage, and a floor below which it fails. The capture needs a kernel and is left to the live tests, as are
# trace, doctor and what confines them.
set -eu
cd "$(dirname "$0")/../.."
floor=94
lines=build/coverage/lines.info

n=0
failed=0
result()
{
	n=$((n + 1))
	[ "$1" = ok ] || failed=1
	echo "$1 $n - analysis.coverage.$2"
}

# run NAME COMMAND...: what doesn't pass reaches other lines.
run()
{
	name=$1
	shift
	if "$@" >build/coverage/output 2>&1; then
		result ok "$name"
	else
		sed 's/^/# /' build/coverage/output
		result "not ok" "$name"
	fi
}

mkdir -p build/coverage
run build make --no-print-directory -j2 B=build/cov OPT="-O1 -g" SANFLAGS=--coverage all unit-bins
find build/cov -name '*.gcda' -delete
for t in build/cov/tests/test_*; do
	case $t in
	*.d | *.gcno) continue ;;
	esac
	run "$(basename "$t")" "$t"
done
run golden python3 tests/golden/run_golden.py --few build/cov/tokensnoop
run cli python3 tests/golden/run_cli.py build/cov/tokensnoop

lcov -q --capture --directory build/cov/obj/src --output-file "$lines.all"
lcov -q --extract "$lines.all" "*/src/core/*" "*/src/report/*" "*/src/cmd/*" --output-file "$lines.some"
lcov -q --remove "$lines.some" "*/cmd_trace.c" "*/cmd_doctor.c" "*/confine.c" --output-file "$lines"
genhtml -q "$lines" --output-directory build/coverage/html
share=$(lcov --summary "$lines" 2>&1 | sed -n 's/.*lines\.*: \([0-9.]*\)%.*/\1/p')
echo "# says: coverage $share % of the lines of core, report and commands by unit tests and goldens; at least $floor %"
if [ "${share%.*}" -ge "$floor" ]; then
	result ok floor
else
	result "not ok" floor
fi
echo "1..$n"
exit $failed
