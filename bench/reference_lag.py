#!/usr/bin/env python3
"""reference_lag.py - what a lagging reference costs and saves, computed with NumPy.

    python3 bench/reference_lag.py

Weights of a row are 2^(score - reference), rounded to bf16. A reference that follows the
row's maximum only when that exceeds it by more than `lag` (in base 2) saves rescaling sums,
but then the largest weight of a row is rounded too, where it would have been exactly 1. For
scores of several spreads: largest and mean error of the output in units of the largest
and mean element, and how many blocks of 16 rows by 128 keys have to be rescaled.
"""
import numpy as np

ROWS, KEYS, DIM, BLOCK, WARP = 1024, 2048, 128, 128, 16
rng = np.random.default_rng(1)


def bf16(x):
    bits = np.asarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def random(rows, gain=1.0):
    return bf16(rng.standard_normal((rows, DIM)).astype(np.float32) * gain).astype(np.float64)


def attend(score, v, lag):
    """Output, and the share of blocks in which some row of a warp is rescaled."""
    reference, total = score[:, :BLOCK].max(1), np.zeros(ROWS)
    out, rescaled = np.zeros((ROWS, DIM)), 0
    for j in range(0, KEYS, BLOCK):
        s = score[:, j:j + BLOCK]
        most = s.max(1)
        now = np.where(most - reference > lag, most, reference)
        factor = np.exp2(reference - now)
        rescaled += (factor != 1).reshape(-1, WARP).any(1).sum()
        weight = np.exp2(s - now[:, None]).astype(np.float32)
        out = out * factor[:, None] + bf16(weight).astype(np.float64) @ v[j:j + BLOCK]
        total, reference = total * factor + weight.sum(1, dtype=np.float64), now
    return bf16(out / total[:, None]), rescaled / (ROWS // WARP * KEYS // BLOCK)


def main():
    for gain in 1, 2, 4, 8:
        q, k, v = random(ROWS, gain), random(KEYS), random(KEYS)
        score = q @ k.T * np.log2(np.e) / np.sqrt(DIM)
        weight = np.exp2(score - score.max(1, keepdims=True))
        truth = weight @ v / weight.sum(1, keepdims=True)
        for lag in 0, 1, 2, 4, 8:
            out, rescaled = attend(score, v, lag)
            off = np.abs(out - truth)
            print(f"scores of {gain}, lag {lag}: error {off.max() / np.abs(truth).max():.2e} "
                  f"mean {off.mean() / np.abs(truth).mean():.2e}, {rescaled:.0%} of blocks rescaled")


if __name__ == "__main__":
    main()
