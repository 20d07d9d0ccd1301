#!/usr/bin/env python3
"""ends.py - tiny random models with what published ones end in beside an output head.

    python3 tests/golden/checkpoints/ends.py [NAME...]

Classifiers on decoders, as transformers has them. As encoders.py beside it, whose golden values they have; the last
two tokens of a text are padding where a configuration has it, which the reference looks behind.

Sentence encoders, as sentence-transformers 6 has them, which computes the golden values from ids:

    vector           of the text
    goal, loss       another vector, and half the squared distance to it
    grad.NAME        its gradient with respect to the tensor NAME; of a Dense module NAME begins with "dense."
"""
import json
import os
import shutil
import sys

import gguf
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers.sentence_transformer import modules as st
from transformers import (GPT2Config, GPT2ForSequenceClassification, GPT2ForTokenClassification, LlamaConfig,
                          LlamaForSequenceClassification, Qwen2Config, Qwen2ForSequenceClassification, Qwen3Config,
                          Qwen3ForSequenceClassification, Qwen3ForTokenClassification, BertConfig, BertModel,
                          GPT2Model, Qwen3Model, T5Config, T5EncoderModel)

import encoders
from encoder_decoders import quiet
from make import HERE, SIZES, T, make

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


# ---- sentence encoders ----

def sentence_values(model, modules, ids, goal, dtype):
    stack = torch.nn.ModuleList([model] + modules).to(dtype).eval()
    stack.zero_grad()
    features = {"token_embeddings": model(ids).last_hidden_state, "attention_mask": torch.ones_like(ids)}
    for module in modules:
        features = module(features)
    vector = features["sentence_embedding"][0]
    loss = (vector - goal.to(dtype)).pow(2).sum() / 2
    loss.backward()
    values = {"vector": vector, "loss": loss.reshape(1)}
    values |= {"grad." + n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    for module in modules:
        if isinstance(module, st.Dense):
            values |= {"grad.dense." + n: p.grad.clone() for n, p in module.named_parameters()}
    return {k: v.detach().double() for k, v in values.items()}


def sentence(name, cls, config, seed, modules, paths, width, change=lambda model: None):
    """A folder of these modules behind a model, each in the folder that `paths` says."""
    folder = f"{HERE}/{name}"
    shutil.rmtree(folder, ignore_errors=True)
    model = make(cls, config, seed)
    change(model)
    model.to(torch.bfloat16).save_pretrained(folder)
    open(f"{folder}/vocab.txt", "w").write("\n".join(encoders.VOCAB[:config.vocab_size]) + "\n")
    gen = torch.Generator().manual_seed(seed + 1000)
    listed = [dict(idx=0, name="0", path="", type="sentence_transformers.models.Transformer")]
    for i, (module, path) in enumerate(zip(modules, paths), 1):
        for p in module.parameters():
            p.data = (torch.randn(p.shape, generator=gen) * (1.5 / p.shape[-1] ** 0.5 if p.dim() > 1 else 0.2))
        os.makedirs(f"{folder}/{path}")
        module.save(f"{folder}/{path}")
        listed.append(dict(idx=i, name=str(i), path=path,
                           type="sentence_transformers.models." + type(module).__name__))
    json.dump(listed, open(f"{folder}/modules.json", "w"), indent=1)
    model = cls.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager").eval()
    ids = DRAW(6, config.vocab_size, (1, T), generator=gen)
    goal = torch.randn(width, generator=gen, dtype=torch.float64)
    values = sentence_values(model, modules, ids, goal.float().double(), torch.float64)
    rough = sentence_values(model, modules, ids, goal.float().double(), torch.float32)
    out = {"ids": ids.to(torch.int32), "goal": goal}
    for key, v in values.items():
        out[key] = v
        out["f32." + key] = (rough[key] - v).pow(2).mean().sqrt().reshape(1)
    save_file({k: (v.float() if v.is_floating_point() else v).contiguous() for k, v in out.items()},
              f"{folder}/golden.safetensors")


ENCODER = encoders.SIZES | dict(num_hidden_layers=1, vocab_size=61, max_position_embeddings=20)


def bert_dense():
    sentence("bert-dense", BertModel, BertConfig(**ENCODER), 51,
             [st.Pooling(32), st.Dense(32, 20), st.Normalize()], ["1_Pooling", "2_Dense", "3_Normalize"], 20)


def bert_poolings():
    """Four ways to pool in an order of their own, a layer without bias and activation, folders of other names."""
    modes = ["max", "cls", "weightedmean", "lasttoken"]
    dense = st.Dense(128, 32, bias=False, activation_function=torch.nn.Identity())
    sentence("bert-poolings", BertModel, BertConfig(**ENCODER), 52, [st.Pooling(32, pooling_mode=modes), dense],
             ["pool", "layer"], 32)


def bert_two():
    """Two ways by the flags of older files."""
    sentence("bert-two", BertModel, BertConfig(**ENCODER), 53, [st.Pooling(32, pooling_mode=["cls", "mean"])],
             ["7_Pooling"], 64)
    json.dump(dict(word_embedding_dimension=32, pooling_mode_cls_token=True, pooling_mode_mean_tokens=True,
                   pooling_mode_max_tokens=False), open(f"{HERE}/bert-two/7_Pooling/config.json", "w"), indent=1)


def qwen3_sentence():
    """As Qwen3-Embedding is: the last token, scaled to norm 1."""
    sentence("qwen3-sentence", Qwen3Model, Qwen3Config(**SMALL, head_dim=8), 54,
             [st.Pooling(32, pooling_mode="lasttoken"), st.Normalize()], ["1_Pooling", "2_Normalize"], 32)


def qwen3_gguf():
    """The same stack as GGUF has it, which knows no Normalize."""
    w = gguf.GGUFWriter(f"{HERE}/qwen3-sentence.gguf", "qwen3")
    w.add_block_count(1); w.add_embedding_length(32); w.add_head_count(4); w.add_head_count_kv(2)
    w.add_key_length(8); w.add_value_length(8); w.add_feed_forward_length(40); w.add_context_length(40)
    w.add_layer_norm_rms_eps(1e-3); w.add_rope_freq_base(10000.0); w.add_pooling_type(gguf.PoolingType.LAST)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3, 1)
    for name, x in load_file(f"{HERE}/qwen3-sentence/model.safetensors").items():
        w.add_tensor(names.get_name("model." + name, (".weight", ".bias")), x.float().numpy())
    w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()


