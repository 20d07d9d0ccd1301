#!/usr/bin/env python3
"""decoders.py - a trained decoder by polyhead, transformers and llama.cpp: prefill and decoding.

    polyhead export MODEL.gguf --dtype f32 --out FOLDER
    python3 bench/decoders.py MODEL.gguf FOLDER

Needs transformers and torch; llama-cpp-python where it is there. polyhead and llama.cpp read the
GGUF file as it is stored, transformers the folder in f32 and bf16, polyhead too where the folder has
a tokenizer.json.
Printed are tokens per second, medians of interleaved runs on the same threads: 512 tokens of a
prompt, then 64 new ones each alone. Ours includes the tokenizer.
"""
import os
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../python"))
THREADS = int(os.environ.setdefault("POLYHEAD_THREADS", "2"))

import torch
from polyhead import Model
from transformers import AutoModelForCausalLM

torch.set_num_threads(THREADS)
PROMPT, NEW, RUNS = 512, 64, 5


def polyhead(path):
    model = Model.read(path)
    text = "cat"
    while len(model.tokens(text)) < PROMPT:
        text += " cat"
    assert len(model.tokens(text)) == PROMPT

    def run(new):
        start = time.perf_counter()
        model.generate(text, max_tokens=new)
        return time.perf_counter() - start
    return run


def transformers(folder, dtype):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa").eval()
    ids = torch.arange(1000, 1000 + PROMPT)[None]

    def run(new):
        start = time.perf_counter()
        given, past = ids, None
        with torch.inference_mode():
            for _ in range(new):
                out = model(given, past_key_values=past, use_cache=True, logits_to_keep=1)
                past, given = out.past_key_values, out.logits[:, -1].argmax(-1)[:, None]
        return time.perf_counter() - start
    return run


def llama(path):
    try:
        from llama_cpp import Llama
    except ImportError:
        return None
    model = Llama(path, n_ctx=1024, n_batch=PROMPT, n_ubatch=PROMPT, n_threads=THREADS, n_threads_batch=THREADS,
                  verbose=False)

    def run(new):
        model.reset()
        start = time.perf_counter()
        model.eval(range(1000, 1000 + PROMPT))
        for token in range(new - 1):
            model.eval([1000 + token])
        return time.perf_counter() - start
    return run


def main():
    has_tokenizer = os.path.exists(f"{sys.argv[2]}/tokenizer.json")
    ways = {"polyhead, GGUF": polyhead(sys.argv[1]),
            "polyhead, f32": polyhead(sys.argv[2]) if has_tokenizer else None,
            "transformers, f32": transformers(sys.argv[2], torch.float32),
            "transformers, bf16": transformers(sys.argv[2], torch.bfloat16), "llama.cpp, GGUF": llama(sys.argv[1])}
    times = {(name, new): [] for name, way in ways.items() if way for new in (1, 1 + NEW)}
    for _ in range(RUNS):
        for (name, new), list_ in times.items():
            time.sleep(0.1)  # threads of the others spin for a while after their work
            list_.append(ways[name](new))
    for name in dict(times):
        if name[1] == 1:
            first, all_ = (statistics.median(times[name[0], new][1:]) for new in (1, 1 + NEW))
            print(f"{name[0]:20} prefill {PROMPT / first:6.0f} tokens/s, decode {NEW / (all_ - first):6.1f} tokens/s")


if __name__ == "__main__":
    main()
