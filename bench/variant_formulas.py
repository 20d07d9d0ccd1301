"""variant_formulas.py - every head variant in PyTorch, as its paper writes it.

One function per variant: from a dictionary of tensors, named and shaped as Polyhead names and
shapes them, to the output. Causal self-attention, one expression after the other, T x T
matrices in memory: what one writes who wants to try the formula. Functions that end in
ordinary attention leave that to `attend`, so that it can also be PyTorch's fused one.
"""
import functools
import math

import torch
from torch.nn import functional as F


# ---- attention ----

@functools.lru_cache
def hidden(length):
    """True where a row must not see a key."""
    return torch.ones(length, length, dtype=torch.bool).triu(1)


def scores(q, k, scale):
    return q @ k.transpose(-1, -2) * scale


def weights(s):
    return s.masked_fill(hidden(s.shape[-1]), -math.inf).softmax(-1)


def attend_plain(q, k, v, scale, bias=None):
    s = scores(q, k, scale)
    return weights(s if bias is None else s + bias) @ v


def attend_fused(q, k, v, scale, bias=None):
    heads = q.shape[1]
    k, v = (x.expand(-1, heads, -1, -1) for x in (k, v))
    if bias is not None:
        bias = bias.masked_fill(hidden(q.shape[2]), -math.inf)
    return F.scaled_dot_product_attention(q, k, v, bias, is_causal=bias is None, scale=scale)


