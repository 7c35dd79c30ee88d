#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Prints every JSON document of the golden cases and of the fuzzers' seeds, one a line, in hexadecimal: what another
JSON reader is to agree on with the scanner."""

import json
import os
import re

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def documents(text):
    """Those that begin anywhere in a line and are whole."""
    decoder = json.JSONDecoder()
    at = 0
    while True:
        m = re.compile(r"[{\[]").search(text, at)
        if not m:
            return
        try:
            _, end = decoder.raw_decode(text, m.start())
        except ValueError:
            at = m.start() + 1
            continue
        yield text[m.start() : end]
        at = end


def lines_of_case(path):
    lets = {}
    for line in open(path, encoding="utf-8"):
        line = re.sub(r"\$\{(\w+)\}", lambda m: lets.get(m.group(1), ""), line.rstrip("\n"))
        if line.startswith("let "):
            name, _, value = line[4:].partition(" = ")
            lets[name.strip()] = value
        else:
            yield line


def main():
    found = set()
    for folder, _, names in os.walk(os.path.join(ROOT, "golden")):
        if "wire" in names:
            for line in lines_of_case(os.path.join(folder, "wire")):
                found.update(documents(line))
    for kind in ("jscan", "decoder", "sse"):
        folder = os.path.join(ROOT, "fuzz", "corpus", kind)
        for name in os.listdir(folder):
            with open(os.path.join(folder, name), "rb") as f:
                found.update(documents(f.read().decode("utf-8", "replace")))
    for document in sorted(found):
        print(document.encode("utf-8", "surrogatepass").hex())


main()
