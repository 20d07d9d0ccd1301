#!/usr/bin/env python3
"""random_calls.py - random calls of the Python package, most of them wrong: each must give a
result or an exception with a sentence, and never a crash.

    make BUILD=build-asan SAN=address,undefined \\
        build-asan/libpolyhead.so.0.1.0 build-asan/libpolyhead_model.so.0.1.0
    LD_PRELOAD="$(cc -print-file-name=libasan.so) $(cc -print-file-name=libubsan.so)" \\
        ASAN_OPTIONS=detect_leaks=0 POLYHEAD_LIBRARY=build-asan PYTHONPATH=python \\
        python3 python/tests/random_calls.py attention 100000

The first argument is what is called: attention, layer, model, torch (functions and operators),
heads (modules); a third one is the first seed. Prints how many calls were good and how many
refused; a few of each kind are among the tests.
"""
import functools
import os
import random
import sys

import numpy as np

import polyhead

TYPES = ["f4"] * 12 + ["f2", "f8", "i4", ">f4", "c8", "?"]
VARIANTS = ["mha", "sparsemax", "entmax:alpha=1.5", "talking", "gqa:2", "mqa", "dcmha:rank=1",
            "nonsense", "entmax:alpha=9", "moh:shared=1,top=1", "diff", "gated:head", "collab",
            "mla:rope=2,latent=4", "merged", "moh:shared=99,top=-1", "gqa:0", "dcmha:rank="]
WRONG = ["x", None, -1, 0, 2**40, 1.5, float("nan"), (), (1,), [1, 0], (1, 2, 3), {}, b"end"]
CHECKPOINTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests",
                           "golden", "checkpoints")


# ---- arrays and options --------------------------------------------------------------------

def size(r, usual):
    return usual if r.random() > r.wild else r.choice([0, 1, 2, 3, 5, 17])


def value_of(r, finite):
    return r.choice([0.0, 0.5, -3.0] + (not finite) * [1e30, np.nan, np.inf])


def array(r, shape, dtype="f4"):
    """Of this shape or nearly, in some layout."""
    shape = [size(r, n) for n in shape]
    if r.random() < r.wild / 2:
        shape = shape[:-1] if r.random() < 0.5 else [1, *shape]
    made = np.full(shape, value_of(r, dtype != "f4"), np.float32).astype(dtype)
    layout = r.random() if r.wild else 0.15 + r.random()
    if layout < 0.19 and made.ndim > 2:
        return made.swapaxes(1, 2).copy().swapaxes(1, 2)
    if 0.2 < layout < 0.24 and r.wild and made.ndim > 1:
        return made.T.copy().T
    if layout < 0.27 and r.wild and made.ndim:
        return made[..., ::-1]
    if layout < 0.3 and r.wild and made.size and made.ndim:
        return np.broadcast_to(made.reshape(-1)[:1], made.shape)
    if layout < 0.32 and r.wild:
        return np.frombuffer(bytes(made.nbytes + 1), np.uint8)[1:].view(made.dtype).reshape(
            made.shape)
    if layout < 0.33 and r.wild:
        return r.choice([made.tolist(), None, "q", made.astype(object)])
    return made


def lengths(r, count, most):
    return [r.randint(-1, most + 1) if r.random() < r.wild else r.randint(0, most)
            for _ in range(size(r, count))]


def numbers(r, t, s):
    """Options that are not tensors; where rows and keys differ a mask wants an offset."""
    found = {}
    maybe = {
        "causal": lambda: True, "window": lambda: (r.randint(-2, 9), r.randint(-2, 9)),
        "offset": lambda: r.choice([0, 3, -5, "end", 2**31 - 1]),
        "scale": lambda: r.choice([0.0, 0.1, -1.0, 1e30, float("nan")]),
        "softcap": lambda: r.choice([0.0, 2.0, -1.0, float("inf")]),
        "dropout": lambda: r.choice([0.0, 0.1, 0.99, 1.0, -0.5]),
    }
    for name, make in maybe.items():
        if r.random() < 0.1:
            found[name] = r.choice(WRONG) if r.random() < r.wild else make()
    if t != s and ("causal" in found or "window" in found) and r.random() < 0.9:
        found["offset"] = "end"
    return found


