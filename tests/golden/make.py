#!/usr/bin/env python3
"""make.py - computes attention with PyTorch and stores it in attention.bin.

    python3 tests/golden/make.py

Needs torch; the tests themselves never do. Inputs are drawn from a fixed seed and rounded to
the type of the case; results are computed in float64 (or where a case says so, in float32),
gradients come from autograd, and everything is stored as float32.

attention.bin is a sequence of cases. A case begins with a line of text

    case NAME key=value ...

with the fields of ph_attn by name, followed by its tensors, each a line "tensor NAME COUNT"
and COUNT little-endian floats, and ends with the line "end".
"""
import math
import os
import sys

import torch
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
CODES = {"f32": 0, "f16": 1, "bf16": 2}
NONE, CAUSAL, BAND = 0, 1, 2
OFFSET, END = 1, 2


def normal(gen, *shape, gain=1.0):
    return torch.randn(*shape, generator=gen, dtype=torch.float64) * gain


def position(c):
    """Offset of query 0 for each batch row."""
    if c["anchor"] == OFFSET:
        return [c["q_offset"]] * c["batch"]
    if c["anchor"] == END:
        return [k - q for q, k in zip(c["q_lens_list"], c["kv_lens_list"])]
    return [0] * c["batch"]


def hidden(c, visible, bias):
    """Boolean (batch, heads, q, k): True where the key takes no part."""
    b, h, tq, tk = c["batch"], c["q_heads"], c["q_len"], c["kv_len"]
    i = torch.arange(tq).view(1, 1, tq, 1)
    j = torch.arange(tk).view(1, 1, 1, tk)
    pos = i + torch.tensor(position(c)).view(b, 1, 1, 1)
    hide = torch.zeros(b, h, tq, tk, dtype=torch.bool)
    if c["mask"] == CAUSAL:
        hide = hide | (j > pos)
    if c["mask"] == BAND:
        if c["band_left"] >= 0:
            hide = hide | (j < pos - c["band_left"])
        if c["band_right"] >= 0:
            hide = hide | (j > pos + c["band_right"])
    hide = hide | (j >= torch.tensor(c["kv_lens_list"]).view(b, 1, 1, 1))
    if visible is not None:
        hide = hide | (visible == 0)
    if bias is not None:
        hide = hide | (bias == -math.inf)
    return hide


