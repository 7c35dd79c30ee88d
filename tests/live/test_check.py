#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Tests of the checker, as TAP: right records pass, and each kind of wrong one is found.

The witness's log is written here, and from it the records of a tracer without fault.
"""
import copy
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check  # noqa: E402

MS = 1_000_000
REQUESTS = ((40001, 29), (40002, 13), (40001, 7), (40003, 1))


def truth_lines():
    """A truth server's log: sends of 20 us every 1 to 3 ms."""
    lines, start = [], 1000 * MS
    for request, (peer, tokens) in enumerate(REQUESTS, 1):
        base = {"request": request, "peer": peer, "nr": 0}
        at = start
        for i in range(tokens):
            at += (1 + i % 3) * MS
            lines.append({**base, "kind": "part", "frame": i + 2, "before_ns": at - 5000, "after_ns": at - 1000,
                          "asked": 9, "accepted": 9})
            lines.append({**base, "kind": "token", "frame": i + 2, "token": i, "before_ns": at,
                          "after_ns": at + 20000, "asked": 170, "accepted": 170})
        lines.append({**base, "kind": "finish", "frame": tokens + 2, "before_ns": at + MS,
                      "after_ns": at + MS + 20000, "asked": 300, "accepted": 300})
        lines.append({**base, "kind": "end", "tokens": tokens, "usage": tokens, "outcome": "done"})
        start += 200 * MS
    return lines


def perfect(w):
    """The record of a tracer without fault."""
    times = [a.before + 3000 for a in w.arrivals]
    request = times[0] - 5 * MS
    last = w.finish.before + 3000
    gaps = [b - a for a, b in zip(times, times[1:])]
    return {
        "type": "request", "id": 1, "pid": 1, "comm": "truth_server", "local": "127.0.0.1:8000",
        "peer": f"127.0.0.1:{w.peer}", "transport": "tcp", "http": "1.1", "method": "POST", "status": 200,
        "dialect": "openai.chat", "model": "m", "response_id": f"r{w.peer}.{w.nr}", "streamed": True,
        "boundary": "send", "t_request_ns": request, "t_request_end_ns": request + 1000,
        "t_headers_ns": request + MS, "t_first_ns": times[0], "t_last_ns": times[-1], "t_end_ns": last,
        "frames": len(times) + 3, "token_frames": len(times), "tokens": w.usage, "tokens_source": "usage",
        "t_last_source": "text", "ttft_ns": times[0] - request - 1000, "e2e_ns": last - request - 1000,
        "prompt_tokens": 7, "tpot_ns": (times[-1] - times[0]) // (len(times) - 1) if len(times) > 1 else None,
        "itl": check.figures(gaps), "finish": "length", "flags": [], "tokens_at_ns": times,
    }


def client_of(r, w):
    frames = [[r["t_headers_ns"], "other"]] + [[t + 40000, "token"] for t in r["tokens_at_ns"]]
    frames += [[r["t_end_ns"], "other"]] * 2
    return {"local": w.peer, "nr": w.nr, "id": r["response_id"], "outcome": "done", "frames": frames,
            "t_send_ns": r["t_request_ns"] - 1000,
            "usage": {"completion_tokens": w.usage, "prompt_tokens": 7}}


def set_field(name, value):
    def mutate(records, _clients):
        records[0][name] = value(records[0][name]) if callable(value) else value
    return mutate


def shift_token(ns, index=3):
    """One token later or earlier, all figures made to fit: only the witness can tell."""
    def mutate(records, _clients):
        r = records[0]
        r["tokens_at_ns"][index] += ns
        times = r["tokens_at_ns"]
        r["itl"] = check.figures([b - a for a, b in zip(times, times[1:])])
    return mutate


def shift_all(ns):
    def mutate(records, _clients):
        r = records[0]
        r["tokens_at_ns"] = [t + ns for t in r["tokens_at_ns"]]
        for name in ("t_first_ns", "t_last_ns", "ttft_ns", "t_end_ns", "e2e_ns"):
            r[name] += ns
    return mutate


def drop_token(records, _clients):
    del records[0]["tokens_at_ns"][5]


def itl(name, value):
    def mutate(records, _clients):
        records[0]["itl"][name] = value(records[0]["itl"][name]) if callable(value) else value
    return mutate


def client(name, value):
    def mutate(_records, clients):
        clients[REQUESTS[0][0], 0][name] = value
    return mutate


def read_too_early(records, clients):
    clients[REQUESTS[0][0], 0]["frames"][4][0] = records[0]["tokens_at_ns"][3] - 1


