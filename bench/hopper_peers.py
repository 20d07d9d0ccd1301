#!/usr/bin/env python3
"""hopper_peers.py - passes on a Hopper GPU beside PyTorch's cuDNN and flash backends.

    python3 bench/hopper_peers.py [build/libpolyhead.so.VERSION] [forward] [decode] [error]
                                  [backward] [grad_error]

The three take turns on the same tensors, a graph of calls each, timed by events: fastest /
median of rounds. Forward passes in TFLOP/s (4 B H T^2 d, causal half), decoding in TB/s of keys and
values, caches in turn; backward passes (2.5 times the operations) as calls in a row. Then the
largest error against double precision, in units of the largest element.
"""
import glob
import os
import sys
from ctypes import byref, c_void_p

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
from polyhead._c import Args, Attn, Grads, load_library  # noqa: E402
from polyhead._context import Context  # noqa: E402

PH_CUDA, PH_BF16, CAUSAL = 1, 2, 1
ROUNDS = 7


class Ours:
    def __init__(self, ctx, q, k, causal):
        self.ctx, self.plan = ctx, c_void_p()
        batch, heads, rows, dim = q.shape
        attn = Attn(batch=batch, q_heads=heads, k_heads=k.shape[1], v_heads=k.shape[1],
                    q_len=rows, kv_len=k.shape[2], qk_dim=dim, dtype=PH_BF16,
                    mask=CAUSAL if causal else 0)
        ctx.check(ctx.lib.ph_plan_create(byref(self.plan), ctx.handle, byref(attn)))
        self.out = torch.empty_like(q)

    def __call__(self, q, k, v):
        args = Args(q=q.data_ptr(), k=k.data_ptr(), v=v.data_ptr(), out=self.out.data_ptr(),
                    stream=torch.cuda.current_stream().cuda_stream)
        self.ctx.check(self.ctx.lib.ph_forward(self.plan, byref(args)))
        return self.out

    def close(self):
        torch.cuda.synchronize()
        self.ctx.lib.ph_plan_free(self.plan)


def peer(backend, causal):
    def call(q, k, v):
        with sdpa_kernel(backend):
            return scaled_dot_product_attention(q, k, v, is_causal=causal,
                                                enable_gqa=q.shape[1] != k.shape[1])
    return call


def contenders(ctx, q, k, causal):
    return {"ours": Ours(ctx, q, k, causal), "cuDNN": peer(SDPBackend.CUDNN_ATTENTION, causal),
            "flash": peer(SDPBackend.FLASH_ATTENTION, causal)}


def captured(call, q, caches, calls):
    """A graph of calls: the host's time does not count."""
    call(q, *caches[0])
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for n in range(calls):
            call(q, *caches[n % len(caches)])
    return graph


def seconds(graph, calls):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e-3 / calls


def take_turns(name, work, graphs, calls):
    times = {who: [] for who in graphs}
    for turn in range(ROUNDS + 1):
        for who, graph in graphs.items():
            time = seconds(graph, calls)
            if turn:
                times[who].append(time)
    cells = [f"{who} {work / min(t):7.2f} / {work / sorted(t)[len(t) // 2]:7.2f}"
             for who, t in times.items()]
    print(f"{name:32}", "  ".join(cells), flush=True)


def compare(ctx, name, work, q, caches, causal=False, calls=12):
    calls_of = contenders(ctx, q, caches[0][0], causal)
    take_turns(name, work, {who: captured(call, q, caches, calls)
                            for who, call in calls_of.items()}, calls)
    calls_of["ours"].close()


class OurGrads:
    """The backward pass of ours, behind one forward pass."""

    def __init__(self, ctx, q, k, v, dout, causal):
        self.ctx, self.plan = ctx, c_void_p()
        batch, heads, rows, dim = q.shape
        attn = Attn(batch=batch, q_heads=heads, k_heads=k.shape[1], v_heads=k.shape[1],
                    q_len=rows, kv_len=k.shape[2], qk_dim=dim, dtype=PH_BF16, backward=1,
                    mask=CAUSAL if causal else 0)
        ctx.check(ctx.lib.ph_plan_create(byref(self.plan), ctx.handle, byref(attn)))
        self.out = torch.empty_like(q)
        self.lse = torch.empty(batch, heads, rows, device="cuda", dtype=torch.float32)
        self.grads = [torch.empty_like(x) for x in (q, k, v)]
        self.args = Args(q=q.data_ptr(), k=k.data_ptr(), v=v.data_ptr(), out=self.out.data_ptr(),
                         lse=self.lse.data_ptr(),
                         stream=torch.cuda.current_stream().cuda_stream)
        self.given = Grads(dout=dout.data_ptr(), dq=self.grads[0].data_ptr(),
                           dk=self.grads[1].data_ptr(), dv=self.grads[2].data_ptr())
        ctx.check(ctx.lib.ph_forward(self.plan, byref(self.args)))

    def __call__(self):
        self.ctx.check(self.ctx.lib.ph_backward(self.plan, byref(self.args), byref(self.given)))
        return self.grads

    def close(self):
        torch.cuda.synchronize()
        self.ctx.lib.ph_plan_free(self.plan)