def by_hand(c, t, hide):
    """Everything scaled_dot_product_attention has no argument for, in plain torch."""
    b, h = c["batch"], c["q_heads"]
    k = t["k"].repeat_interleave(h // c["k_heads"], dim=1)
    v = t["v"].repeat_interleave(h // c["v_heads"], dim=1)
    s = torch.matmul(t["q"], k.transpose(-1, -2)) * c["scale_used"]
    if "bias" in t:
        s = s + torch.where(t["bias"] == -math.inf, torch.zeros_like(t["bias"]), t["bias"])
    if "alibi" in t:
        i = torch.arange(c["q_len"], dtype=s.dtype).view(1, 1, -1, 1)
        i = i + torch.tensor(position(c), dtype=s.dtype).view(b, 1, 1, 1)
        j = torch.arange(c["kv_len"], dtype=s.dtype).view(1, 1, 1, -1)
        s = s - t["alibi"].view(1, h, 1, 1) * (i - j).abs()
    if c["softcap"]:
        s = c["softcap"] * torch.tanh(s / c["softcap"])
    s = s.masked_fill(hide, -math.inf)
    if "sink" not in t:  # rows without keys get numbers here and zeros in the end
        s = torch.where(hide.all(dim=-1, keepdim=True), torch.zeros_like(s), s)
    if "sink" in t:
        s = torch.cat([s, t["sink"].view(1, h, 1, 1).expand(b, h, c["q_len"], 1)], dim=-1)
    lse = torch.logsumexp(s, dim=-1)
    p = torch.softmax(s, dim=-1)
    out = torch.matmul(p[..., : c["kv_len"]], v)
    if "gate" in t:
        g = t["gate"]
        out = out * (g.view(1, h, 1, 1) if g.dim() == 1 else g.unsqueeze(-1))
    return out, lse


def with_sdpa(c, t, hide):
    """The real thing, with its own mask arguments."""
    args = {"scale": c["scale_used"], "enable_gqa": c["k_heads"] != c["q_heads"]}
    if c["sdpa"] == "is_causal":
        args["is_causal"] = True
    elif c["sdpa"] == "bool":
        args["attn_mask"] = ~hide
    elif c["sdpa"] == "float":
        args["attn_mask"] = t["bias"]
    out = F.scaled_dot_product_attention(t["q"], t["k"], t["v"], **args)
    return out, by_hand(c, t, hide)[1]


def draw(c, gen):
    b, h = c["batch"], c["q_heads"]
    t = {
        "q": normal(gen, b, h, c["q_len"], c["qk_dim"], gain=c["gain"]),
        "k": normal(gen, b, c["k_heads"], c["kv_len"], c["qk_dim"]),
        "v": normal(gen, b, c["v_heads"], c["kv_len"], c["v_dim"]),
    }
    for name in t:
        t[name] = t[name].to(TYPES[c["dtype"]])
    if c["bias"]:
        t["bias"] = normal(gen, *c["bias"], c["kv_len"])
        if c["holes"]:
            t["bias"][torch.rand(t["bias"].shape, generator=gen) < 0.3] = -math.inf
    if c["gate"] == "head":
        t["gate"] = normal(gen, h)
    if c["gate"] == "row":
        t["gate"] = normal(gen, b, h, c["q_len"])
    if c["sink"]:
        t["sink"] = normal(gen, h)
    if c["alibi"]:
        t["alibi"] = torch.tensor([2.0 ** (-8 * (n + 1) / h) for n in range(h)])
    work = torch.float32 if c["work"] == "f32" else torch.float64
    return {k: v.float().to(work) for k, v in t.items()}


def compute(c, gen):
    t = draw(c, gen)
    work = t["q"].dtype
    visible = None
    if c["visible"]:
        visible = (torch.rand(*c["visible"], c["kv_len"], generator=gen) < 0.6).to(work)
    hide = hidden(c, visible, t.get("bias"))
    learn = [n for n in ("q", "k", "v", "bias", "gate", "sink") if n in t]
    for n in learn:
        t[n].requires_grad_(True)
    out, lse = (with_sdpa if c["sdpa"] else by_hand)(c, t, hide)
    empty = hide.all(dim=-1)
    if "sink" not in t:  # rows without keys: defined, but not by a softmax
        out = torch.where(empty.unsqueeze(-1), torch.zeros_like(out), out)
        lse = torch.where(empty, torch.full_like(lse, -math.inf), lse)
    seen = ~empty if "sink" not in t else torch.ones_like(empty)
    dout = normal(gen, *out.shape).to(TYPES[c["dtype"]]).float().to(work)
    dlse = normal(gen, *lse.shape).float().to(work)
    loss = (out * dout).sum() + torch.where(seen, lse * dlse, torch.zeros_like(lse)).sum()
    grads = torch.autograd.grad(loss, [t[n] for n in learn])
    stored = dict(t)
    if visible is not None:
        stored["visible"] = visible
    for n in ("q_lens", "kv_lens"):
        if c[n]:
            stored[n] = torch.tensor(c[n + "_list"])
    stored.update(dout=dout, dlse=dlse, out=out, lse=lse)
    for n, g in zip(learn, grads):
        stored["d" + n] = g
    assert not any(torch.isnan(x).any() for x in stored.values())
    return stored


def write(file, name, c, tensors):
    fields = {k: c[k] for k in ("batch", "q_heads", "k_heads", "v_heads", "q_len", "kv_len",
                                "qk_dim", "v_dim", "mask", "band_left", "band_right", "anchor",
                                "q_offset", "softcap", "scale")}
    fields["dtype"] = CODES[c["dtype"]]
    fields["gate_rows"] = int(c["gate"] == "row")
    for n in ("bias", "visible"):
        shape = c[n] or (0, 0, 0)
        for axis, size in zip(("batch", "heads", "q_len"), shape):
            fields[f"{n}_{axis}"] = size
    text = " ".join(f"{k}={v}" for k, v in fields.items())
    file.write(f"case {name} {text}\n".encode())
    for n, t in tensors.items():
        flat = t.detach().contiguous().view(-1).float()
        file.write(f"tensor {n} {flat.numel()}\n".encode())
        file.write(flat.numpy().astype("<f4").tobytes())
        file.write(b"\n")
    file.write(b"end\n")


BASE = dict(batch=2, q_heads=3, k_heads=0, v_heads=0, q_len=5, kv_len=5, qk_dim=4, v_dim=0,
            mask=NONE, band_left=0, band_right=0, anchor=0, q_offset=0, softcap=0.0, scale=0.0,
            dtype="f32", gain=1.0, bias=None, holes=False, visible=None, gate=None, sink=False,
            alibi=False, q_lens=None, kv_lens=None, sdpa=None, work="f64")

CASES = {
    "plain": dict(sdpa="plain"),
    "plain-f32": dict(sdpa="plain", work="f32", q_len=9, kv_len=9, qk_dim=8),
    "cross": dict(sdpa="plain", q_len=3, kv_len=17, qk_dim=5, v_dim=7),
    "one-token": dict(sdpa="plain", batch=1, q_heads=1, q_len=1, kv_len=1, qk_dim=1),
    "long": dict(sdpa="plain", batch=1, q_heads=1, q_len=2, kv_len=200, qk_dim=4),
    "head-59": dict(sdpa="plain", batch=1, q_heads=2, q_len=4, kv_len=6, qk_dim=59),
    "scale": dict(sdpa="plain", scale=0.3125, gain=2.0),
    "large-scores": dict(sdpa="plain", gain=20.0, q_len=7, kv_len=11),
    "causal": dict(sdpa="is_causal", mask=CAUSAL, q_len=13, kv_len=13),
    "causal-f32": dict(sdpa="is_causal", mask=CAUSAL, q_len=20, kv_len=20, work="f32", q_heads=1),
    "causal-top-left": dict(sdpa="is_causal", mask=CAUSAL, anchor=OFFSET, q_len=4, kv_len=9),
    "causal-bottom-right": dict(sdpa="bool", mask=CAUSAL, anchor=END, q_len=4, kv_len=9),
    "causal-more-queries": dict(mask=CAUSAL, anchor=END, q_len=9, kv_len=4),
    "grouped": dict(sdpa="plain", q_heads=6, k_heads=2, v_heads=2),
    "multi-query": dict(sdpa="is_causal", mask=CAUSAL, q_heads=4, k_heads=1, v_heads=1),
    "grouped-unequal": dict(batch=1, q_heads=12, k_heads=4, v_heads=3, q_len=3, kv_len=4, qk_dim=3),
    "bool-mask": dict(sdpa="bool", visible=(2, 3, 5)),
    "bool-broadcast": dict(sdpa="bool", visible=(1, 1, 5), q_len=5, kv_len=8),
    "bias": dict(sdpa="float", bias=(2, 3, 5)),
    "bias-broadcast": dict(sdpa="float", bias=(1, 3, 1), kv_len=7),
    "bias-keys": dict(sdpa="float", bias=(1, 1, 1), kv_len=7),
    "bias-holes": dict(bias=(1, 3, 5), holes=True, kv_len=7),
    "band": dict(mask=BAND, band_left=2, band_right=1, q_len=11, kv_len=11),
    "band-left-open": dict(mask=BAND, band_left=-1, band_right=2, anchor=OFFSET, q_offset=3,
                           q_len=5, kv_len=12),
    "band-apart": dict(mask=BAND, band_left=1, band_right=0, anchor=OFFSET, q_offset=4,
                       q_len=6, kv_len=7),
    "kv-lens": dict(kv_lens=[2, 5]),
    "kv-lens-causal": dict(kv_lens=[3, 8], mask=CAUSAL, anchor=END, q_len=4, kv_len=8),
    "sink": dict(sink=True),
    "sink-empty": dict(sink=True, kv_lens=[0, 5], mask=CAUSAL),
    "softcap": dict(softcap=2.0, gain=4.0),
    "softcap-sink-bias": dict(softcap=5.0, sink=True, bias=(1, 3, 5), gain=3.0),
    "alibi": dict(alibi=True, q_len=7, kv_len=7, mask=CAUSAL),
    "alibi-both-sides": dict(alibi=True, batch=1, q_heads=8, q_len=3, kv_len=6, anchor=END),
    "gate-head": dict(gate="head"),
    "gate-row": dict(gate="row", sink=True, q_len=6, kv_len=3),
    "everything": dict(q_heads=4, k_heads=2, v_heads=1, q_len=6, kv_len=9, qk_dim=7, v_dim=5,
                       mask=BAND, band_left=5, band_right=1, anchor=END, bias=(2, 1, 6),
                       holes=True, visible=(1, 4, 1), gate="row", sink=True, alibi=True,
                       softcap=8.0, scale=0.5, kv_lens=[9, 7]),
    "bf16": dict(sdpa="plain", dtype="bf16", q_len=6, kv_len=20),
    "bf16-causal": dict(sdpa="is_causal", mask=CAUSAL, dtype="bf16", q_len=8, kv_len=8),
    "f16": dict(sdpa="plain", dtype="f16", q_len=6, kv_len=20),
    "f16-grouped": dict(sdpa="plain", dtype="f16", q_heads=4, k_heads=2, v_heads=2),
}


def main():
    torch.set_num_threads(1)
    path = os.path.join(HERE, "attention.bin")
    with open(path, "wb") as file:
        for n, (name, changes) in enumerate(CASES.items()):
            c = dict(BASE, **changes)
            c["k_heads"] = c["k_heads"] or c["q_heads"]
            c["v_heads"] = c["v_heads"] or c["q_heads"]
            c["v_dim"] = c["v_dim"] or c["qk_dim"]
            c["scale_used"] = c["scale"] or 1 / math.sqrt(c["qk_dim"])
            c["q_lens_list"] = c["q_lens"] or [c["q_len"]] * c["batch"]
            c["kv_lens_list"] = c["kv_lens"] or [c["kv_len"]] * c["batch"]
            gen = torch.Generator().manual_seed(1000 + n)
            write(file, name, c, compute(c, gen))
    print(f"{len(CASES)} cases, {os.path.getsize(path)} bytes, torch {torch.__version__}")


if __name__ == "__main__":
    sys.exit(main())
