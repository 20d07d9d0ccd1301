"""attention, attention_backward and look against formulas in float64."""
import numpy as np
import pytest

import polyhead
import reference

RNG = np.random.default_rng(7)


def draw(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def bfloat16():
    return pytest.importorskip("ml_dtypes").bfloat16


B, H, T, S, D = 2, 4, 9, 13, 16
CASES = {
    "full": {},
    "causal": {"causal": True, "offset": 4},
    "end": {"causal": True, "offset": "end"},
    "window": {"window": (3, 2), "offset": 2},
    "scale": {"scale": 0.3},
    "softcap": {"softcap": 2.0},
    "bias": {"bias": draw(B, H, T, S)},
    "bias of keys": {"bias": draw(S)},
    "bias, hiding": {"bias": np.where(draw(1, H, T, S) > 0, -np.inf, 0.5)},
    "visible": {"visible": draw(B, 1, T, S) > 0},
    "visible keys": {"visible": draw(B, 1, 1, S) > 0},
    "sink": {"sink": draw(H)},
    "alibi": {"alibi": abs(draw(H)), "causal": True, "offset": "end"},
    "relative": {"relative": draw(H, 7)},
    "gate of heads": {"gate": np.array([1.0, 0.0, -0.5, 2.0])},
    "gate of rows": {"gate": draw(B, H, T)},
    "lengths": {"q_lens": [9, 4], "kv_lens": [13, 7]},
    "lengths, causal": {"q_lens": [3, 9], "kv_lens": [5, 13], "causal": True,
                        "offset": "end"},
    "much": {"bias": draw(1, 1, T, S), "softcap": 3.0, "sink": draw(H), "causal": True,
             "offset": 4, "visible": draw(B, H, 1, S) > -1, "kv_lens": [13, 8],
             "gate": draw(H), "alibi": abs(draw(H))},
}


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
@pytest.mark.parametrize("groups", [(4, 4), (2, 2), (1, 4)])
def test_forward_and_backward(options, groups):
    q, k, v = draw(B, H, T, D), draw(B, groups[0], S, D), draw(B, groups[1], S, 24)
    out, lse = polyhead.attention(q, k, v, return_lse=True, **options)
    want = reference.forward(q, k, v, **options)
    reference.close("out", out, want["out"], want["out_error"])
    reference.close("lse", lse, want["lse"], want["lse_error"])
    dout, dlse = draw(*out.shape), draw(*lse.shape)
    if "gate" in options or "q_lens" in options:
        dlse = None  # rows that are not computed have none
    grads = polyhead.attention_backward(dout, q, k, v, out, lse, dlse=dlse, **options)
    wanted = reference.backward(want, dout, *groups, dlse=dlse)
    for name in "qkv":
        reference.close(name, grads[name], *wanted[name])


def test_gradient_of_bias_sink_gate_relative():
    q, k, v = draw(B, H, T, D), draw(B, H, S, D), draw(B, H, S, D)
    options = {"bias": draw(1, H, T, S), "sink": draw(H), "gate": draw(B, H, T),
               "relative": draw(H, 5)}
    out, lse = polyhead.attention(q, k, v, return_lse=True, **options)
    dout = draw(*out.shape)
    grads = polyhead.attention_backward(dout, q, k, v, out, lse, **options,
                                        wanted=["bias", "sink", "gate", "relative"])
    want = reference.forward(q, k, v, **options)
    ds, error = reference.backward(want, dout, H, H)["scores"]
    reference.close("bias", grads["bias"], ds.sum(0, keepdims=True),
                    error.sum(0, keepdims=True))
    reach = np.clip(np.arange(S)[None] - np.arange(T)[:, None], -2, 2)
    table = np.stack([(ds.sum(0) * (reach == d)).sum((1, 2)) for d in range(-2, 3)], 1)
    bound = np.stack([(error.sum(0) * (reach == d)).sum((1, 2)) for d in range(-2, 3)], 1)
    reference.close("relative", grads["relative"], table, bound)
    plain = want["out"] / want["gate"][..., None]
    size = (abs(dout) * abs(want["p"] @ abs(want["v"]))).sum(-1)
    units = 4 * want["worst"][..., 0] + (S + 24 + D) * reference.UNIT
    reference.close("gate", grads["gate"], (dout * plain).sum(-1), units * size)
    weight = np.exp(np.asarray(options["sink"])[None, :, None] - want["lse"])
    inner = weight * (dout * want["out"]).sum(-1)
    bound = (2 * units + B * T * reference.UNIT) * weight * abs(want["gate"]) * size
    reference.close("sink", grads["sink"], -inner.sum((0, 2)), bound.sum((0, 2)))


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_half_types(name):
    dtype = np.float16 if name == "float16" else bfloat16()
    q, k, v = (draw(2, 2, 11, 32).astype(dtype) for _ in range(3))
    out, lse = polyhead.attention(q, k, v, causal=True, return_lse=True)
    assert out.dtype == dtype and lse.dtype == np.float32
    want = reference.forward(q, k, v, causal=True, dtype=name)
    want = reference.rounded(want, name)
    reference.close("out", out, want["out"], want["out_error"])
    dout = draw(*out.shape).astype(dtype)
    grads = polyhead.attention_backward(dout, q, k, v, out, lse, causal=True)
    wanted = reference.backward(want, dout, 2, 2, dtype=name)
    for each in "qkv":
        assert grads[each].dtype == dtype
        reference.close(each, grads[each], *wanted[each])


def test_small_keys_beside_float32():
    q, k, v = draw(1, 4, 5, 32), draw(1, 2, 40, 32), draw(1, 2, 40, 32)
    for dtype in (np.float16, bfloat16()):
        small = k.astype(dtype), v.astype(dtype)
        out = polyhead.attention(q, *small)
        wide = polyhead.attention(q, *(x.astype(np.float32) for x in small))
        assert (out == wide).all()


def test_strides_are_not_copied_and_give_the_same_bits():
    x = draw(2, 10, 3, 4, 16)  # (batch, len, part, heads, dim), as one projection leaves it
    q, k, v = (x[:, :, part].swapaxes(1, 2) for part in range(3))
    assert not q.flags.c_contiguous
    out, lse = polyhead.attention(q, k, v, causal=True, return_lse=True)
    packed = [np.ascontiguousarray(array) for array in (q, k, v)]
    again, lse_again = polyhead.attention(*packed, causal=True, return_lse=True)
    assert (out == again).all() and (lse == lse_again).all()
    dout = draw(2, 10, 4, 16).swapaxes(1, 2)
    for name, grad in polyhead.attention_backward(dout, q, k, v, out, lse,
                                                  causal=True).items():
        assert (grad == polyhead.attention_backward(dout, *packed, out, lse,
                                                    causal=True)[name]).all()


def test_repeated_keys():
    q, k = draw(2, 4, 5, 8), draw(1, 1, 7, 8)
    spread = np.broadcast_to(k, (2, 4, 7, 8))
    out, lse = polyhead.attention(q, spread, spread, return_lse=True)
    assert (out == polyhead.attention(q, *[np.ascontiguousarray(spread)] * 2)).all()
    grads = polyhead.attention_backward(out, q, spread, spread, out, lse)
    assert grads["k"].shape == spread.shape


@pytest.mark.parametrize("shape", [(0, 2, 3, 4), (1, 2, 0, 4), (1, 1, 1, 1), (3, 1, 1, 5)])
def test_empty_and_odd_shapes(shape):
    q = draw(*shape)
    out, lse = polyhead.attention(q, q, q, return_lse=True)
    assert out.shape == shape and lse.shape == shape[:3]
    grads = polyhead.attention_backward(out, q, q, q, out, lse)
    assert grads["q"].shape == shape


def test_no_key():
    q, k = draw(1, 2, 3, 4), draw(1, 2, 0, 4)
    out, lse = polyhead.attention(q, k, k, return_lse=True)
    assert (out == 0).all() and np.isneginf(lse).all()


def test_masked_values_are_never_read():
    q, k, v = draw(1, 2, 4, 8), draw(1, 2, 6, 8), draw(1, 2, 6, 8)
    visible = np.array([1, 1, 0, 1, 0, 1], bool)
    out = polyhead.attention(q, k, v, visible=visible)
    k[:, :, ~visible] = v[:, :, ~visible] = np.nan
    assert (out == polyhead.attention(q, k, v, visible=visible)).all()


def test_dropout_is_reproducible():
    q = draw(1, 2, 64, 8)
    one = polyhead.attention(q, q, q, dropout=0.5, seed=1)
    assert (one == polyhead.attention(q, q, q, dropout=0.5, seed=1)).all()
    assert (one != polyhead.attention(q, q, q, dropout=0.5, seed=2)).any()


def test_ragged():
    lengths, heads = [3, 0, 7], 2
    offsets = np.cumsum([0, *lengths])
    q, k, v = (draw(heads, 10, 8) for _ in range(3))
    out, lse = polyhead.attention(q, k, v, q_offsets=offsets, causal=True, return_lse=True)
    grads = polyhead.attention_backward(out, q, k, v, out, lse, q_offsets=offsets,
                                        causal=True)
    for begin, end in zip(offsets, offsets[1:]):
        one = [x[None, :, begin:end] for x in (q, k, v)]
        alone, lse_alone = polyhead.attention(*one, causal=True, return_lse=True)
        assert (out[:, begin:end] == alone[0]).all()
        assert (lse[:, begin:end] == lse_alone[0]).all()
        back = polyhead.attention_backward(alone, *one, alone, lse_alone, causal=True)
        for name in "qkv":
            assert (grads[name][:, begin:end] == back[name][0]).all()


def test_pages():
    q, k, v = draw(2, 2, 1, 16), draw(2, 2, 32, 16), draw(2, 2, 32, 16)
    table = np.array([[3, 0], [1, 2]])

    def paged(x):
        pages = np.zeros((4, 2, 16, 16), np.float32)
        for row in range(2):
            for page in range(2):
                pages[table[row, page]] = x[row, :, 16 * page:16 * page + 16]
        return pages

    lens = [20, 32]
    out = polyhead.attention(q, paged(k), paged(v), page_table=table, kv_lens=lens)
    assert (out == polyhead.attention(q, k, v, kv_lens=lens)).all()


# ---- variants ----

def test_variants_take_tensors():
    q = draw(1, 4, 6, 8)
    eye = np.eye(4, dtype=np.float32)
    out, lse = polyhead.attention(q, q, q, variant="talking", return_lse=True,
                                  extra={"w_logits": eye, "w_weights": eye})
    want = reference.forward(q, q, q)
    reference.close("out", out, want["out"], 2 * want["out_error"])
    grads = polyhead.attention_backward(out, q, q, q, out, lse, variant="talking",
                                        extra={"w_logits": eye, "w_weights": eye},
                                        wanted=["q", "w_logits", "w_weights"])
    assert grads["w_weights"].shape == (4, 4) and abs(grads["w_weights"]).max() > 0


def test_sparsemax_has_zeros():
    q, k = draw(1, 2, 6, 8), draw(1, 2, 30, 8)
    weights = polyhead.look(q, k, variant="sparsemax", scale=4.0).weights
    assert (weights == 0).any()
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=0, atol=32 * 2.0**-24)


