#!/usr/bin/env python3
"""make.py - computes two small Transformers with PyTorch and stores them.

    python3 tests/golden_model/make.py

Needs torch; the tests themselves never do. Everything is computed in float64 from weights
that are rounded to float32; gradients come from autograd, updates from torch.optim.AdamW and
clip_grad_norm_. Written are both.bin (post-norm encoder-decoder, built from
nn.TransformerEncoderLayer and nn.TransformerDecoderLayer) and decoder.bin (pre-norm decoder
with rotary positions, grouped keys, RMS norms and SwiGLU).

A file begins with the line "config JSON", followed by tensors, each a line "tensor NAME COUNT"
and COUNT little-endian floats, and ends with the line "end". w.NAME is a parameter, g.NAME its
gradient after the first step; logits and loss are those of the first step, losses those of 20
steps of AdamW.
"""
import json
import math
import os
import struct

import torch
import torch.nn.functional as F
from torch import nn

HERE = os.path.dirname(os.path.abspath(__file__))
DIM, HEADS, FF, VOCAB, LAYERS, BATCH, SOURCE, TARGET = 16, 4, 24, 13, 2, 3, 7, 6
STEPS, RATE, WARMUP, DECAY, CLIP, SMOOTHING = 20, 0.01, 5, 0.05, 0.5, 0.1
PAD = -1


def places(length):
    t = torch.arange(length, dtype=torch.float64)[:, None]
    angle = t / 10000 ** (torch.arange(0, DIM, 2, dtype=torch.float64) / DIM)
    return torch.stack([angle.sin(), angle.cos()], -1).reshape(length, DIM)


def rounded(*shape, gen, gain):
    x = torch.randn(*shape, generator=gen, dtype=torch.float64) * gain
    return x.to(torch.float32).to(torch.float64)


def parameters(shapes, seed):
    """Names and shapes in; leaves of the graph out."""
    gen = torch.Generator().manual_seed(seed)
    out = {}
    for name, shape in shapes.items():
        gain = 0.3 / math.sqrt(shape[0]) * 3 if len(shape) > 1 else 0.2
        x = rounded(*shape, gen=gen, gain=gain)
        if name.endswith("gain"):
            x = x + 1
        out[name] = x.to(torch.float32).to(torch.float64).requires_grad_()
    return out


def attention_shapes(stem, kv):
    wide, keys = DIM, kv * (DIM // HEADS)
    return {f"{stem}.wq": (DIM, wide), f"{stem}.wk": (DIM, keys), f"{stem}.wv": (DIM, keys),
            f"{stem}.wo": (wide, DIM)}


def biases(stem):
    return {f"{stem}.b{x}": (DIM,) for x in "qkvo"}


# ---- encoder-decoder, from PyTorch's own layers ----

def both_shapes():
    shapes = {"embed": (VOCAB, DIM)}
    for stack in ("encoder", "decoder"):
        for l in range(LAYERS):
            stem = f"{stack}.{l}"
            kinds = ["self"] if stack == "encoder" else ["self", "cross"]
            for kind in kinds:
                shapes |= attention_shapes(f"{stem}.{kind}", HEADS) | biases(f"{stem}.{kind}")
            shapes |= {f"{stem}.ff.w1": (DIM, FF), f"{stem}.ff.w2": (FF, DIM),
                       f"{stem}.ff.b1": (FF,), f"{stem}.ff.b2": (DIM,)}
            for n in range(1, len(kinds) + 2):
                shapes |= {f"{stem}.norm{n}.gain": (DIM,), f"{stem}.norm{n}.bias": (DIM,)}
    return shapes


def attention_map(p, stem, to):
    """nn.MultiheadAttention keeps q, k, v as one matrix that acts from the left."""
    return {f"{to}.in_proj_weight": torch.cat([p[f"{stem}.w{x}"].T for x in "qkv"]),
            f"{to}.in_proj_bias": torch.cat([p[f"{stem}.b{x}"] for x in "qkv"]),
            f"{to}.out_proj.weight": p[f"{stem}.wo"].T,
            f"{to}.out_proj.bias": p[f"{stem}.bo"]}


def layer_map(p, stem, decoder):
    out = attention_map(p, f"{stem}.self", "self_attn")
    if decoder:
        out |= attention_map(p, f"{stem}.cross", "multihead_attn")
    for n in range(1, 4 if decoder else 3):
        out |= {f"norm{n}.weight": p[f"{stem}.norm{n}.gain"],
                f"norm{n}.bias": p[f"{stem}.norm{n}.bias"]}
    return out | {"linear1.weight": p[f"{stem}.ff.w1"].T, "linear1.bias": p[f"{stem}.ff.b1"],
                  "linear2.weight": p[f"{stem}.ff.w2"].T, "linear2.bias": p[f"{stem}.ff.b2"]}


def both_forward(p, data):
    options = dict(d_model=DIM, nhead=HEADS, dim_feedforward=FF, dropout=0.0,
                   batch_first=True, dtype=torch.float64)
    encoder, decoder = nn.TransformerEncoderLayer(**options), nn.TransformerDecoderLayer(**options)
    call = torch.func.functional_call
    hidden = torch.arange(SOURCE)[None] >= data["lens"][:, None]
    x = p["embed"][data["source"]] * math.sqrt(DIM) + places(SOURCE)
    for l in range(LAYERS):
        x = call(encoder, layer_map(p, f"encoder.{l}", False), (x,),
                 {"src_key_padding_mask": hidden})
    causal = torch.ones(TARGET, TARGET, dtype=torch.bool).triu(1)
    y = p["embed"][data["target"]] * math.sqrt(DIM) + places(TARGET)
    for l in range(LAYERS):
        y = call(decoder, layer_map(p, f"decoder.{l}", True), (y, x),
                 {"tgt_mask": causal, "memory_key_padding_mask": hidden})
    return y @ p["embed"].T


# ---- decoder with rotary positions and grouped keys ----

def decoder_shapes():
    shapes = {"embed": (VOCAB, DIM)}
    for l in range(LAYERS):
        stem = f"decoder.{l}"
        shapes |= attention_shapes(f"{stem}.self", 2)
        shapes |= {f"{stem}.ff.w1": (DIM, FF), f"{stem}.ff.w2": (FF, DIM), f"{stem}.ff.w3": (DIM, FF),
                   f"{stem}.norm1.gain": (DIM,), f"{stem}.norm2.gain": (DIM,)}
    return shapes | {"decoder.norm.gain": (DIM,), "output": (VOCAB, DIM)}


def rotated(x):
    """(batch, heads, time, dim): pairs (p, p + dim/2) as complex numbers."""
    half = x.shape[-1] // 2
    t = torch.arange(x.shape[-2], dtype=torch.float64)[:, None]
    angle = t * 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
    z = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat([z.real, z.imag], -1)


def decoder_forward(p, data):
    x = p["embed"][data["source"]] * math.sqrt(DIM)
    norm = lambda v, name: F.rms_norm(v, (DIM,), p[f"{name}.gain"], 1e-5)
    split = lambda v, heads: v.unflatten(-1, (heads, -1)).transpose(1, 2)
    for l in range(LAYERS):
        s = f"decoder.{l}"
        a = norm(x, f"{s}.norm1")
        q, k = split(a @ p[f"{s}.self.wq"], HEADS), split(a @ p[f"{s}.self.wk"], 2)
        v = split(a @ p[f"{s}.self.wv"], 2)
        y = F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True,
                                           enable_gqa=True)
        x = x + y.transpose(1, 2).flatten(-2) @ p[f"{s}.self.wo"]
        a = norm(x, f"{s}.norm2")
        u, w = a @ p[f"{s}.ff.w1"], a @ p[f"{s}.ff.w3"]
        x = x + (F.silu(u) * w) @ p[f"{s}.ff.w2"]
    return norm(x, "decoder.norm") @ p["output"].T


