"""polyhead.jax against NumPy's polyhead and JAX: values, gradients, jit, vmap, errors."""
import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="no JAX in this Python")
import jax.numpy as jnp  # noqa: E402

import polyhead  # noqa: E402
import polyhead.jax as ours  # noqa: E402
from polyhead import _xla  # noqa: E402

RNG = np.random.default_rng(3)


def draw(*shape, dtype=np.float32):
    return jnp.asarray(RNG.standard_normal(shape, dtype=np.float32), dtype)


def by_heads(x):
    return np.asarray(x).swapaxes(1, 2)


SHAPES = (2, 7, 4, 16), (2, 9, 2, 16), (2, 9, 2, 8)  # of q, k, v
CASES = {
    "full": {}, "causal": {"causal": True, "offset": "end"}, "window": {"window": (2, 1),
                                                                        "offset": 0},
    "scale, softcap": {"scale": 0.3, "softcap": 2.0},
    "bias": {"bias": draw(2, 4, 7, 9)}, "visible": {"visible": draw(7, 9) > -1},
    "sink": {"sink": draw(4)}, "gate": {"gate": draw(2, 4, 7)}, "alibi": {"alibi": draw(4)},
    "relative": {"relative": draw(4, 5), "offset": 0},
    "lengths": {"q_lens": np.array([7, 3]), "kv_lens": np.array([4, 9])},
    "dropout": {"dropout": 0.3, "seed": 12},
    "variant": {"variant": "talking", "extra": {"w_logits": draw(4, 4),
                                                "w_weights": draw(4, 4)}},
}
LEARNED = ("bias", "sink", "gate", "relative")


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float16, jnp.bfloat16])
@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_same_bits_as_numpy(options, dtype):
    """The library is the same: out, lse and all gradients, to the bit, under jit too."""
    x = [draw(*shape, dtype=dtype) for shape in SHAPES]
    learned = {name: value for name, value in options.items() if name in LEARNED}
    constant = {name: value for name, value in options.items() if name not in LEARNED}
    dout, dlse = draw(2, 7, 4, 8, dtype=dtype), draw(2, 4, 7)

    def call(x, learned):
        return ours.attention(*x, **learned, **constant, return_lse=True)

    for f in (call, jax.jit(call)):
        (out, lse), pull = jax.vjp(f, x, learned)
        dx, dlearned = pull((dout, dlse))
        numpy = [by_heads(a) for a in x]
        wanted_out, wanted_lse = polyhead.attention(*numpy, **options, return_lse=True)
        grads = polyhead.attention_backward(
            by_heads(dout), *numpy, wanted_out, wanted_lse, dlse=np.asarray(dlse),
            wanted=["q", "k", "v", *learned], **options)
        assert np.array_equal(by_heads(out), wanted_out)
        assert np.array_equal(lse, wanted_lse)
        for name, found in zip("qkv", dx):
            assert np.array_equal(by_heads(found), grads[name]), name
        for name, found in dlearned.items():
            assert np.array_equal(found, grads[name]), name


def test_gradient_of_a_variants_tensors():
    x = [draw(*shape) for shape in SHAPES]
    extra = CASES["variant"]["extra"]
    found = jax.grad(lambda extra: ours.attention(*x, variant="talking",
                                                  extra=extra).sum())(extra)
    numpy = [by_heads(a) for a in x]
    out, lse = polyhead.attention(*numpy, variant="talking", extra=extra, return_lse=True)
    grads = polyhead.attention_backward(np.ones_like(out), *numpy, out, lse, variant="talking",
                                        extra=extra, wanted=list(extra))
    for name in extra:
        assert np.array_equal(found[name], grads[name])


