#!/usr/bin/env python3
"""variant_peers.py - every head variant against the same formula in PyTorch.

    python3 bench/variant_peers.py [--filter TEXT] [--threads 1,2] [--seconds 120] [--json]

Batch 1, 8 heads of 64, causal, f32. What is compared is written in variant_formulas.py: the
formula of each variant, expression by expression; rows that end in "sdpa" leave the attention
in it to PyTorch's fused scaled_dot_product_attention, where the formula allows that.
entmax, sparsemax, talking and dcmha are attention alone, the others whole layers of 512.

At T = 1024 both sides run in turn: the forward pass without a graph, and a training step,
forward and backward for all inputs and parameters. Every output and gradient is compared
with the formula in double precision. At --long (8192; 0: not at all) Polyhead runs alone;
beside it stands its memory beyond inputs, outputs and gradients (counted in its allocator,
with what a layer saves for its backward pass), and what a training step by the formula
would need for T x T matrices alone (counted at T = 1024 and scaled up, not run).

Without PyTorch there is nothing to compare with: one line says so, and the status is 0. It
is 1 when a result is wrong.
"""
import ctypes
import json
import math
import os
import sys
from ctypes import byref, c_size_t, c_void_p

import peers
from polyhead._c import (Args, Attn, Grads, LayerArgs, LayerDesc, LayerGrads, LayerWeights,
                         load_library)
from polyhead._context import Context

HEADS, DIM, LENGTH = 8, 64, 1024
AIM = 3  # times as fast as the plain formula, forward and backward