def options(r, b, h, t, s):
    found = numbers(r, t, s)
    maybe = {
        "bias": lambda: array(r, (r.choice([1, b]), r.choice([1, h]), r.choice([1, t]), s)),
        "visible": lambda: np.asarray(array(r, (r.choice([1, b]), 1, r.choice([1, t]), s))) != 0,
        "gate": lambda: array(r, r.choice([(h,), (b, h, t)])),
        "sink": lambda: array(r, (h,)), "alibi": lambda: array(r, (h,)),
        "relative": lambda: array(r, (h, r.choice([3, 5, 6]))),
        "q_lens": lambda: lengths(r, b, t), "kv_lens": lambda: lengths(r, b, s),
        "seed": lambda: r.choice([1, -1, 2**64 - 1]),
        "variant": lambda: r.choice(VARIANTS),
        "page_table": lambda: np.array([[r.randint(-1, b)] for _ in range(b)]),
        "q_offsets": lambda: np.cumsum([0] + [r.randint(0, t) for _ in range(b)]),
    }
    for name, make in maybe.items():
        if r.random() < (0.02 if name in ("page_table", "q_offsets") else 0.06):
            found[name] = r.choice(WRONG) if r.random() < r.wild else make()
    if found.get("variant") == "talking":
        found["extra"] = {"w_logits": array(r, (h, h)), "w_weights": array(r, (h, h))}
    return found


def begin(r):
    """Sizes of a call, and how often one of them is another."""
    r.wild = r.choice([0, 0, 0, 0.02, 0.07])
    return (r.choice([1, 2, 3]), r.choice([1, 2, 4, 8]), r.choice([1, 2, 7, 20]),
            r.choice([1, 3, 20, 33]), r.choice([1, 4, 8, 16]))


# ---- NumPy -----------------------------------------------------------------------------------

def attention(r):
    b, h, t, s, d = begin(r)
    groups = r.choice([n for n in (h, h, 1, 2, 3) if r.wild or h % n == 0])
    dtype = r.choice(TYPES) if r.wild else "f4"
    q, k, v = (array(r, (b, h, t, d), dtype), array(r, (b, groups, s, d), dtype),
               array(r, (b, groups, s, r.choice([d, 5])), dtype))
    given = options(r, b, h, t, s)
    out, lse = polyhead.attention(q, k, v, return_lse=True, **given)
    given.pop("page_table", None)
    if r.random() < 0.5:
        wanted = [name for name in ("q", "k", "v", "bias", "gate", "sink", "relative")
                  if r.random() < (0.7 if name in (*"qkv", *given) else r.wild)]
        polyhead.attention_backward(array(r, out.shape, out.dtype), q, k, v, out, lse,
                                    wanted=wanted, **given)
    if r.random() < 0.2:
        seen = polyhead.look(q, k, lse, **given)
        seen.top(r.randint(0, 40))
        seen.rect(r.randint(-1, b), r.randint(-1, h), (r.randint(0, t), r.randint(0, t + 1)),
                  (r.randint(0, s), r.randint(0, s + 1)))


def layer_options(r, h, t, s, width):
    found = numbers(r, t, s)
    maybe = {
        "head_dim": lambda: r.choice([1, 4, 6, -2]), "v_dim": lambda: r.choice([2, 4]),
        "k_heads": lambda: r.choice([1, 2, 3]), "out_dim": lambda: r.choice([5, 8]),
        "concat": lambda: True, "linear": lambda: True, "bias": lambda: False,
        "rope": lambda: r.choice(["half", "interleaved", "whole"]),
        "rope_dims": lambda: r.choice([2, 3, 99]), "rope_base": lambda: r.choice([1e4, -1.0]),
        "qk_norm": lambda: r.choice(["head", "whole", "rms"]),
        "variant": lambda: r.choice(VARIANTS),
    }
    for name, make in maybe.items():
        if r.random() < (0.5 if name == "variant" else 0.06):
            found[name] = r.choice(WRONG) if r.random() < r.wild else make()
    if "v_dim" in found and found["v_dim"] in (2, 4):
        found["v_heads"] = found.get("k_heads", h)
    if t != s:
        found["memory_dim"] = width
    return found


