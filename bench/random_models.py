#!/usr/bin/env python3
"""random_models.py - architectures at their published sizes, random weights: polyhead against transformers.

    python3 bench/random_models.py [NAME...]

ViT-base, T5-small, Marian (OPUS-MT sizes) and Gemma 3 270M (a vocabulary of 32,000) in f32, made and
written by transformers into a temporary folder and run by both on the same threads: medians of
interleaved runs. Pictures: scores of one and of eight. Others: a text of 64 tokens and the first new
token, then each of 32 further tokens.
"""
import os
import statistics
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../python"))
os.environ.setdefault("POLYHEAD_THREADS", "2")

import numpy as np
import torch
import transformers as hf
from polyhead import Model

torch.set_num_threads(int(os.environ["POLYHEAD_THREADS"]))
NEW, RUNS = 32, 7


def vit():
    return hf.ViTForImageClassification(hf.ViTConfig(num_labels=1000))


def t5():
    return hf.T5ForConditionalGeneration(hf.T5Config(d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_heads=8,
                                                     vocab_size=32128, decoder_start_token_id=0))


def marian():
    return hf.MarianMTModel(hf.MarianConfig(
        vocab_size=58101, d_model=512, encoder_layers=6, decoder_layers=6, encoder_attention_heads=8,
        decoder_attention_heads=8, encoder_ffn_dim=2048, decoder_ffn_dim=2048, activation_function="swish",
        scale_embedding=True, max_position_embeddings=512, pad_token_id=58100, decoder_start_token_id=58100,
        eos_token_id=0))


def gemma():
    return hf.Gemma3ForCausalLM(hf.Gemma3TextConfig(
        vocab_size=32000, hidden_size=640, intermediate_size=2048, num_hidden_layers=18, num_attention_heads=4,
        num_key_value_heads=1, head_dim=256, query_pre_attn_scalar=256, sliding_window=512, pad_token_id=0))


MODELS = {"vit": vit, "t5": t5, "marian": marian, "gemma": gemma}


def medians(ways, arguments):
    times = {(name, argument): [] for argument in arguments for name in ways}
    for _ in range(RUNS):
        for (name, argument), list_ in times.items():
            time.sleep(0.1)  # threads of the others spin for a while after their work
            start = time.perf_counter()
            ways[name](argument)
            list_.append(time.perf_counter() - start)
    return {key: statistics.median(list_[1:]) for key, list_ in times.items()}


def show(what, ours, theirs):
    print(f"{what}: polyhead {1e3 * ours:.2f} ms, transformers {1e3 * theirs:.2f} ms ({theirs / ours:.2f}x)")


def pictures(name, model, own):
    pixels = np.random.default_rng(7).standard_normal((8, 3, 224, 224)).astype(np.float32)

    def theirs(count):
        with torch.inference_mode():
            model(torch.from_numpy(pixels[:count]))
    found = medians({"ours": lambda n: own.classify(pixels[:n]), "theirs": theirs}, (1, 8))
    for count in (1, 8):
        show(f"{name}, {count} pictures", found["ours", count], found["theirs", count])


def texts(name, model, own):
    text = "cat"
    while len(own.tokens(text)) < 64:
        text += " cat"
    ids = torch.arange(100, 164)[None]

    def theirs(new):
        with torch.inference_mode():
            given, past = ids, None
            encoded = model.get_encoder()(ids) if model.config.is_encoder_decoder else None
            if encoded is not None:
                given = torch.tensor([[model.config.decoder_start_token_id]])
            for _ in range(new):
                extra = {"encoder_outputs": encoded, "decoder_input_ids": given} if encoded is not None else {
                    "input_ids": given, "logits_to_keep": 1}
                out = model(past_key_values=past, use_cache=True, **extra)
                past, given = out.past_key_values, out.logits[:, -1].argmax(-1)[:, None]
    found = medians({"ours": lambda n: own.generate(text, max_tokens=n), "theirs": theirs}, (1, 1 + NEW))
    show(f"{name}, first token", found["ours", 1], found["theirs", 1])
    show(f"{name}, each further", *((found[way, 1 + NEW] - found[way, 1]) / NEW for way in ("ours", "theirs")))


def main():
    for name in sys.argv[1:] or MODELS:
        torch.manual_seed(0)
        model = MODELS[name]().eval()
        model.set_attn_implementation("sdpa")
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            if name != "vit":
                with open(f"{HERE}/../tests/golden_tokens/t5.json", "rb") as tokenizer:
                    open(f"{folder}/tokenizer.json", "wb").write(tokenizer.read())
            (pictures if name == "vit" else texts)(name, model, Model.read(folder))


if __name__ == "__main__":
    main()