# name: the string, what differs from 8 heads of 64, 1 where it is a layer
CASES = {
    "entmax": ("entmax:alpha=1.5", {}, 0),
    "sparsemax": ("sparsemax", {}, 0),
    "talking": ("talking", {}, 0),
    "dcmha": ("dcmha:rank=2", {}, 0),
    "moh": ("moh:shared=2,top=2", {}, 1),
    "moh-norm": ("moh-norm:shared=2,top=2", {}, 1),
    "collab": ("collab:content=1", {"qk_dim": 128, "v_dim": DIM}, 1),
    "mohsa": ("mohsa:overlap=8", {}, 1),
    "diff": ("diff", {"v_heads": HEADS // 2, "v_dim": 2 * DIM}, 1),
    "mla": ("mla:rope=32,latent=256", {"qk_dim": DIM + 32, "v_dim": DIM}, 1),
    "gated": ("gated:head", {}, 1),
}


# ---- Polyhead ----

def list_params(get, handle):
    """(name, shape) of the tensors that a plan or layer must be given."""
    params, i = [], 0
    while get(handle, i):
        p = get(handle, i).contents
        params.append((p.name.decode(), tuple(p.dims[:p.rank]), p.optional))
        i += 1
    return params


def fill(torch, name, x):
    """Normally distributed values."""
    x.normal_()
    if name.endswith("_norm"):
        x.mul_(0.1).add_(1)
    elif name in ("w_logits", "w_weights"):
        x.mul_(0.1).add_(torch.eye(HEADS))
    elif name.startswith(("w", "moh_")):
        x.div_(math.sqrt(x.shape[0]))
    elif name not in ("x", "q", "k", "v", "mix"):
        x.mul_(0.1)


class Ours:
    """One variant with its tensors and their gradients, by name; run() does the work once."""

    def __init__(self, torch, ctx, name, length, training):
        self.torch, self.ctx, self.training, self.keep = torch, ctx, training, []
        variant, special, is_layer = CASES[name]
        sizes = dict(batch=1, q_heads=HEADS, q_len=length, kv_len=length, qk_dim=DIM,
                     mask=1, backward=int(training), variant=variant.encode())
        self.handle, self.tensors, self.grads = c_void_p(), {}, {}
        torch.manual_seed(1)
        (self._layer if is_layer else self._attention)(Attn(**{**sizes, **special}), length)

    def _new(self, *shape):
        return peers.tensor(self.torch, shape, "f32", self.keep)

    def _add(self, name, shape):
        self.tensors[name], self.grads[name] = self._new(*shape), self._new(*shape)
        fill(self.torch, name, self.tensors[name])

    def _result(self, *shape):
        self.out, self.dout = self._new(*shape), self._new(*shape)
        self.dout.normal_()

    def _arrays(self, params):
        """Tensors and gradients as `extra` and `dextra`; what is optional is left out."""
        at = lambda table: (c_void_p * len(params))(
            *[table[n].data_ptr() if n in table else None for n, _, _ in params])
        self.extra, self.dextra = at(self.tensors), at(self.grads)
        return ctypes.addressof(self.extra), ctypes.addressof(self.dextra)

    def _attention(self, attn, length):
        lib, check = self.ctx.lib, self.ctx.check
        check(lib.ph_plan_create(byref(self.handle), self.ctx.handle, byref(attn)))
        params = list_params(lib.ph_plan_extra, self.handle)
        for name in "qkv":
            self._add(name, (1, HEADS, length, DIM))
        for name, shape, optional in params:
            if not optional:
                self._add(name, shape)
        self._result(1, HEADS, length, DIM)
        self.lse, self.saved_bytes = self._new(1, HEADS, length), 0
        extra, dextra = self._arrays(params)
        at = lambda x: x.data_ptr()
        args = Args(*[at(self.tensors[n]) for n in "qkv"], at(self.out), at(self.lse),
                    extra=extra)
        grads = Grads(dout=at(self.dout), dextra=dextra,
                      **{"d" + n: at(self.grads[n]) for n in "qkv"})

        def run():
            check(lib.ph_forward(self.handle, byref(args)))
            if self.training:
                check(lib.ph_backward(self.handle, byref(args), byref(grads)))
        self.run, self.free = run, lib.ph_plan_free

    def _layer(self, attn, length):
        lib, check, width = self.ctx.lib, self.ctx.check, HEADS * DIM
        desc = LayerDesc(model_dim=width, attn=attn)
        check(lib.ph_layer_create(byref(self.handle), self.ctx.handle, byref(desc)))
        params = list_params(lib.ph_layer_param, self.handle)
        named = lib.ph_layer_named(self.handle)
        self._add("x", (1, length, width))
        for name, shape, optional in params:
            if not optional or name == "content":
                self._add(name, shape)
        self._result(1, length, width)
        self.saved_bytes = lib.ph_layer_saved(self.handle) if self.training else 0
        extra, dextra = self._arrays(params[named:])
        at = lambda x: x.data_ptr()
        weights, args = LayerWeights(extra=extra), LayerArgs(x=at(self.tensors["x"]))
        grads = LayerGrads(dout=at(self.dout), dx=at(self.grads["x"]), dextra=dextra)
        for name, _, _ in params[:named]:
            if name in self.tensors:
                setattr(weights, name, at(self.tensors[name]))
                setattr(grads, "d" + name, at(self.grads[name]))
        args.out, self.saved = at(self.out), self._new(self.saved_bytes // 4 + 16)
        args.saved = at(self.saved) if self.training else None
        args.saved_size = self.saved_bytes

        def run():
            check(lib.ph_layer_forward(self.handle, byref(weights), byref(args)))
            if self.training:
                check(lib.ph_layer_backward(self.handle, byref(weights), byref(args),
                                            byref(grads)))
        self.run, self.free = run, lib.ph_layer_free


class Counter:
    """Memory hooks of a context that know how much is held, and the most of it."""

    def __init__(self):
        self.libc = ctypes.CDLL(None)
        self.libc.aligned_alloc.argtypes = [c_size_t, c_size_t]
        self.libc.aligned_alloc.restype = c_void_p
        self.libc.free.argtypes = [c_void_p]
        self.sizes, self.held, self.peak = {}, 0, 0
        kinds = (ctypes.CFUNCTYPE(c_void_p, c_void_p, c_size_t),
                 ctypes.CFUNCTYPE(None, c_void_p, c_void_p))
        self.functions = kinds[0](self._alloc), kinds[1](self._release)

    def hooks(self):
        alloc, release = (ctypes.cast(f, c_void_p) for f in self.functions)
        return {"alloc": alloc, "release": release}

    def _alloc(self, _, size):
        place = self.libc.aligned_alloc(64, (size + 63) // 64 * 64)
        if place:
            self.sizes[place] = size
            self.held += size
            self.peak = max(self.peak, self.held)
        return place

    def _release(self, _, place):
        if place:
            self.held -= self.sizes.pop(place)
            self.libc.free(place)


# ---- PyTorch ----

def formulas(name):
    """{"": the formula, "sdpa": with fused attention}, as functions of the tensors."""
    import variant_formulas as written
    function = getattr(written, name.replace("-", "_"))
    if not CASES[name][2]:
        return {"": function}
    return {"": lambda t: function(t, written.attend_plain),
            "sdpa": lambda t: function(t, written.attend_fused)}


def run_formula(torch, formula, ours, dtype):
    """The output, and where training the gradients of all tensors, in their order."""
    tensors = {n: x.to(dtype).detach() for n, x in ours.tensors.items()}
    if not ours.training:
        with torch.no_grad():
            return [formula(tensors)]
    for x in tensors.values():
        x.requires_grad_()
    out = formula(tensors)
    return [out.detach(), *torch.autograd.grad(out, list(tensors.values()),
                                               ours.dout.to(dtype))]


class Problem:
    """Both sides of one row, as peers.measure wants them."""

    def __init__(self, torch, ours, formula):
        self.ours = ours.run
        self.theirs = lambda: run_formula(torch, formula, ours, torch.float32)


def errors(results, exact):
    """Largest distance in any tensor, relative to the tensor's largest element."""
    return max(((x.double() - e).abs().max() / e.abs().max()).item()
               for x, e in zip(results, exact))


def peak_squares(torch, formula, ours):
    """Bytes of heads x T x T matrices that the formula holds at the peak of its step."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU],
                                profile_memory=True) as trace:
        run_formula(torch, formula, ours, torch.float32)
    held = peak = 0
    for event in sorted(trace.profiler.kineto_results.events(), key=lambda e: e.start_ns()):
        if event.name() == "[memory]" and abs(event.nbytes()) > 4 * LENGTH * LENGTH:
            held += event.nbytes()
            peak = max(peak, held)
    return peak


# ---- rows ----

def compare(torch, ctx, name, training, threads, seconds):
    ours = Ours(torch, ctx, name, LENGTH, training)
    exact = run_formula(torch, formulas(name)[""], ours, torch.float64)
    ours.run()
    error = errors([ours.out, *(ours.grads.values() if training else [])], exact)
    for peer, formula in formulas(name).items():
        problem = Problem(torch, ours, formula)
        both = error, errors(problem.theirs(), exact)
        shape = {"name": f"{name} {'training' if training else 'forward'} {peer}".rstrip(),
                 "job": "training" if training else "forward", "batch": 1,
                 "q_heads": HEADS, "kv_heads": HEADS, "q_len": LENGTH, "kv_len": LENGTH,
                 "dim": DIM, "dtype": "f32", "causal": True}
        row = peers.row_of(shape, threads, *peers.measure(problem, threads, seconds), both)
        yield {**row, "variant": CASES[name][0], "peer": peer or "plain"}
    ours.free(ours.handle)


def run_long(torch, lib, name, length, threads):
    """Polyhead alone, twice each way: least times, and the most memory it had."""
    row, clock = {"name": name, "threads": threads, "length": length}, peers.clock_of(threads)
    for job in ("forward", "training"):
        counter, times = Counter(), []
        ctx = Context(threads, lib, **counter.hooks())
        ours = Ours(torch, ctx, name, length, job == "training")
        for _ in range(2):
            start = clock()
            ours.run()
            times.append(clock() - start)
        row[job], row[job + "_bytes"] = min(times), counter.peak + ours.saved_bytes
        ours.free(ours.handle)
        ctx.close()
    small = Context(threads, lib)
    ours = Ours(torch, small, name, LENGTH, True)
    row["formula_bytes"] = (peak_squares(torch, formulas(name)[""], ours)
                            * (length // LENGTH) ** 2)
    ours.free(ours.handle)
    small.close()
    return row


LONG_HEAD = (f"{'ours alone':25} {'thr':>3}  {'forward':>9} {'memory':>9}  {'training':>9} "
             f"{'memory':>9}  {'formula needs':>13}")


def print_long(row):
    size = lambda n: f"{n / 2**20:.0f} MiB"
    print(f"{row['name']:25} {row['threads']:3}  {peers.text_time(row['forward']):>9} "
          f"{size(row['forward_bytes']):>9}  {peers.text_time(row['training']):>9} "
          f"{size(row['training_bytes']):>9}  {size(row['formula_bytes']):>13}", flush=True)


def summary(rows):
    result = {"wrong": sorted({r["name"] for r in rows if not r["right"]}),
              "below": [f"{r['name']} with {r['threads']} ({r['ratio_least']:.2f})"
                        for r in rows if r["peer"] == "plain" and r["ratio_least"] < AIM]}
    for peer in ("plain", "sdpa"):
        for job in ("forward", "training"):
            logs = [math.log(r["ratio_least"]) for r in rows
                    if r["job"] == job and r["peer"] == peer]
            if logs:
                result[f"{job}, {peer}"] = math.exp(sum(logs) / len(logs))
    return result


def print_summary(result):
    print("\nPyTorch's least time over ours, geometric means; above 1: we are faster")
    for key, value in result.items():
        if isinstance(value, float):
            print(f"  {key:30} {value:6.2f}")
    print(f"less than {AIM} times as fast as the plain formula: "
          + (", ".join(result["below"]) or "none"))
    if result["wrong"]:
        print("wrong: " + ", ".join(result["wrong"]))


# ---- the command ----

def main():
    parser = peers.parser_of(__doc__)
    parser.add_argument("--long", metavar="T", type=int, default=8 * LENGTH,
                        help="length at which Polyhead runs alone (default 8192; 0: none)")
    options = parser.parse_args()
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler is silent
    torch, note = peers.import_torch()
    lib = load_library(os.path.join(options.build, "libpolyhead.so"))
    names = [n for n in CASES if options.filter in n]
    counts = [int(word) for word in options.threads.split(",")]
    contexts = {n: Context(n, lib) for n in counts}
    each = options.seconds / max(len(names) * len(counts) * 4, 1)
    info = peers.machine(torch, lib, contexts[counts[0]], note)
    info["schema"] = "polyhead.variant-peers/1"
    show = (lambda *_: None) if options.json else (lambda f, *what: f(*what))
    show(peers.print_machine, info)
    show(print, peers.HEAD)
    rows, alone = [], []
    for name in names:
        for n in counts:
            torch.set_num_threads(n)
            for training in (False, True):
                for row in compare(torch, contexts[n], name, training, n, each):
                    rows.append(row)
                    show(peers.print_row, row)
    if options.long:
        show(print, f"\nT = {options.long}\n{LONG_HEAD}")
    for name in names if options.long else []:
        alone.append(run_long(torch, lib, name, options.long, max(counts)))
        show(print_long, alone[-1])
    result = summary(rows)
    show(print_summary, result)
    if options.json:
        print(json.dumps({**info, "results": rows, "long": alone, "summary": result},
                         indent=1))
    for ctx in contexts.values():
        ctx.close()
    return 1 if result["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
