#!/usr/bin/env python3
"""peers.py - the shapes of `polyhead bench` against PyTorch, in one interleaved run.

    python3 bench/peers.py [--filter TEXT] [--threads 1,2] [--seconds 120] [--json]

Each side computes the same numbers in the same memory, a few milliseconds of calls each
in turn: forward by scaled_dot_product_attention without a graph, backward by
torch.autograd.grad on a kept graph, so only the backward pass is timed; whole layers by
nn.MultiheadAttention. Ratios above 1 say that Polyhead is faster. With one thread, times are
those of the processor, so that other programs do not count. Results of both are compared
with PyTorch in double precision.

Polyhead is called through ctypes (build/libpolyhead.so, or that of --build), PyTorch through its
Python interface; a call costs either side one to five microseconds of Python. Without
PyTorch there is nothing to compare with: one line says so, and the status is 0. It is 1
when a result is wrong.
"""
import argparse
import copy
import ctypes
import importlib.util
import json
import math
import mmap
import os
import platform
import signal
import statistics
import subprocess
import sys
import time
from ctypes import byref, c_void_p

if not importlib.util.find_spec("torch"):
    print("PyTorch is not here, so there is nothing to compare with "
          "(python3 -m pip install torch)")
    sys.exit(0)

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "python"))
from polyhead._c import (Args, Attn, Grads, LayerArgs, LayerDesc, LayerGrads,  # noqa: E402
                         LayerWeights, load_library)
from polyhead._context import Context  # noqa: E402

DTYPES = {"f32": 0, "f16": 1, "bf16": 2}
ELEMENT = {"f32": 4, "f16": 2, "bf16": 2}
LARGEST_ERROR = {"f32": 2e-5, "f16": 4e-3, "bf16": 3e-2}  # relative to the largest element


# ---- shapes ----

def last_level_cache():
    """Bytes, or 64 MB where the system does not say."""
    best, folder = 0, "/sys/devices/system/cpu/cpu0/cache"
    for name in os.listdir(folder) if os.path.isdir(folder) else []:
        try:
            with open(f"{folder}/{name}/size") as file:
                text = file.read().strip()
        except OSError:
            continue
        factor = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:], 1)
        best = max(best, int(text.rstrip("KM")) * factor)
    return best or 64 << 20


def job_of(shape):
    if shape["group"] == "layer":
        return "layer training" if "-train" in shape["name"] else "layer"
    if shape["group"] == "backward":
        return "backward"
    return "decode" if shape["q_len"] == 1 else "forward"


ALONE = {"paged", "ragged", "few-rows"}  # groups that scaled_dot_product_attention has not


def list_shapes(program):
    """Those of `polyhead bench --list` that PyTorch can compute too."""
    text = subprocess.run([program, "bench", "--list", "--json"], check=True,
                          capture_output=True, text=True).stdout
    shapes = [s for s in json.loads(text)["shapes"]
              if s["dtype"] in DTYPES and s["group"] not in ALONE]
    for shape in shapes:
        shape["dim"] = shape.pop("head_dim")
        shape["job"] = job_of(shape)
        if not shape["batch"]:  # as many as exceed the last-level cache
            one = 2 * shape["kv_heads"] * shape["kv_len"] * shape["dim"] * ELEMENT[shape["dtype"]]
            shape["batch"] = max(2 * last_level_cache(), 128 << 20) // one + 1
    return shapes


# ---- memory: the same for both sides, in large pages as `polyhead bench` has it ----

