"""polyhead.torch under torch.func: vmap against a loop, gradients against autograd."""
import pytest

torch = pytest.importorskip("torch", reason="no PyTorch in this Python")

import polyhead  # noqa: E402
from polyhead.torch import Heads  # noqa: E402
from polyhead.torch import scaled_dot_product_attention as sdpa  # noqa: E402

N, BATCH, HEADS, LEN, DIM = 3, 2, 4, 6, 8
torch.set_num_threads(1)  # the tensors are small


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(6)


def draw(*shape):
    return torch.randn(*shape)


def loop(call, dims, tensors):
    """What vmap computes, one element after the other; results stacked."""
    found = [call(*(x if dim is None else x.select(dim, i) for x, dim in zip(tensors, dims)))
             for i in range(N)]
    if torch.is_tensor(found[0]):
        return torch.stack(found)
    return tuple(torch.stack(each) for each in zip(*found))


def same(found, expected):
    if torch.is_tensor(found):
        return torch.equal(found, expected)
    return len(found) == len(expected) and all(map(torch.equal, found, expected))


# What a call has besides q, k and v: how it uses the fourth tensor, its shape for one
# element, and whether gradients of it are defined.
FOURTH = {
    "mask of all": (lambda q, k, v, x: sdpa(q, k, v, x), (LEN, LEN), True),
    "mask of heads": (lambda q, k, v, x: sdpa(q, k, v, x), (BATCH, HEADS, LEN, LEN), True),
    "bool mask": (lambda q, k, v, x: sdpa(q, k, v, x > -1), (BATCH, 1, LEN, LEN), False),
    "sink": (lambda q, k, v, x: sdpa(q, k, v, sink=x, is_causal=True), (HEADS,), True),
    "gate": (lambda q, k, v, x: sdpa(q, k, v, gate=x.abs()), (HEADS,), True),
    "gate of rows": (lambda q, k, v, x: sdpa(q, k, v, gate=x.abs()),
                     (BATCH, HEADS, LEN), True),
    "alibi": (lambda q, k, v, x: sdpa(q, k, v, alibi=x), (HEADS,), False),
    "talking": (lambda q, k, v, x: sdpa(q, k, v, variant="talking", extra=[x[0], x[1]]),
                (2, HEADS, HEADS), True),
    "lengths": (lambda q, k, v, x: sdpa(q, k, v, kv_lens=(x > 0) + 2), (BATCH,), False),
}


@pytest.mark.parametrize("dims", [(0, 0, 0), (0, None, None), (2, 0, None), (-1, 1, -1)])
@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("name", FOURTH)
def test_vmap_is_a_loop(name, mapped, dims):
    call, shape, learned = FOURTH[name]
    shapes = [(BATCH, HEADS, LEN, DIM)] * 3
    tensors = [draw(*shape) if dim is None else draw(N, *shape).movedim(0, dim)
               for shape, dim in zip(shapes, dims)]
    tensors.append(draw(N, *shape) if mapped else draw(*shape))
    dims = (*dims, 0 if mapped else None)

    def contiguous(*each):  # outside of vmap rows must be
        return call(*(x.contiguous() for x in each))

    assert same(torch.vmap(call, dims)(*tensors), loop(contiguous, dims, tensors))
    wanted = (0, 1, 2, 3) if learned else (0, 1, 2)
    grad = torch.func.grad(lambda *each: call(*each).square().sum(), wanted)
    grad_of_one = torch.func.grad(lambda *each: contiguous(*each).square().sum(), wanted)
    assert same(torch.vmap(grad, dims)(*tensors), loop(grad_of_one, dims, tensors))


def test_gradients_are_those_of_autograd():
    q, k, v, sink = [draw(BATCH, HEADS, LEN, DIM) for _ in range(3)] + [draw(HEADS)]

    def loss(q, k, v, sink):
        out, lse = sdpa(q, k, v, sink=sink, is_causal=True, return_lse=True)
        return out.square().sum() + lse.sum()

    inputs = [x.clone().requires_grad_() for x in (q, k, v, sink)]
    expected = torch.autograd.grad(loss(*inputs), inputs)
    assert same(torch.func.grad(loss, (0, 1, 2, 3))(q, k, v, sink), expected)
    value, vjp = torch.func.vjp(loss, q, k, v, sink)
    assert value == loss(q, k, v, sink) and same(vjp(torch.ones(())), expected)
    rows = torch.func.jacrev(lambda q: sdpa(q, k, v).sum((2, 3)))(q)
    assert rows.shape == (BATCH, HEADS, *q.shape)
    alone, = torch.autograd.grad(sdpa(inputs[0], k, v)[1, 2].sum(), inputs[0])
    assert torch.equal(rows[1, 2], alone)


