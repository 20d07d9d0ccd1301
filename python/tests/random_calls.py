#!/usr/bin/env python3
"""random_calls.py - random calls of the Python package, most of them wrong: each must give a
result or an exception with a sentence, and never a crash.

    make BUILD=build-asan SAN=address,undefined build-asan/libpolyhead.so.0.1.0
    LD_PRELOAD="$(cc -print-file-name=libasan.so) $(cc -print-file-name=libubsan.so)" \\
        ASAN_OPTIONS=detect_leaks=0 POLYHEAD_LIBRARY=build-asan PYTHONPATH=python \\
        python3 python/tests/random_calls.py 100000

Prints how many calls were good and how many refused; a second argument is the first seed.
"""
import random
import sys

import numpy as np

import polyhead

TYPES = ["f4"] * 12 + ["f2", "f8", "i4", ">f4", "c8", "?"]


def size(r, usual):
    return usual if r.random() > r.wild else r.choice([0, 1, 2, 3, 5, 17])


def array(r, shape, dtype="f4"):
    """Of this shape or nearly, in some layout."""
    shape = [size(r, n) for n in shape]
    if r.random() < r.wild / 2:
        shape = shape[:-1] if r.random() < 0.5 else [1, *shape]
    with_nan = dtype == "f4"
    value = r.choice([0.0, 0.5, -3.0] + with_nan * [1e30, np.nan, np.inf])
    made = np.full(shape, value, np.float32)
    made = made.astype(dtype)
    layout = r.random() if r.wild else 0.15 + r.random()
    if layout < 0.19 and made.ndim > 2:
        return made.swapaxes(1, 2).copy().swapaxes(1, 2)
    if 0.2 < layout < 0.24 and r.wild and made.ndim > 1:
        return made.T.copy().T
    if layout < 0.27 and r.wild and made.ndim:
        return made[..., ::-1]
    if layout < 0.3 and r.wild and made.size and made.ndim:
        return np.broadcast_to(made.reshape(-1)[:1], made.shape)
    if layout < 0.32 and r.wild:
        return np.frombuffer(bytes(made.nbytes + 1), np.uint8)[1:].view(made.dtype).reshape(
            made.shape)
    return made


def lengths(r, count, most):
    return [r.randint(-1, most + 1) if r.random() < r.wild else r.randint(0, most)
            for _ in range(size(r, count))]


def options(r, b, h, t, s):
    found = {}
    maybe = {
        "causal": lambda: True, "window": lambda: (r.randint(-2, 9), r.randint(-2, 9)),
        "offset": lambda: r.choice([0, 3, -5, "end", 2**31 - 1]),
        "bias": lambda: array(r, (r.choice([1, b]), r.choice([1, h]), r.choice([1, t]), s)),
        "visible": lambda: array(r, (r.choice([1, b]), 1, r.choice([1, t]), s)) != 0,
        "gate": lambda: array(r, r.choice([(h,), (b, h, t)])),
        "sink": lambda: array(r, (h,)), "alibi": lambda: array(r, (h,)),
        "relative": lambda: array(r, (h, r.choice([3, 5, 6]))),
        "q_lens": lambda: lengths(r, b, t), "kv_lens": lambda: lengths(r, b, s),
        "scale": lambda: r.choice([0.0, 0.1, -1.0, 1e30, float("nan")]),
        "softcap": lambda: r.choice([0.0, 2.0, -1.0, float("inf")]),
        "dropout": lambda: r.choice([0.0, 0.1, 0.99, 1.0, -0.5]),
        "variant": lambda: r.choice(["mha", "sparsemax", "entmax:alpha=1.5", "talking", "gqa:2",
                                     "mqa", "dcmha:rank=1", "nonsense", "entmax:alpha=9"]),
        "page_table": lambda: np.array([[r.randint(-1, b)] for _ in range(b)]),
        "q_offsets": lambda: np.cumsum([0] + [r.randint(0, t) for _ in range(b)]),
    }
    for name, make in maybe.items():
        if r.random() < (0.02 if name in ("page_table", "q_offsets") else 0.1):
            found[name] = make()
    if found.get("variant") == "talking":
        found["extra"] = {"w_logits": array(r, (h, h)), "w_weights": array(r, (h, h))}
    return found


def call(r):
    b, h, t, s, d = (r.choice([1, 2, 3]), r.choice([1, 2, 4, 8]), r.choice([1, 2, 7, 20]),
                     r.choice([1, 3, 20, 33]), r.choice([1, 4, 8, 16]))
    r.wild = r.choice([0, 0, 0, 0.02, 0.07])  # how often a size is another
    groups, dtype = r.choice([h, h, 1, 2, 3]), r.choice(TYPES) if r.wild else "f4"
    q, k, v = (array(r, (b, h, t, d), dtype), array(r, (b, groups, s, d), dtype),
               array(r, (b, groups, s, r.choice([d, 5])), dtype))
    given = options(r, b, h, t, s)
    out, lse = polyhead.attention(q, k, v, return_lse=True, **given)
    given.pop("page_table", None)
    if r.random() < 0.5:
        wanted = [name for name in ("q", "k", "v", "bias", "gate", "sink", "relative")
                  if r.random() < 0.7]
        polyhead.attention_backward(array(r, out.shape, out.dtype), q, k, v, out, lse,
                                    wanted=wanted, **given)
    if r.random() < 0.2:
        seen = polyhead.look(q, k, lse, **given)
        seen.top(r.randint(0, 40))
        seen.rect(r.randint(-1, b), r.randint(-1, h), (r.randint(0, t), r.randint(0, t + 1)),
                  (r.randint(0, s), r.randint(0, s + 1)))


def main(count, first=0):
    good, sentences = 0, {}
    for seed in range(first, first + count):
        try:
            call(random.Random(seed))
            good += 1
        except (polyhead.Error, TypeError, MemoryError) as why:
            assert str(why), f"seed {seed}: an exception without a sentence"
            start = " ".join(str(why).split()[:2])
            sentences[start] = sentences.get(start, 0) + 1
    print(f"{good} calls were good, {count - good} refused in {len(sentences)} ways")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
