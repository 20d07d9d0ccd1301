#!/usr/bin/env python3
"""make.py - tiny random checkpoints of published architectures, and what transformers makes of them.

    python3 tests/golden/checkpoints/make.py [NAME...]

Needs transformers 5, torch, safetensors and gguf; the tests themselves never do. Each folder is
what save_pretrained writes (config.json, model.safetensors or shards) and golden.safetensors:

    ids              tokens, int32
    greedy           20 tokens that follow
    hidden.N         output_hidden_states, attention.N output_attentions (eager), logits
    loss, labels     cross-entropy summed over the labels that are not negative
    grad.NAME        its gradient with respect to the tensor NAME of the checkpoint
    f32.NAME         rms error of loss and gradients when the reference computes in float32

computed in float64 from the weights as they are stored. Weights are loud (embeddings N(0,1),
matrices N(0, 2.25/fan_in), gains 1 + 0.2 N, biases 0.2 N) and every number of a configuration is
an odd one, so that a field that is ignored shows.
"""
import json
import os
import sys

import gguf
import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import (GPT2Config, GPT2LMHeadModel, GPT2Model, LlamaConfig, LlamaForCausalLM,
                          MistralConfig, MistralForCausalLM, Qwen2Config, Qwen2ForCausalLM,
                          Qwen3Config, Qwen3ForCausalLM)

HERE = os.path.dirname(os.path.abspath(__file__))
SIZES = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             intermediate_size=48, vocab_size=97, max_position_embeddings=40, rms_norm_eps=1e-3)
T = 12


def loud(model, seed):
    """Random weights under which a mistake is seen."""
    gen = torch.Generator().manual_seed(seed)
    for name, p in model.named_parameters():
        x = torch.randn(p.shape, generator=gen)
        if p.dim() == 1:
            x = 0.2 * x + (1 if name.endswith("weight") and "norm" in name.lower().replace("ln_", "norm") else 0)
        elif "mapping" in name or "embed" not in name and "wte" not in name and "wpe" not in name:
            fan_in = p.shape[0] if type(model).__name__.startswith("GPT2") and "lm_head" not in name else p.shape[1]
            x = x * 1.5 / fan_in ** 0.5
        p.data = x


def golden(folder, model, seed):
    gen = torch.Generator().manual_seed(seed + 1000)
    ids = torch.randint(0, model.config.vocab_size, (1, T), generator=gen)
    model = model.double().eval()
    model.set_attn_implementation("eager")
    with torch.no_grad():
        out = model(ids, output_hidden_states=True, output_attentions=True)
    values = {"ids": ids.to(torch.int32)}
    values |= {f"hidden.{i}": h[0].float() for i, h in enumerate(out.hidden_states)}
    values |= {f"attention.{i}": a[0].float() for i, a in enumerate(out.attentions)}
    if "logits" in out:
        values["logits"] = out.logits[0].float()
        for _ in range(20):
            with torch.no_grad():
                ids = torch.cat([ids, model(ids).logits[:, -1].argmax(-1, keepdim=True)], 1)
        values["greedy"] = ids[:, T:].to(torch.int32)
    save_file({k: v.contiguous() for k, v in values.items()}, f"{folder}/golden.safetensors")


def gradients(folder, cls):
    """Adds loss and gradients to the golden values."""
    path = f"{folder}/golden.safetensors"
    values = load_file(path)
    ids = values["ids"].long()
    labels = torch.cat([ids[0, 1:], ids[0, :1]])
    labels[3:5] = -1
    model = cls.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager").eval()

    def run(dtype):
        model.to(dtype).zero_grad()
        loss = torch.nn.functional.cross_entropy(model(ids).logits[0], labels, ignore_index=-1, reduction="sum")
        loss.backward()
        return {"loss": loss.detach().double().reshape(1)} | {
            "grad." + n: p.grad.double() for n, p in model.named_parameters()}
    exact, rough = run(torch.float64), run(torch.float32)
    values["labels"] = labels.to(torch.int32)
    for name, v in exact.items():
        values[name] = v.float()
        values["f32." + name] = (rough[name] - v).pow(2).mean().sqrt().reshape(1).float()
    save_file({k: v.contiguous() for k, v in values.items()}, path)


def save(name, model, seed, dtype=torch.float32, edit=None, **more):
    folder = f"{HERE}/{name}"
    os.makedirs(folder, exist_ok=True)
    for old in os.listdir(folder):
        os.remove(f"{folder}/{old}")
    model.to(dtype).save_pretrained(folder, **more)
    if os.path.exists(f"{folder}/generation_config.json"):
        os.remove(f"{folder}/generation_config.json")
    if edit:
        config = json.load(open(f"{folder}/config.json"))
        edit(config, folder)
        json.dump(config, open(f"{folder}/config.json", "w"), indent=1)
    golden(folder, type(model).from_pretrained(folder, dtype=torch.float64), seed)
    if "LM" in type(model).__name__:
        gradients(folder, type(model))


def make(cls, config, seed):
    torch.manual_seed(0)
    model = cls(config).eval()
    loud(model, seed)
    if getattr(config, "tie_word_embeddings", False):
        model.tie_weights()
    return model


