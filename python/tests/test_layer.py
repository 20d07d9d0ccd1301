"""Layer: against products in float64, gradients by differences, every variant."""
import copy
import pickle

import numpy as np
import pytest

import polyhead

RNG = np.random.default_rng(11)

VARIANTS = {
    "mha": {}, "gqa:2": {}, "mqa": {}, "entmax:alpha=1.5": {}, "sparsemax": {},
    "entmax": {}, "talking": {}, "dcmha:rank=2": {}, "gated:head": {}, "gated:element": {},
    "moh:shared=1,top=2": {}, "moh-norm:shared=1,top=2": {}, "mohsa:overlap=2": {},
    "collab": {"head_dim": 16, "v_dim": 8}, "diff": {"v_heads": 2, "v_dim": 16},
    "diff2": {"v_heads": 2}, "mla:rope=4,latent=16": {"head_dim": 12, "v_dim": 8},
    "merged": {"memory_dim": 32}, "gated:head+talking": {},
}


def draw(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def test_a_layer_is_its_products():
    layer = polyhead.Layer(32, 4, causal=True, seed=1)
    x = draw(2, 7, 32)
    p = {name: array.astype(np.float64) for name, array in layer.params.items()}

    def heads(w, b):
        return (x @ p[w] + p[b]).reshape(2, 7, 4, 8).swapaxes(1, 2)

    s = heads("wq", "bq") @ heads("wk", "bk").swapaxes(2, 3) / np.sqrt(8)
    s = np.where(np.tril(np.ones((7, 7), bool)), s, -np.inf)
    weights = np.exp(s - s.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    out = (weights @ heads("wv", "bv")).swapaxes(1, 2).reshape(2, 7, 32) @ p["wo"] + p["bo"]
    # two products of 32 terms, a softmax of 7 and a sum of 8, on values below 4
    assert abs(layer(x) - out).max() < 4 * (32 + 32 + 7 + 8 + 16) * 2.0**-24
    transposed = polyhead.Layer(32, 4, causal=True, linear=True)
    transposed.params = {name: array.T.copy() for name, array in layer.params.items()}
    assert (transposed(x) == layer(x)).all()


def test_gradients_are_those_of_attention_and_products():
    layer = polyhead.Layer(32, 4, seed=3)
    x, dout = draw(2, 7, 32), draw(2, 7, 32)
    out, saved = layer.forward(x)
    grads, p = layer.backward(dout, saved), layer.params

    def heads(y):
        return np.ascontiguousarray(y.reshape(2, 7, 4, 8).swapaxes(1, 2))

    def whole(y):
        return y.swapaxes(1, 2).reshape(14, 32).astype(np.float64)

    q, k, v = (heads(x @ p["w" + name] + p["b" + name]) for name in "qkv")
    mixed, lse = polyhead.attention(q, k, v, return_lse=True)
    back = polyhead.attention_backward(heads(dout @ p["wo"].T), q, k, v, mixed, lse)
    rows, wide = x.reshape(14, 32).astype(np.float64), dout.reshape(14, 32)
    want = {"wo": whole(mixed).T @ wide, "bo": wide.sum(0),
            "x": sum(whole(back[name]) @ p["w" + name].T for name in "qkv").reshape(x.shape)}
    for name in "qkv":
        want["w" + name] = rows.T @ whole(back[name])
        want["b" + name] = whole(back[name]).sum(0)
    # bk shifts all scores of a row alike: its gradient is 0 but for rounding, so all are
    # measured by the largest. Five products in a row of at most 96 terms each.
    for name, expected in want.items():
        size = max(abs(expected).max(), abs(want["wk"]).max())
        assert abs(grads[name] - expected).max() <= 5 * 96 * 2.0**-24 * size, name


@pytest.mark.parametrize("variant", VARIANTS)
def test_gradients_of_every_variant(variant):
    """All of them are there; that of wo, in which a layer is linear, is a difference but
    for the rounding of sums of 64 terms at most."""
    options = dict(VARIANTS[variant])
    layer = polyhead.Layer(32, 4, variant=variant, seed=2, **options)
    x = draw(2, 6, 32)
    memory = draw(2, 6, 32) if "memory_dim" in options else None
    out, saved = layer.forward(x, memory)
    assert (out == layer(x, memory)).all()
    dout = draw(*out.shape)
    grads = layer.backward(dout, saved)
    assert set(grads) == set(layer.params) | {"x"} | ({"memory"} if memory is not None
                                                      else set())
    for name, grad in grads.items():
        assert np.isfinite(grad).all(), name
    step = draw(*layer.params["wo"].shape)
    moved = copy.deepcopy(layer)
    moved.params["wo"] = layer.params["wo"] + step
    rise = (dout.astype(np.float64) * (moved(x, memory).astype(np.float64) - out)).sum()
    derivative = (grads["wo"].astype(np.float64) * step).sum()
    size = abs(dout).sum() * max(abs(out).max(), abs(moved(x, memory)).max())
    assert abs(rise - derivative) <= 64 * 2.0**-24 * size, (rise, derivative)


def strided(array):
    """The same values, no two of them side by side."""
    return np.repeat(array, 2, -1)[..., ::2]


def test_backward_reads_views_by_their_strides():
    layer = polyhead.Layer(32, 4, memory_dim=32, seed=6)
    x, memory, seen = draw(2, 5, 32), draw(2, 6, 32), RNG.random((1, 1, 5, 6)) < 0.7
    out, saved = layer.forward(x, memory, visible=seen)
    dout = draw(*out.shape)
    want = layer.backward(dout, saved)
    views = saved._replace(x=strided(x), memory=strided(memory),
                           tensors={"visible": strided(seen)})
    for name, grad in layer.backward(strided(dout), views).items():
        assert (grad == want[name]).all(), name


@pytest.mark.parametrize("text, field, change", [
    ("x has shape", "x", lambda x: x[..., :16]),
    ("memory has shape", "memory", lambda memory: memory[:1]),
    ("memory_dim", "memory", lambda memory: None),
    ("memory is float16", "memory", lambda memory: memory.astype(np.float16)),
    ("saved holds", "x", lambda x: x[:, :3]),
    ("saved holds", "memory_of_call", strided),
    ("memory_of_call is", "memory_of_call", lambda _: None),
    ("visible has shape", "tensors", lambda _: {"visible": np.ones((1, 1, 5, 2), bool)}),
])
def test_backward_refuses_what_forward_did_not_save(text, field, change):
    layer = polyhead.Layer(32, 4, memory_dim=32)
    out, saved = layer.forward(draw(2, 5, 32), draw(2, 6, 32))
    with pytest.raises((polyhead.Error, TypeError)) as found:
        layer.backward(out, saved._replace(**{field: change(getattr(saved, field))}))
    assert text in str(found.value), str(found.value)


def test_lengths_and_masks():
    layer = polyhead.Layer(32, 4)
    x = draw(2, 6, 32)
    out = layer(x, q_lens=[6, 3], kv_lens=[6, 3])
    assert (out[1, 3:] == 0).all() and (out[1, :3] == layer(x[1:, :3])[0]).all()
    seen = layer(x, visible=np.tril(np.ones((6, 6), bool)))
    assert (seen == polyhead.Layer(32, 4, causal=True)(x)).all()


def test_copies_and_pickles():
    layer = polyhead.Layer(32, 4, variant="talking", seed=5)
    x = draw(1, 5, 32)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert (other(x) == layer(x)).all()
    assert "4256 parameters" in repr(layer) and "talking" in repr(layer)


@pytest.mark.parametrize("text, change", [
    ("x has shape", lambda layer, x: layer(x[0])),
    ("x has shape", lambda layer, x: layer(x[..., :8])),
    ("expected float32", lambda layer, x: layer(x.astype(np.float64))),
    ("memory_dim", lambda layer, x: layer(x, x)),
    ("memory is float16", lambda layer, x: polyhead.Layer(32, 4, memory_dim=32)(
        x, x.astype(np.float16))),
    ("no argument", lambda layer, x: layer(x, colour=1)),
    ("wq has shape", lambda layer, x: layer.params.update(wq=x[0]) or layer(x)),
    ("params has 'w'", lambda layer, x: layer.params.update(w=x) or layer(x)),
    ("dout has shape", lambda layer, x: layer.backward(x[0], layer.forward(x)[1])),
    ("heads is 0", lambda layer, x: polyhead.Layer(32, 0)),
    ("rope is", lambda layer, x: polyhead.Layer(32, 4, rope="round")),
    ("nonsense", lambda layer, x: polyhead.Layer(32, 4, variant="nonsense")),
])
def test_refused(text, change):
    with pytest.raises((polyhead.Error, TypeError)) as found:
        change(polyhead.Layer(32, 4), draw(1, 5, 32))
    assert text in str(found.value), str(found.value)


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name != "merged"])
def test_token_by_token_gives_the_bits_of_one_call(variant):
    layer = polyhead.Layer(32, 4, variant=variant, seed=2, causal=True, rope="half",
                           **VARIANTS[variant])
    x = draw(2, 6, 32)
    cache = layer.cache(2, 8)
    parts = [layer(x[:, :3], cache=cache)]
    parts += [layer(x[:, t:t + 1], cache=cache) for t in range(3, 6)]
    assert (np.concatenate(parts, 1) == layer(x, cache=layer.cache(2, 8))).all()
    if not variant.startswith("mla"):  # absorbs its matrices with a cache
        assert (np.concatenate(parts, 1) == layer(x)).all()
    assert (cache.past == 6).all()
    cache.past[:] = 5  # the last token again
    assert (layer(x[:, 5:], cache=cache) == parts[-1]).all()


