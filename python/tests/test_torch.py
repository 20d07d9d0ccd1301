"""polyhead.torch against PyTorch: values, gradients, compilers, modes, modules."""
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="no PyTorch in this Python")

import torch.nn.functional as F  # noqa: E402

import polyhead  # noqa: E402
import polyhead.torch as ours  # noqa: E402
import random_calls  # noqa: E402
import reference  # noqa: E402
from polyhead import _torch_attention as inner  # noqa: E402

torch.set_num_threads(1)  # the tensors are small
sdpa = ours.scaled_dot_product_attention


def draw(*shape, dtype=torch.float32, grad=False):
    return torch.randn(*shape, dtype=torch.float64).to(dtype).requires_grad_(grad)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(5)


CASES = {
    "full": {}, "causal": {"is_causal": True}, "scale": {"scale": 0.3},
    "bool mask": {"attn_mask": torch.rand(2, 1, 7, 9) > 0.3},
    "bool keys": {"attn_mask": (torch.arange(9) < 6).view(1, 1, 1, 9).expand(2, 4, 7, 9)},
    "float mask": {"attn_mask": torch.randn(7, 9)},
    "two axes": {"attn_mask": torch.ones(7, 9).tril().bool()},
}


def both(options, q, k, v):
    """Of ours in q's type and of PyTorch's in double: out and gradients of q, k, v."""
    results = []
    for call, dtype in ((sdpa, q.dtype), (F.scaled_dot_product_attention, torch.float64)):
        x = [t.detach().to(dtype).requires_grad_() for t in (q, k, v)]
        given = {name: value.to(q.dtype).to(dtype) if torch.is_tensor(value)
                 and value.is_floating_point() else value for name, value in options.items()}
        out = call(*x, **given)
        torch.manual_seed(9)
        dout = torch.randn(out.shape, dtype=torch.float64).to(q.dtype).to(dtype)
        results.append([out, *torch.autograd.grad(out, x, dout)])
    return zip(*results)


def plain(*tensors):
    return [x.detach().double().numpy() for x in tensors]


def bounds(options, q, k, v):
    """reference.forward and backward for the dout of `both`: errors of every element."""
    name, mask = str(q.dtype)[len("torch."):], options.get("attn_mask")
    given = {"causal": options.get("is_causal", False), "scale": options.get("scale")}
    if mask is not None:
        mask = mask.view(*(1,) * (4 - mask.dim()), *mask.shape)
        given["bias" if mask.is_floating_point() else "visible"] = mask.to(
            q.dtype if mask.is_floating_point() else mask.dtype).float().numpy()
    want = reference.forward(*(x.detach().float().numpy() for x in (q, k, v)), dtype=name,
                             **given)
    torch.manual_seed(9)
    dout = torch.randn(want["out"].shape, dtype=torch.float64).to(q.dtype)
    return want, reference.backward(reference.rounded(want, name), *plain(dout), k.shape[1],
                                    v.shape[1], dtype=name)


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_sdpa(options, dtype):
    q, k, v = draw(2, 4, 7, 16, dtype=dtype), draw(2, 4, 9, 16, dtype=dtype), \
        draw(2, 4, 9, 24, dtype=dtype)
    (out, exact), *grads = both(options, q, k, v)
    want, wanted = bounds(options, q, k, v)
    assert out.dtype == dtype
    reference.close("out", *plain(out, exact), reference.rounded(want, str(dtype)[6:])["out_error"])
    for name, pair in zip("qkv", grads):
        reference.close(name, *plain(*pair), wanted[name][1])


@pytest.mark.parametrize("shape", [(7, 16), (3, 7, 16), (2, 3, 4, 7, 16), (0, 2, 7, 16),
                                   (1, 1, 1, 1)])
def test_leading_axes(shape):
    q = draw(*shape)
    found, exact = sdpa(q, q, q), F.scaled_dot_product_attention(*[q.double()] * 3)
    flat = q.numpy().reshape(-1, 1, *shape[-2:])
    error = reference.forward(flat, flat, flat)["out_error"].reshape(shape)
    reference.close("out", *plain(found, exact), error)