def test_jax_agrees():
    q, k, v = draw(2, 9, 4, 16), draw(2, 9, 2, 16), draw(2, 9, 2, 16)

    def loss(f, **options):
        return jax.value_and_grad(lambda *x: (f(*x, **options) ** 2).sum(), (0, 1, 2))(q, k, v)

    found = loss(ours.attention, causal=True)
    want = loss(jax.nn.dot_product_attention, is_causal=True)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(want)):
        # Both in float32: sums of up to 16 terms twice, squares added up over 2 x 9 x 64.
        assert jnp.abs(a - b).max() <= 64 * 2.0**-24 * jnp.abs(b).max()


@pytest.mark.parametrize("axes", [(0, 0, 0), (0, None, None), (None, 0, 1)])
@pytest.mark.parametrize("options", [{}, {"sink": draw(4)}, {"bias": draw(7, 9)},
                                     {"dropout": 0.5, "seed": 5}],
                         ids=["plain", "sink", "bias", "dropout"])
def test_vmap(axes, options):
    shapes = [(*shape[:axis], 3, *shape[axis:]) if axis is not None else shape
              for shape, axis in zip(SHAPES, axes)]
    x = [draw(*shape) for shape in shapes]
    sink = options.get("sink", 0.0)

    def loss(q, k, v, sink):
        given = {**options, "sink": sink} if "sink" in options else options
        return (ours.attention(q, k, v, **given) ** 2).sum()

    f = jax.value_and_grad(loss, (0, 1, 2, 3))
    found = jax.jit(jax.vmap(f, (*axes, None)))(*x, sink)
    for i in range(3):
        one = [a if axis is None else jnp.take(a, i, axis) for a, axis in zip(x, axes)]
        value, grads = f(*one, sink)
        # The sum of the squares is XLA's, in an order of its own: 2 x 7 x 32 terms.
        assert abs(found[0][i] - value) <= 2 * 7 * 32 * 2.0**-24 * value
        for a, b in zip(found[1], grads):
            assert np.array_equal(a[i], b)


def test_vmap_twice():
    x = [draw(2, 3, *shape) for shape in SHAPES]
    found = jax.vmap(jax.vmap(ours.attention))(*x)
    assert np.array_equal(found[1, 2], ours.attention(*(a[1, 2] for a in x)))


def test_scan_and_checkpoint():
    x = draw(1, 9, 4, 16)

    def twice(x):
        return ours.attention(ours.attention(x, x, x), x, x).sum()

    def scanned(x):
        step = jax.checkpoint(lambda y, _: (ours.attention(y, x, x), None))
        return jax.lax.scan(step, x, None, length=2)[0].sum()

    found, want = jax.jit(jax.grad(scanned))(x), jax.grad(twice)(x)
    # XLA adds up the five gradients of an element in orders of its own.
    assert jnp.abs(found - want).max() <= 8 * 2.0**-24 * 5 * jnp.abs(want).max()


def test_threads_of_python():
    x = draw(2, 64, 4, 16)
    f = jax.jit(jax.grad(lambda x: ours.attention(x, x, x, causal=True).sum()))
    want = np.asarray(f(x))
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: np.asarray(f(x)), range(40)):
            assert np.array_equal(found, want)


def test_only_wanted_gradients():
    q, k, v = (draw(*shape) for shape in SHAPES)
    text = str(jax.make_jaxpr(jax.grad(lambda q: ours.attention(
        q, k, v, bias=draw(2, 4, 7, 9)).sum()))(q))
    assert '"dq"' in text.replace("\\", "") and '"dbias"' not in text.replace("\\", "")


def test_empty():
    q, k, v = draw(0, 7, 4, 16), draw(0, 9, 4, 16), draw(0, 9, 4, 16)
    assert ours.attention(q, k, v).shape == (0, 7, 4, 16)
    q, k = draw(1, 2, 1, 4), draw(1, 0, 1, 4)
    assert not ours.attention(q, k, k).any()


