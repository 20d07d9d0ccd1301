#!/usr/bin/env python3
"""text_peers.py - the recipe `text` against the same model and training in PyTorch.

    python3 bench/text_peers.py [FILE] [--steps 400] [--seeds 3] [--dropout 0.1] [--threads 2]

Same file, same configuration, same first values, same batches, same optimiser, schedule and clipping;
with dropout each side draws its own. Printed are the losses of some steps, and for every seed the loss
on 1,000 unseen windows: with `--dropout 0` the two differ by rounding, else by as much as two seeds do.
FILE: the documents and headers of this project. Without PyTorch there is nothing to compare with: one
line says so.
"""
import argparse
import glob
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAM = os.path.join(ROOT, "build", "polyhead")
MASK = (1 << 64) - 1
SAMPLES, TESTS, TEST_SEED = 2, 3, 20260101  # streams of src/model/train.c
FIRST_TOKEN, TEST_WINDOWS, RATE = 4, 1000, 1e-3


# ---- the samples of src/recipes/corpus.c ----

def mix(z):
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9 & MASK
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb & MASK
    return z ^ (z >> 31)


def key_of(seed, *coordinates):
    key = mix((seed + 0x9e3779b97f4a7c15) & MASK)
    for c in coordinates:
        key = mix((key + c + 0x9e3779b97f4a7c15) & MASK)
    return key


def number_at(key, n):
    x = (n * 0x9e3779b9 + key) & 0xffffffff
    x = (x ^ (x >> 16)) * 0x7feb352d & 0xffffffff
    x = (x ^ (x >> 15)) * 0x846ca68b & 0xffffffff
    return x ^ (x >> 16) ^ (key >> 32)


def below(key, n, limit):
    return number_at(key, n) * limit >> 32


class Corpus:
    def __init__(self, torch, text, length):
        known = {c: FIRST_TOKEN + i for i, c in enumerate(sorted(set(text)))}
        self.torch, self.length = torch, length
        self.tokens = torch.tensor([known[c] for c in text])
        self.held = len(text) - len(text) // 10

    def batch(self, seed, stream, index, count):
        test = stream == TESTS
        first, last = (self.held, len(self.tokens)) if test else (0, self.held)
        rows = []
        for number in range(index * count, (index + 1) * count):
            key = key_of(seed, stream, number, 0)
            wide = below(key, 0, 1 << 30) << 30 | below(key, 1, 1 << 30)
            at = first + wide % (last - self.length - 1 - first + 1)
            rows.append(self.tokens[at:at + self.length + 1])
        both = self.torch.stack(rows)
        return both[:, :-1], both[:, 1:]


# ---- the model of include/polyhead_model.h: norms before, rotation, GELU ----

def rotate(torch, x):
    length, half = x.shape[2], x.shape[3] // 2
    pace = 10000 ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.arange(length, dtype=torch.float64)[:, None] * pace
    cos, sin = angle.cos().float(), angle.sin().float()
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def logits_of(torch, p, config, tokens, dropout):
    F, dim, heads = torch.nn.functional, config["model_dim"], config["heads"]
    drop = lambda x: F.dropout(x, dropout, dropout > 0)
    norm = lambda x, name: F.layer_norm(x, (dim,), p[name + ".gain"], p[name + ".bias"])
    split = lambda x: x.view(*x.shape[:2], heads, -1).transpose(1, 2)
    x = drop(p["embed"][tokens] * math.sqrt(dim))
    for l in range(config["layers"]):
        at = f"decoder.{l}."
        a = norm(x, at + "norm1")
        q, k, v = (split(a @ p[f"{at}self.w{c}"] + p[f"{at}self.b{c}"]) for c in "qkv")
        y = F.scaled_dot_product_attention(rotate(torch, q), rotate(torch, k), v, is_causal=True,
                                           dropout_p=dropout)
        y = y.transpose(1, 2).reshape(x.shape)
        x = x + drop(y @ p[at + "self.wo"] + p[at + "self.bo"])
        h = norm(x, at + "norm2") @ p[at + "ff.w1"] + p[at + "ff.b1"]
        h = drop(F.gelu(h, approximate="tanh"))
        x = x + drop(h @ p[at + "ff.w2"] + p[at + "ff.b2"])
    return norm(x, "decoder.norm") @ p["embed"].T


def rate_at(options, step):
    warm = options["warmup"] or 1
    if step < warm:
        return options["lr"] * step / warm
    rest = (step - warm) / max(options["steps"] - warm, 1)
    return options["lr"] * (0.1 + 0.45 * (1 + math.cos(math.pi * min(rest, 1))))


