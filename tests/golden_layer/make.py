#!/usr/bin/env python3
"""make.py - computes multi-head layers with PyTorch and stores them in layers.bin.

    python3 tests/golden_layer/make.py

Needs torch; the tests themselves never do. Inputs and parameters are drawn from a fixed seed
and rounded to float32; everything is computed in float64 by torch.nn.MultiheadAttention, or by
plain tensor operations where that cannot express a layer (grouped heads, rotation, norm of q and
k); gradients come from autograd, and all is stored as float32.

layers.bin is a sequence of cases. A case begins with a line of text

    case NAME key=value ...

with the fields of ph_layer_desc and its ph_attn by name, followed by its tensors, each a line
"tensor NAME COUNT" and COUNT little-endian floats, and ends with the line "end". Matrices act
from the right: PyTorch's weights are stored transposed.
"""
import os

import torch
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
torch.manual_seed(20)
torch.set_default_dtype(torch.float64)


def draw(*shape, gain=1.0):
    return (torch.randn(*shape) * gain).float().double().requires_grad_(True)


def lens_mask(lens, keys):
    return None if lens is None else torch.arange(keys)[None] >= torch.tensor(lens)[:, None]


def parameters(model, source, q, k, v, out, biases, gain):
    """wq, wk, wv, wo as PyTorch has them, (columns, rows), and bq, bk, bv, bo."""
    p = {"wq": draw(q, model, gain=gain), "wk": draw(k, source, gain=gain),
         "wv": draw(v, source, gain=gain), "wo": draw(out, q, gain=gain)}
    for name, columns in (("bq", q), ("bk", k), ("bv", v), ("bo", out)):
        if biases:
            p[name] = draw(columns, gain=0.3)
    return p


def torch_layer(x, memory, p, heads, padding, mask):
    """torch.nn.MultiheadAttention with these parameters."""
    model, source = x.shape[-1], memory.shape[-1]
    layer = torch.nn.MultiheadAttention(model, heads, bias="bq" in p, batch_first=True,
                                        kdim=source, vdim=source)
    same = source == model
    values = {"out_proj.weight": p["wo"]}
    if same:
        values["in_proj_weight"] = torch.cat([p["wq"], p["wk"], p["wv"]])
    else:
        values.update(q_proj_weight=p["wq"], k_proj_weight=p["wk"], v_proj_weight=p["wv"])
    if "bq" in p:
        values["in_proj_bias"] = torch.cat([p["bq"], p["bk"], p["bv"]])
        values["out_proj.bias"] = p["bo"]
    return torch.func.functional_call(layer, values, (x, memory, memory),
                                      dict(key_padding_mask=padding, attn_mask=mask,
                                           need_weights=False))[0]