def test_strides_and_memory_order():
    x = draw(2, 10, 3, 4, 16)
    q, k, v = (x[:, :, i].transpose(1, 2) for i in range(3))
    out = sdpa(q, k, v)
    assert out.transpose(1, 2).is_contiguous()  # what follows needs no copy
    assert torch.equal(out, sdpa(q.contiguous(), k.contiguous(), v.contiguous()))
    numpy = polyhead.attention(q.numpy(), k.numpy(), v.numpy())
    assert torch.equal(out, torch.from_numpy(numpy))


def test_memory_that_holds_negated_values():
    q, sink, mask = draw(1, 2, 4, 8, grad=True), draw(2), draw(1, 1, 4, 4)
    dout, w = draw(1, 2, 4, 8), draw(2, 2, 2)

    def both_passes(negated):
        out = sdpa(q, q, q, negated(mask), sink=negated(sink))
        mixed = sdpa(q, q, q, variant="talking", extra=[negated(x) for x in w])
        return out, mixed, *torch.autograd.grad([out, mixed], q, [negated(dout)] * 2)
    for found, want in zip(both_passes(torch._neg_view), both_passes(torch.neg)):
        assert torch.equal(found, want)


def test_grouped_heads_and_repeated_batches():
    q, k = draw(3, 4, 5, 8), draw(1, 2, 6, 8)
    exact = F.scaled_dot_product_attention(q.double(), k.double(), k.double(),
                                           enable_gqa=True)
    found = sdpa(q, k, k, enable_gqa=True)
    error = reference.forward(q.numpy(), *[k.expand(3, -1, -1, -1).numpy()] * 2)["out_error"]
    reference.close("out", *plain(found, exact), error)


def test_learned_mask_sink_and_lse():
    q, k, v = x = [draw(2, 4, 6, 8, grad=True) for _ in range(3)]
    mask, sink = draw(1, 4, 6, 6, grad=True), draw(4, grad=True)
    dout, dlse = draw(2, 4, 6, 8), draw(2, 4, 6)
    out, lse = sdpa(q, k, v, mask, sink=sink, return_lse=True)
    found = torch.autograd.grad([out, lse], [*x, mask, sink], [dout, dlse])
    wide = [x.detach().double().requires_grad_() for x in (q, k, v, mask, sink)]
    s = wide[0] @ wide[1].transpose(2, 3) / 8**0.5 + wide[3]
    s = torch.cat([s, wide[4].view(1, 4, 1, 1).expand(2, 4, 6, 1)], 3)
    exact, exact_lse = s.softmax(3)[..., :-1] @ wide[2], s.logsumexp(3)
    wanted = torch.autograd.grad([exact, exact_lse], wide, [dout.double(), dlse.double()])

    want = reference.forward(*[t.detach().numpy() for t in x], bias=mask.detach().numpy(),
                             sink=sink.detach().numpy())
    back = reference.backward(want, dout.numpy(), 4, 4, dlse=dlse.double().numpy())
    # the sink is a key with the value 0: its weight times the error of delta, of each row
    weight = np.exp(sink.detach().double().numpy()[:, None] - want["lse"])
    delta = (want["p"] * (abs(dout.numpy()) @ abs(want["v"]).swapaxes(2, 3))).sum(3)
    unit = 8 * want["worst"][..., 0] + (8 + 6 + 6 + 40) * reference.UNIT
    of_sink = (unit * weight * (delta + abs(dlse.numpy()))).sum((0, 2))
    for name, a, b, bound in zip(
            ("out", "lse", *"qkv", "mask", "sink"), (out, lse, *found),
            (exact, exact_lse, *wanted),
            (want["out_error"], want["lse_error"], *(back[name][1] for name in "qkv"),
             back["scores"][1].sum(0, keepdims=True), of_sink)):
        reference.close(name, *plain(a, b), bound)


