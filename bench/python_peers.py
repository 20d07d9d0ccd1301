#!/usr/bin/env python3
"""python_peers.py - what a call costs from Python, and whole training steps of Hugging Face
models, beside PyTorch.

    PYTHONPATH=python python3 bench/python_peers.py [calls] [calls-jax] [steps] [steps-2]

calls: microseconds of a call on (1, 2, 4, 16): the overhead; calls-jax: in JAX, jitted.
steps: forward and backward of GPT-2 of 6 layers of 384 and BERT of 4 of 512, 2048 tokens,
"sdpa" and "polyhead" in turn.
One thread, time of the processor, so that other programs do not count; steps-2: two threads,
on a machine that is quiet. Least times of several rounds.
"""
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


def gpt2(transformers, dropout):
    config = transformers.GPT2Config(n_embd=384, n_head=6, n_layer=6, vocab_size=8192,
                                     n_positions=2048, attn_pdrop=dropout, resid_pdrop=0,
                                     embd_pdrop=0)
    return config, transformers.GPT2LMHeadModel


def bert(transformers, dropout):
    config = transformers.BertConfig(hidden_size=512, num_attention_heads=8,
                                     num_hidden_layers=4, intermediate_size=2048,
                                     vocab_size=8192, max_position_embeddings=2048,
                                     attention_probs_dropout_prob=dropout,
                                     hidden_dropout_prob=0)
    return config, transformers.BertForMaskedLM


def steps(threads=1, clock=time.process_time):
    import torch
    import transformers

    import polyhead.transformers  # noqa: F401
    torch.set_num_threads(threads)
    for make in (gpt2, bert):
        for length in (512, 2048):
            for dropout in (0.0, 0.1):
                trained = {}
                for how in ("sdpa", "polyhead"):
                    torch.manual_seed(0)
                    config, model = make(transformers, dropout)
                    config._attn_implementation = how
                    trained[how] = model(config).train()
                ids = torch.randint(8192, (2048 // length, length))
                best = dict.fromkeys(trained, float("inf"))
                for _ in range(3):
                    for how, model in trained.items():
                        begin = clock()
                        model(input_ids=ids, labels=ids).loss.backward()
                        best[how] = min(best[how], clock() - begin)
                        model.zero_grad()
                print(f"{make.__name__} T={length:4} dropout {dropout}: sdpa "
                      f"{best['sdpa'] * 1e3:5.0f} ms, polyhead {best['polyhead'] * 1e3:5.0f} ms, "
                      f"ratio {best['sdpa'] / best['polyhead']:.2f}", flush=True)


if __name__ == "__main__":
    for part in sys.argv[1:] or ["calls", "steps"]:
        {"calls": calls, "calls-jax": calls_jax, "steps": steps,
         "steps-2": lambda: steps(2, time.perf_counter)}[part]()