def test_vmaps_within_vmaps():
    q = draw(2, N, BATCH, HEADS, LEN, DIM)
    found = torch.vmap(torch.vmap(lambda q: sdpa(q, q, q)))(q)
    assert torch.equal(found, sdpa(q, q, q))


@pytest.mark.parametrize("randomness", ["same", "different"])
def test_dropout_draws(randomness):
    q = draw(HEADS, LEN, DIM).expand(N, HEADS, LEN, DIM)
    found = torch.vmap(lambda q: sdpa(q, q, q, dropout_p=0.5), randomness=randomness)(q)
    assert torch.equal(found[0], found[1]) == (randomness == "same")


def test_what_has_no_rule_is_refused():
    q = draw(BATCH, HEADS, LEN, DIM)
    loss = lambda q: sdpa(q, q, q).sum()  # noqa: E731
    with pytest.raises(polyhead.Error, match="differentiated twice"):
        torch.func.grad(lambda q: torch.func.grad(loss)(q).sum())(q)
    with pytest.raises(polyhead.Error, match="forward mode"):
        torch.func.jvp(loss, (q,), (q,))
    with torch.autograd.forward_ad.dual_level(), \
            pytest.raises(polyhead.Error, match="forward mode"):
        loss(torch.autograd.forward_ad.make_dual(q, q))
    heads, x = Heads(DIM, 2), draw(BATCH, LEN, DIM)
    loss = lambda x: heads(x).sum()  # noqa: E731
    with pytest.raises(polyhead.Error, match="differentiated twice"):
        torch.func.grad(lambda x: torch.func.grad(loss)(x).sum())(x)
    with pytest.raises(polyhead.Error, match="forward mode"):
        torch.func.jvp(loss, (x,), (x,))


# ---- layers ----

def loss_of(heads):
    """As a function of parameters, x and what comes after them."""
    return lambda params, *given: torch.func.functional_call(heads, params, given).square().sum()


@pytest.mark.parametrize("variant", [None, "moh:shared=1,top=1", "dcmha:rank=1"])
def test_gradients_of_heads_are_those_of_autograd(variant):
    heads, x = Heads(DIM, 2, variant=variant, causal=True), draw(BATCH, LEN, DIM)
    params = dict(heads.named_parameters())
    dparams, dx = torch.func.grad(loss_of(heads), (0, 1))(params, x)
    x.requires_grad_()
    loss_of(heads)(params, x).backward()
    assert torch.equal(dx, x.grad)
    for name, parameter in params.items():
        assert torch.equal(dparams[name], parameter.grad), name


def test_gradients_of_each_sample():
    """The usual reason for vmap over grad, with memory that all samples share."""
    heads, memory = Heads(DIM, 2, memory_dim=DIM), draw(1, LEN + 1, DIM)
    params, x = dict(heads.named_parameters()), draw(N, 1, LEN, DIM)
    one = torch.func.grad(loss_of(heads), (0, 1, 2))
    found = torch.vmap(one, (None, 0, None))(params, x, memory)
    for i in range(N):
        dparams, *inputs = one(params, x[i], memory)
        assert all(torch.equal(found[0][name][i], dparams[name]) for name in dparams)
        assert all(torch.equal(each[i], d) for each, d in zip(found[1:], inputs))


def test_models_side_by_side():
    """Parameters are mapped too: an ensemble."""
    several = [Heads(DIM, 2) for _ in range(N)]
    params, _ = torch.func.stack_module_state(several)
    x = draw(BATCH, LEN, DIM)
    found = torch.vmap(lambda p: torch.func.functional_call(several[0], p, (x,)))(params)
    assert torch.equal(found, torch.stack([heads(x) for heads in several]))