def split(x, heads):
    """(batch, time, heads*dim) to (batch, heads, time, dim)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def join(x):
    return x.transpose(1, 2).flatten(2)


def rms(x, eps):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


# ---- sparse weights: forward by sorting, backward by the closed form, as published ----

class Entmax15(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z):
        x = (z - z.amax(-1, keepdim=True)) / 2
        ordered = x.sort(-1, descending=True).values
        count = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype)
        mean = ordered.cumsum(-1) / count
        spread = count * (ordered.square().cumsum(-1) / count - mean.square())
        tau = mean - ((1 - spread) / count).clamp(min=0).sqrt()
        support = (tau <= ordered).sum(-1, keepdim=True)
        p = (x - tau.gather(-1, support - 1)).clamp(min=0).square()
        ctx.save_for_backward(p)
        return p

    @staticmethod
    def backward(ctx, dp):
        root = ctx.saved_tensors[0].sqrt()
        dz = dp * root
        return dz - dz.sum(-1, keepdim=True) / root.sum(-1, keepdim=True) * root


class Sparsemax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z):
        x = z - z.amax(-1, keepdim=True)
        ordered = x.sort(-1, descending=True).values
        count = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype)
        sums = ordered.cumsum(-1) - 1
        support = (count * ordered > sums).sum(-1, keepdim=True)
        p = (x - sums.gather(-1, support - 1) / support).clamp(min=0)
        ctx.save_for_backward(p, support)
        return p

    @staticmethod
    def backward(ctx, dp):
        p, support = ctx.saved_tensors
        dz = dp.masked_fill(p == 0, 0)
        return (dz - dz.sum(-1, keepdim=True) / support).masked_fill(p == 0, 0)


def sparse(t, function):
    s = scores(t["q"], t["k"], t["q"].shape[-1] ** -0.5)
    return function.apply(s.masked_fill(hidden(s.shape[-1]), -math.inf)) @ t["v"]


def entmax(t):
    return sparse(t, Entmax15)


def sparsemax(t):
    return sparse(t, Sparsemax)


# ---- mixed heads ----

def talking(t):
    mix = lambda s, w: (w.t() @ s.flatten(2)).view_as(s)  # [from][to]
    s = scores(t["q"], t["k"], t["q"].shape[-1] ** -0.5)
    return mix(weights(mix(s, t["w_logits"])), t["w_weights"]) @ t["v"]


def compose(t, place, x):
    """The heads of x (batch, heads, i, j), mixed by what the tokens i and j say. Of several
    ways to write the sums over heads, the quickest for each side."""
    of_row = lambda w: w.transpose(1, 2)[..., None]
    of_key = lambda w: w.transpose(1, 2)[:, :, None]
    sum_row = lambda w: torch.einsum("bhij,bih->bij", x, w)[:, None]
    sum_key = lambda w: (x * of_key(w)).sum(1, keepdim=True)
    y = x
    for name, spread, mixed in ((place + "q", of_row, sum_row),
                                (place + "k", of_key, sum_key)):
        w1, w2 = t[name + "_w1"].unbind(2), t[name + "_w2"].unbind(2)
        y = torch.addcmul(y, x, spread(t[name + "_g"]))
        for r in range(len(w1)):
            y = torch.addcmul(y, mixed(w1[r]), spread(w2[r]))
    return y


def dcmha(t):
    s = compose(t, "pre", scores(t["q"], t["k"], t["q"].shape[-1] ** -0.5))
    return compose(t, "post", weights(s)) @ t["v"]


# ---- layers; x (batch, time, model_dim) ----

def project(t, heads):
    return (split(t["x"] @ t[w], heads) for w in ("wq", "wk", "wv"))


def moh(t, attend, heads=8, shared=2, top=2):
    x = t["x"]
    q, k, v = project(t, heads)
    route, kind = x @ t["moh_wr"], 2 * (x @ t["moh_wh"]).softmax(-1)
    on = torch.zeros_like(route).scatter(-1, route.topk(top).indices, 1)
    p = route.softmax(-1) * on
    gate = torch.cat([kind[..., :1] * shared * (x @ t["moh_ws"]).softmax(-1),
                      kind[..., 1:] * top * p / p.sum(-1, keepdim=True)], -1)
    heads_out = attend(q, k, v, q.shape[-1] ** -0.5) * gate.transpose(1, 2)[..., None]
    return join(heads_out) @ t["wo"]


def moh_norm(t, attend, heads=8, shared=2, top=2):
    q, k, v = project(t, heads)
    n = q[:, shared:].norm(dim=-1)
    p = (n / (n.std(1, keepdim=True) + 1e-6)).softmax(1)
    on = torch.zeros_like(p).scatter(1, p.topk(top, 1).indices, 1)
    routed = on + on * (p - p.detach())  # straight through: 1, with the gradient of p
    gate = torch.cat([torch.ones_like(q[:, :shared, :, 0]), routed], 1)
    return join(attend(q, k, v, q.shape[-1] ** -0.5) * gate[..., None]) @ t["wo"]


def collab(t, attend, heads=8):
    x, scale = t["x"], (t["x"].shape[-1] / heads) ** -0.5
    q = (x @ t["wq"])[:, None] * t["mix"][:, None]
    bias = (x @ t["content"].t()).transpose(1, 2)[:, :, None] * scale
    v = split(x @ t["wv"], heads)
    return join(attend(q, (x @ t["wk"])[:, None], v, scale, bias)) @ t["wo"]


def mohsa(t, attend, heads=8, overlap=8):
    def windows(z):
        dim = z.shape[-1] // heads
        z = F.pad(z, (overlap, overlap))
        return torch.stack([z[..., h * dim:h * dim + dim + 2 * overlap]
                            for h in range(heads)], 1)
    q, k, v = (windows(t["x"] @ t[w]) for w in ("wq", "wk", "wv"))
    return join(attend(q, k, v, (q.shape[-1] - 2 * overlap) ** -0.5)) @ t["wo"]


def diff(t, attend, heads=8, init=0.2):
    x = t["x"]
    q, k = split(x @ t["wq"], heads), split(x @ t["wk"], heads)
    v, scale = split(x @ t["wv"], heads // 2), q.shape[-1] ** -0.5
    share = ((t["lambda_q1"] @ t["lambda_k1"]).exp()
             - (t["lambda_q2"] @ t["lambda_k2"]).exp() + init)
    if attend is attend_plain:
        p = weights(scores(q, k, scale))
        u = (p[:, 0::2] - share * p[:, 1::2]) @ v
    else:
        u = (attend(q[:, 0::2], k[:, 0::2], v, scale)
             - share * attend(q[:, 1::2], k[:, 1::2], v, scale))
    return join(rms(u, 1e-5) * t["diff_norm"] * (1 - init)) @ t["wo"]


def rotate(x):
    """Rotation by position of the pairs (2p, 2p + 1) of x (batch, heads, time, dim)."""
    length, dim = x.shape[-2:]
    speed = 10000.0 ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angle = torch.arange(length, dtype=torch.float64)[:, None] * speed
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)


def mla(t, attend, heads=8, rope=32, latent=256):
    x = t["x"]
    low = x @ t["w_dkv"]
    c = rms(low[..., :latent], 1e-6) * t["kv_norm"]
    q = split(x @ t["wq"], heads)
    q = torch.cat([q[..., :-rope], rotate(q[..., -rope:])], -1)
    shared_key = rotate(low[:, None, :, latent:]).expand(-1, heads, -1, -1)
    k = torch.cat([split(c @ t["w_uk"], heads), shared_key], -1)
    v = split(c @ t["w_uv"], heads)
    return join(attend(q, k, v, q.shape[-1] ** -0.5)) @ t["wo"]


def gated(t, attend, heads=8):
    q, k, v = project(t, heads)
    gate = (t["x"] @ t["w_gate"]).sigmoid().transpose(1, 2)[..., None]
    return join(attend(q, k, v, q.shape[-1] ** -0.5) * gate) @ t["wo"]
