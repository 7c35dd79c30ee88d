#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The demo's clients: clients.py PORT REQUESTS CONCURRENCY. Each asks for a streamed chat completion of
some other length and reads it to the end, over a connection of its thread's own."""
import concurrent.futures
import http.client
import json
import sys
import threading

# Lengths that fall into several of the report's buckets.
LENGTHS = (12, 40, 90, 30, 70, 16, 150, 24)


def main():
    port, requests, concurrency = (int(a) for a in sys.argv[1:4])
    local = threading.local()

    def ask(i):
        if not hasattr(local, "conn"):
            local.conn = http.client.HTTPConnection("127.0.0.1", port)
        body = {"model": "demo", "stream": True, "max_tokens": LENGTHS[i % len(LENGTHS)],
                "stream_options": {"include_usage": True}, "gap_us": 4000 + 500 * concurrency,
                "prefill_us": 20000 + 3000 * concurrency,
                "messages": [{"role": "user", "content": "hello"}]}
        local.conn.request("POST", "/v1/chat/completions", json.dumps(body),
                           {"Content-Type": "application/json"})
        text = local.conn.getresponse().read()
        if not text.endswith(b"data: [DONE]\n\n"):
            raise RuntimeError(f"request {i}: the stream has no end")

    with concurrent.futures.ThreadPoolExecutor(concurrency) as pool:
        list(pool.map(ask, range(requests)))


if __name__ == "__main__":
    main()