def test_threads_of_xla():
    """Many calls in one program, which XLA may run at once on threads of its own."""
    x = [draw(1, 64, 2, 16) for _ in range(8)]
    f = jax.jit(lambda x: [ours.attention(a, a, a, causal=True) for a in x])
    for _ in range(20):
        found = f(x)
    for a, out in zip(x, found):
        assert np.array_equal(out, ours.attention(a, a, a, causal=True))


def test_refused():
    q, k, v = (draw(*shape) for shape in SHAPES)
    with pytest.raises(polyhead.Error, match="offset"):
        jax.jit(lambda q: ours.attention(q, k, v, causal=True))(q)
    with pytest.raises(polyhead.Error, match="heads, dim"):
        ours.attention(q[0], k, v)
    with pytest.raises(polyhead.Error, match="k has shape"):
        ours.attention(q, k[:1], v)
    with pytest.raises(TypeError, match="int32"):
        ours.attention(q.astype(jnp.int32), k, v)
    with pytest.raises(polyhead.Error, match="seed"):
        ours.attention(q, k, v, dropout=0.1)
    with pytest.raises(polyhead.Error, match="one number"):
        ours.attention(q, k, v, dropout=0.1, seed=np.arange(3))
    with pytest.raises(jax.errors.ConcretizationTypeError):
        jax.jit(lambda scale: ours.attention(q, k, v, scale=scale))(0.3)
    with pytest.raises(polyhead.Error, match="w_logits"):
        ours.attention(q, k, v, variant="talking")
    with pytest.raises(polyhead.Error, match="alibi"):
        jax.grad(lambda s: ours.attention(q, k, v, alibi=s).sum())(draw(4))
    with pytest.raises(ValueError, match="cannot be differentiated"):
        jax.grad(lambda q: jax.grad(lambda q: ours.attention(q, k, v).sum())(q).sum())(q)


def test_errors_while_running():
    """A sentence of the library about values comes out as JAX's runtime error."""
    q, k, v = (draw(*shape) for shape in SHAPES)
    with pytest.raises(Exception, match="kv_lens"):
        jax.block_until_ready(ours.attention(q, k, v, kv_lens=np.array([4, 90])))


def test_structs(tmp_path):
    """Offsets as jaxlib's own header has them."""
    header = os.path.join(jax.ffi.include_dir(), "xla/ffi/api/c_api.h")
    names = {"Api_Version": _xla.Version, "Buffer": _xla.Buffer, "Args": _xla.Buffers,
             "Rets": _xla.Buffers, "ByteSpan": _xla.ByteSpan, "Attrs": _xla.Attributes,
             "Error_Create_Args": _xla.ErrorArgs, "Api": _xla.Api,
             "CallFrame": _xla.CallFrame, "Metadata": _xla.Metadata,
             "Metadata_Extension": _xla.MetadataExtension}
    theirs = {("Args", "entries"): "args", ("Rets", "entries"): "rets",
              ("Api", "error_create"): "XLA_FFI_Error_Create",
              **{("Metadata_Extension", name): "extension_base." + name
                 for name in ("struct_size", "type", "next")}}
    lines, want = [], []
    for name, struct in names.items():
        fields = [field for base in reversed(struct.__mro__)
                  for field, _ in vars(base).get("_fields_", [])]
        for field in fields:
            lines.append(f'printf("%zu\\n", offsetof(XLA_FFI_{name}, '
                         f'{theirs.get((name, field), field)}));')
            want.append(getattr(struct, field).offset)
    source = tmp_path / "offsets.c"
    source.write_text(f'#include <stdio.h>\n#include "{header}"\nint main(void) {{\n'
                      + "\n".join(lines) + "\n}\n")
    try:
        subprocess.run(["cc", source, "-o", tmp_path / "offsets"], check=True)
    except FileNotFoundError:
        pytest.skip("no C compiler")
    found = subprocess.run([tmp_path / "offsets"], capture_output=True, text=True, check=True)
    assert [int(n) for n in re.findall(r"\d+", found.stdout)] == want