def test_variant_with_gradients():
    q = draw(1, 4, 6, 8, grad=True)
    w = [torch.eye(4).requires_grad_() for _ in range(2)]
    out = sdpa(q, q, q, variant="talking", extra=w)
    # mixing by identities adds nothing but a rounding of each score and weight
    want = reference.forward(*[q.detach().numpy()] * 3)
    reference.close("out", *plain(out), want["out"], 2 * want["out_error"])
    grads = torch.autograd.grad(out.square().sum(), [q, *w])
    assert all(g.abs().max() > 0 for g in grads)


def test_dropout_follows_the_generator():
    q = draw(1, 2, 64, 16, grad=True)
    torch.manual_seed(1)
    one = sdpa(q, q, q, dropout_p=0.5)
    torch.manual_seed(1)
    assert torch.equal(one, sdpa(q, q, q, dropout_p=0.5))
    assert not torch.equal(one, sdpa(q, q, q, dropout_p=0.5))

    def block(x):
        return sdpa(x, x, x, dropout_p=0.3).sin()

    torch.manual_seed(2)
    plain = torch.autograd.grad(block(q).sum(), q)[0]
    torch.manual_seed(2)
    again = torch.utils.checkpoint.checkpoint(block, q, use_reentrant=False)
    assert torch.equal(plain, torch.autograd.grad(again.sum(), q)[0])


@pytest.mark.filterwarnings("ignore:Input")
def test_gradcheck():
    x = [draw(1, 2, 4, 8, grad=True) for _ in range(3)]
    # A difference of results up to 3, each off by at most 40 roundings, over 2e-2 is off by
    # 40 * 2^-24 * 3 / 1e-2 < 8e-4, and by the third derivative (below 8) times 1e-4 / 6.
    assert torch.autograd.gradcheck(lambda *a: sdpa(*a, is_causal=True), x, eps=1e-2,
                                    atol=1e-3, rtol=0)


def test_second_derivatives_are_refused():
    q = draw(1, 2, 4, 8, grad=True)
    heads, x = ours.Heads(8, 2), draw(1, 4, 8, grad=True)
    operator = torch.ops.polyhead.attention
    for loss, given in ((sdpa(q, q, q).sum(), q), (heads(x).sum(), x), (operator(
            q, q, q, *[None] * 8, [], *inner.flat(inner.PLAIN))[0].sum(), q)):
        grad, = torch.autograd.grad(loss, given, create_graph=True)
        with pytest.raises(polyhead.Error, match="differentiated twice"):
            torch.autograd.grad(grad.sum(), given)


# ---- operators ----

OPCASES = {
    "plain": {}, "causal": {"is_causal": True},
    "mask": {"attn_mask": torch.randn(1, 1, 6, 6, requires_grad=True)},
    "bool": {"attn_mask": torch.rand(2, 1, 1, 6) > 0.2},
    "sink": {"sink": torch.randn(4, requires_grad=True), "softcap": 2.0},
    "dropout": {"dropout_p": 0.3},
}


def arguments(monkeypatch, *tensors, **options):
    """What scaled_dot_product_attention gives to the operator."""
    seen = []
    real = inner.run

    def record(q, k, v, optional, extra, seed, options, return_lse):
        seen.append((q, k, v, *optional, seed, list(extra), *inner.flat(options)))
        return real(q, k, v, optional, extra, seed, options, return_lse)

    with monkeypatch.context() as patch:
        patch.setattr(inner, "run", record)
        sdpa(*tensors, **options)
    return seen[0]


@pytest.mark.parametrize("options", OPCASES.values(), ids=OPCASES)
@pytest.mark.parametrize("kind", ["contiguous", "strided", "grad"])
def test_opcheck(options, kind, monkeypatch):
    x = [draw(2, 4, 6, 8) for _ in range(3)]
    if kind == "strided":
        x = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in x]
    if kind == "grad":
        x = [t.requires_grad_() for t in x]
    torch.library.opcheck(torch.ops.polyhead.attention,
                          arguments(monkeypatch, *x, **options))


