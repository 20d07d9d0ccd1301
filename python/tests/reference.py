"""Attention in float64, dense, with a bound on the error of the library for every element.

The bounds count roundings of float32 (unit 2^-24): a sum of n products in any order is
within n + 1 units of the sum of their magnitudes, a score adds five operations, a weight
an exponential of 4 units whose relative error is the absolute error of the score.
"""
import numpy as np

UNIT = 2.0**-24
LAST = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
SMALLEST = {"float32": 2.0**-126, "float16": 2.0**-24, "bfloat16": 2.0**-126}


def whole(array, heads):
    """k or v with as many heads as q."""
    return np.repeat(array.astype(np.float64), heads // array.shape[1], axis=1)


def seen(q, k, causal=False, window=None, offset=None, visible=None, q_lens=None,
         kv_lens=None, bias=None, **_):
    """Which keys each row sees, (batch, heads, q_len, kv_len)."""
    batch, heads, rows, keys = *q.shape[:3], k.shape[2]
    valid_q = np.full(batch, rows) if q_lens is None else np.asarray(q_lens)
    valid_k = np.full(batch, keys) if kv_lens is None else np.asarray(kv_lens)
    start = valid_k - valid_q if offset == "end" else np.full(batch, offset or 0)
    at = np.arange(rows)[None, :, None] + start[:, None, None]
    key = np.arange(keys)[None, None, :]
    mask = (key < valid_k[:, None, None]) & (np.arange(rows)[None, :, None]
                                             < valid_q[:, None, None])
    left, right = (-1, 0) if causal else window or (-1, -1)
    if left >= 0:
        mask = mask & (key >= at - left)
    if right >= 0:
        mask = mask & (key <= at + right)
    mask = np.broadcast_to(mask[:, None], (batch, heads, rows, keys)).copy()
    if visible is not None:
        mask &= np.asarray(visible, bool)
    if bias is not None:
        mask &= ~np.isneginf(bias)
    return mask, at


def logits(q, k, at, scale=None, softcap=0.0, bias=None, alibi=None, relative=None, **_):
    """Scores, the derivative of the soft-cap, and what the scores may be off by."""
    dim, keys = q.shape[3], k.shape[2]
    scale = scale or 1 / np.sqrt(dim)
    s = scale * (q @ k.swapaxes(2, 3))
    size = scale * (abs(q) @ abs(k).swapaxes(2, 3))
    distance = np.arange(keys)[None, None, None] - at[:, None]
    for term in (None if bias is None else np.where(np.isneginf(bias), 0, bias),
                 None if alibi is None else -np.asarray(alibi)[:, None, None] * abs(distance),
                 None if relative is None else np.stack([
                     row[np.clip(distance[:, 0], -(len(row) // 2), len(row) // 2)
                         + len(row) // 2] for row in np.asarray(relative)], 1)):
        if term is not None:
            s, size = s + term, size + abs(term)
    off = (dim + 6) * UNIT * size
    if softcap:
        capped = softcap * np.tanh(s / softcap)
        return capped, 1 - (capped / softcap) ** 2, off + 8 * UNIT * softcap
    return s, np.ones_like(s), off


def forward(q, k, v, sink=None, gate=None, dtype="float32", **options):
    """out, lse, their bounds, and what the backward pass needs."""
    heads, rows, keys = q.shape[1], q.shape[2], k.shape[2]
    q, k, v = q.astype(np.float64), whole(k, heads), whole(v, heads)
    mask, at = seen(q, k, **options)
    s, derivative, off = logits(q, k, at, **options)
    if gate is not None:
        gate = np.broadcast_to(np.asarray(gate, np.float64).reshape(
            (1, heads, 1) if np.ndim(gate) == 1 else np.shape(gate)), q.shape[:3])
        mask = mask & (gate != 0)[..., None]
    s = np.where(mask, s, -np.inf)
    top = s.max(-1, initial=-np.inf)
    if sink is not None:
        top = np.maximum(top, np.asarray(sink)[None, :, None])
    top = np.where(np.isfinite(top), top, 0)
    e = np.exp(s - top[..., None])
    total = e.sum(-1)
    if sink is not None:
        total = total + np.exp(np.asarray(sink)[None, :, None] - top)
    empty = total == 0
    p = e / np.where(empty, 1, total)[..., None]
    with np.errstate(divide="ignore"):
        lse = np.where(empty, -np.inf, top + np.log(total))
    g = np.ones(q.shape[:3]) if gate is None else gate
    out = g[..., None] * (p @ v)
    worst = np.where(mask, off, 0).max(-1, initial=0)[..., None]
    error = (2 * worst + (keys + 16) * UNIT) * abs(g)[..., None] * (p @ abs(v)) \
        + LAST[dtype] * abs(out) + SMALLEST[dtype]
    lse_error = worst[..., 0] + (keys + 16) * UNIT * (1 + abs(np.where(empty, 0, lse)))
    return {"out": out, "lse": lse, "out_error": error, "lse_error": lse_error, "p": p,
            "v": v, "k": k, "q": q, "gate": g, "worst": worst, "derivative": derivative,
            "scale": options.get("scale") or 1 / np.sqrt(q.shape[3])}


def backward(f, dout, k_heads, v_heads, dlse=None, dtype="float32", roundings=8):
    """Gradients of q, k, v and of the scores (before they are summed for a bias)."""
    def reduce(x, heads):
        return x.reshape(x.shape[0], heads, -1, *x.shape[2:]).sum(2)

    dout = dout.astype(np.float64)
    dim, keys, rows = f["q"].shape[3], f["k"].shape[2], f["q"].shape[2]
    dp = f["gate"][..., None] * (dout @ f["v"].swapaxes(2, 3))
    size = abs(f["gate"])[..., None] * (abs(dout) @ abs(f["v"]).swapaxes(2, 3))
    inner = (f["p"] * dp).sum(-1, keepdims=True)
    through = 0 if dlse is None else dlse[..., None]
    ds = f["p"] * (dp - inner + through) * f["derivative"]
    big = f["p"] * (size + (f["p"] * size).sum(-1, keepdims=True) + abs(through))
    # relative error of a weight and of a difference, then of a sum over rows or keys
    unit = roundings * f["worst"] + (dim + keys + rows + 40) * UNIT
    grads, scale = {}, f["scale"]
    grads["q"] = scale * ds @ f["k"], scale * (unit * big) @ abs(f["k"])
    transposed = ds.swapaxes(2, 3), (unit * big).swapaxes(2, 3)
    grads["k"] = reduce(scale * transposed[0] @ f["q"], k_heads), \
        reduce(scale * transposed[1] @ abs(f["q"]), k_heads)
    weighted = (f["p"] * f["gate"][..., None]).swapaxes(2, 3)
    off = (abs(f["p"] * f["gate"][..., None]) * unit).swapaxes(2, 3)
    grads["v"] = reduce(weighted @ dout, v_heads), reduce(off @ abs(dout), v_heads)
    grads["scores"] = ds, unit * big
    return {name: (value, error + LAST[dtype] * abs(value) + SMALLEST[dtype])
            for name, (value, error) in grads.items()}


def rounded(f, dtype):
    """The same with what 16 bits add. With AMX a weight is a bf16x3 split, off by 2^-23: one
    unit of float32 more. The backward pass reads `out` as it was rounded, so delta = dout . out
    is off by that: once, where `backward` takes `worst` eight times."""
    if dtype == "float32":
        return f
    split = UNIT * abs(f["gate"])[..., None] * (f["p"] @ abs(f["v"]))
    return dict(f, out_error=f["out_error"] + split, worst=f["worst"] + LAST[dtype] / 8)


def close(name, found, expected, error):
    found = np.asarray(found, np.float64)
    assert found.shape == expected.shape, f"{name}: {found.shape} for {expected.shape}"
    with np.errstate(invalid="ignore"):
        same = (found == expected) | (abs(found - expected) <= error)
    assert same.all(), f"{name}: off by {np.nanmax(abs(found - expected) / error):.2f} bounds"