# ---- training and writing ----

def loss_of(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=PAD,
                           label_smoothing=SMOOTHING)


def train(p, forward, data):
    groups = [{"params": [x for x in p.values() if x.dim() > 1], "weight_decay": DECAY},
              {"params": [x for x in p.values() if x.dim() == 1], "weight_decay": 0.0}]
    best = torch.optim.AdamW(groups, lr=1.0, betas=(0.9, 0.98), eps=1e-9)
    losses = []
    for step in range(1, STEPS + 1):
        for group in best.param_groups:
            group["lr"] = RATE * min(step / WARMUP, math.sqrt(WARMUP / step))
        best.zero_grad()
        loss = loss_of(forward(p, data), data["labels"])
        loss.backward()
        nn.utils.clip_grad_norm_(list(p.values()), CLIP)
        best.step()
        losses.append(loss.item())
    return losses


def write(name, config, p, forward, data):
    tensors = {f"w.{k}": v.detach().clone() for k, v in p.items()}
    logits = forward(p, data)
    loss = loss_of(logits, data["labels"])
    loss.backward()
    tensors |= {f"g.{k}": v.grad.clone() for k, v in p.items()}
    tensors |= {"logits": logits.detach(), "loss": loss.detach()[None]}
    tensors |= {k: v.to(torch.float64) for k, v in data.items()}
    tensors["losses"] = torch.tensor(train(p, forward, data))
    with open(os.path.join(HERE, name), "wb") as out:
        out.write(f"config {json.dumps(config)}\n".encode())
        for key, value in tensors.items():
            flat = value.flatten().tolist()
            out.write(f"tensor {key} {len(flat)}\n".encode())
            out.write(struct.pack(f"<{len(flat)}f", *flat))
            out.write(b"\n")
        out.write(b"end\n")


def main():
    gen = torch.Generator().manual_seed(3)
    tokens = lambda n: torch.randint(0, VOCAB, (BATCH, n), generator=gen)
    labels = lambda n: torch.where(torch.rand(BATCH, n, generator=gen) < 0.2, PAD, tokens(n))
    usual = dict(vocab=VOCAB, layers=LAYERS, model_dim=DIM, heads=HEADS, ff_dim=FF, max_len=16)
    write("both.bin", usual | dict(arch="encoder-decoder", norm_place="post", activation="relu"),
          parameters(both_shapes(), 1), both_forward,
          dict(source=tokens(SOURCE), lens=torch.tensor([SOURCE, 4, 5]), target=tokens(TARGET),
               labels=labels(TARGET)))
    write("decoder.bin", usual | dict(arch="decoder", kv_heads=2, norm="rms", activation="swiglu",
                                      positions="rope", tied=False, bias=False),
          parameters(decoder_shapes(), 2), decoder_forward,
          dict(source=tokens(SOURCE), labels=labels(SOURCE)))


if __name__ == "__main__":
    main()
