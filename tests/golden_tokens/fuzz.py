#!/usr/bin/env python3
"""fuzz.py - random strings through this library and through the reference.

    V/bin/python tests/golden_tokens/fuzz.py [--count N] [--seed S] [--settings M] FILE...

FILE is a tokenizer.json. With --settings, N strings go through each of M random settings
of the file (settings.py): what this library does not support it must refuse with a
sentence that names the part. Prints the first differences, and one line per file; exit
status 1 if there was any. Needs build/libpolyhead_model.so (make).
"""

import argparse
import json
import os
import random
import sys
import tempfile
import time

from tokenizers import Tokenizer

from common import Ours, in_bytes, library, some_string

LIBRARY = library()


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
        size = reference.get_vocab_size()
        ids = encoding.ids if rng.random() < 0.7 else [rng.randrange(size) for _ in range(8)]
        skip = rng.random() < 0.5
        expected = reference.decode(ids, skip_special_tokens=skip)
        found = ours.decode(ids, skip)
        if found != expected:
            return f"decode {ids}", expected, found
    return None


def compare(path, ours, reference, rng, args):
    """How many strings differ; the first ones are printed."""
    reference.no_truncation()
    reference.no_padding()
    wrong, other = 0, "the pair"
    for _ in range(args.count):
        text = some_string(rng)
        try:
            found = differs(ours, reference, text, other, rng)
        except BaseException as error:  # the reference stops at an assertion of its own,
            if type(error).__name__ not in ("PanicException", "IndexError"):
                raise  # or loses count of its sequences: ByteLevel behind a template
            found = None
        other = text
        if found:
            wrong += 1
            if wrong <= args.show:
                print(f"  {found[0]} {text!a} ({path})\n    reference {found[1]!a}\n    ours      {found[2]!a}")
    return wrong


def names(value):
    """Types, fields and patterns of a settings file: what a refusal may name."""
    if isinstance(value, dict):
        return {n for k, v in value.items() for n in ({k} | names(v))}
    if isinstance(value, list):
        return {n for v in value for n in names(v)}
    return {value} if isinstance(value, str) else set()


def is_ambiguous(made, reference):
    """Do two added tokens read the same once normalized? Which of them the reference then
    finds changes from run to run."""
    texts = [t["content"] for t in made["added_tokens"] if t["normalized"]]
    normal = [reference.normalizer.normalize_str(t) for t in texts] if reference.normalizer else texts
    return len(set(normal)) < len(texts)


def compare_settings(path, rng, args, counts):
    """One random setting of the file."""
    from settings import vary

    with open(path, encoding="utf-8") as file:
        made = vary(json.load(file), rng)
    parts = {k: v for k, v in made.items() if k != "model"}
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump(made, file)
        file.flush()
        try:
            reference = Tokenizer.from_file(file.name)
        except Exception:  # what it cannot read is no setting
            counts["not a tokenizer"] += 1
            return 0
        if is_ambiguous(made, reference):
            counts["not a tokenizer"] += 1
            return 0
        try:
            ours = Ours(file.name, LIBRARY)
        except ValueError as refusal:
            counts["refused"] += 1
            what = str(refusal).split("': ", 1)[-1]
            counts.setdefault("why", {}).setdefault(what[:90], 0)
            counts["why"][what[:90]] += 1
            named = any(len(n) > 2 and n[:40] in what for n in names(parts) | {"model", "decoder"})
            if not named:
                print(f"  refused without a name: {refusal}")
            return not named
    wrong = compare(path, ours, reference, rng, args)
    ours.free()
    counts["taken"] += 1
    if wrong:
        options = {k: v for k, v in made["model"].items() if k not in ("vocab", "merges")}
        print("   ", json.dumps(dict(parts, model=options), ensure_ascii=False))
    return wrong


parser = argparse.ArgumentParser()
parser.add_argument("--count", type=int, default=10000)
parser.add_argument("--seed", type=int, default=7)
parser.add_argument("--show", type=int, default=3)
parser.add_argument("--settings", type=int, default=0)
parser.add_argument("file", nargs="+")
args = parser.parse_args()
bad = 0
for path in args.file:
    rng, began = random.Random(args.seed), time.time()
    if args.settings:
        counts = {"taken": 0, "refused": 0, "not a tokenizer": 0}
        wrong = sum(compare_settings(path, rng, args, counts) for _ in range(args.settings))
        why = counts.pop("why", {})
        print(f"{path}: {counts}, {counts['taken'] * args.count} strings, {wrong} differ, "
              f"{time.time() - began:.0f} s", flush=True)
        for sentence in sorted(why, key=why.get, reverse=True) if args.show > 3 else []:
            print(f"    {why[sentence]:5} {sentence}")
    else:
        wrong = compare(path, Ours(path, LIBRARY), Tokenizer.from_file(path), rng, args)
        print(f"{path}: {args.count} strings, {wrong} differ, {time.time() - began:.0f} s", flush=True)
    bad += wrong
sys.exit(bad > 0)
