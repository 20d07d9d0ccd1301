#!/usr/bin/env python3
"""python_peers.py - what a call costs from Python, modules of variants, and whole training
steps of Hugging Face models, beside PyTorch.

    PYTHONPATH=python python3 bench/python_peers.py [calls] [calls-jax] [modules] [modules-2]
                                                    [steps] [steps-2]

calls: microseconds of a call on (1, 2, 4, 16): the overhead; calls-jax: in JAX, jitted.
modules: `polyhead.torch.Heads` of 512 with 8 heads, causal, batch 1, T = 1024, forward and
backward for x and all parameters, beside the formulas of variant_formulas.py as modules with
the same parameters, which must give the same output; then ours alone at T = 8192.
steps: training steps (AdamW) of GPT-2 of 6 layers of 384 with 6 heads, of BERT of 6 of 384 with
12 (the sizes of MiniLM) and of 4 of 512 with 8, on 2048 tokens: "sdpa", "polyhead" and "none",
which only passes values on, in turn. What sdpa takes beyond none is attention's part: if
attention took no time at all the ratio would be sdpa / none.
One thread, time of the processor, so that other programs do not count; steps-2, modules-2: two
threads, on a machine that is quiet. Least times of several rounds.
"""
import functools
import itertools
import sys
import time

ROUNDS = 15


def least(call, number):
    best = float("inf")
    for _ in range(ROUNDS):
        begin = time.process_time()  # one thread: other programs do not count
        for _ in range(number):
            call()
        best = min(best, (time.process_time() - begin) / number)
    return best * 1e6


def calls():
    import numpy as np

    import polyhead
    polyhead.set_threads(1)
    a = np.ones((1, 2, 4, 16), np.float32)
    plain = least(lambda: polyhead.attention(a, a, a), 5000)
    print(f"{'NumPy, polyhead.attention':43} {plain:7.1f} us")
    try:
        import torch
        import torch.nn.functional as F

        import polyhead.torch as ours
    except ImportError:
        print("PyTorch is not here")
        return
    torch.set_num_threads(1)
    q = [torch.randn(1, 2, 4, 16) for _ in range(3)]
    x = [t.clone().requires_grad_() for t in q]
    dout = torch.ones(1, 2, 4, 16)
    for name, f in (("PyTorch", F.scaled_dot_product_attention),
                    ("Polyhead", ours.scaled_dot_product_attention)):
        with torch.no_grad():
            plain = least(lambda: f(*q), 3000)
        both = least(lambda: torch.autograd.grad(f(*x), x, dout), 500)
        print(f"{name + ', scaled_dot_product_attention':43} {plain:7.1f} us, "
              f"forward and backward {both:.0f} us")


def calls_jax():
    import jax
    import jax.numpy as jnp

    import polyhead
    from polyhead.jax import attention
    polyhead.set_threads(1)
    q = jnp.ones((1, 4, 2, 16))
    for name, f in (("JAX, dot_product_attention", jax.nn.dot_product_attention),
                    ("JAX, polyhead.jax.attention", attention)):
        plain = jax.jit(lambda q: f(q, q, q))
        both = jax.jit(jax.grad(lambda q: f(q, q, q).sum()))
        print(f"{name:43} {least(lambda: plain(q).block_until_ready(), 1000):7.1f} us, "
              f"forward and backward {least(lambda: both(q).block_until_ready(), 500):.0f} us")


# ---- modules of variants ----------------------------------------------------------------

def sparse_layer(t, formulas):
    q, k, v = formulas.project(t, 8)
    return formulas.join(formulas.entmax({"q": q, "k": k, "v": v})) @ t["wo"]


def dcmha_layer(t, formulas):
    """The coefficients of both mixes from x, two of rank 2 and a gate for each channel."""
    import torch.nn.functional as F
    made = dict(zip("qkv", formulas.project(t, 8)))
    for i, channel in enumerate(("preq", "prek", "postq", "postk")):
        y = F.gelu(t["x"] @ t["dc_w1"][i], approximate="tanh") @ t["dc_w2"][i].flatten(1)
        w1, made[channel + "_w2"] = y.unflatten(-1, (4, 8)).split(2, -2)
        made[channel + "_w1"] = formulas.rms(w1, 1e-6)
        made[channel + "_g"] = (t["x"] @ t["dc_wg"][i]).tanh()
    return formulas.join(formulas.dcmha(made)) @ t["wo"]


def moh_layer(t, formulas, top=2, attend="attend_plain"):
    return formulas.moh(t, getattr(formulas, attend), 8, 2, top)


MODULES = (
    ("dcmha:rank=2", "plain", dcmha_layer), ("entmax:alpha=1.5", "plain", sparse_layer),
    ("moh:shared=2,top=2", "plain", moh_layer),
    ("moh:shared=2,top=2", "sdpa", functools.partial(moh_layer, attend="attend_fused")),
    ("moh:shared=2,top=4", "plain", functools.partial(moh_layer, top=4)),
)


def both_passes(call, x, params, dout):
    import torch
    return torch.autograd.grad(call(x), [x, *params], dout)


