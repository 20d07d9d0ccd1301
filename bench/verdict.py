"""verdict.py - what makes a comparison with transformers fail.

A comparison prints what it found and returns its breaches, a list of sentences; `end` prints these, and the script
ends with status 1 if there is one.
"""
import sys

TIE = 1e-4     # the reference's two best logits, in parts of their rms: nearer ones rounding may exchange
COSINE = 1e-5  # distance of a cosine from 1
TIMES = 4      # the error that the reference has itself in float32


def within(what, found, limit):
    """The breach of a number above its limit, NaN too."""
    return [] if found <= limit else [f"{what} is {found:.2e}, expected at most {limit:.2e}"]


def parted(what, token, gap):
    """The breach of a text that parts from the reference's at a token where there is no tie."""
    return within(f"{what} parts at token {token}, where the gap of the two best logits", gap, TIE)


def end(breaches):
    for sentence in breaches:
        print(f"WRONG: {sentence}")
    sys.exit(bool(breaches))
