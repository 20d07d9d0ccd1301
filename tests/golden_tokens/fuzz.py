#!/usr/bin/env python3
"""fuzz.py - random strings through this library and through the reference.

    V/bin/python tests/golden_tokens/fuzz.py [--count N] [--seed S] FILE...

FILE is a tokenizer.json. Prints the first differences, and one line per file; exit
status 1 if there was any. Needs build/libpolyhead_model.so (make).
"""

import argparse
import random
import sys
import time

from tokenizers import Tokenizer

from common import Ours, in_bytes, some_string


def differs(ours, reference, text, other, rng):
    bare = rng.random() < 0.3
    if rng.random() < 0.1:
        expected = in_bytes(reference.encode(text, other, add_special_tokens=not bare), text, other)
        found = ours.encode(text, other, bare)
        return ("pair", expected, found) if found != expected else None
    encoding = reference.encode(text, add_special_tokens=not bare)
    expected, found = in_bytes(encoding, text), ours.encode(text, None, bare)
    if found != expected:
        return "encode", expected, found
    if rng.random() < 0.3:
        ids = encoding.ids if rng.random() < 0.7 else [rng.randrange(ours_size) for _ in range(8)]
        skip = rng.random() < 0.5
        expected = reference.decode(ids, skip_special_tokens=skip)
        found = ours.decode(ids, skip)
        if found != expected:
            return f"decode {ids}", expected, found
    return None


parser = argparse.ArgumentParser()
parser.add_argument("--count", type=int, default=10000)
parser.add_argument("--seed", type=int, default=7)
parser.add_argument("--show", type=int, default=3)
parser.add_argument("file", nargs="+")
args = parser.parse_args()
bad = 0
for path in args.file:
    rng = random.Random(args.seed)
    reference, ours = Tokenizer.from_file(path), Ours(path)
    reference.no_truncation()
    reference.no_padding()
    ours_size = reference.get_vocab_size()
    wrong, began, other = 0, time.time(), "the pair"
    for _ in range(args.count):
        text = some_string(rng)
        found = differs(ours, reference, text, other, rng)
        other = text
        if found:
            wrong += 1
            if wrong <= args.show:
                print(f"  {found[0]} {text!a} ({path})\n    reference {found[1]!a}\n    ours      {found[2]!a}")
    bad += wrong
    print(f"{path}: {args.count} strings, {wrong} differ, {time.time() - began:.0f} s", flush=True)
sys.exit(bad > 0)