def layer(r):
    b, h, t, s, d = begin(r)
    if r.random() < 0.8:
        s = t
    width = h * max(d, 2)
    made = polyhead.Layer(size(r, width), size(r, h), **layer_options(r, h, t, s, width))
    if r.wild:
        name = r.choice(list(made.params))
        made.params[name] = array(r, made.params[name].shape, r.choice(TYPES))
        if r.random() < r.wild:
            made.params[r.choice(["wq", "wx", "moh_wr"])] = r.choice(WRONG)
    dtype = r.choice(TYPES) if r.wild else "f4"
    inputs = [array(r, (b, t, width), dtype)]
    if t != s:
        inputs.append(array(r, (b, s, width), r.choice([dtype, dtype, "f2"])))
    tensors = {"kv_lens": lengths(r, b, s)} if r.random() < 0.1 else {}
    if r.random() < 0.3:
        cache = made.cache(size(r, b), s)
        if r.wild:
            cache = cache._replace(**{r.choice(["k", "v", "extra", "past"]): array(
                r, r.choice([cache.k.shape, (b,)]), r.choice(["f4", "i4"]))})
        return made(*inputs, cache=cache)
    out, saved = made.forward(*inputs, seed=3, balance=r.choice([0.0, 0.1]), **tensors)
    if r.wild and r.random() < 0.1:
        saved = saved._replace(**{
            "x": array(r, saved.x.shape), "balance": r.choice(WRONG),
            r.choice(["memory", "memory_of_call"]): array(
                r, r.choice([inputs[-1].shape, saved.memory_of_call.shape]), "u1")})
    return made.backward(array(r, out.shape, out.dtype), saved)


def text_of(r):
    letters = ["a", "cat ", "it ", "3rd of May ", ".", "é", "漢", "\n", "🙂", "[MASK]"]
    text = "".join(r.choice(letters) for _ in range(r.randint(0, 12)))
    return text + r.choice(["\ud800", "\0"]) if r.random() < 0.03 else text


@functools.lru_cache
def models():
    """The embedded one, and small ones for everything that a model can be asked for."""
    return [polyhead.Model.embedded(), *(
        polyhead.Model.read(os.path.join(CHECKPOINTS, name))
        for name in ("bert", "bert-classes", "bert-sentence", "gpt2", "llama", "t5"))]


def model(r):
    """On those of `models`, and on others that are made to be trained."""
    r.wild = 0.07
    known = r.choice(models())
    if r.random() < 0.02:
        trainer = polyhead.Trainer(
            r.choice(["copy", "dates", "pairs", "x"]),
            {r.choice(["variant", "heads", "layers", "model_dim", "x"]):
             r.choice([*VARIANTS, 1, 2, 4, 16, *WRONG]), "ff_dim": 16},
            **{r.choice(["batch", "steps", "lr", "file", "y"]): r.choice([1, 2, *WRONG])})
        trainer.step()
        return trainer.model.generate(text_of(r), max_tokens=3)
    text = text_of(r)
    what = r.choice(["tokens", "look", "generate", "embed", "classify", "fill", "importance",
                     "prune", "convert", "token_text"])
    if what == "look":
        reading = known.look(text, r.choice([None, None, "a"]))
        names = [site.name for site in reading.sites]
        reading.weights(r.choice([0, *names, r.choice(["links", -1, 99, None])]))
        reading.vectors(r.choice(names), r.choice([0, 0, 1, 99, -1]))
        reading.ablate({(r.choice([*names, 3]), r.choice([0, 0, 1, 9, -1])):
                        r.choice(["zero", "mean", 0.5, "off"])}, r.random() < 0.5)
        return reading.links()
    if what == "importance":
        return known.importance([text], None, method=r.choice(["token", "zero", "x"]),
                                max_tokens=r.choice([0, 3, -1]))
    if what == "prune":  # which would change it: wrong ones only
        return known.prune([(r.choice(["x", 3]), r.choice([0, "0"]))])
    if what == "convert":
        return known.convert(r.choice(["gqa:99", "x", "mha" * 40]), [text])
    if what == "token_text":
        return known.token_text(r.choice([-1, 0, 7, 2**31 - 1]))
    if what in ("embed", "classify"):
        return getattr(known, what)(r.choice([[text], [], text, [text, "a cat"]]))
    if what == "generate":
        return known.generate(r.choice([text, [text, "a cat"], r.choice(WRONG)]),
                              max_tokens=r.choice([0, 1, 5, -1]), seed=r.choice([0, 1, -1]),
                              temperature=r.choice([0.0, 0.8, -1.0, float("nan")]),
                              kv_dtype=r.choice(["f32", "f16", "bf16", "x"]))
    return getattr(known, what)(text)


