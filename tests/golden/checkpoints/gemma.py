#!/usr/bin/env python3
"""gemma.py - tiny random checkpoints of Gemma 1, 2 and 3, and what transformers makes of them.

    python3 tests/golden/checkpoints/gemma.py [NAME...]

As encoders.py beside it, whose golden values they have, and `greedy` of make.py. The reference
takes norms and rotations in float32 whatever its type; here they are as exact as all else.
"""
import json
import os
import sys

import gguf
import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import (Gemma2Config, Gemma2ForCausalLM, Gemma3ForCausalLM, Gemma3TextConfig, GemmaConfig,
                          GemmaForCausalLM)
from transformers.models.gemma.modeling_gemma import GemmaRMSNorm
from transformers.models.gemma2.modeling_gemma2 import Gemma2RMSNorm
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm

from make import HERE, Q, T

SIZES = dict(hidden_size=32, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=12,
             intermediate_size=40, vocab_size=97, max_position_embeddings=40, rms_norm_eps=1e-3,
             pad_token_id=0, bos_token_id=2, eos_token_id=1)
ROPE = dict(rope_type="linear", rope_theta=600.0, factor=3.0)
LOCAL = dict(rope_type="default", rope_theta=50.0)
WINDOW = dict(sliding_window=5, query_pre_attn_scalar=7)
VERSIONS = {1: (GemmaForCausalLM, GemmaConfig, {}),
            2: (Gemma2ForCausalLM, Gemma2Config, WINDOW | dict(attn_logit_softcapping=3.0,
                                                               final_logit_softcapping=5.0)),
            3: (Gemma3ForCausalLM, Gemma3TextConfig, WINDOW | dict(sliding_window_pattern=3))}

for norm in (GemmaRMSNorm, Gemma2RMSNorm, Gemma3RMSNorm):
    norm.forward = lambda self, x: (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
                                    * (1 + self.weight))


def make(seed, dtype, version=3, **more):
    """Loud weights as make.py has them; gains are stored minus 1, and embeddings, which are scaled up, must not
    outweigh what the layers add to them."""
    torch.manual_seed(0)
    cls, config, own = VERSIONS[version]
    rope = dict(full_attention=dict(ROPE), sliding_attention=dict(LOCAL)) if version == 3 else dict(ROPE)
    model = cls(config(**SIZES | own | more, rope_parameters=rope)).eval()
    gen = torch.Generator().manual_seed(seed)
    for name, p in model.named_parameters():
        x = torch.randn(p.shape, generator=gen)
        p.data = 0.2 * x if p.dim() == 1 else 0.1 * x if "embed" in name else x * 1.5 / p.shape[1] ** 0.5
    model.tie_weights()
    return model.to(dtype)