def peer_grads(backend, q, k, v, dout, causal):
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    out = peer(backend, causal)(*leaves)
    return lambda: torch.autograd.grad(out, leaves, dout, retain_graph=True)


def grad_contenders(ctx, q, k, v, dout, causal):
    """Ours, and the peers that have a backward pass for such heads."""
    found = {"ours": OurGrads(ctx, q, k, v, dout, causal)}
    for who, backend in (("cuDNN", SDPBackend.CUDNN_ATTENTION),
                         ("flash", SDPBackend.FLASH_ATTENTION)):
        try:
            found[who] = peer_grads(backend, q, k, v, dout, causal)
            found[who]()
        except RuntimeError as error:
            found.pop(who, None)
            print(f"{who} refuses d {q.shape[3]}: {str(error).splitlines()[0]}")
    return found


class Calls:
    """Calls in a row, in the place of a graph of them."""

    def __init__(self, call, calls):
        self.call, self.calls = call, calls

    def replay(self):
        for _ in range(self.calls):
            self.call()


def backward(ctx, dim, rows, causal, calls=10):
    shape = (16384 // rows, 2048 // dim, rows, dim)
    work = 1e-11 * shape[0] * shape[1] * rows * rows * dim * (0.5 if causal else 1)
    all_of = grad_contenders(ctx, *(random(*shape) for _ in range(4)), causal)
    take_turns(f"backward d {dim} T {rows}" + causal * " causal", work,
               {who: Calls(call, calls) for who, call in all_of.items()}, calls)
    all_of["ours"].close()


def grad_error(ctx, dim, rows, causal):
    q, k, v, dout = (random(1, 2, rows, dim) for _ in range(4))
    leaves = [x.double().requires_grad_() for x in (q, k, v)]
    out = scaled_dot_product_attention(*leaves, is_causal=causal)
    truth = torch.autograd.grad(out, leaves, dout.double())
    contenders_of = grad_contenders(ctx, q, k, v, dout, causal)
    for who, call in contenders_of.items():
        off = [((x.double() - y).abs().max() / y.abs().max()).item()
               for x, y in zip(call(), truth)]
        print(f"grad error d {dim} T {rows} {'causal' if causal else 'full':6} {who:6}",
              " ".join(f"{name} {x:.2e}" for name, x in zip(("dq", "dk", "dv"), off)))
    contenders_of["ours"].close()


def random(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def forward(ctx, dim, rows, causal):
    shape = (16384 // rows, 2048 // dim, rows, dim)
    work = 4e-12 * shape[0] * shape[1] * rows * rows * dim * (0.5 if causal else 1)
    compare(ctx, f"d {dim} T {rows}{' causal' if causal else ''}", work, random(*shape),
            [(random(*shape), random(*shape))], causal)


def decode(ctx, batch, keys, dim=128):
    shape = (batch, 8, keys, dim)
    work = 4e-12 * batch * 8 * keys * dim
    caches = [(random(*shape), random(*shape)) for _ in range(1 + int(2e-4 / work))]
    compare(ctx, f"decode batch {batch} x {keys}", work, random(batch, 32, 1, dim), caches,
            calls=24)


def error(ctx, dim, rows, causal):
    q, k, v = (random(1, 2, rows, dim) for _ in range(3))
    truth = scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=causal)
    cells = []
    calls = contenders(ctx, q, k, causal)
    for who, call in calls.items():
        off = (call(q, k, v).double() - truth).abs()
        cells.append(f"{who} {off.max() / truth.abs().max():.2e} mean "
                     f"{off.mean() / truth.abs().mean():.2e}")
    calls["ours"].close()
    print(f"error d {dim} T {rows} {'causal' if causal else 'full':6}", "  ".join(cells))


def forwards(ctx):
    for dim in 64, 128, 256:
        for rows in 512, 1024, 2048, 16384:
            for causal in False, True:
                forward(ctx, dim, rows, causal)


def decodes(ctx):
    for batch in 1, 4, 16, 128:
        decode(ctx, batch, 8192)
    decode(ctx, 1, 131072)


def errors(ctx):
    for dim in 64, 128, 256:
        for causal in False, True:
            error(ctx, dim, 2048, causal)


def backwards(ctx):
    for dim in 64, 128, 256:
        for rows in 512, 1024, 2048, 8192, 16384:
            for causal in False, True:
                backward(ctx, dim, rows, causal)


def grad_errors(ctx):
    for dim in 64, 128, 256:
        for causal in False, True:
            grad_error(ctx, dim, 2048, causal)


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else sorted(glob.glob("build/libpolyhead.so*"))[-1]
    groups = {"forward": forwards, "decode": decodes, "error": errors, "backward": backwards,
              "grad_error": grad_errors}
    ctx = Context(0, load_library(path), device=PH_CUDA)
    with torch.cuda.stream(torch.cuda.Stream()):
        for name in sys.argv[2:] or groups:
            groups[name](ctx)
    ctx.close()


if __name__ == "__main__":
    main()
