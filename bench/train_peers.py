#!/usr/bin/env python3
"""train_peers.py - training steps against PyTorch, in alternating rounds.

    python3 bench/train_peers.py [--rounds 3] [--steps 6] [--threads 2] [--only NAME]

Same models, same batches, f32, with dropout 0.1, clipping and AdamW (fused in PyTorch):

    both      encoder-decoder base: 6+6 layers, 512, 8 heads, feed-forward 2048, B=32, T=20
    decoder   6 layers, 384, 6 heads, B=8, T=256, causal

Polyhead runs as `polyhead train`, PyTorch in a process of its own, a few steps each in turn; the first step of every round does not count. Printed are least and
median times and their ratios (above 1: Polyhead is faster), and the peak memory of both
processes. Without PyTorch there is nothing to compare with: one line says so.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAM = os.path.join(ROOT, "build", "polyhead")
LETTERS = "abcdefghijklmnopqrstuvwxyz"


# ---- PyTorch ----

def peer_model(torch, kind, vocab):
    nn = torch.nn

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(vocab, 512)
            self.net = nn.Transformer(512, 8, 6, 6, 2048, 0.1, batch_first=True)

        def forward(self, source, target):
            mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
            y = self.net(self.embed(source), self.embed(target), tgt_mask=mask,
                         tgt_is_causal=True)
            return y @ self.embed.weight.T

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(vocab, 384)
            layer = nn.TransformerEncoderLayer(384, 6, 1536, 0.1, "gelu", batch_first=True,
                                               norm_first=True)
            self.net = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)

        def forward(self, source, _):
            mask = nn.Transformer.generate_square_subsequent_mask(source.shape[1])
            y = self.net(self.embed(source), mask=mask, is_causal=True)
            return y @ self.embed.weight.T

    return Both() if kind == "both" else Decoder()


def peer_train(torch, kind, rounds_of):
    """Says one JSON list of seconds per step for every line on stdin."""
    torch.manual_seed(1)
    vocab = 30
    batch, length = (32, 20) if kind == "both" else (8, 256)
    model = peer_model(torch, kind, vocab).train()
    best = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)
    loss_of = torch.nn.CrossEntropyLoss()
    source = torch.randint(4, vocab, (batch, length))
    target = torch.randint(4, vocab, (batch, length))
    for _ in sys.stdin:
        times = []
        for _ in range(rounds_of):
            start = time.perf_counter()
            best.zero_grad(set_to_none=True)
            loss = loss_of(model(source, target).flatten(0, 1), target.flatten())
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            best.step()
            float(loss.detach())
            times.append(time.perf_counter() - start)
        say_round(times)


def say_round(times):
    with open("/proc/self/status", encoding="ascii") as status:
        peak = next(int(l.split()[1]) for l in status if l.startswith("VmHWM"))
    print(json.dumps({"times": times, "peak": peak}), flush=True)


def peer(kind, steps, threads):
    import torch
    torch.set_num_threads(threads)
    print("ready", flush=True)
    peer_train(torch, kind, steps)


# ---- Polyhead ----

SHAPES = {
    "both": ["--layers", "6", "--model-dim", "512", "--heads", "8", "--ff-dim", "2048", "--batch", "32",
             "--activation", "relu", "--norm-place", "post"],
    "decoder": ["--layers", "6", "--model-dim", "384", "--heads", "6", "--batch", "8", "--length",
                "256", "--positions", "learned"],
}


def write_data(folder):
    random.seed(1)
    line = lambda n: "".join(random.choice(LETTERS) for _ in range(n))
    with open(os.path.join(folder, "both"), "w", encoding="ascii") as out:
        for _ in range(2000):
            out.write(line(20) + "\t" + line(19) + "\n")
    with open(os.path.join(folder, "decoder"), "w", encoding="ascii") as out:
        out.write(line(100000))


def own_train(folder, kind, steps, threads):
    data = os.path.join(folder, kind)
    what = ["--pairs", data] if kind == "both" else ["text", data]
    out = tempfile.mkdtemp(dir=folder)
    call = [PROGRAM, "train", *what, "-o", out, "--steps", str(steps), "--log-every", "1",
            "--test", "0", "--dropout", "0.1", "--json", "--threads", str(threads), *SHAPES[kind]]
    run = subprocess.Popen(call, stdout=subprocess.PIPE, text=True)
    text = run.stdout.read()
    _, status, usage = os.wait4(run.pid, 0)
    if status:
        sys.exit(f"train_peers.py: {' '.join(call)} failed")
    at = [json.loads(l)["seconds"] for l in text.splitlines() if '"loss"' in l]
    return [b - a for a, b in zip([0.0] + at, at)], usage.ru_maxrss


# ---- the rounds ----

def compare(kind, options, folder):
    child = subprocess.Popen([options.python, os.path.abspath(__file__), "--peer", kind,
                              "--steps", str(options.steps), "--threads",
                              str(options.threads)],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    if child.stdout.readline().strip() != "ready":
        sys.exit("train_peers.py: PyTorch does not start")
    ours, theirs, peaks = [], [], [0, 0]
    for _ in range(options.rounds):
        times, peak = own_train(folder, kind, options.steps, options.threads)
        ours += times[1:]
        peaks[0] = max(peaks[0], peak)
        child.stdin.write("go\n")
        child.stdin.flush()
        answer = json.loads(child.stdout.readline())
        theirs += answer["times"][1:]
        peaks[1] = max(peaks[1], answer["peak"])
    child.stdin.close()
    child.wait()
    least = [min(ours), min(theirs)]
    middle = [statistics.median(ours), statistics.median(theirs)]
    print(f"{kind:9} least {least[0] * 1e3:9.2f} ms, PyTorch {least[1] * 1e3:9.2f}: "
          f"{least[1] / least[0]:5.2f}x   median {middle[0] * 1e3:9.2f}, "
          f"{middle[1] * 1e3:9.2f}: {middle[1] / middle[0]:5.2f}x   peak "
          f"{peaks[0] // 1024} MiB, {peaks[1] // 1024}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", choices=["both", "decoder"])
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        peer(options.peer, options.steps, options.threads)
        return
    if subprocess.run([options.python, "-c", "import torch"], capture_output=True,
                      check=False).returncode:
        print("PyTorch is not here, nothing to compare with")
        return
    with tempfile.TemporaryDirectory() as folder:
        write_data(folder)
        for kind in [options.only] if options.only else ["both", "decoder"]:
            compare(kind, options, folder)


if __name__ == "__main__":
    main()
