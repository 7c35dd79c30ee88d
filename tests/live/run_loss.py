#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A ring that is too small, and a tracer that is stopped meanwhile: what is lost is counted, exactly the requests it hit
are flagged, and no figure is wrong. TAP."""
import http.client
import json
import os
import signal
import sys
import tempfile
import threading
import time

from rig import Tracer, TruthServer

CONNECTIONS, SHORT, LONG = 8, 23, 601


def ask(conn, tokens):
    body = {"model": "m", "stream": True, "max_tokens": tokens, "gap_us": 200, "prefill_us": 1000, "pad": 300,
            "stream_options": {"include_usage": True}, "messages": []}
    conn.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    conn.getresponse().read()


def records_until(path, count, seconds):
    """Waits for the file to hold so many records."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with open(path, encoding="utf-8") as f:
            if sum('"type":"request"' in line for line in f) >= count:
                return
        time.sleep(0.05)


def run(folder, ring_mb):
    path = os.path.join(folder, "records.jsonl")
    args = ["--format", "jsonl", "--tokens", "--ring-mb", str(ring_mb), "-o", path]
    with TruthServer(folder) as server, Tracer(folder, server.port, args) as tracer:
        conns = [http.client.HTTPConnection("127.0.0.1", server.port) for _ in range(CONNECTIONS)]
        for c in conns:
            ask(c, SHORT)
        records_until(path, CONNECTIONS, 10)
        tracer.popen.send_signal(signal.SIGSTOP)
        threads = [threading.Thread(target=ask, args=(c, LONG)) for c in conns]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        tracer.popen.send_signal(signal.SIGCONT)
        records_until(path, 2 * CONNECTIONS, 10)
        for c in conns:
            ask(c, SHORT)
        records_until(path, 3 * CONNECTIONS, 10)
        records = tracer.stop()
    with open(path, encoding="utf-8") as f:
        meta = json.loads(f.readlines()[-1])
    return records, meta


def problems(records, meta, whole):
    """whole: the same through a ring that holds it all."""
    short = [r for r in records if r["tokens"] == SHORT]
    hit = [r for r in records if "lost" in r["flags"]]
    found = []
    if len(records) != 3 * CONNECTIONS:
        found.append(f"{len(records)} records of {3 * CONNECTIONS} requests")
    if meta["drops"]["lost_records"] <= 0 or meta["drops"]["lost_bytes"] <= 0:
        found.append(f"nothing was lost: the test is blind: {meta['drops']}")
    if not hit:
        found.append("no record is flagged")
    if len(short) != 2 * CONNECTIONS or any(r["flags"] or r["finish"] != "length" for r in short):
        found.append(f"{len(short)} whole requests before and after, wanted {2 * CONNECTIONS} without a flag")
    if whole["drops"]["lost_records"]:
        found.append(f"the large ring was too small: {whole['drops']}")
    if meta["events"] + meta["drops"]["lost_records"] != whole["events"]:
        found.append(f"{meta['events']} came and {meta['drops']['lost_records']} were lost, of {whole['events']}")
    for r in records:
        if ("lost" in r["flags"]) != (r["token_frames"] not in (SHORT, LONG)):
            found.append(f"{r['token_frames']} token frames, and the flags {r['flags']}")
        if r["tokens"] not in (None, SHORT, LONG):
            found.append(f"a wrong number: {r['tokens']} tokens")
        if r["tokens"] is None and "lost" not in r["flags"]:
            found.append("a count is missing, and no flag says why")
    return found


def main():
    with tempfile.TemporaryDirectory(prefix="tks-loss-") as folder:
        found = problems(*run(folder, 1), run(folder, 64)[1])
    for line in found:
        print("#", line)
    print(f"{'not ok' if found else 'ok'} 1 - loss.small_ring\n1..1")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
