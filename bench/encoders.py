#!/usr/bin/env python3
"""encoders.py - sentence vectors of a trained model by polyhead, transformers and onnxruntime.

    tools/real-models FOLDER minilm
    python3 bench/encoders.py FOLDER [parity|speed]

Needs transformers, torch and, for the third, onnx and onnxruntime. Parity: 1,000 sentences, pooled
and scaled to norm 1 by both; printed is the largest distance of a cosine from 1, and for orientation
that of transformers in float32 from itself in float64; a cosine further away than 1e-5, or an element off by
more than four times what transformers is in float32, gives status 1. Speed: medians of interleaved runs on the same
threads; ours includes the tokenizer, the others begin with ids.
"""
import ctypes
import importlib.util
import os
import random
import statistics
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../python"))
os.environ.setdefault("POLYHEAD_THREADS", "2")

import numpy as np
import torch
import verdict
from polyhead import Model, _c
from transformers import AutoModel, AutoTokenizer

torch.set_num_threads(int(os.environ["POLYHEAD_THREADS"]))


def embed(model, texts):
    pointers = (ctypes.c_char_p * len(texts))(*[t.encode() for t in texts])
    given = _c.Texts(texts=ctypes.cast(pointers, ctypes.c_void_p), count=len(texts))
    out = np.empty((len(texts), model.config["model_dim"]), np.float32)
    model._check(model._lib.ph_model_embed(model._handle, ctypes.byref(given),
                                           out.ctypes.data_as(ctypes.c_void_p)))
    return out


def reference(model, tokenizer, texts):
    out, order = [None] * len(texts), sorted(range(len(texts)), key=lambda i: len(texts[i]))
    for first in range(0, len(texts), 16):
        chosen = order[first:first + 16]
        given = tokenizer([texts[i] for i in chosen], return_tensors="pt", truncation=True, max_length=256,
                          padding=True)
        with torch.no_grad():
            hidden = model(**given).last_hidden_state
        mask = given["attention_mask"].unsqueeze(-1).to(hidden.dtype)
        vectors = (hidden * mask).sum(1) / mask.sum(1)
        for i, v in zip(chosen, torch.nn.functional.normalize(vectors, dim=1).double().numpy()):
            out[i] = v
    return np.array(out)


def sentences(tokenizer, count):
    words = sorted(w for w in tokenizer.get_vocab() if w.isalpha() and len(w) > 1)
    rng = random.Random(7)
    texts = [line.strip() for name in ("README.md", "docs/TOUR.md", "docs/GLOSSARY.md")
             for line in open(f"{HERE}/../{name}", encoding="utf-8") if len(line) > 20][:count // 2]
    while len(texts) < count:
        n = rng.choice([1, 3, 8, 15, 40, 150, 300])
        texts.append(" ".join(rng.choice(words) for _ in range(n)).capitalize() + rng.choice(".!?"))
    return texts


def parity(folder, count=1000):
    """Prints what differs; the breaches."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    texts = sentences(tokenizer, count)
    ours, theirs = embed(Model.read(folder), texts).astype(np.float64), reference(model, tokenizer, texts)
    apart = 1 - (ours * theirs).sum(1) / np.linalg.norm(ours, axis=1) / np.linalg.norm(theirs, axis=1)
    some = texts[::20]
    exact = reference(model.double(), tokenizer, some)
    off, rounded = (np.abs(vectors[::20] - exact).max() for vectors in (ours, theirs))
    print(f"{len(texts)} sentences: cosines within {apart.max():.1e} of 1, elements within "
          f"{np.abs(ours - theirs).max():.1e}")
    print(f"against float64, {len(some)} of them: ours {off:.1e}, transformers in float32 {rounded:.1e}")
    return (verdict.within("the distance of a cosine from 1", apart.max(), verdict.COSINE)
            + verdict.within("the error of an element", off, verdict.TIMES * rounded))


class Hidden(torch.nn.Module):
    """The inputs and the output that count, as an exporter wants them."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids, mask, types):
        return self.model(input_ids=ids, attention_mask=mask, token_type_ids=types).last_hidden_state


def onnx_session(model):
    for name in ("onnxruntime", "onnx"):  # the second is what torch writes the file by
        if not importlib.util.find_spec(name):
            print(f"onnxruntime is not measured: there is no package {name}")
            return None
    import onnxruntime
    ids, axes = torch.ones(2, 8, dtype=torch.long), {0: "batch", 1: "tokens"}
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/encoder.onnx"
        torch.onnx.export(Hidden(model), (ids, torch.ones_like(ids), torch.zeros_like(ids)), path, dynamo=False,
                          input_names=["ids", "mask", "types"], output_names=["hidden"], opset_version=17,
                          dynamic_axes={"ids": axes, "mask": axes, "types": axes, "hidden": axes})
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(os.environ["POLYHEAD_THREADS"])
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def speed(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa").eval()
    eager = AutoModel.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    own, session = Model.read(folder), onnx_session(eager)
    for batch in (32, 1):
        texts = [" ".join(["cat"] * 126)] * batch
        ids = torch.tensor(tokenizer(texts).input_ids)
        assert ids.shape[1] == 128
        mask, types = torch.ones_like(ids), torch.zeros_like(ids)

        def by_transformers():
            with torch.no_grad():
                model(ids, attention_mask=mask, token_type_ids=types)
        ways = {"polyhead": lambda: embed(own, texts), "transformers": by_transformers}
        if session:
            feed = {"ids": ids.numpy(), "mask": mask.numpy(), "types": types.numpy()}
            ways["onnxruntime"] = lambda: session.run(["hidden"], feed)
        times = {name: [] for name in ways}
        for run in range(7 if batch > 1 else 40):
            for name, way in ways.items():
                time.sleep(0.1)  # threads of the others spin for a while after their work
                start = time.perf_counter()
                way()
                times[name].append(time.perf_counter() - start)
        medians = {name: statistics.median(t[1:]) for name, t in times.items()}
        print(f"{batch} x 128 tokens: " + ", ".join(
            f"{name} {1e3 * t:.1f} ms ({t / medians['polyhead']:.2f}x)" for name, t in medians.items()))


if __name__ == "__main__":
    path = sys.argv[1] if os.path.exists(f"{sys.argv[1]}/config.json") else f"{sys.argv[1]}/minilm"
    breaches = []
    for what in sys.argv[2:] or ["parity", "speed"]:
        breaches += {"parity": parity, "speed": speed}[what](path) or []
    verdict.end(breaches)
