#!/usr/bin/env python3
"""real_models.py - greedy texts of trained models by polyhead and by transformers (f32).

    tools/real-models FOLDER
    python3 bench/real_models.py FOLDER [TOKENS]

Needs transformers, torch and gguf. Each of 20 prompts is continued greedily; printed is how many
texts are equal, and for others where they part and how far apart the reference's two best logits
are there: a difference within rounding (1e-4 of the logits' rms) is a tie, not an error. A text that
parts without one gives status 1.
"""
import json
import os
import struct
import subprocess
import sys

import numpy as np
import torch
import verdict
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../build/polyhead")
PROMPTS = ["Once upon a time", "The dog was", "One day, a little boy", "There was a big tree",
           "Lily and Tom", "The sun is", "A cat sat on", "In the garden", "My friend said",
           "It was raining", "The capital of France is", "Water boils at", "She opened the door and",
           "The old man", "A good recipe for", "The first thing", "Birds can", "When I was young",
           "The king and the queen", "He did not know"]


def stories(folder):
    """A llama2.c file as a model of transformers, and its tokenizer as two functions."""
    raw = open(f"{folder}/stories15M/stories15M.bin", "rb").read()
    dim, hidden, layers, heads, kv, vocab, length = struct.unpack("<7i", raw[:28])
    at, data = 0, np.frombuffer(raw[28:], np.float32)

    def take(*shape):
        nonlocal at
        count = int(np.prod(shape))
        at += count
        return torch.tensor(data[at - count:at].reshape(shape))

    def halves(w):  # interleaved pairs to halves
        return w.reshape(heads, dim // heads // 2, 2, dim).transpose(1, 2).reshape(dim, dim)

    m = LlamaForCausalLM(LlamaConfig(
        vocab_size=vocab, hidden_size=dim, intermediate_size=hidden, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=kv, max_position_embeddings=length,
        rms_norm_eps=1e-5, tie_word_embeddings=True))
    s = {"model.embed_tokens.weight": take(vocab, dim)}
    for name, shape in [("input_layernorm", (dim,)), ("self_attn.q_proj", (dim, dim)),
                        ("self_attn.k_proj", (dim, dim)), ("self_attn.v_proj", (dim, dim)),
                        ("self_attn.o_proj", (dim, dim)), ("post_attention_layernorm", (dim,)),
                        ("mlp.gate_proj", (hidden, dim)), ("mlp.down_proj", (dim, hidden)),
                        ("mlp.up_proj", (hidden, dim))]:
        for i, w in enumerate(take(layers, *shape)):
            s[f"model.layers.{i}.{name}.weight"] = halves(w) if name[10:] in ("q_proj", "k_proj") else w
    s["model.norm.weight"] = take(dim)
    s["lm_head.weight"] = s["model.embed_tokens.weight"]
    m.load_state_dict(s)
    raw, at, tokens, scores = open(f"{folder}/stories15M/tokenizer.bin", "rb").read(), 4, [], []
    for _ in range(vocab):
        score, size = struct.unpack("<fi", raw[at:at + 8])
        tokens.append(raw[at + 8:at + 8 + size])
        scores.append(score)
        at += 8 + size
    index = {t: i for i, t in enumerate(tokens)}  # the first 259 repeat single bytes

    def encode(text):
        ids = [index[c.encode()] for c in " " + text]
        while True:
            pairs = [(scores[index[tokens[a] + tokens[b]]], -i) for i, (a, b) in enumerate(zip(ids, ids[1:]))
                     if tokens[a] + tokens[b] in index]
            if not pairs:
                return [1] + ids
            i = -max(pairs)[1]
            ids[i:i + 2] = [index[tokens[ids[i]] + tokens[ids[i + 1]]]]

    def decode(ids):
        return b"".join(bytes([int(tokens[i][3:5], 16)]) if tokens[i].startswith(b"<0x") else tokens[i]
                        for i in ids).decode("utf-8", "replace")
    return f"{folder}/stories15M/stories15M.bin", m, encode, decode, [1, 2]


def smollm2(folder):
    name = "SmolLM2-135M-Instruct.Q4_1.gguf"
    t = AutoTokenizer.from_pretrained(f"{folder}/smollm2", gguf_file=name)
    m = AutoModelForCausalLM.from_pretrained(f"{folder}/smollm2", gguf_file=name, dtype=torch.float32)
    return (f"{folder}/smollm2/{name}", m, lambda x: t(x, add_special_tokens=False).input_ids,
            lambda ids: t.decode(ids, skip_special_tokens=True), [2])


def reference(model, prompts, count, ends):
    """Greedy ids of prompts of one length, so nothing is padded; with each the gap of the two
    best logits, in parts of the logits' rms."""
    out, gaps, past, given = [[] for _ in prompts], [[] for _ in prompts], None, torch.tensor(prompts)
    with torch.no_grad():
        for _ in range(count):
            r = model(given, past_key_values=past, use_cache=True)
            rows, past = r.logits[:, -1], r.past_key_values
            best = torch.topk(rows, 2)
            rms = rows.pow(2).mean(-1).sqrt()
            for i, token in enumerate(best.indices[:, 0].tolist()):
                out[i].append(token)
                gaps[i].append(float((best.values[i, 0] - best.values[i, 1]) / rms[i]))
            given = best.indices[:, :1]
    ended = [next((n for n, token in enumerate(ids) if token in ends), count) for ids in out]
    return [(ids[:n], gap) for ids, gap, n in zip(out, gaps, ended)]


def references(model, prompts, count, ends):
    """The same for prompts of any length, those of one length together."""
    found = [None] * len(prompts)
    for length in sorted({len(p) for p in prompts}):
        at = [i for i, p in enumerate(prompts) if len(p) == length]
        for i, answer in zip(at, reference(model, [prompts[i] for i in at], count, ends)):
            found[i] = answer
    return found


def compare(name, folder, count):
    """Prints what differs; the breaches."""
    path, model, encode, decode, ends = name(folder)
    model.eval()
    asked = subprocess.run([PROGRAM, "generate", path, "--max-tokens", str(count), "--json"],
                           input="\n".join(PROMPTS) + "\n", capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in asked.stdout.rstrip("\n").split("\n")]
    assert len(answers) == len(PROMPTS)
    equal, tokens, least, breaches = 0, 0, float("inf"), []
    for prompt, answer, (ids, gaps) in zip(PROMPTS, answers,
                                           references(model, [encode(p) for p in PROMPTS], count, ends)):
        found, wanted = answer["generated"], decode(ids)
        tokens, least = tokens + len(ids), min(least, *gaps[:len(ids) + 1])
        if found.strip() == wanted.strip():
            equal += 1
            continue
        shared = next((n for n in range(len(ids)) if not found.strip().startswith(decode(ids[:n + 1]).strip())),
                      len(ids))
        gap = gaps[shared] if shared < len(gaps) else float("nan")
        breaches += verdict.parted(repr(prompt), shared, gap)
        print(f"  {prompt!r} parts at token {shared}, gap {gap:.2e}: {found.strip()[-60:]!r}")
    print(f"{name.__name__}: {equal} of {len(PROMPTS)} texts of {count} tokens equal, "
          f"{len(PROMPTS) - equal - len(breaches)} part at a tie; {tokens} tokens, least gap {least:.2e}")
    return breaches


if __name__ == "__main__":
    length = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    verdict.end(compare(stories, sys.argv[1], length) + compare(smollm2, sys.argv[1], length))