def old_rope(config, folder):
    """The spelling of version 4: rope_theta and rope_scaling at the top."""
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    rope["type"] = rope.pop("rope_type")
    config["rope_scaling"] = rope if rope["type"] != "default" else None


def llama():
    rope = dict(rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0,
                high_freq_factor=4.0, original_max_position_embeddings=32)
    model = make(LlamaForCausalLM, LlamaConfig(**SIZES, rope_parameters=rope,
                                               tie_word_embeddings=False), 1)
    save("llama", model, 1, edit=old_rope)


def llama_shards():
    rope = dict(rope_type="linear", rope_theta=700.0, factor=3.0)
    config = LlamaConfig(**SIZES, rope_parameters=rope, attention_bias=True, mlp_bias=True,
                         tie_word_embeddings=True)
    save("llama-shards", make(LlamaForCausalLM, config, 2), 2, max_shard_size="20KB")


def mistral():
    config = MistralConfig(**SIZES, head_dim=12, sliding_window=5, tie_word_embeddings=False,
                           rope_parameters=dict(rope_type="default", rope_theta=300.0))
    save("mistral", make(MistralForCausalLM, config, 3), 3, torch.bfloat16)


def qwen2():
    config = Qwen2Config(**SIZES | dict(num_hidden_layers=3), use_sliding_window=True, sliding_window=4,
                         max_window_layers=1, tie_word_embeddings=True,
                         rope_parameters=dict(rope_type="default", rope_theta=400.0))
    save("qwen2", make(Qwen2ForCausalLM, config, 4), 4, torch.float16)


def qwen3():
    config = Qwen3Config(**SIZES, head_dim=12, tie_word_embeddings=True,
                         rope_parameters=dict(rope_type="default", rope_theta=600.0))
    save("qwen3", make(Qwen3ForCausalLM, config, 5), 5, torch.bfloat16)


TINY = dict(hidden_size=16, num_attention_heads=2, num_key_value_heads=1, intermediate_size=24, vocab_size=61,
            max_position_embeddings=40, rms_norm_eps=1e-3, head_dim=8)


def qwen3_mixed():
    """Windows in layers without a period; dynamic, which changes nothing within max_position_embeddings."""
    types = ["full_attention", "sliding_attention", "sliding_attention", "full_attention", "full_attention"]
    config = Qwen3Config(**TINY, num_hidden_layers=5, use_sliding_window=True, sliding_window=4, layer_types=types,
                         rope_parameters=dict(rope_type="dynamic", rope_theta=600.0, factor=4.0))
    save("qwen3-mixed", make(Qwen3ForCausalLM, config, 8), 8, torch.bfloat16)


def qwen3_yarn():
    """Every field of YaRN with another value than the usual one."""
    rope = dict(rope_type="yarn", rope_theta=300.0, factor=4.0, original_max_position_embeddings=10, beta_fast=6.0,
                beta_slow=0.3, attention_factor=1.3, truncate=False)
    config = Qwen3Config(**TINY, num_hidden_layers=2, rope_parameters=rope, tie_word_embeddings=True)
    save("qwen3-yarn", make(Qwen3ForCausalLM, config, 9), 9, torch.bfloat16)


GPT2 = dict(n_embd=32, n_layer=2, n_head=4, n_inner=48, vocab_size=97, n_positions=40,
            layer_norm_epsilon=1e-3)


def gpt2():
    config = GPT2Config(**GPT2, scale_attn_by_inverse_layer_idx=True)
    save("gpt2", make(GPT2LMHeadModel, config, 6), 6)


def gpt2_plain():
    """Without prefix and head, with the mask that old files hold, and no padding of the header."""
    def edit(config, folder):
        path = f"{folder}/model.safetensors"
        tensors = load_file(path)
        for i in range(2):
            tensors[f"h.{i}.attn.bias"] = torch.ones(1, 1, 40, 40).tril()
            tensors[f"h.{i}.attn.masked_bias"] = torch.tensor(-1e4)
        save_file(tensors, path)
        raw = open(path, "rb").read()
        size = int.from_bytes(raw[:8], "little")
        header = raw[8:8 + size].rstrip() + b" "
        while len(header) % 2 == 0:
            header += b" "
        open(path, "wb").write(len(header).to_bytes(8, "little") + header + raw[8 + size:])
    save("gpt2-plain", make(GPT2Model, GPT2Config(**GPT2), 7), 7, edit=edit)


# ---- GGUF ----