def gpt2_sentence():
    """As SGPT is: later tokens count more; here with a layer, whose matrix is (out, in) unlike the others."""
    sentence("gpt2-sentence", GPT2Model, GPT2Config(**GPT2 | dict(n_layer=1)), 55,
             [st.Pooling(32, pooling_mode="weightedmean"), st.Dense(32, 12)], ["1_Pooling", "2_Dense"], 12)


def t5_sentence():
    """As sentence-t5 is: the encoder of T5, the mean, a layer without bias and activation, norm 1."""
    config = T5Config(d_model=32, d_kv=8, num_heads=4, d_ff=48, num_layers=1, vocab_size=61, n_positions=40,
                      relative_attention_num_buckets=8, relative_attention_max_distance=9, layer_norm_epsilon=1e-3)
    dense = st.Dense(32, 20, bias=False, activation_function=torch.nn.Identity())
    sentence("t5-sentence", T5EncoderModel, config, 56, [st.Pooling(32), dense, st.Normalize()],
             ["1_Pooling", "2_Dense", "3_Normalize"], 20, quiet)


ALL = dict(t5_sentence=t5_sentence, qwen3_sentence=qwen3_sentence, qwen3_gguf=qwen3_gguf, gpt2_sentence=gpt2_sentence,
           bert_dense=bert_dense, bert_poolings=bert_poolings, bert_two=bert_two,
           gpt2_classes=gpt2_classes, gpt2_tokens=gpt2_tokens, llama_classes=llama_classes,
           qwen2_classes=qwen2_classes, qwen3_classes=qwen3_classes, qwen3_tokens=qwen3_tokens)

if __name__ == "__main__":
    for chosen in sys.argv[1:] or ALL:
        ALL[chosen]()