def rotate(t, base, interleaved, start):
    """t (batch, heads, len, dim)"""
    n = t.shape[-1] // 2
    theta = base ** (-torch.arange(n) / n)
    angle = (torch.arange(t.shape[2]) + start)[:, None] * theta
    cos, sin = angle.cos(), angle.sin()
    if interleaved:
        a, b = t[..., 0::2], t[..., 1::2]
        return torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
    a, b = t[..., :n], t[..., n:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def own_layer(x, p, c):
    """Grouped heads, RMS norm over each head, rotation, causal; x is its own memory."""
    split = lambda t, heads: t.unflatten(-1, (heads, -1)).transpose(1, 2)
    q = split(F.linear(x, p["wq"], p.get("bq")), c["q_heads"])
    k = split(F.linear(x, p["wk"], p.get("bk")), c["k_heads"])
    v = split(F.linear(x, p["wv"], p.get("bv")), c["v_heads"])
    if c["qk_norm"]:
        q = F.rms_norm(q, q.shape[-1:], p["q_norm"], 1e-6)
        k = F.rms_norm(k, k.shape[-1:], p["k_norm"], 1e-6)
    if c["rope"]:
        q = rotate(q, c["rope_base"], c["rope"] == 2, c["past"])
        k = rotate(k, c["rope_base"], c["rope"] == 2, c["past"])
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return F.linear(y.transpose(1, 2).flatten(-2), p["wo"], p.get("bo"))


def write(out, c, tensors):
    out.write(("case " + " ".join([c.pop("name")] + [f"{k}={v}" for k, v in c.items()]) + "\n").encode())
    for name, t in tensors.items():
        data = t.detach().float().contiguous()
        out.write(f"tensor {name} {data.numel()}\n".encode() + data.numpy().tobytes() + b"\n")
    out.write(b"end\n")


def store(out, c, x, memory, p, y, extra):
    dout = draw(*y.shape)
    leaves = {"x": x, **({} if memory is x else {"memory": memory}), **p}
    grads = torch.autograd.grad((y * dout).sum(), list(leaves.values()))
    plain = lambda name, t: t.T if name[0] == "w" else t
    tensors = {name: plain(name, t) for name, t in leaves.items()}
    tensors.update(extra, out=y, dout=dout)
    tensors.update({"d" + name: plain(name, g) for name, g in zip(leaves, grads)})
    write(out, c, tensors)


def multihead(out, name, batch, q_len, kv_len, model, source, heads, biases, lens=None,
              causal=False, bias=False):
    x = draw(batch, q_len, model)
    memory = draw(batch, kv_len, source) if source else x
    p = parameters(model, source or model, model, model, model, model, biases, model ** -0.5)
    scores = draw(1, heads, q_len, kv_len) if bias else None
    mask = None
    if causal:
        mask = torch.ones(q_len, kv_len, dtype=torch.bool).triu(1)
    if bias:
        mask = scores.detach().expand(batch, -1, -1, -1).flatten(0, 1)
    y = torch_layer(x, memory, p, heads, lens_mask(lens, kv_len), mask)
    c = dict(name=name, model_dim=model, memory_dim=source, out_dim=model, batch=batch,
             q_heads=heads, k_heads=heads, v_heads=heads, q_len=q_len, kv_len=kv_len,
             qk_dim=model // heads, v_dim=model // heads, mask=int(causal))
    if bias:
        c.update(bias_batch=1, bias_heads=heads, bias_q_len=q_len)
    extra = {}
    if bias:
        extra["bias"] = scores
    if lens is not None:
        extra["kv_lens"] = torch.tensor(lens)
    store(out, c, x, memory, p, y, extra)


def grouped(out, name, batch, length, model, q_heads, k_heads, dim, biases, rope, norm, past):
    x = draw(batch, length, model)
    p = parameters(model, model, q_heads * dim, k_heads * dim, k_heads * dim, model, biases,
                   model ** -0.5)
    if norm:
        p["q_norm"], p["k_norm"] = draw(dim), draw(dim)
    c = dict(name=name, model_dim=model, memory_dim=0, out_dim=model, batch=batch, q_heads=q_heads,
             k_heads=k_heads, v_heads=k_heads, q_len=length, kv_len=length, qk_dim=dim, v_dim=dim,
             mask=1, rope=rope, rope_base=500000.0 if rope else 0, qk_norm=int(norm), past=past)
    y = own_layer(x, p, c)
    store(out, c, x, x, p, y, {})


def main():
    with open(os.path.join(HERE, "layers.bin"), "wb") as out:
        multihead(out, "self", 2, 5, 5, 12, 0, 3, True)
        multihead(out, "self-no-bias", 2, 4, 4, 8, 0, 2, False)
        multihead(out, "causal", 1, 7, 7, 8, 0, 4, True, causal=True)
        multihead(out, "one-head", 1, 6, 6, 5, 0, 1, True)
        multihead(out, "padding", 3, 4, 4, 6, 0, 2, True, lens=[4, 2, 3])
        multihead(out, "cross", 2, 3, 6, 8, 5, 2, True)
        multihead(out, "cross-padding", 2, 3, 5, 6, 4, 3, False, lens=[5, 1])
        multihead(out, "bias", 2, 4, 4, 6, 0, 2, True, bias=True)
        grouped(out, "grouped", 2, 5, 10, 4, 2, 4, False, 0, False, 0)
        grouped(out, "multi-query", 1, 6, 8, 4, 1, 4, True, 0, False, 0)
        grouped(out, "llama", 2, 6, 12, 4, 2, 6, False, 1, False, 0)
        grouped(out, "llama-interleaved", 1, 5, 8, 2, 1, 4, False, 2, False, 0)
        grouped(out, "llama-later", 1, 4, 8, 2, 1, 4, False, 1, False, 1000)
        grouped(out, "normed", 2, 4, 8, 2, 2, 4, True, 0, True, 0)
        grouped(out, "normed-rotated", 2, 5, 10, 4, 2, 6, False, 1, True, 3)


if __name__ == "__main__":
    main()