def train_peer(torch, path, text, seed, own):
    """Trains from the first values in `path`; the losses of all steps, and the held-out one."""
    from safetensors import safe_open
    with safe_open(path, "pt") as file:
        about = file.metadata()
        config, options = json.loads(about["polyhead.config"]), json.loads(about["polyhead.train"])
        options.update(steps=own.steps, lr=RATE)
        names = [n for n in file.keys() if not n.startswith("optimiser.")]
        p = {n: file.get_tensor(n).requires_grad_() for n in names}
    groups = [{"params": [t for t in p.values() if t.ndim > 1], "weight_decay": options["weight_decay"]},
              {"params": [t for t in p.values() if t.ndim < 2], "weight_decay": 0.0}]
    best = torch.optim.AdamW(groups, betas=(0.9, 0.98), eps=1e-9, fused=True)
    loss_of = torch.nn.functional.cross_entropy
    corpus, losses, held = Corpus(torch, text, config["max_len"]), [], []
    for step in range(options["steps"]):
        source, labels = corpus.batch(seed, SAMPLES, step, options["batch"])
        loss = loss_of(logits_of(torch, p, config, source, own.dropout).flatten(0, 1), labels.flatten())
        best.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(p.values(), options["max_grad_norm"])
        for group in best.param_groups:
            group["lr"] = rate_at(options, step + 1)
        best.step()
        losses.append(loss.item())
    with torch.no_grad():
        for index in range(TEST_WINDOWS // 50):
            source, labels = corpus.batch(TEST_SEED, TESTS, index, 50)
            held.append(loss_of(logits_of(torch, p, config, source, 0).flatten(0, 1),
                                labels.flatten()).item())
    return losses, statistics.mean(held)


# ---- Polyhead ----

def train_own(folder, path, seed, options):
    out = os.path.join(folder, f"run-{seed}")
    subprocess.run([PROGRAM, "train", "text", path, "-o", out, "--seed", str(seed), "--steps",
                    str(options.steps), "--dropout", str(options.dropout), "--threads",
                    str(options.threads), "--log-every", "1", "--test", str(TEST_WINDOWS), "-q",
                    "--lr", str(RATE)], check=True, capture_output=True)
    with open(os.path.join(out, "log.jsonl"), encoding="utf-8") as log:
        lines = [json.loads(line) for line in log]
    steps = {line["step"]: line["loss"] for line in lines if "lr" in line and "loss" in line}
    return [steps[s] for s in sorted(steps)], [l for l in lines if "token_accuracy" in l][-1]["test_loss"]


def first_values(folder, path, seed, options):
    """A checkpoint whose parameters never moved: the rate of its one step was 0."""
    out = os.path.join(folder, f"first-{seed}")
    subprocess.run([PROGRAM, "train", "text", path, "-o", out, "--seed", str(seed), "--steps", "1",
                    "--dropout", str(options.dropout), "--lr", "0", "--test", "0", "-q"],
                   check=True, capture_output=True)
    return os.path.join(out, "step-00000001.safetensors")


def compare(torch, options, folder, path, text):
    held = []
    for seed in range(1, options.seeds + 1):
        torch.manual_seed(seed)
        ours, ours_held = train_own(folder, path, seed, options)
        start = first_values(folder, path, seed, options)
        theirs, theirs_held = train_peer(torch, start, text, seed, options)
        some = [s for s in (1, 2, 5, 20, 100, options.steps) if s <= options.steps]
        print(f"seed {seed}  loss of step " +
              "  ".join(f"{s}: {ours[s - 1]:.4f} / {theirs[s - 1]:.4f}" for s in some))
        print(f"seed {seed}  unseen {ours_held:.4f} / {theirs_held:.4f}, "
              f"difference {ours_held - theirs_held:+.4f}", flush=True)
        held.append((ours_held, theirs_held))
    if len(held) > 1:
        for name, column in zip(("Polyhead", "PyTorch"), zip(*held)):
            print(f"{name:8}  unseen {statistics.mean(column):.4f} +- {statistics.stdev(column):.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    try:
        import torch
        import safetensors  # noqa: F401
    except ImportError:
        print("PyTorch is not here, nothing to compare with")
        return
    torch.set_num_threads(options.threads)
    files = [options.file] if options.file else sorted(
        glob.glob(os.path.join(ROOT, "docs", "*.md")) + glob.glob(os.path.join(ROOT, "include", "*.h")))
    text = "".join(open(name, encoding="utf-8").read() for name in files)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "text")
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
        compare(torch, options, folder, path, text)


if __name__ == "__main__":
    main()