# ---- PyTorch -----------------------------------------------------------------------------------

def tensor(r, shape, torch, usual=None):
    """Of this shape or nearly, in some layout, on some device."""
    shape = [size(r, n) for n in shape]
    if r.random() < r.wild / 2:
        shape = shape[:-1] if r.random() < 0.5 else [1, *shape]
    dtype = usual or torch.float32
    if r.random() < r.wild:
        dtype = r.choice([torch.float64, torch.int32, torch.bool, torch.complex64,
                          torch.float16, torch.bfloat16, torch.uint8])
    made = torch.full(shape, value_of(r, True)).to(dtype)
    layout = r.random() / (2 * r.wild) if r.wild else 1
    if layout < 0.1 and made.dim() > 2:
        made = made.transpose(1, 2).contiguous().transpose(1, 2)
    elif layout < 0.2 and made.dim() > 1:
        made = made.mT.contiguous().mT
    elif layout < 0.3 and made.numel() and made.dim():
        made = made.flatten()[:1].expand(made.shape)
    elif layout < 0.4:
        made = made.to("meta")
    elif layout < 0.45 and made.dim():
        made = made.to_sparse()
    elif layout < 0.5 and dtype is torch.float32:
        made = torch._neg_view(made)
    elif layout < 0.6 and made.dim():
        made = made.repeat_interleave(2, -1)[..., ::2]
    elif layout < 0.65:
        return r.choice(WRONG)
    if made.is_floating_point() and r.random() < 0.5:
        made.requires_grad_()
    return made


def torch_options(r, torch, b, h, t, s):
    found = numbers(r, t, s)
    for old, new in (("causal", "is_causal"), ("dropout", "dropout_p")):
        if old in found:
            found[new] = found.pop(old)
    maybe = {
        "attn_mask": lambda: tensor(r, (b, r.choice([1, h]), r.choice([1, t]), s), torch,
                                    r.choice([torch.bool, torch.float32])),
        "sink": lambda: tensor(r, (h,), torch), "alibi": lambda: tensor(r, (h,), torch),
        "gate": lambda: tensor(r, r.choice([(h,), (b, h, t)]), torch),
        "q_lens": lambda: lengths(r, b, t), "kv_lens": lambda: lengths(r, b, s),
        "variant": lambda: r.choice(VARIANTS), "return_lse": lambda: True,
        "enable_gqa": lambda: True,
    }
    for name, make in maybe.items():
        if r.random() < 0.07:
            found[name] = r.choice(WRONG) if r.random() < r.wild else make()
    if found.get("variant") == "talking":
        found["extra"] = [tensor(r, (h, h), torch), tensor(r, (h, h), torch)]
    return found


def differentiate(r, found, torch):
    """Backward where there is something to differentiate."""
    outputs = [x for x in (found if isinstance(found, tuple) else (found,))
               if isinstance(x, torch.Tensor) and x.requires_grad]
    if outputs and r.random() < 0.7:
        sum(x.float().sum() for x in outputs).backward()