def permuted(w, heads):
    """llama.cpp's order of the rows of q and k: pairs of a rotation side by side."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, w.shape[1]).swapaxes(1, 2).reshape(w.shape)


def unpermuted(w, heads):
    return w.reshape(heads, w.shape[0] // heads // 2, 2, w.shape[1]).swapaxes(1, 2).reshape(w.shape)


Q = gguf.GGMLQuantizationType


def llama_gguf():
    """Q8_0, Q4_0, Q4_1, F16 and BF16 matrices beside F32; rope_freqs for llama3 scaling."""
    rope = dict(rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0,
                high_freq_factor=4.0, original_max_position_embeddings=32)
    sizes = SIZES | dict(hidden_size=64, intermediate_size=96)
    config = LlamaConfig(**sizes, rope_parameters=rope, tie_word_embeddings=True)
    model = make(LlamaForCausalLM, config, 8)
    folder = f"{HERE}/llama-gguf"
    os.makedirs(folder, exist_ok=True)
    w = gguf.GGUFWriter(f"{folder}/model.gguf", "llama")
    w.add_block_count(2); w.add_embedding_length(64); w.add_feed_forward_length(96)
    w.add_head_count(4); w.add_head_count_kv(2); w.add_context_length(40); w.add_vocab_size(97)
    w.add_layer_norm_rms_eps(1e-3); w.add_rope_freq_base(500.0); w.add_rope_dimension_count(16)
    w.add_tokenizer_model("llama")
    w.add_token_list(["<unk>", "<s>", "</s>", "\u2581"] + [chr(c) for c in range(33, 126)])
    w.add_token_scores([0.0] * 97)
    w.add_token_types([2, 3, 3] + [1] * 94)
    w.add_bos_token_id(1); w.add_eos_token_id(2); w.add_unk_token_id(0)
    inv = 500.0 ** (-np.arange(0, 16, 2) / 16)
    s = np.clip((32 * inv / (2 * np.pi) - 1) / 3, 0, 1)
    w.add_tensor("rope_freqs.weight", (1 / (s + (1 - s) / 8)).astype(np.float32))
    names = {"model.embed_tokens.weight": ("token_embd.weight", Q.Q8_0),
             "model.norm.weight": ("output_norm.weight", Q.F32)}
    kinds = {"self_attn.q_proj": ("attn_q", Q.Q4_0), "self_attn.k_proj": ("attn_k", Q.Q8_0),
             "self_attn.v_proj": ("attn_v", Q.F16), "self_attn.o_proj": ("attn_output", Q.Q4_1),
             "mlp.gate_proj": ("ffn_gate", Q.BF16), "mlp.up_proj": ("ffn_up", Q.Q4_1),
             "mlp.down_proj": ("ffn_down", Q.Q8_0), "input_layernorm": ("attn_norm", Q.F32),
             "post_attention_layernorm": ("ffn_norm", Q.F32)}
    for i in range(2):
        for theirs, (ours, kind) in kinds.items():
            names[f"model.layers.{i}.{theirs}.weight"] = (f"blk.{i}.{ours}.weight", kind)
    state = model.state_dict()
    for theirs, (ours, kind) in names.items():
        x = state[theirs].numpy().astype(np.float32)
        heads = 4 if "attn_q" in ours else 2 if "attn_k" in ours else 0
        if heads:
            x = permuted(x, heads)
        raw = gguf.quants.quantize(x, kind)
        back = gguf.quants.dequantize(raw, kind).reshape(x.shape)
        w.add_tensor(ours, raw, raw_shape=raw.shape, raw_dtype=kind)
        state[theirs].copy_(torch.tensor(unpermuted(back, heads) if heads else back))
    w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()
    golden(folder, model, 8)


def kquants():
    """Random blocks of every type beside their values: tensors NAME and NAME.values."""
    rng = np.random.default_rng(3)
    w = gguf.GGUFWriter(f"{HERE}/kquants.gguf", "llama")
    for kind, block, size, halves in [(Q.Q2_K, 256, 84, [80, 82]), (Q.Q3_K, 256, 110, [108]),
                                      (Q.Q4_K, 256, 144, [0, 2]), (Q.Q5_K, 256, 176, [0, 2]),
                                      (Q.Q6_K, 256, 210, [208]), (Q.Q8_0, 32, 34, [0]),
                                      (Q.Q4_0, 32, 18, [0]), (Q.Q4_1, 32, 20, [0, 2]),
                                      (Q.Q5_0, 32, 22, [0]), (Q.Q5_1, 32, 24, [0, 2]),
                                      (Q.IQ4_NL, 32, 18, [0]), (Q.IQ4_XS, 256, 136, [0]),
                                      (Q.IQ2_XXS, 256, 66, [0])]:
        raw = rng.integers(0, 256, (1, 512 // block * size), dtype=np.uint8)
        blocks = raw.reshape(-1, size)
        for at in halves:
            half = (rng.standard_normal(len(blocks)) * 0.1).astype(np.float16)
            blocks[:, at:at + 2] = half.view(np.uint8).reshape(-1, 2)
        name = kind.name.lower()
        w.add_tensor(name, raw, raw_shape=raw.shape, raw_dtype=kind)
        w.add_tensor(name + ".values", gguf.quants.dequantize(raw, kind).astype(np.float32))
    w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()


ALL = dict(kquants=kquants, llama=llama, llama_shards=llama_shards, mistral=mistral, qwen2=qwen2, qwen3=qwen3,
           qwen3_mixed=qwen3_mixed, qwen3_yarn=qwen3_yarn, gpt2=gpt2, gpt2_plain=gpt2_plain, llama_gguf=llama_gguf)

if __name__ == "__main__":
    for chosen in sys.argv[1:] or ALL:
        ALL[chosen]()