@pytest.mark.parametrize("options", OPCASES.values(), ids=OPCASES)
def test_compile_without_graph_breaks(options):
    def step(q, k, v):
        return sdpa(q * 1, k, v, **options) * 2

    torch._dynamo.reset()
    x = [draw(2, 4, 6, 8, grad=True) for _ in range(3)]
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager", dynamic=False)
    torch.manual_seed(3)
    want = step(*x)
    torch.manual_seed(3)
    found = compiled(*x)
    if not options.get("dropout_p"):  # a compiled program draws its numbers in its own way
        assert torch.equal(found, want)
    grads = torch.autograd.grad(found.sum(), x)
    if not options.get("dropout_p"):
        for a, b in zip(grads, torch.autograd.grad(want.sum(), x)):
            assert torch.equal(a, b)
    with torch.no_grad():
        compiled(*(t.detach() for t in x))


def test_fake_tensors_never_reach_the_library():
    from torch._subclasses import FakeTensorMode
    with FakeTensorMode():
        q = torch.empty(2, 4, 6, 8)
        out = sdpa(q, q, q)
    assert out.shape == (2, 4, 6, 8) and out.stride() == (192, 8, 32, 1)


def test_autocast():
    q = draw(1, 2, 6, 8)
    with torch.autocast("cpu", torch.bfloat16):
        assert sdpa(q, q, q).dtype == F.scaled_dot_product_attention(q, q, q).dtype


# ---- tensors on a GPU ----

@pytest.fixture
def gpu():
    if not torch.cuda.is_available():
        pytest.skip("no GPU that PyTorch can use")
    try:
        polyhead._context.give(polyhead._context.take_gpu(0))
    except polyhead.Error as why:
        pytest.skip(str(why))
    return torch.device("cuda:0")


GPU_CASES = {
    "window": {"window": (3, 0), "offset": "end"},
    "cap and sink": {"softcap": 3.0, "sink": torch.tensor([0.5, -1.0, 0.0, 2.0])},
    "alibi and gate": {"alibi": torch.tensor([0.5, 0.25, 0.1, 0.0]), "gate": torch.rand(4)},
    "lengths": {"q_lens": [7, 4], "kv_lens": [5, 9]},
}


@pytest.mark.parametrize("options", GPU_CASES.values(), ids=GPU_CASES)
def test_a_gpu_computes_where_the_tensors_are(options, gpu):
    x = [draw(2, 4, 7, 16), draw(2, 2, 9, 16), draw(2, 2, 9, 24)]
    there = [t.to(gpu).requires_grad_() for t in x]
    given = {name: value.to(gpu) if torch.is_tensor(value) else value
             for name, value in options.items()}
    with torch.cuda.stream(torch.cuda.Stream()):
        out, lse = sdpa(*there, **given, return_lse=True)
        dout = draw(*out.shape)
        grads = torch.autograd.grad(out, there, dout.to(gpu))
        torch.cuda.current_stream().synchronize()
    assert out.device == lse.device == gpu
    numbers = {name: value.numpy() if torch.is_tensor(value) else value
               for name, value in options.items()}
    want = reference.forward(*(t.numpy() for t in x), **numbers)
    wanted = reference.backward(want, dout.numpy(), 2, 2)
    reference.close("out", out.detach().cpu(), want["out"], want["out_error"])
    reference.close("lse", lse.detach().cpu(), want["lse"], want["lse_error"])
    for name, grad in zip("qkv", grads):
        reference.close(name, grad.cpu(), *wanted[name])


def test_a_gpu_draws_the_dropout_of_the_cpu(gpu):
    q = draw(1, 2, 32, 16)
    torch.manual_seed(4)
    want, _ = sdpa(q, q, q, dropout_p=0.5, return_lse=True)
    torch.manual_seed(4)
    found, _ = sdpa(*[q.to(gpu)] * 3, dropout_p=0.5, return_lse=True)
    # kept weights are doubled, and their errors with them, on both sides
    bound = 4 * reference.forward(*[q.numpy()] * 3)["out_error"]
    reference.close("out", found.cpu(), *plain(want), bound)