def test_grouped_heads_by_variant():
    q, k = draw(1, 4, 6, 8), draw(1, 2, 6, 8)
    assert (polyhead.attention(q, k, k, variant="gqa:2") == polyhead.attention(q, k, k)).all()


# ---- looking ----

def test_look():
    q, k = draw(2, 3, 7, 8), draw(2, 3, 11, 8)
    _, lse = polyhead.attention(q, k, k, return_lse=True, kv_lens=[11, 5])
    seen = polyhead.look(q, k, lse, kv_lens=[11, 5])
    want = reference.forward(q, k, k, kv_lens=[11, 5])
    bound = (2 * want["worst"] + 32 * reference.UNIT) * want["p"] + 2.0**-126
    reference.close("weights", seen.weights, want["p"], bound)
    reference.close("col_sum", seen.col_sum, want["p"].sum(2),
                    bound.sum(2) + 7 * reference.UNIT * want["p"].sum(2))
    weight, key = seen.top(3)
    assert (weight == -np.sort(-seen.weights, -1)[..., :3]).all()
    assert (np.take_along_axis(seen.weights, key.astype(int), -1) == weight).all()
    assert (seen.rect(1, 2, (2, 6), (1, 9)) == seen.weights[1, 2, 2:6, 1:9]).all()
    p = seen.weights.astype(np.float64)
    entropy = -(p * np.log(np.where(p > 0, p, 1))).sum(-1)
    np.testing.assert_allclose(seen.entropy, entropy, rtol=0, atol=11 * 8 * 2.0**-24)
    again = polyhead.look(q, k, kv_lens=[11, 5])  # computes the lse by itself
    assert (again.weights == seen.weights).all()


def test_a_look_has_a_page(tmp_path):
    q, k = draw(2, 3, 6, 8), draw(2, 3, 6, 8)
    seen = polyhead.look(q, k, causal=True)
    words = ["a", "cat", "is", "not", "here", "."]
    seen.write_page(tmp_path / "look.html", batch=1, words=words)
    page = (tmp_path / "look.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>") and '"cat"' in page
    assert seen._repr_html_().startswith("<iframe srcdoc=")
    assert repr(seen) == "Look at (2, 3, 6) rows and 6 keys"
    with pytest.raises(polyhead.Error, match="batch is 2"):
        seen.write_page(tmp_path / "look.html", batch=2)
    long = polyhead.look(*[np.zeros((1, 1, 1025, 1), np.float32)] * 2)
    assert long._repr_html_() is None  # too much for a notebook, which shows the repr