def kind_of(torch, dtype):
    return {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[dtype]


def tensor(torch, shape, dtype, keep):
    """An uninitialised tensor; what it lives in is added to keep."""
    kind = kind_of(torch, dtype)
    count, large = math.prod(shape), 2 << 20
    memory = mmap.mmap(-1, count * ELEMENT[dtype] + large,
                     flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if count * ELEMENT[dtype] >= large and hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    keep.append(memory)
    offset = -ctypes.addressof(ctypes.c_char.from_buffer(memory)) % large
    return torch.frombuffer(memory, dtype=kind, count=count, offset=offset).view(shape)


class Problem:
    """One shape with its data: ours() and theirs() do the work once."""

    def __init__(self, torch, ctx, shape):
        self.torch, self.ctx, self.shape, self.keep = torch, ctx, shape, []
        b, hq, hk = shape["batch"], shape["q_heads"], shape["kv_heads"]
        tq, tk, d = shape["q_len"], shape["kv_len"], shape["dim"]
        self.backward = shape["job"] == "backward"
        torch.manual_seed(1)
        new = lambda *size: tensor(torch, size, shape["dtype"], self.keep)
        self.q, self.k, self.v = new(b, hq, tq, d), new(b, hk, tk, d), new(b, hk, tk, d)
        self.out, self.dout = new(b, hq, tq, d), new(b, hq, tq, d)
        self.grads = [new(b, h, t, d) for h, t in ((hq, tq), (hk, tk), (hk, tk))]
        self.lse = tensor(torch, (b, hq, tq), "f32", self.keep)
        for x in (self.q, self.k, self.v, self.dout):
            x.normal_()
        self._prepare_ours()

    def _prepare_ours(self):
        s, lib = self.shape, self.ctx.lib
        attn = Attn(batch=s["batch"], q_heads=s["q_heads"], k_heads=s["kv_heads"],
                    v_heads=s["kv_heads"], q_len=s["q_len"], kv_len=s["kv_len"],
                    qk_dim=s["dim"], dtype=DTYPES[s["dtype"]], mask=int(s["causal"]),
                    backward=int(self.backward))
        at = lambda x: x.data_ptr()
        args = Args(q=at(self.q), k=at(self.k), v=at(self.v), out=at(self.out),
                    lse=at(self.lse))
        grads = Grads(dout=at(self.dout), dq=at(self.grads[0]), dk=at(self.grads[1]),
                      dv=at(self.grads[2]))
        self.plan = c_void_p()
        self.ctx.check(lib.ph_plan_create(byref(self.plan), self.ctx.handle, byref(attn)))
        self.ctx.check(lib.ph_forward(self.plan, byref(args)))
        if self.backward:
            self.ours = lambda: self.ctx.check(
                lib.ph_backward(self.plan, byref(args), byref(grads)))
        else:
            self.ours = lambda: self.ctx.check(lib.ph_forward(self.plan, byref(args)))

    def attention(self, q, k, v):
        return self.torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=self.shape["causal"],
            enable_gqa=self.shape["q_heads"] != self.shape["kv_heads"])

    def prepare_theirs(self):
        torch = self.torch
        if self.backward:
            inputs = [x.detach().requires_grad_() for x in (self.q, self.k, self.v)]
            out = self.attention(*inputs)
            self.theirs = lambda: torch.autograd.grad(out, inputs, self.dout,
                                                      retain_graph=True)
        else:
            def forward():
                with torch.inference_mode():
                    return (self.attention(self.q, self.k, self.v),)
            self.theirs = forward

    def errors(self):
        """Largest distance of both from double precision, first batch row, relative to its
        largest element."""
        torch, inputs = self.torch, [x[:1].double() for x in (self.q, self.k, self.v)]
        for x in inputs:
            x.requires_grad_(self.backward)
        exact = (self.attention(*inputs),)
        if self.backward:
            exact = torch.autograd.grad(exact[0], inputs, self.dout[:1].double())
        self.ours()
        ours, theirs = self.grads if self.backward else [self.out], self.theirs()
        worst = lambda results: max(
            ((x[:1].double() - e).abs().max() / e.abs().max()).item()
            for x, e in zip(results, exact))
        return worst(ours), worst(theirs)

    def close(self):
        self.ctx.lib.ph_plan_free(self.plan)


class LayerProblem:
    """nn.MultiheadAttention against ph_layer: self-attention with all biases. Forward as in
    use (eval mode, no graph), or training: forward and backward for x and all parameters."""

    def __init__(self, torch, ctx, shape):
        self.torch, self.ctx, self.shape, self.keep = torch, ctx, shape, []
        self.training = shape["job"] == "layer training"
        b, t, width = shape["batch"], shape["q_len"], shape["q_heads"] * shape["dim"]
        torch.manual_seed(1)
        dtype, kind = shape["dtype"], kind_of(torch, shape["dtype"])
        new = lambda *size: tensor(torch, size, "f32", self.keep)
        self.x, self.dout, self.out, self.dx = (
            tensor(torch, (b, t, width), dtype, self.keep) for _ in range(4))
        self.x.normal_()
        self.dout.normal_()
        self.module = torch.nn.MultiheadAttention(width, shape["q_heads"], batch_first=True)
        torch.nn.init.normal_(self.module.in_proj_bias)
        torch.nn.init.normal_(self.module.out_proj.bias)
        self.module.train(self.training).to(kind)
        self._prepare_ours(new, width)

    def _prepare_ours(self, new, width):
        lib, s, at = self.ctx.lib, self.shape, lambda x: x.data_ptr()
        attn = Attn(batch=s["batch"], q_heads=s["q_heads"], q_len=s["q_len"],
                    kv_len=s["kv_len"], qk_dim=s["dim"], dtype=DTYPES[s["dtype"]],
                    backward=int(self.training))
        desc = LayerDesc(model_dim=width, attn=attn)
        self.layer = c_void_p()
        self.ctx.check(lib.ph_layer_create(byref(self.layer), self.ctx.handle, byref(desc)))
        with self.torch.no_grad():  # floats; y = x w, where PyTorch has y = x w^T
            parts = [*self.module.in_proj_weight.chunk(3), self.module.out_proj.weight]
            self.w = [part.t().float().contiguous() for part in parts]
            parts = [*self.module.in_proj_bias.chunk(3), self.module.out_proj.bias]
            self.b = [part.float().contiguous() for part in parts]
        weights = LayerWeights(*map(at, self.w), *map(at, self.b))
        args = LayerArgs(x=at(self.x), out=at(self.out))
        self.dw = [new(width, width) for _ in range(4)]
        self.db = [new(width) for _ in range(4)]
        grads = LayerGrads(dout=at(self.dout), dx=at(self.dx))
        for name, dw, db in zip("qkvo", self.dw, self.db):
            setattr(grads, "dw" + name, at(dw))
            setattr(grads, "db" + name, at(db))
        if self.training:
            self.saved = new(lib.ph_layer_saved(self.layer) // 4 + 16)
            args.saved, args.saved_size = at(self.saved), lib.ph_layer_saved(self.layer)

        def ours():
            self.ctx.check(lib.ph_layer_forward(self.layer, byref(weights), byref(args)))
            if self.training:
                self.ctx.check(lib.ph_layer_backward(self.layer, byref(weights), byref(args),
                                                     byref(grads)))
        self.ours = ours

    def run(self, module, x, dout):
        """Results in one order: out, or out, dx and the gradients of all parameters."""
        torch = self.torch
        if not self.training:
            with torch.inference_mode():
                return [module(x, x, x, need_weights=False)[0]]
        x = x.detach().requires_grad_()
        out = module(x, x, x, need_weights=False)[0]
        return [out.detach(), *torch.autograd.grad(out, [x, *module.parameters()], dout)]

    def prepare_theirs(self):
        self.theirs = lambda: self.run(self.module, self.x, self.dout)

    def errors(self):
        torch = self.torch
        exact = self.run(copy.deepcopy(self.module).double(), self.x.double(),
                         self.dout.double())
        self.ours()
        ours = [self.out]
        if self.training:  # parameters(): in_proj weight and bias, out_proj weight and bias
            ours += [self.dx, torch.cat([dw.t() for dw in self.dw[:3]]),
                     torch.cat(self.db[:3]), self.dw[3].t(), self.db[3]]
        worst = lambda results: max(((x.double() - e).abs().max() / e.abs().max()).item()
                                    for x, e in zip(results, exact))
        return worst(ours), worst(self.theirs())

    def close(self):
        self.ctx.lib.ph_layer_free(self.layer)


# ---- measuring ----

def burst(run, seconds, times, clock):
    """Calls run for about so long, at least once; each call is a sample. The first of
    several does not count: it wakes threads, and the caches are the other side's."""
    samples, start = [], clock()
    now = start
    while now - start < seconds:
        run()
        then, now = now, clock()
        samples.append(now - then)
    times.extend(samples[1:] or samples)


def clock_of(threads):
    """With one thread CPU time, which other processes do not disturb."""
    return time.process_time if threads == 1 else time.perf_counter


def measure(problem, threads, seconds):
    """Bursts in turn. PyTorch's threads keep spinning after a call; a pause lets them fall
    asleep, so that neither side runs against the other's idle threads. Both sides have the
    same pause before them, because a core that rested is slow at first."""
    ours, theirs, clock = [], [], clock_of(threads)
    pause = 0.02 if threads > 1 else 0
    problem.ours()
    problem.theirs()
    start = time.perf_counter()
    while len(ours) < 3 or len(theirs) < 3 or time.perf_counter() - start < seconds:
        for run, times in ((problem.ours, ours), (problem.theirs, theirs)):
            time.sleep(pause)
            burst(run, 0.02, times, clock)
    return ours, theirs


def row_of(shape, threads, ours, theirs, errors):
    row = {key: shape[key] for key in ("name", "job", "batch", "q_heads", "kv_heads", "q_len",
                                       "kv_len", "dim", "dtype", "causal")}
    median = statistics.median
    row.update(threads=threads, runs=[len(ours), len(theirs)],
               ours_least=min(ours), ours_median=median(ours),
               torch_least=min(theirs), torch_median=median(theirs),
               ratio_least=min(theirs) / min(ours), ratio_median=median(theirs) / median(ours),
               ours_error=errors[0], torch_error=errors[1],
               right=errors[0] <= LARGEST_ERROR[shape["dtype"]])
    return row


def compare(torch, ctx, shape, threads, seconds):
    kind = LayerProblem if shape["job"].startswith("layer") else Problem
    problem = kind(torch, ctx, shape)
    try:
        problem.prepare_theirs()
        errors = problem.errors()
    except RuntimeError as error:
        return {"name": shape["name"], "threads": threads,
                "refused": str(error).splitlines()[0]}
    ours, theirs = measure(problem, threads, seconds)
    problem.close()
    return row_of(shape, threads, ours, theirs, errors)


# ---- output ----

def text_time(seconds):
    for limit, factor, unit in ((1e-3, 1e6, "us"), (1, 1e3, "ms")):
        if seconds < limit:
            return f"{seconds * factor:.4g} {unit}"
    return f"{seconds:.4g} s"


HEAD = (f"{'shape':25} {'thr':>3}  {'least: ours':>11} {'PyTorch':>9} {'ratio':>6}  "
        f"{'median: ours':>12} {'PyTorch':>9} {'ratio':>6}  {'error: ours':>11} {'PyTorch':>8}")


def print_row(row):
    mark = "" if row["right"] else "  WRONG"
    print(f"{row['name']:25} {row['threads']:3}  {text_time(row['ours_least']):>11} "
          f"{text_time(row['torch_least']):>9} {row['ratio_least']:6.2f}  "
          f"{text_time(row['ours_median']):>12} {text_time(row['torch_median']):>9} "
          f"{row['ratio_median']:6.2f}  {row['ours_error']:11.1e} {row['torch_error']:8.1e}"
          f"{mark}", flush=True)


def summary(rows):
    """Geometric means of the ratios of the least times, and where we are slower."""
    def mean(keep):
        logs = [math.log(r["ratio_least"]) for r in rows if keep(r)]
        return math.exp(sum(logs) / len(logs)) if logs else None
    result = {"slower": [f"{r['name']} ({r['threads']} threads)" for r in rows
                         if r["ratio_least"] < 1],
              "wrong": sorted({r["name"] for r in rows if not r["right"]})}
    parts = {"f32": lambda r: r["dtype"] == "f32",
             "f16 and bf16": lambda r: r["dtype"] != "f32"}
    for name, of_type in parts.items():
        for job in ("forward", "backward"):
            kind = lambda r: of_type(r) and r["job"] == job
            result[f"{name} {job}, T >= 128"] = mean(lambda r: kind(r) and r["q_len"] >= 128)
            result[f"{name} {job}, T <= 32"] = mean(lambda r: kind(r) and r["q_len"] <= 32)
        result[f"{name} decode"] = mean(lambda r: of_type(r) and r["job"] == "decode")
        for job in ("layer", "layer training"):
            result[f"{name} {job}"] = mean(lambda r: of_type(r) and r["job"] == job)
    prompt = lambda r: r["dtype"] == "f32" and r["job"] in ("forward", "backward")
    result["f32, T >= 128"] = mean(lambda r: prompt(r) and r["q_len"] >= 128)
    result["f32, T <= 32"] = mean(lambda r: prompt(r) and r["q_len"] <= 32)
    return {key: value for key, value in result.items() if value is not None}


def print_summary(result):
    print("\nPyTorch's least time over ours, geometric means; above 1: we are faster")
    for key, value in result.items():
        if isinstance(value, float):
            print(f"  {key:30} {value:6.2f}")
    print("slower than PyTorch: " + (", ".join(result["slower"]) or "none"))
    if result["wrong"]:
        print("wrong: " + ", ".join(result["wrong"]))


def cpu_name():
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


# ---- the command ----

def parser_of(text):
    """The options that all comparisons have; text is the script's own."""
    parser = argparse.ArgumentParser(description=text.splitlines()[0])
    parser.add_argument("--filter", metavar="TEXT", default="",
                        help="only what has TEXT in its name")
    parser.add_argument("--threads", metavar="N[,N...]", default="1,2",
                        help="numbers of threads, of both sides (default 1,2)")
    parser.add_argument("--seconds", metavar="S", type=float, default=120,
                        help="time for everything; each row has at least three calls")
    parser.add_argument("--json", action="store_true", help="one JSON object, not a table")
    parser.add_argument("--build", default=os.path.join(ROOT, "build"),
                        help="where polyhead and libpolyhead.so are (default build)")
    return parser


PROBE = """
import torch
q = torch.zeros(4, 8, 512, 64, dtype=torch.bfloat16)
torch.nn.functional.scaled_dot_product_attention(q, q, q)
"""


def import_torch():
    """PyTorch, and a note or "". Some virtual machines hide what PyTorch must know of AMX:
    bf16 then ends the process. A trial in another process finds out, and oneDNN is held
    below AMX."""
    note = ""
    if "ONEDNN_MAX_CPU_ISA" not in os.environ:
        trial = subprocess.run([sys.executable, "-c", PROBE], stderr=subprocess.DEVNULL)
        if trial.returncode == -signal.SIGILL:
            os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_FP16"
            note = ("PyTorch's bf16 dies of an illegal instruction here (it configures no "
                    "AMX tiles): run with ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16")
    import torch
    return torch, note


def machine(torch, lib, ctx, note):
    return {"schema": "polyhead.peers/1", "cpu": cpu_name(), "cores": os.cpu_count(),
            "version": lib.ph_version().decode(), "isa": ctx.isa,
            "torch": torch.__version__, "torch_isa": torch.backends.cpu.get_cpu_capability(),
            "note": note}


def print_machine(info):
    print("{cpu}, {cores} cores; Polyhead {version} with {isa}, PyTorch {torch} with "
          "{torch_isa}".format(**info))
    print(info["note"] + "\n" if info["note"] else "")


def main():
    options = parser_of(__doc__).parse_args()
    torch, note = import_torch()
    lib = load_library(os.path.join(options.build, "libpolyhead.so"))
    shapes = [s for s in list_shapes(os.path.join(options.build, "polyhead"))
              if options.filter in s["name"]]
    counts = [int(word) for word in options.threads.split(",")]
    contexts = {n: Context(n, lib) for n in counts}
    each = options.seconds / max(len(shapes) * len(counts), 1)
    info = machine(torch, lib, contexts[counts[0]], note)
    if not options.json:
        print_machine(info)
        print(HEAD)
    rows, refused = [], []
    for shape in shapes:
        for n in counts:
            torch.set_num_threads(n)
            row = compare(torch, contexts[n], shape, n, each)
            if "refused" in row:
                refused.append(row)
                print(f"{shape['name']}: PyTorch refuses: {row['refused']}", file=sys.stderr)
                continue
            rows.append(row)
            if not options.json:
                print_row(row)
    result = summary(rows)
    if options.json:
        print(json.dumps({**info, "results": rows, "refused": refused,
                          "summary": result}, indent=1))
    else:
        print_summary(result)
    for ctx in contexts.values():
        ctx.close()
    return 1 if result["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