def test_a_gpu_refuses(gpu):
    q = draw(1, 2, 8, 16).to(gpu)
    assert torch.equal(sdpa(q, q, q), F.scaled_dot_product_attention(q, q, q))
    with pytest.raises(polyhead.Error, match="entmax"):
        sdpa(q, q, q, variant="entmax:alpha=1.5")
    with pytest.raises(polyhead.Error, match="is on cpu"):
        sdpa(q, q, q, sink=torch.zeros(2))
    with pytest.raises(polyhead.Error, match="expected the CPU"):
        sdpa(q, q.cpu(), q, softcap=1.0)
    with pytest.raises(polyhead.Error, match="expected the CPU"):
        ours.Heads(16, 2).to(gpu)(q[0])


# ---- what is handed on, and what is refused ----

def test_other_tensors_go_to_torch():
    q = draw(1, 2, 4, 8, dtype=torch.float64)
    assert torch.equal(sdpa(q, q, q), F.scaled_dot_product_attention(q, q, q))
    with pytest.raises(polyhead.Error, match="float64"):
        sdpa(q, q, q, softcap=1.0)
    meta = torch.empty(1, 2, 4, 8, device="meta")
    assert sdpa(meta, meta, meta).device.type == "meta"
    with pytest.raises(polyhead.Error, match="meta"):
        sdpa(meta, meta, meta, window=(1, 1))


@pytest.mark.parametrize("text, call", [
    ("last axis", lambda x: sdpa(x.transpose(2, 3).contiguous().transpose(2, 3), x, x)),
    ("k has shape", lambda x: sdpa(x, x[..., :4], x)),
    ("v has shape", lambda x: sdpa(x, x, x[:, :, :3])),
    ("k_heads", lambda x: sdpa(x, x[:, :3], x[:, :3])),
    ("expected bool or floats", lambda x: sdpa(x, x, x, torch.ones(6, 6, dtype=torch.long))),
    ("has shape", lambda x: sdpa(x, x, x, torch.ones(5, 6, dtype=torch.bool))),
    ("dropout", lambda x: sdpa(x, x, x, dropout_p=1.5)),
    ("sink has shape", lambda x: sdpa(x, x, x, sink=torch.ones(3))),
    ("as extra", lambda x: sdpa(x, x, x, variant="talking")),
    ("alibi needs a gradient", lambda x: sdpa(x, x, x, alibi=torch.ones(4).requires_grad_())),
    ("attn_mask needs a gradient", lambda x: ours.Heads(8, 2)(
        x[0], attn_mask=torch.zeros(6, 6).requires_grad_())),
    ("expected", lambda x: sdpa(x[0, 0, 0], x, x)),
])
def test_refused(text, call):
    with pytest.raises((polyhead.Error, TypeError)) as found:
        call(draw(2, 4, 6, 8))
    assert text in str(found.value), str(found.value)


def test_operators_refuse_what_the_function_would_convert():
    x, plain = draw(2, 4, 6, 8), inner.flat(inner.PLAIN)
    for place, wrong in ((0, torch.zeros(1, 1, 6, 6, dtype=torch.float64)),
                         (1, torch.zeros(1, 1, 6, 6)), (2, torch.zeros(8)[::2]),
                         (6, torch.zeros(2, dtype=torch.int64))):
        optional = [None] * 7
        optional[place] = wrong
        with pytest.raises(polyhead.Error, match="expected contiguous"):
            torch.ops.polyhead.attention(x, x, x, *optional, None, [], *plain)