def operator(r, torch, q, k, v, b, h, t, s):
    """The operators themselves, which anyone may call."""
    from polyhead._plans import Options
    from polyhead._torch_attention import flat
    optional = [None] * 7
    if r.random() < 0.3:
        optional[r.randrange(7)] = tensor(r, r.choice([(h,), (b,), (b, 1, 1, s)]), torch,
                                          r.choice([torch.float32, torch.int32, torch.uint8]))
    rest = (*optional, None, [], *flat(Options(**numbers(r, t, s))))
    if r.random() < 0.5:
        return torch.ops.polyhead.attention(q, k, v, *rest)
    out = (b, h, t, v.shape[-1])
    results = [tensor(r, shape, torch) for shape in (out, (b, h, t), out, (b, h, t))]
    wanted = [r.random() < 0.7 for _ in range(3)] + [False] * 3
    return torch.ops.polyhead.attention_backward(*results[:2], q, k, v, *results[2:],
                                                 *rest[:9], wanted, *rest[9:])


def torch_calls(r):
    import torch

    import polyhead.torch as ours
    b, h, t, s, d = begin(r)
    groups = r.choice([n for n in (h, h, 1, 2, 3) if r.wild or h % n == 0])
    q, k, v = (tensor(r, (b, h, t, d), torch), tensor(r, (b, groups, s, d), torch),
               tensor(r, (b, groups, s, r.choice([d, 5])), torch))
    if r.random() < 0.2 and isinstance(v, torch.Tensor):
        return differentiate(r, operator(r, torch, q, k, v, b, h, t, s), torch)
    given = torch_options(r, torch, b, h, t, s)
    if r.random() < 0.05:
        mapped = torch.func.vmap(lambda *x: ours.scaled_dot_product_attention(*x, **given))
        return mapped(q, k, v)
    return differentiate(r, ours.scaled_dot_product_attention(q, k, v, **given), torch)


def heads(r):
    import torch

    import polyhead.torch as ours
    b, h, t, s, d = begin(r)
    if r.random() < 0.8:
        s = t
    width = h * max(d, 2)
    x = [tensor(r, (b, n, width), torch) for n in (t, s, s)]
    if r.random() < 0.3:
        made = ours.MultiheadAttention(width, h, r.choice([0.0, 0.1]), batch_first=True,
                                       add_zero_attn=r.random() < 0.1)
        mask = tensor(r, (t, s), torch, torch.bool) if r.random() < 0.3 else None
        return differentiate(r, made(*x, attn_mask=mask, need_weights=r.random() < 0.3), torch)
    made = ours.Heads(size(r, width), size(r, h), **layer_options(r, h, t, s, width))
    if r.wild and r.random() < 0.3:
        setattr(made, "wq", torch.nn.Parameter(made.wq.detach()[:, ::2]))
    if r.random() < 0.1:
        made = made.to(r.choice(["meta", torch.bfloat16, torch.float64]))
    given = {"attn_mask": tensor(r, (b, 1, r.choice([1, t]), s), torch, torch.bool)} \
        if r.random() < 0.2 else {}
    if r.random() < 0.05 and isinstance(x[0], torch.Tensor):
        saved = tensor(r, (r.choice([0, 64, 4096]),), torch, torch.uint8)
        return torch.ops.polyhead.layer_backward(
            x[0], saved, x[0], None, list(made.parameters()), *[None] * 8, made.text, 0.0, 0.0)
    if r.random() < 0.1 and isinstance(x[0], torch.Tensor):
        params = dict(made.named_parameters())
        return torch.func.grad(lambda p: torch.func.functional_call(
            made, p, (x[0],), given).sum())(params)
    return differentiate(r, made(*x[:1 + (t != s)], **given), torch)


KINDS = {"attention": attention, "layer": layer, "model": model, "torch": torch_calls,
         "heads": heads}


def main(kind, count, first=0):
    good, sentences = 0, {}
    # PyTorch's own refusals are RuntimeErrors, and so are files' OSErrors.
    refusals = (ValueError, TypeError, MemoryError, OSError) \
        + (RuntimeError,) * (kind in ("torch", "heads"))
    for seed in range(first, first + count):
        try:
            KINDS[kind](random.Random(seed))
            good += 1
        except refusals as why:
            assert str(why), f"seed {seed}: an exception without a sentence"
            start = " ".join(str(why).split()[:2])
            sentences[start] = sentences.get(start, 0) + 1
        except Exception as why:
            raise AssertionError(f"seed {seed}: {type(why).__name__}: {why}") from why
    print(f"{good} calls were good, {count - good} refused in {len(sentences)} ways")
    return sentences


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