def test_rows_of_a_cache_have_lengths_of_their_own():
    layer = polyhead.Layer(32, 4, k_heads=2, v_heads=2, causal=True, seed=4)
    x = draw(2, 5, 32)
    cache = layer.cache(2, 5)
    assert cache.k.shape == cache.v.shape == (2, 2, 5, 8)
    layer(x[:, :3], cache=cache, q_lens=[3, 1])
    assert cache.past.tolist() == [3, 1]
    part = layer(np.stack([x[0, 3:], x[1, 1:3]]), cache=cache)
    whole = layer(x)
    assert (part[0] == whole[0, 3:]).all() and (part[1] == whole[1, 1:3]).all()
    copied = cache._replace(k=cache.k.copy(), v=cache.v.copy(), past=np.array([4, 2], "i4"))
    again = layer(np.stack([x[0, 4:], x[1, 2:3]]), cache=copied)
    assert (again == part[:, 1:]).all()


@pytest.mark.parametrize("text, change", [
    ("4 of the cache", lambda layer, cache, x: layer(x, cache=cache)),
    ("cache.past has shape", lambda layer, cache, x: layer(x[:1, :2], cache=cache)),
    ("cache.k is float64", lambda layer, cache, x: layer(
        x[:, :2], cache=cache._replace(k=cache.k.astype("f8")))),
    ("k_cache", lambda layer, cache, x: layer(
        x[:, :2], cache=cache._replace(k=cache.k[:1].copy()))),
    ("memory and cache", lambda layer, cache, x: polyhead.Layer(32, 4, memory_dim=32)(
        x[:, :2], x, cache=cache)),
])
def test_refused_caches(text, change):
    layer = polyhead.Layer(32, 4, causal=True)
    cache = layer.cache(2, 4)
    with pytest.raises(polyhead.Error) as found:
        change(layer, cache, draw(2, 5, 32))
    assert text in str(found.value), str(found.value)
    assert (cache.past == 0).all()