def test_backward_operators_refuse_results_of_other_calls():
    x, plain = draw(2, 4, 6, 8), inner.flat(inner.PLAIN)
    lse, wanted = torch.zeros(2, 4, 6), [True] * 3 + [False] * 3
    for results in ((x[:1], None, x, lse), (x, None, x[..., :4], lse), (x, None, x, lse[0]),
                    (x, lse.double(), x, lse)):
        with pytest.raises(polyhead.Error, match="expected"):
            torch.ops.polyhead.attention_backward(
                *results[:2], x, x, x, *results[2:], *[None] * 8, [], wanted, *plain)
    heads, x = ours.Heads(32, 4), draw(2, 6, 32)
    with pytest.raises(polyhead.Error, match="saved has shape"):
        torch.ops.polyhead.layer_backward(x, torch.zeros(64, dtype=torch.uint8), x, None,
                                          list(heads.parameters()), *[None] * 8, heads.text,
                                          0.0, 0.0)


@pytest.mark.parametrize("kind", ["torch", "heads"])
def test_random_calls(kind):
    random_calls.main(kind, 300)


# ---- nn.MultiheadAttention ----

MHA = {
    "plain": ({}, {}),
    "batch first": ({"batch_first": True}, {}),
    "no bias": ({"bias": False}, {}),
    "other widths": ({"kdim": 12, "vdim": 20}, {}),
    "added keys": ({"add_bias_kv": True, "add_zero_attn": True}, {}),
    "causal": ({}, {"attn_mask": torch.ones(5, 7).triu(1).bool(), "is_causal": True}),
    "float mask": ({}, {"attn_mask": torch.randn(5, 7)}),
    "mask per head": ({}, {"attn_mask": torch.randn(3 * 4, 5, 7)}),
    "padding": ({}, {"key_padding_mask": torch.arange(7) >= torch.tensor([[7], [4], [6]])}),
    "both": ({"batch_first": True}, {"attn_mask": torch.ones(5, 7).triu(1).bool(),
                                     "key_padding_mask": torch.zeros(3, 7).bool()}),
    "no weights": ({}, {"need_weights": False}),
    "weights per head": ({}, {"average_attn_weights": False}),
}


@pytest.mark.parametrize("make, call", MHA.values(), ids=MHA)
def test_multihead_attention(make, call):
    theirs = torch.nn.MultiheadAttention(16, 4, **make)
    mine = ours.MultiheadAttention(16, 4, **make)
    mine.load_state_dict(theirs.state_dict())
    for p in mine.parameters():
        if p.dim() == 1:  # biases that are not 0
            p.data.normal_()
    theirs.load_state_dict(mine.state_dict())
    first = make.get("batch_first")
    q = draw(3, 5, 16) if first else draw(5, 3, 16)
    k = draw(*((3, 7) if first else (7, 3)), make.get("kdim", 16))
    v = draw(*((3, 7) if first else (7, 3)), make.get("vdim", 16))
    results = []
    for module in (mine, theirs):
        out, weights = module(q, k, v, **call)
        grads = torch.autograd.grad(out.square().sum(), list(module.parameters()),
                                    allow_unused=True)
        results.append([out, weights, *grads])
    for a, b in zip(*results):
        assert (a is None) == (b is None)
        if a is not None:
            # both in float32: five products of at most 60 terms
            bound = 2 * 5 * 64 * 2.0**-24 * max(b.abs().max(), 1)
            assert a.shape == b.shape and (a - b).abs().max() <= bound


def test_inside_an_encoder_layer():
    layer = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()
    x, calls = draw(2, 6, 16), []
    with torch.no_grad():
        want = layer(x)
        mine = ours.MultiheadAttention(16, 4, batch_first=True).eval()
        mine.load_state_dict(layer.self_attn.state_dict())
        mine.register_forward_hook(lambda *_: calls.append(1))
        layer.self_attn = mine
        found = layer(x)
    assert calls and (found - want).abs().max() <= 10 * 64 * 2.0**-24 * want.abs().max()
    single, _ = mine(x[0], x[0], x[0])
    assert single.shape == (6, 16)


# ---- every variant as a module ----

