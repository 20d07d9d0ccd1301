"""Calls that must be refused: an exception with a sentence, never a crash."""
import numpy as np
import pytest

import polyhead
import random_calls

X = np.ones((2, 4, 6, 8), np.float32)


def refused(text, *arrays, **options):
    with pytest.raises((polyhead.Error, TypeError)) as found:
        polyhead.attention(*(arrays or (X, X, X)), **options)
    assert text in str(found.value), str(found.value)


@pytest.mark.parametrize("dtype", ["float64", "int32", "complex64", "bool", ">f4", "O", "U3"])
def test_types(dtype):
    refused("expected", X.astype(dtype), X, X)


def test_what_is_no_array():
    refused("expected a NumPy array", X.tolist(), X, X)
    refused("expected a NumPy array", X, None, X)
    refused("q_lens is float64, expected integers", q_lens=[1.5, 2])
    refused("beyond 32 bits", q_lens=[2**40, 1])
    refused("expected numbers", bias=np.full((6, 6), "a"))


def test_other_frameworks_are_named():
    class Tensor:
        __module__ = "torch"
    refused("polyhead.torch", Tensor(), X, X)


def test_shapes():
    refused("expected 4 axes", X[0], X[0], X[0])
    refused("k has shape", X, X[:1], X)
    refused("k has shape", X, X[..., :4], X)
    refused("v has shape", X, X, X[:, :, :3])
    refused("divis", X, X[:, :3], X)
    refused("bias has shape", bias=np.zeros((3, 6)))
    refused("bias has shape", bias=np.zeros((1, 1, 1, 1, 6)))
    refused("visible has shape", visible=np.ones((6, 5), bool))
    refused("gate has shape", gate=np.ones((2, 4)))
    refused("sink has shape", sink=np.ones(3))
    refused("alibi has shape", alibi=np.ones((4, 1)))
    refused("relative has shape", relative=np.ones((4, 4)))
    refused("kv_lens has shape", kv_lens=[1, 2, 3])


def test_sizes_of_0_are_not_defaults():
    refused("at least one head", X, X[:, :0], X[:, :0])
    refused("at least one head", X, X, X[:, :0])
    refused("not empty", X, X, X[..., :0])


def test_small_tensors_are_aligned():
    sink = np.zeros(17, np.uint8)[1:].view(np.float32)
    assert (polyhead.attention(X, X, X, sink=sink)
            == polyhead.attention(X, X, X, sink=np.zeros(4))).all()


def test_strides():
    wide = np.ones((2, 4, 6, 16), np.float32)
    refused("last axis of q has stride 2", wide[..., ::2], X, X)
    refused("last axis of k has stride 6", X, X.swapaxes(2, 3).copy().swapaxes(2, 3), X)
    refused("strides of v", X, X, X[:, :, ::-1])
    refused("repeated along every axis", X, np.broadcast_to(X[:1, :1, :1], X.shape), X)
    record = np.zeros((2, 4, 6, 8), [("a", "f4"), ("b", "u1")])["a"]
    refused("expected multiples", record, X, X)
    shifted = np.zeros(X.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(X.shape)
    refused("not aligned", shifted, X, X)


def test_values():
    refused("kv_lens", kv_lens=[7, 1])
    refused("q_lens", q_lens=[-1, 1])
    refused("dropout", dropout=1.5)
    refused("scale is 0", scale=0.0)
    refused("both given", causal=True, window=(1, 1))
    refused("expected (left, right)", window=(1,))
    refused("expected (left, right)", window=3)
    refused("no argument 'biass'", biass=X)
    refused("expected offset", X, X[:, :, :3], X[:, :, :3], causal=True)
    refused("page_table", X, X, X, page_table=[[0], [9]], kv_lens=[6, 6])
    refused("q_offsets", X[0], X[0], X[0], q_offsets=[0, 9])
    refused("beside q_offsets", X[0], X[0], X[0], q_offsets=[0, 6], bias=np.zeros((6, 6)))


def test_variants():
    refused("talkin", variant="talkin")
    refused("lacks 'w_logits'", variant="talking")
    refused("expected nothing", extra={"w_logits": np.eye(4)})
    refused("w_weights has shape", variant="talking",
            extra={"w_logits": np.eye(4), "w_weights": np.eye(3)})


def test_backward():
    out, lse = polyhead.attention(X, X, X, return_lse=True)

    def back(text, **changed):
        given = {"dout": out, "out": out, "lse": lse, **changed}
        with pytest.raises((polyhead.Error, TypeError)) as found:
            polyhead.attention_backward(given.pop("dout"), X, X, X, **given)
        assert text in str(found.value), str(found.value)

    back("dout has shape", dout=out[:1])
    back("lse has shape", lse=lse[..., :1])
    back("expected float32", out=out.astype(np.float64))
    back("'bias' is wanted", wanted=["bias"])
    back("'w_logits' is wanted", wanted=["w_logits"])
    back("dlse has shape", dlse=lse[0])


def test_look():
    seen = polyhead.look(X, X)
    for call in (lambda: seen.top(0), lambda: seen.rect(0, 9, (0, 1), (0, 1)),
                 lambda: seen.rect(0, 0, (3, 1), (0, 1)),
                 lambda: seen.rect(0, 0, (0, 99), (0, 1))):
        with pytest.raises(polyhead.Error):
            call()


@pytest.mark.parametrize("kind", ["attention", "layer", "model"])
def test_random_calls(kind):
    random_calls.main(kind, {"attention": 1500, "layer": 300, "model": 100}[kind])


@pytest.mark.parametrize("name, value", [
    ("variant", ("mha",)), ("variant", 3), ("offset", 1.5), ("offset", 2**40), ("scale", "x"),
    ("softcap", "none"), ("dropout", None), ("window", [2, 0]), ("window", (2**40, 0)),
    ("window", 3)])
def test_options_of_another_type(name, value):
    refused(f"{name} is", causal=name == "offset", **{name: value})


def test_what_a_layer_saved_is_its_own():
    layer = polyhead.Layer(8, 2)
    short, long = np.ones((1, 2, 8), np.float32), np.ones((1, 50, 8), np.float32)
    saved = layer.forward(short)[1]
    with pytest.raises(polyhead.Error, match="saved holds"):
        layer.backward(long, saved._replace(x=long))
    with pytest.raises(polyhead.Error, match="heads is"):
        polyhead.Layer(8, 2**40)


def test_a_refused_call_leaves_nothing_behind():
    good = polyhead.attention(X, X, X, sink=np.ones(4))
    for _ in range(300):  # more than there are plans
        refused("kv_lens", kv_lens=[7, 1], sink=np.ones(4))
    assert (polyhead.attention(X, X, X, sink=np.ones(4)) == good).all()
    for keys in range(1, 300):
        polyhead.attention(X[:, :, :1], *[np.ones((2, 4, keys, 8), np.float32)] * 2)