# name, mutation of records and client logs, a text that one of the problems must have
MUTATIONS = [
    ("record_missing", lambda rs, cs: rs.pop(), "no record"),
    ("record_twice", lambda rs, cs: rs.append(copy.deepcopy(rs[0])), "5 records of 4"),
    ("record_of_a_stranger", set_field("peer", "127.0.0.1:5"), "no record"),
    ("count_plus_one", set_field("tokens", lambda n: n + 1), "the server says"),
    ("count_minus_one", set_field("tokens", lambda n: n - 1), "the server says"),
    ("source", set_field("tokens_source", "frames"), "tokens_source"),
    ("last_source", set_field("t_last_source", "finish"), "t_last_source"),
    ("dialect", set_field("dialect", "unknown"), "dialect"),
    ("finish", set_field("finish", "stop"), "finish"),
    ("not_streamed", set_field("streamed", False), "streamed"),
    ("status", set_field("status", None), "status"),
    ("no_model", set_field("model", None), "no model"),
    ("no_pid", set_field("pid", None), "no pid"),
    ("lost", set_field("flags", ["lost"]), "flags"),
    ("mid_stream", set_field("flags", ["mid_stream"]), "flags"),
    ("estimated", set_field("flags", ["estimated"]), "flags"),
    ("coalesced", set_field("flags", ["coalesced"]), "flags"),
    ("unsorted_flags", set_field("flags", ["multi_token_frames", "coalesced"]), "not sorted"),
    ("one_token_early", shift_token(-4000), "too early"),
    ("one_token_late", shift_token(18000), "too late"),
    ("all_tokens_late", shift_all(18000), "too late"),
    ("token_missing", drop_token, "token times"),
    ("no_token_times", set_field("tokens_at_ns", None), "token times"),
    ("tpot_two_percent", set_field("tpot_ns", lambda v: v * 102 // 100), "tpot_ns"),
    ("tpot_over_n", set_field("tpot_ns", lambda v: v * 28 // 29), "the witness's times"),
    ("tpot_null", set_field("tpot_ns", None), "tpot_ns None"),
    ("tpot_of_one_token", lambda rs, cs: rs[3].update(tpot_ns=0), "tpot_ns 0"),
    ("ttft", set_field("ttft_ns", lambda v: v + 2), "ttft_ns"),
    ("e2e", set_field("e2e_ns", lambda v: v - 2), "e2e_ns"),
    ("first", set_field("t_first_ns", lambda v: v - 2), "t_first_ns"),
    ("order", set_field("t_headers_ns", lambda v: v + 100 * MS), "out of order"),
    ("itl_n", itl("n", lambda n: n + 1), "itl.n"),
    ("itl_mean", itl("mean_ns", lambda v: v * 1.02), "itl.mean_ns"),
    ("itl_p50", itl("p50_ns", lambda v: v + 2), "itl.p50_ns"),
    ("itl_max", itl("max_ns", lambda v: v * 1.02), "by the witness"),
    ("itl_p90_absent", itl("p90_ns", None), "itl.p90_ns"),
    ("itl_p99_unsupported", itl("p99_ns", 3 * MS), "itl.p99_ns"),
    ("itl_of_one_token", lambda rs, cs: rs[3].update(itl={"n": 0}), "itl"),
    ("client_sent_later", client("t_send_ns", 1 << 62), "before the client sent"),
    ("client_other_id", client("id", "x"), "response_id"),
    ("client_usage", client("usage", {"completion_tokens": 5, "prompt_tokens": 7}), "was told"),
    ("client_prompt", client("usage", {"completion_tokens": 29, "prompt_tokens": 8}), "prompt_tokens"),
    ("client_frames", client("frames", []), "frames"),
    ("client_read_before_sent", read_too_early, "before it was sent"),
    ("client_unknown", lambda rs, cs: cs.pop((REQUESTS[0][0], 0)), "knows nothing"),
]


def fresh(witnesses):
    by_peer, records = {}, []
    for w in witnesses:
        by_peer.setdefault(w.peer, []).append(w)
        records.append(perfect(w))
    clients = {(w.peer, w.nr): client_of(r, w) for r, w in zip(records, witnesses)}
    return records, clients


def run_one(witnesses, mutate):
    records, clients = fresh(witnesses)
    mutate(records, clients)
    expect = check.Expect("openai.chat", ["usage"], "text", finish="length")
    return check.check_run(records, witnesses, expect, clients)


def wide_witness(witnesses):
    """A witness that was preempted excuses one request's rates, but not all of them."""
    wide = copy.deepcopy(witnesses)
    wide[0].arrivals[-1].before -= MS
    one = run_one(wide, lambda rs, cs: None)
    records, clients = fresh(witnesses)
    for w in wide:
        for i, a in enumerate(w.arrivals):
            a.before -= MS * (i > 0)
    every = check.check_run(records, wide, check.Expect("openai.chat", ["usage"], "text"), clients)
    return one, every


def cases(witnesses):
    yield "perfect", run_one(witnesses, lambda rs, cs: None), None
    for name, mutate, text in MUTATIONS:
        yield name, run_one(witnesses, mutate), text
    yield "nothing", check.check_run([], [], check.Expect()), "nothing to check"
    one, every = wide_witness(witnesses)
    yield "excused", [p for p in one if "tpot" in p or "within" in p], None
    yield "not_all_excused", every, "within 1%"
    gone = {("prog", n): "x" for n in list(check.bpf_objects("prog"))[:1]} if os.geteuid() == 0 else {}
    if gone:
        yield "leftover_program_seen", check.leftovers(gone, 0), "still loaded"
    yield "no_leftover", check.leftovers({("prog", 1 << 31): "x"}, 0) if os.geteuid() == 0 else [], None


def main():
    failed = number = 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "log")
        with open(path, "w", encoding="utf-8") as f:
            f.write("".join(json.dumps(line) + "\n" for line in truth_lines()))
        witnesses = check.read_truth(path)
        for name, problems, text in cases(witnesses):
            number += 1
            good = not problems if text is None else any(text in p for p in problems)
            failed += not good
            if not good:
                print(f"# wanted {text!r}, got {problems[:4]}")
            print(f"{'ok' if good else 'not ok'} {number} - check.{name}")
    print(f"1..{number}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