HEADS = {"mha": {}, "gqa:2": {}, "entmax:alpha=1.5": {}, "talking": {}, "dcmha:rank=2": {},
         "gated:head": {}, "moh:shared=1,top=2": {}, "mohsa:overlap=2": {},
         "collab": {"head_dim": 16, "v_dim": 8}, "diff": {"v_heads": 2, "v_dim": 16},
         "mla:rope=4,latent=16": {"head_dim": 12, "v_dim": 8}, "merged": {"memory_dim": 32}}


@pytest.mark.parametrize("variant", HEADS)
def test_heads(variant):
    heads = ours.Heads(32, 4, variant=variant, **HEADS[variant])
    x = draw(2, 6, 32, grad=True)
    memory = draw(2, 6, 32, grad=True) if "memory_dim" in HEADS[variant] else None
    out = heads(x, memory)
    dout = draw(*out.shape)
    inputs = [x, *([memory] if memory is not None else []), *heads.parameters()]
    found = torch.autograd.grad(out, inputs, dout)
    # the same bits as the layer on NumPy arrays
    layer = polyhead.Layer(32, 4, variant=variant, **HEADS[variant])
    layer.params = {name: p.detach().numpy() for name, p in heads.named_parameters()}
    same, saved = layer.forward(x.detach().numpy(),
                                None if memory is None else memory.detach().numpy())
    assert torch.equal(out, torch.from_numpy(same))
    grads = layer.backward(dout.numpy(), saved)
    names = ["x", *(["memory"] if memory is not None else []), *layer.params]
    for name, grad in zip(names, found):
        assert torch.equal(grad, torch.from_numpy(grads[name])), name
    with torch.no_grad():
        assert torch.equal(heads(x, memory), out)


def test_heads_are_plain_modules():
    import copy
    import pickle
    heads, x = ours.Heads(32, 4, variant="talking", causal=True), draw(2, 6, 32)
    want = heads(x)
    for other in (copy.deepcopy(heads), pickle.loads(pickle.dumps(heads))):
        assert torch.equal(other(x), want)
    other = ours.Heads(32, 4, variant="talking", causal=True)
    other.load_state_dict(heads.state_dict())
    assert torch.equal(other(x), want)
    torch._dynamo.reset()
    compiled = torch.compile(heads, fullgraph=True, backend="aot_eager")
    found = compiled(x)
    assert torch.equal(found, want)
    found.sum().backward()
    assert all(p.grad is not None for p in heads.parameters())
    optimiser = torch.optim.SGD(heads.parameters(), 0.1)
    optimiser.step()
    assert not torch.equal(heads(x), want)


def test_heads_refuse():
    with pytest.raises(polyhead.Error, match="nonsense"):
        ours.Heads(32, 4, variant="nonsense")
    with pytest.raises(polyhead.Error, match="x has shape"):
        ours.Heads(32, 4)(draw(2, 6, 16))
    with pytest.raises(TypeError, match="float64"):
        ours.Heads(32, 4)(draw(2, 6, 32, dtype=torch.float64))
    with pytest.raises(polyhead.Error, match="memory"):
        ours.Heads(32, 4)(draw(2, 6, 32), draw(2, 6, 32))
    with pytest.raises(TypeError, match="expected float32"):
        ours.Heads(32, 4).bfloat16()(draw(2, 6, 32))
    heads = ours.Heads(32, 4)
    heads.wq = torch.nn.Parameter(heads.wq.detach()[:, :8])  # the library would read on
    with pytest.raises(polyhead.Error, match="wq has shape"):
        heads(draw(2, 6, 32))


# ---- processes ----

class Rows(torch.utils.data.Dataset):
    """Each sample is an attention call in a worker."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        q = torch.arange(64.0).view(1, 2, 4, 8) / 64 + index
        return sdpa(q, q, q)


def test_workers_of_a_data_loader():
    here = [Rows()[index] for index in range(4)]  # the parent has used the library
    for found, want in zip(torch.utils.data.DataLoader(Rows(), batch_size=None,
                                                       num_workers=2), here):
        assert torch.equal(found, want)