def run(model, ids, labels, dtype, scale):
    model = model.to(dtype)
    model.zero_grad()
    model.model.embed_tokens.embed_scale = torch.tensor(scale, dtype=dtype)
    rotary = model.model.rotary_emb
    for kind, rope in (("", ROPE), ("full_attention_", ROPE), ("sliding_attention_", LOCAL)):
        inv = rope["rope_theta"] ** (-torch.arange(0, 12, 2, dtype=torch.float64) / 12) / rope.get("factor", 1)
        if hasattr(rotary, f"{kind}inv_freq"):
            setattr(rotary, f"{kind}inv_freq", inv.to(dtype))
    to_float = torch.Tensor.float
    if dtype == torch.float64:
        torch.Tensor.float = lambda x: x.double()
    out = model(ids, output_hidden_states=True, output_attentions=True)
    loss = torch.nn.functional.cross_entropy(out.logits[0], labels, ignore_index=-1, reduction="sum")
    loss.backward()
    torch.Tensor.float = to_float
    values = {f"hidden.{i}": h[0] for i, h in enumerate(out.hidden_states)}
    values |= {f"attention.{i}": a[0] for i, a in enumerate(out.attentions)}
    values |= {"logits": out.logits[0], "loss": loss.reshape(1)}
    values |= {"grad." + name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return {k: v.detach().double() for k, v in values.items()}


def golden(folder, model, seed, grads, scale=None):
    scale = scale or 32 ** 0.5
    gen = torch.Generator().manual_seed(seed + 1000)
    ids = torch.randint(6, 97, (1, T), generator=gen)
    labels = torch.randint(6, 97, (T,), generator=gen)
    labels[3:5] = -1
    model.set_attn_implementation("eager")
    values, rough = (run(model, ids, labels, d, scale) for d in (torch.float64, torch.float32))
    out = {"ids": ids.to(torch.int32), "labels": labels.to(torch.int32)}
    for name, v in values.items():
        if name.startswith("grad.") and not grads:
            continue
        out[name] = v
        out["f32." + name] = (rough[name] - v).pow(2).mean().sqrt().reshape(1)
    model = model.double()
    for _ in range(20):
        with torch.no_grad():
            ids = torch.cat([ids, model(ids).logits[:, -1].argmax(-1, keepdim=True)], 1)
    out["greedy"] = ids[:, T:].to(torch.int32)
    save_file({k: (v.float() if v.is_floating_point() else v).contiguous() for k, v in out.items()},
              f"{folder}/golden.safetensors")


def save(name, seed, dtype, edit=None, grads=False, scale=None, version=3, **more):
    folder = f"{HERE}/{name}"
    os.makedirs(folder, exist_ok=True)
    for old in os.listdir(folder):
        os.remove(f"{folder}/{old}")
    make(seed, dtype, version, **more).save_pretrained(folder)
    if os.path.exists(f"{folder}/generation_config.json"):
        os.remove(f"{folder}/generation_config.json")
    golden(folder, VERSIONS[version][0].from_pretrained(folder, dtype=torch.float64), seed, grads, scale)
    if edit:
        edit(folder)


def gemma3():
    save("gemma3", 51, torch.float32, grads=True)


def gemma3_pictures():
    """bf16, whose scale of the embeddings is rounded; as the text model of one that sees pictures, with the
    spelling of version 4."""
    def edit(folder):
        text = json.load(open(f"{folder}/config.json"))
        rope = text.pop("rope_parameters")
        full, local = rope["full_attention"], rope["sliding_attention"]
        text |= dict(model_type="gemma3_text", rope_theta=full["rope_theta"], sliding_window_pattern=3,
                     rope_local_base_freq=local["rope_theta"], rope_scaling=dict(rope_type="linear", factor=3.0))
        text.pop("layer_types")
        whole = dict(model_type="gemma3", architectures=["Gemma3ForConditionalGeneration"], text_config=text,
                     vision_config=dict(hidden_size=16), eos_token_id=[1, 3])
        json.dump(whole, open(f"{folder}/config.json", "w"), indent=1)
        path = f"{folder}/model.safetensors"
        tensors = {k.replace("model.", "language_model.model."): v for k, v in load_file(path).items()}
        tensors["vision_tower.vision_model.embeddings.patch_embedding.weight"] = torch.ones(16, 3, 2, 2)
        save_file(tensors, path)
    save("gemma3-pictures", 52, torch.bfloat16, edit, scale=float(torch.tensor(32 ** 0.5).bfloat16()))


def gemma2():
    save("gemma2", 54, torch.float32, grads=True, version=2)


def gemma():
    """bf16, and gelu in the configuration, which means the tanh form."""
    def edit(folder):
        config = json.load(open(f"{folder}/config.json"))
        json.dump(config | dict(hidden_act="gelu"), open(f"{folder}/config.json", "w"), indent=1)
    save("gemma", 55, torch.bfloat16, edit, True, float(torch.tensor(32 ** 0.5).bfloat16()), version=1)


def write_gguf(name, seed, model, more):
    """GGUF has gains as they are."""
    folder = f"{HERE}/{name}-gguf"
    layers = model.config.num_hidden_layers
    os.makedirs(folder, exist_ok=True)
    w = gguf.GGUFWriter(f"{folder}/model.gguf", name)
    w.add_block_count(layers); w.add_embedding_length(32); w.add_feed_forward_length(40)
    w.add_head_count(4); w.add_head_count_kv(2); w.add_context_length(40); w.add_key_length(12); w.add_value_length(12)
    w.add_layer_norm_rms_eps(1e-3); w.add_rope_freq_base(600.0)
    w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR); w.add_rope_scaling_factor(3.0)
    more(w)
    names = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    kinds = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
             "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
             "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
             "input_layernorm": "attn_norm", "pre_feedforward_layernorm": "ffn_norm",
             "post_attention_layernorm": "ffn_norm" if name == "gemma" else "post_attention_norm",
             "post_feedforward_layernorm": "post_ffw_norm"}
    for i in range(layers):
        names |= {f"model.layers.{i}.{a}.weight": f"blk.{i}.{b}.weight" for a, b in kinds.items()}
    state = model.state_dict()
    names = {theirs: ours for theirs, ours in names.items() if theirs in state}
    for theirs, ours in names.items():
        x = state[theirs].numpy().astype(np.float32)
        kind = Q.F32 if x.ndim == 1 else Q.Q8_0 if x.shape[1] % 32 == 0 else Q.F16
        if x.ndim == 1:
            w.add_tensor(ours, x + np.float32(1))
            state[theirs].copy_(torch.tensor((x + np.float32(1)) - np.float32(1)))
            continue
        raw = gguf.quants.quantize(x, kind)
        w.add_tensor(ours, raw, raw_shape=raw.shape, raw_dtype=kind)
        state[theirs].copy_(torch.tensor(gguf.quants.dequantize(raw, kind).reshape(x.shape)))
    w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()
    golden(folder, model, seed, False)


def gemma3_gguf():
    """GGUF has neither the scalar of queries nor the pattern of windows."""
    def more(w):
        w.add_sliding_window(5)
        w.add_float32("gemma3.rope.freq_base_swa", 50.0)
    model = make(53, torch.float32, num_hidden_layers=7, sliding_window_pattern=6, query_pre_attn_scalar=12)
    write_gguf("gemma3", 53, model, more)


def gemma2_gguf():
    def more(w):
        w.add_sliding_window(5); w.add_attn_logit_softcapping(3.0); w.add_final_logit_softcapping(5.0)
    write_gguf("gemma2", 56, make(56, torch.float32, 2, query_pre_attn_scalar=12), more)


def gemma_gguf():
    write_gguf("gemma", 57, make(57, torch.float32, 1, num_hidden_layers=2), lambda w: None)


ALL = dict(gemma3=gemma3, gemma3_pictures=gemma3_pictures, gemma3_gguf=gemma3_gguf, gemma2=gemma2, gemma=gemma,
           gemma2_gguf=gemma2_gguf, gemma_gguf=gemma_gguf)

if __name__ == "__main__":
    for chosen in sys.argv[1:] or ALL:
        ALL[chosen]()
