#!/usr/bin/env python3
"""ends.py - tiny random models with what published ones end in beside an output head.

    python3 tests/golden/checkpoints/ends.py [NAME...]

Classifiers on decoders, as transformers has them. As encoders.py beside it, whose golden values they have; the last
two tokens of a text are padding where a configuration has it, which the reference looks behind.
"""
import sys

import torch
from transformers import (GPT2Config, GPT2ForSequenceClassification, GPT2ForTokenClassification, LlamaConfig,
                          LlamaForSequenceClassification, Qwen2Config, Qwen2ForSequenceClassification, Qwen3Config,
                          Qwen3ForSequenceClassification, Qwen3ForTokenClassification)

import encoders
from make import SIZES

SMALL = SIZES | dict(num_hidden_layers=1, vocab_size=61, intermediate_size=40)
GPT2 = dict(n_embd=32, n_layer=2, n_head=4, n_inner=48, n_positions=40, vocab_size=61, layer_norm_epsilon=1e-3)
DRAW = torch.randint


def padded(*args, **more):
    """Random tokens, the last two of them padding."""
    ids = DRAW(*args, **more)
    if ids.dim() == 2:
        ids[:, -2:] = 5
    return ids


def save(name, cls, config, seed, dtype=torch.bfloat16, **more):
    pad = getattr(config, "pad_token_id", None)
    torch.randint = DRAW if pad is None else padded
    encoders.save(name, cls, config, seed, dtype, words=False, **more)
    torch.randint = DRAW


def gpt2_classes():
    save("gpt2-classes", GPT2ForSequenceClassification, GPT2Config(**GPT2, num_labels=3, pad_token_id=5), 41,
         grads=True)


def gpt2_tokens():
    save("gpt2-tokens", GPT2ForTokenClassification, GPT2Config(**GPT2 | dict(n_layer=1), num_labels=4), 42)


def llama_classes():
    names = {0: "bad", 1: "fair", 2: "good"}
    config = LlamaConfig(**SMALL | dict(num_hidden_layers=2), id2label=names, pad_token_id=5,
                         label2id={v: k for k, v in names.items()})
    save("llama-classes", LlamaForSequenceClassification, config, 43, grads=True)


def qwen2_classes():
    save("qwen2-classes", Qwen2ForSequenceClassification, Qwen2Config(**SMALL, num_labels=6, pad_token_id=5), 44)


def qwen3_classes():
    config = Qwen3Config(**SMALL, head_dim=8, num_labels=4, problem_type=None)
    save("qwen3-classes", Qwen3ForSequenceClassification, config, 45)


def qwen3_tokens():
    save("qwen3-tokens", Qwen3ForTokenClassification, Qwen3Config(**SMALL, head_dim=8, num_labels=3), 46)


ALL = dict(gpt2_classes=gpt2_classes, gpt2_tokens=gpt2_tokens, llama_classes=llama_classes,
           qwen2_classes=qwen2_classes, qwen3_classes=qwen3_classes, qwen3_tokens=qwen3_tokens)

if __name__ == "__main__":
    for chosen in sys.argv[1:] or ALL:
        ALL[chosen]()
