#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# uvicorn.sh STACK PORT WITNESS-LOG     serve fastapi_app.py on 127.0.0.1 until killed
#
# STACK is uvloop (uvloop and httptools, as vLLM and SGLang run it) or asyncio (asyncio and h11).
# Debian's packages and so Debian's own Python, whatever else is first on PATH.
set -eu

usage="usage: uvicorn.sh uvloop|asyncio PORT WITNESS-LOG"
[ $# = 3 ] || {
	echo "$usage" >&2
	exit 2
}
case "$1" in
uvloop) stack="--loop uvloop --http httptools" ;;
asyncio) stack="--loop asyncio --http h11" ;;
*)
	echo "$usage" >&2
	exit 2
	;;
esac
WITNESS_LOG=$3
export WITNESS_LOG PYTHONDONTWRITEBYTECODE=1
# shellcheck disable=SC2086 # options
exec /usr/bin/python3 -m uvicorn fastapi_app:app --app-dir "$(dirname "$0")" --host 127.0.0.1 \
	--port "$2" --log-level warning --no-access-log $stack
