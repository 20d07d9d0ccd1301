#!/usr/bin/env python3
"""whisper.py - a trained Whisper on log-mel features: polyhead against transformers in f32.

    python3 bench/whisper.py MODEL FEATURES.npy... [parity|speed]

MODEL is a Hugging Face folder with its tokenizer.json, FEATURES what its feature extractor makes of
a recording: (mels, frames) in float32. Parity: the greedy text; for the tokens of that text the
log-probability of every next token and the weights of every head (encoder, decoder, cross), each
beside the error that transformers itself has in float32 against float64: more than four times that, or a
text that parts without a tie of the two best logits, gives status 1. Speed: medians of
interleaved runs, the encoder and one token, then each further token.
"""
import os
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../python"))
os.environ.setdefault("POLYHEAD_THREADS", "2")

import numpy as np
import torch
import verdict
from polyhead import Model
from transformers import WhisperForConditionalGeneration

torch.set_num_threads(int(os.environ["POLYHEAD_THREADS"]))
TOKENS = 41  # of a speed run: one, then forty more
TEXT = 100   # of a text that is compared, at most


def load(folder, dtype, attention="eager"):
    return WhisperForConditionalGeneration.from_pretrained(folder, dtype=dtype,
                                                           attn_implementation=attention).eval()


def forward(model, features, ids):
    with torch.no_grad():
        out = model(torch.tensor(features, dtype=model.dtype)[None], decoder_input_ids=torch.tensor([ids]),
                    output_attentions=True)
    maps = {f"{name}.{i}.{kind}": w[0].double().numpy()
            for name, kind, list_ in (("encoder", "self", out.encoder_attentions),
                                      ("decoder", "self", out.decoder_attentions),
                                      ("decoder", "cross", out.cross_attentions))
            for i, w in enumerate(list_)}
    return torch.log_softmax(out.logits[0].double(), -1).numpy(), maps


def greedy(model, features, start, tokens, ends, first):
    """The likeliest token each time, but none of `first` in the beginning; up to an end, which is not among them. With
    each the gap of the two best logits in parts of their rms, and that of the end."""
    ids, gaps = list(start), [float("inf")] * len(start)
    with torch.no_grad():
        encoded, past = model.model.encoder(torch.tensor(features)[None]), None
        given = torch.tensor([ids])
        for step in range(tokens):
            out = model(encoder_outputs=encoded, decoder_input_ids=given, past_key_values=past)
            past, scores = out.past_key_values, out.logits[0, -1].clone()
            rms = scores.pow(2).mean().sqrt()
            if step == 0:
                scores[first] = -float("inf")
            best = torch.topk(scores, 2)
            gaps.append(float((best.values[0] - best.values[1]) / rms))
            if int(best.indices[0]) in ends:
                break
            ids.append(int(best.indices[0]))
            given = torch.tensor([ids[-1:]])
    return ids, gaps


def start_of(config):
    alone = [config.decoder_start_token_id]
    marked = config.no_timestamps_token_id if hasattr(config, "no_timestamps_token_id") else None
    return alone + [marked] if marked else alone


def compare_tokens(name, found, ids, gaps, most):
    """The breach of a text that parts, if it does: where one ends before the other, too."""
    shared = next((n for n, (a, b) in enumerate(zip(found, ids)) if a != b), min(len(found), len(ids)))
    if shared == len(ids) == most or shared == len(ids) == len(found):
        return []
    return verdict.parted(name, shared, gaps[shared] if shared < len(gaps) else float("nan"))


def parity(folder, paths):
    """Prints what differs; the breaches."""
    ours, single, double = Model.read(folder), load(folder, torch.float32), load(folder, torch.float64)
    config = single.generation_config
    worst, breaches, start = {}, [], start_of(config)
    for path in paths:
        features = np.load(path)
        ids, gaps = greedy(single, features, start, TEXT, [config.eos_token_id],
                           list(config.begin_suppress_tokens or []))
        text = "".join(ours.token_text(i) for i in ids)
        generated = ours.generate(path, max_tokens=TEXT)
        reading = ours.look(path)
        seen = reading._tokens(1)
        print(f"{os.path.basename(path)}: {generated!r}, tokens {'equal' if seen[:len(ids)] == ids else text}")
        breaches += compare_tokens(os.path.basename(path), seen, ids, gaps, len(start) + TEXT)
        (rounded, near), (exact, maps) = forward(single, features, seen), forward(double, features, seen)
        values = {"log-probabilities": (reading.next(), rounded, exact)}
        for site in reading.sites:
            values[site.name.split(".")[0] + " " + site.name.split(".")[2]] = (
                reading.weights(site.name), near[site.name], maps[site.name])
            for name, (mine, theirs, true) in values.items():
                old = worst.get(name, (0, 0))
                worst[name] = (max(old[0], np.abs(mine - true).max()), max(old[1], np.abs(theirs - true).max()))
    for name, (mine, theirs) in worst.items():
        print(f"{name}: ours off by {mine:.1e}, transformers in float32 by {theirs:.1e} ({mine / theirs:.2f}x)")
        breaches += verdict.within(f"the error of {name}", mine, verdict.TIMES * theirs)
    return breaches


def speed(folder, paths):
    ours, theirs = Model.read(folder), load(folder, torch.float32, "sdpa")
    config, path = theirs.generation_config, paths[0]
    features, start = np.load(path), start_of(config)
    theirs_run = lambda n: greedy(theirs, features, start, n, [], [config.eos_token_id])
    ways = {"polyhead": lambda n: ours.generate(path, max_tokens=n), "transformers": theirs_run}
    tokens = len(theirs_run(TOKENS)[0]) - len(start)
    times = {(name, n): [] for name in ways for n in (1, tokens)}
    for _ in range(7):
        for (name, n), list_ in times.items():
            time.sleep(0.1)  # threads of the others spin for a while after their work
            begin = time.perf_counter()
            ways[name](n)
            list_.append(time.perf_counter() - begin)
    median = {key: statistics.median(list_[1:]) for key, list_ in times.items()}
    for name in ways:
        first, each = median[name, 1], (median[name, tokens] - median[name, 1]) / (tokens - 1)
        print(f"{name}: encoder and first token {1e3 * first:.0f} ms, each further token {1e3 * each:.2f} ms")


if __name__ == "__main__":
    files = [a for a in sys.argv[2:] if a.endswith(".npy")]
    breaches = []
    for what in [a for a in sys.argv[2:] if a not in files] or ["parity", "speed"]:
        breaches += {"parity": parity, "speed": speed}[what](sys.argv[1], files) or []
    verdict.end(breaches)