def modules(threads=1, clock=time.process_time, rounds=5):
    import torch
    import variant_formulas as formulas

    import polyhead.torch as ours
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    for variant, peer, formula in MODULES:
        heads = ours.Heads(512, 8, variant=variant, causal=True, bias=False)
        # dc_static starts as 0, and the formula has none
        params = {name: p for name, p in heads.named_parameters() if name != "dc_static"}
        plain = lambda x: formula({"x": x, **params}, formulas)
        x = torch.randn(1, 1024, 512, requires_grad=True)
        dout = torch.randn_like(x)
        off = (heads(x) - plain(x)).abs().max() / plain(x).abs().max()
        assert off < 1e-5, f"{variant}: off by {off}"
        times = {call: [] for call in (heads, plain)}
        for _ in range(rounds):
            for call, taken in times.items():
                begin = clock()
                both_passes(call, x, params.values(), dout)
                taken.append((clock() - begin) * 1e3)
        a, b = (sorted(taken) for taken in times.values())
        print(f"{variant:18} T=1024: polyhead {a[0]:6.1f} ms, {peer} "
              f"{b[0]:6.1f}, ratio {b[0] / a[0]:.2f}, of medians "
              f"{b[rounds // 2] / a[rounds // 2]:.2f}", flush=True)
        x = torch.randn(1, 8192, 512, requires_grad=True)
        begin = clock()
        both_passes(heads, x, params.values(), torch.ones_like(x))
        print(f"{variant:18} T=8192: polyhead {(clock() - begin) * 1e3:6.0f} ms",
              flush=True)


# ---- training steps ---------------------------------------------------------------------

def gpt2(transformers, dropout):
    config = transformers.GPT2Config(n_embd=384, n_head=6, n_layer=6, vocab_size=8192,
                                     n_positions=2048, attn_pdrop=dropout, resid_pdrop=0,
                                     embd_pdrop=0)
    return config, transformers.GPT2LMHeadModel


def bert(transformers, dropout, layers=6, width=384, heads=12):
    config = transformers.BertConfig(hidden_size=width, num_attention_heads=heads,
                                     num_hidden_layers=layers, intermediate_size=4 * width,
                                     vocab_size=8192, max_position_embeddings=2048,
                                     attention_probs_dropout_prob=dropout,
                                     hidden_dropout_prob=0)
    return config, transformers.BertForMaskedLM


def bert_of_4(transformers, dropout):
    return bert(transformers, dropout, 4, 512, 8)


def no_attention(module, query, key, value, attention_mask, **others):
    """What a step takes without attention; value has the heads of query in these models."""
    return value.transpose(1, 2).contiguous(), None


def trained(make, how, dropout):
    """A model and its optimiser."""
    import torch
    import transformers
    torch.manual_seed(0)
    config, model = make(transformers, dropout)
    config._attn_implementation = how
    model = model(config).train()
    return model, torch.optim.AdamW(model.parameters(), fused=True)


def step(model, optimiser, ids):
    model(input_ids=ids, labels=ids).loss.backward()
    optimiser.step()
    optimiser.zero_grad()


def compare_steps(make, length, dropout, clock, rounds):
    import torch
    models = {how: trained(make, how, dropout) for how in ("sdpa", "polyhead", "none")}
    ids = torch.randint(8192, (2048 // length, length))
    times = {how: [] for how in models}
    for _ in range(rounds):
        for how, made in models.items():
            begin = clock()
            step(*made, ids)
            times[how].append((clock() - begin) * 1e3)
    best = {how: min(taken) for how, taken in times.items()}
    middle = {how: sorted(taken)[rounds // 2] for how, taken in times.items()}
    print(f"{make.__name__:9} T={length:4} dropout {dropout}: sdpa {best['sdpa']:5.0f} ms, "
          f"polyhead {best['polyhead']:5.0f}, none {best['none']:5.0f}, ratio "
          f"{best['sdpa'] / best['polyhead']:.2f} (of medians "
          f"{middle['sdpa'] / middle['polyhead']:.2f}) of at most "
          f"{best['sdpa'] / best['none']:.2f}", flush=True)


def steps(threads=1, clock=time.process_time, rounds=3, makes=(gpt2, bert, bert_of_4),
          lengths=(512, 2048), dropouts=(0.0, 0.1)):
    import torch
    import transformers

    import polyhead.transformers  # noqa: F401
    transformers.AttentionInterface.register("none", no_attention)
    transformers.AttentionMaskInterface.register(
        "none", transformers.masking_utils.sdpa_mask)
    torch.set_num_threads(threads)
    for make, length, dropout in itertools.product(makes, lengths, dropouts):
        compare_steps(make, length, dropout, clock, rounds)


if __name__ == "__main__":
    for part in sys.argv[1:] or ["calls", "steps"]:
        {"calls": calls, "calls-jax": calls_jax, "modules": modules, "steps": steps,
         "modules-2": lambda: modules(2, time.perf_counter),
         "steps-2": lambda: steps(2, time.perf_counter)}[part]()
