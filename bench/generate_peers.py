#!/usr/bin/env python3
"""generate_peers.py - generation against PyTorch, in alternating rounds.

    python3 bench/generate_peers.py [--rounds 5] [--threads 2] [--only NAME]

One text after the other, f32, the likeliest token each time (or a search), from models of these
shapes, with random weights:

    decoder  6 layers, 384, 6 heads: 250 tokens after 5
    both     encoder-decoder base, 6+6 layers, 512, 8 heads, feed-forward 2048: 100 tokens from 20
    beams    the same, 8 texts side by side in search

PyTorch in three ways: `cached` is a decoder written by hand for speed (keys and values in tensors made
beforehand, one product for q, k and v, scaled_dot_product_attention, inference mode); `library` is
generate() of Hugging Face transformers with its cache, of a GPT-2 or BART of the same sizes; `modules`
is nn.Transformer as it comes, which keeps nothing and computes the whole text again for every token.
Polyhead runs as `polyhead generate`. Printed are least and median milliseconds per token and the
ratios (above 1: Polyhead is faster). Without PyTorch there is nothing to compare with, without
transformers one way less: one line says so.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAM = os.path.join(ROOT, "build", "polyhead")
VOCAB, PROMPT, SOURCE = 30, 5, 20
TOKENS = {"decoder": 250, "both": 100, "beams": 100}
BEAMS = {"decoder": 1, "both": 1, "beams": 8}
LETTERS = "abcdefghijklmnopqrstuvwxyz"


# ---- PyTorch, by hand ----

class Cached:
    """A decoder with caches; `memory` is the encoder's output or None."""

    def __init__(self, torch, dim, heads, layers, cross, capacity, beams):
        self.torch, self.F = torch, torch.nn.functional
        self.dim, self.heads, self.beams, self.after = dim, heads, beams, cross
        make = lambda i, o: (torch.randn(i, o) / i ** 0.5, torch.zeros(o))
        ff = 4 * dim
        self.layers = [{"qkv": make(dim, 3 * dim), "o": make(dim, dim), "q": make(dim, dim),
                        "kv": make(dim, 2 * dim), "co": make(dim, dim), "w1": make(dim, ff),
                        "w2": make(ff, dim),
                        "norms": [(torch.ones(dim), torch.zeros(dim)) for _ in range(3)]}
                       for _ in range(layers)]
        self.words = torch.randn(VOCAB, dim)
        shape = (beams, heads, capacity, dim // heads)
        self.keys = [torch.zeros(shape) for _ in range(layers)]
        self.values = [torch.zeros(shape) for _ in range(layers)]
        self.cross = cross

    def split(self, x):
        return x.view(x.shape[0], -1, self.heads, self.dim // self.heads).transpose(1, 2)

    def read(self, memory):
        self.memory = [tuple(self.split(part) for part in
                             self.torch.addmm(layer["kv"][1], memory[0], layer["kv"][0])
                             .chunk(2, 1)) for layer in self.layers] if self.cross else None
        self.memory = self.memory and [
            tuple(part.reshape(1, memory.shape[1], self.heads, -1).transpose(1, 2)
                  .expand(self.beams, -1, -1, -1) for part in pair) for pair in self.memory]

    def norm(self, layer, n, x):
        return self.F.layer_norm(x, (self.dim,), *layer["norms"][n])

    def attend(self, q, k, v):
        y = self.F.scaled_dot_product_attention(q.view(self.beams, self.heads, 1, -1), k, v)
        return y.reshape(self.beams, self.dim)

    def step(self, tokens, t):
        addmm, relu = self.torch.addmm, self.F.relu
        x = self.words[tokens]
        for l, layer in enumerate(self.layers):
            a = x if self.after else self.norm(layer, 0, x)
            q, k, v = addmm(layer["qkv"][1], a, layer["qkv"][0]).view(
                self.beams, 3, self.heads, -1).unbind(1)
            self.keys[l][:, :, t], self.values[l][:, :, t] = k, v
            y = self.attend(q, self.keys[l][:, :, :t + 1], self.values[l][:, :, :t + 1])
            x = x + addmm(layer["o"][1], y, layer["o"][0])
            if self.cross:
                x = self.norm(layer, 0, x)
                q = addmm(layer["q"][1], x, layer["q"][0])
                x = x + addmm(layer["co"][1], self.attend(q, *self.memory[l]), layer["co"][0])
            a = self.norm(layer, 1, x)
            x = a if self.after else x
            h = addmm(layer["w1"][1], a, layer["w1"][0])
            h = relu(h) if self.after else self.F.gelu(h, approximate="tanh")
            x = x + addmm(layer["w2"][1], h, layer["w2"][0])
            x = self.norm(layer, 2, x) if self.after else x
        return x @ self.words.T

    def reorder(self, rows, t):
        for cache in self.keys + self.values:
            cache[:, :, :t] = cache[:, :, :t].index_select(0, rows)


def search(torch, model, tokens, step):
    """Beam search by sums of log-probabilities; step(tokens, t) gives logits."""
    beams = model.beams
    scores = torch.tensor([0.0] + [-1e30] * (beams - 1))
    chosen = torch.ones(beams, dtype=torch.long)
    for t in range(tokens):
        total = scores[:, None] + torch.log_softmax(step(chosen, t), -1)
        scores, at = total.flatten().topk(beams)
        model.reorder(at // VOCAB, t + 1)
        chosen = at % VOCAB


def run_cached(torch, model, encoder, kind):
    with torch.inference_mode():
        if encoder:
            model.read(encoder(torch.randn(1, SOURCE, model.dim)))
        if kind == "beams":
            return search(torch, model, TOKENS[kind], model.step)
        token = torch.tensor([5])
        for t in range(TOKENS[kind] + (PROMPT if kind == "decoder" else 0)):
            logits = model.step(token, t)
            token = logits.argmax(-1) if kind != "decoder" or t >= PROMPT - 1 else token
    return None


# ---- PyTorch, its modules ----

class Modules:
    def __init__(self, torch, kind, encoder):
        nn, self.torch, self.beams = torch.nn, torch, BEAMS[kind]
        self.mask = nn.Transformer.generate_square_subsequent_mask
        self.dim = 384 if kind == "decoder" else 512
        self.words, self.encoder, self.kind = torch.randn(VOCAB, self.dim), encoder, kind
        if kind == "decoder":
            layer = nn.TransformerEncoderLayer(384, 6, 1536, 0.0, "gelu", batch_first=True,
                                               norm_first=True)
            self.net = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).eval()
        else:
            layer = nn.TransformerDecoderLayer(512, 8, 2048, 0.0, batch_first=True)
            self.net = nn.TransformerDecoder(layer, 6).eval()

    def logits(self, text):
        x, mask = self.words[text], self.mask(text.shape[1])
        if self.kind == "decoder":
            y = self.net(x, mask=mask, is_causal=True)
        else:
            memory = self.memory.expand(text.shape[0], -1, -1)
            y = self.net(x, memory, tgt_mask=mask, tgt_is_causal=True)
        return y[:, -1] @ self.words.T

    def reorder(self, rows, _):
        self.text = self.text.index_select(0, rows)

    def step(self, tokens, _):
        self.text = self.torch.cat([self.text, tokens[:, None]], 1)
        return self.logits(self.text)


def run_modules(torch, model, kind):
    with torch.inference_mode():
        first = PROMPT if kind == "decoder" else 0
        model.text = torch.full((model.beams, first), 5, dtype=torch.long)
        if model.encoder:
            model.memory = model.encoder(torch.randn(1, SOURCE, model.dim))
        if kind == "beams":
            return search(torch, model, TOKENS[kind], model.step)
        token = torch.tensor([5])
        for t in range(TOKENS[kind]):
            token = model.step(token, t).argmax(-1)
    return None


# ---- Hugging Face transformers ----

def make_library(kind):
    """A GPT-2 or BART with random weights, or None where the package is missing."""
    try:
        import transformers
    except ImportError:
        return None
    transformers.logging.set_verbosity_error()
    if kind == "decoder":
        config = transformers.GPT2Config(vocab_size=VOCAB, n_positions=256, n_embd=384, n_layer=6,
                                         n_head=6, bos_token_id=1, eos_token_id=2)
        return transformers.GPT2LMHeadModel(config).eval()
    sizes = {f"{side}_{what}": n for side in ("encoder", "decoder")
             for what, n in (("layers", 6), ("attention_heads", 8), ("ffn_dim", 2048))}
    config = transformers.BartConfig(vocab_size=VOCAB, max_position_embeddings=256, d_model=512,
                                     activation_function="relu", **sizes)
    return transformers.BartForConditionalGeneration(config).eval()


def run_library(torch, model, kind):
    first = PROMPT if kind == "decoder" else SOURCE
    text = torch.arange(first)[None] % (VOCAB - 4) + 4
    with torch.inference_mode():
        out = model.generate(text, attention_mask=torch.ones_like(text), use_cache=True,
                             do_sample=False, num_beams=BEAMS[kind], pad_token_id=0,
                             min_new_tokens=TOKENS[kind], max_new_tokens=TOKENS[kind])
    made = out.shape[1] - (first if kind == "decoder" else 1)
    assert made == TOKENS[kind], f"{made} tokens, expected {TOKENS[kind]}"


def peer(kind, threads):
    import torch
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    nn, both = torch.nn, kind != "decoder"
    layer = nn.TransformerEncoderLayer(512, 8, 2048, 0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).eval() if both else None
    dim, heads = (512, 8) if both else (384, 6)
    cached = Cached(torch, dim, heads, 6, both, 256, BEAMS[kind])
    modules, library = Modules(torch, kind, encoder), make_library(kind)
    runs = {"cached": lambda: run_cached(torch, cached, encoder, kind),
            "library": library and (lambda: run_library(torch, library, kind)),
            "modules": lambda: run_modules(torch, modules, kind)}
    print(*[way for way, run in runs.items() if run], flush=True)
    for way in sys.stdin:
        start = time.perf_counter()
        runs[way.strip()]()
        print((time.perf_counter() - start) / TOKENS[kind], flush=True)


# ---- Polyhead ----

def make_model(folder, kind, threads):
    """A model with its first values: no step is made."""
    data, out = os.path.join(folder, "data"), os.path.join(folder, kind)
    with open(data, "w", encoding="ascii") as file:
        if kind == "decoder":
            file.write(LETTERS * 1000)
        else:
            file.writelines(f"{LETTERS[:20]}\t{LETTERS[i % 7:]}\n" for i in range(64))
    what = ["text", data] if kind == "decoder" else ["--pairs", data]
    shape = (["--model-dim", "384", "--heads", "6", "--positions", "learned"] if kind == "decoder" else
             ["--model-dim", "512", "--heads", "8", "--ff-dim", "2048", "--activation", "relu",
              "--norm-place", "post"])
    subprocess.run([PROGRAM, "train", *what, "-o", out, "--layers", "6", "--length", "256",
                    "--batch", "1", "--steps", "1", "--test", "0", "-q", "--threads",
                    str(threads), *shape], check=True, capture_output=True)
    return out


def start_own(folder, kind, threads):
    search_by = ["--beams", "8"] if kind == "beams" else ["--temperature", "1", "--top-k", "1"]
    model = make_model(folder, kind, threads)
    return subprocess.Popen([PROGRAM, "generate", model, *search_by, "--threads", str(threads),
                             "--json", "--max-tokens", str(TOKENS[kind])],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ask_own(child, kind):
    """Seconds per token that came; a text may end early."""
    start = time.perf_counter()
    child.stdin.write("abcde\n" if kind == "decoder" else LETTERS[:SOURCE] + "\n")
    child.stdin.flush()
    answer = json.loads(child.stdout.readline())
    seconds = time.perf_counter() - start
    return seconds / max(len(answer["generated"]), 1)


# ---- the rounds ----

def compare(kind, options, folder):
    own = start_own(folder, kind, options.threads)
    child = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--peer", kind,
                              "--threads", str(options.threads)],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    ways = child.stdout.readline().split()
    if not ways:
        sys.exit("generate_peers.py: PyTorch does not start")
    if "library" not in ways:
        print(f"{kind:8} library  left out: the package transformers is not here")
    times = {way: [] for way in ["ours", *ways]}
    for round_ in range(options.rounds + 1):
        for way in times:
            if way == "ours":
                seconds = ask_own(own, kind)
            else:
                child.stdin.write(way + "\n")
                child.stdin.flush()
                seconds = float(child.stdout.readline())
            if round_:
                times[way].append(1e3 * seconds)
    for process in (own, child):
        process.stdin.close()
        process.wait()
    least = {way: min(t) for way, t in times.items()}
    middle = {way: statistics.median(t) for way, t in times.items()}
    for way in ways:
        print(f"{kind:8} {way:8} least {least['ours']:7.2f} ms, PyTorch {least[way]:7.2f}: "
              f"{least[way] / least['ours']:5.2f}x   median {middle['ours']:7.2f}, "
              f"{middle[way]:7.2f}: {middle[way] / middle['ours']:5.2f}x", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", choices=list(TOKENS))
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        peer(options.peer, options.threads)
        return
    if subprocess.run([sys.executable, "-c", "import torch"], capture_output=True,
                      check=False).returncode:
        print("PyTorch is not here, nothing to compare with")
        return
    with tempfile.TemporaryDirectory() as folder:
        for kind in [options.only] if options.only else list(TOKENS):
            compare(kind, options, folder)


if __name__ == "__main__":
    main()
