#!/usr/bin/env python3
"""decoders.py - tiny random checkpoints of further decoders, and what transformers makes of them.

    python3 tests/golden/checkpoints/decoders.py [NAME...]

As make.py beside it, whose golden values they have.
"""
import os
import sys

import gguf
import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import (GPTNeoXConfig, GPTNeoXForCausalLM, Olmo2Config, Olmo2ForCausalLM, OPTConfig,
                          OPTForCausalLM, Phi3Config, Phi3ForCausalLM, SmolLM3Config, SmolLM3ForCausalLM)

from make import HERE, Q, SIZES, TINY, golden, make, old_rope, permuted, save

LONG = dict(rope_type="longrope", rope_theta=300.0, short_factor=[1.1, 1.3, 2.0, 2.5], long_factor=[2.0, 3.5, 4.0, 9.0],
            partial_rotary_factor=0.7)
MARKS = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2)


def write_gguf(name, arch, model, seed, names, sizes, kinds, order=lambda name, x: x):
    """Tensors under llama.cpp's names; kinds: types by a part of the name, else F16; order: of rows."""
    folder = f"{HERE}/{name}"
    os.makedirs(folder, exist_ok=True)
    w = gguf.GGUFWriter(f"{folder}/model.gguf", arch)
    sizes(w)
    state = model.state_dict()
    for theirs, ours in names.items():
        x = state[theirs].numpy().astype(np.float32)
        kind = Q.F32 if x.ndim == 1 else next((k for end, k in kinds.items() if end in ours), Q.F16)
        raw = gguf.quants.quantize(order(ours, x), kind)
        w.add_tensor(ours, raw, raw_shape=raw.shape, raw_dtype=kind)
        rounded = gguf.quants.dequantize(gguf.quants.quantize(x, kind), kind)
        state[theirs].copy_(torch.tensor(rounded.reshape(x.shape)))
    w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()
    golden(folder, model, seed)


# ---- Phi-3 ----

def phi3():
    """LongRoPE over 8 of 12 elements of a head, a window; the spelling of version 4."""
    config = Phi3Config(**SIZES | dict(hidden_size=48, max_position_embeddings=160), sliding_window=6,
                        original_max_position_embeddings=40, rope_parameters=dict(LONG), **MARKS)

    def edit(written, folder):
        old_rope(written, folder)
        written["partial_rotary_factor"] = written["rope_scaling"].pop("partial_rotary_factor")
        written["rope_scaling"].pop("original_max_position_embeddings")
    save("phi3", make(Phi3ForCausalLM, config, 61), 61, edit=edit)


def phi3_plain():
    """As the first ones were published: no scaling, whole heads; the spelling of version 5."""
    config = Phi3Config(**SIZES, **MARKS, rope_parameters=dict(rope_type="default", rope_theta=400.0))
    save("phi3-plain", make(Phi3ForCausalLM, config, 62), 62, torch.bfloat16)


def phi3_gguf():
    config = Phi3Config(**SIZES | dict(hidden_size=64, max_position_embeddings=160),
                        original_max_position_embeddings=40, rope_parameters=LONG | dict(partial_rotary_factor=0.5), **MARKS)
    model = make(Phi3ForCausalLM, config, 63)
    names = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
             "lm_head.weight": "output.weight"}
    kinds = {"self_attn.qkv_proj": "attn_qkv", "self_attn.o_proj": "attn_output", "mlp.gate_up_proj": "ffn_up",
             "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
    for i in range(2):
        names |= {f"model.layers.{i}.{a}.weight": f"blk.{i}.{b}.weight" for a, b in kinds.items()}

    def sizes(w):
        w.add_block_count(2); w.add_embedding_length(64); w.add_feed_forward_length(48)
        w.add_head_count(4); w.add_head_count_kv(2); w.add_context_length(160); w.add_layer_norm_rms_eps(1e-3)
        w.add_rope_freq_base(300.0); w.add_rope_dimension_count(8); w.add_sliding_window(0)
        w.add_rope_scaling_orig_ctx_len(40)
        w.add_rope_scaling_attn_factors(float((1 + np.log(4) / np.log(40)) ** 0.5))
        for length in ("short", "long"):
            w.add_tensor(f"rope_factors_{length}.weight", np.array(LONG[f"{length}_factor"], dtype=np.float32))
    write_gguf("phi3-gguf", "phi3", model, 63, names, sizes, {"attn_output": Q.F16, "ffn_up": Q.Q8_0})


# ---- GPT-NeoX ----

NEOX = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48, vocab_size=97,
            max_position_embeddings=40, layer_norm_eps=1e-3, **MARKS)


def rename(name, theirs, ours):
    """Gradients under the names of the file, where transformers has others."""
    path = f"{HERE}/{name}/golden.safetensors"
    save_file({k.replace(theirs, ours): v for k, v in load_file(path).items()}, path)


def neox(name, seed, edit=None, dtype=torch.float32, **more):
    save(name, make(GPTNeoXForCausalLM, GPTNeoXConfig(**NEOX, **more), seed), seed, dtype, edit)
    rename(name, "lm_head", "embed_out")


def gpt_neox():
    def edit(written, folder):
        old_rope(written, folder)
        written["rotary_emb_base"] = written.pop("rope_theta")
        written["rotary_pct"] = 0.4
        path = f"{folder}/model.safetensors"
        tensors = load_file(path)
        for i in range(2):
            tensors[f"gpt_neox.layers.{i}.attention.bias"] = torch.ones(1, 1, 40, 40, dtype=torch.bool).tril()
            tensors[f"gpt_neox.layers.{i}.attention.masked_bias"] = torch.tensor(-1e9)
            tensors[f"gpt_neox.layers.{i}.attention.rotary_emb.inv_freq"] = torch.ones(3)
        save_file(tensors, path, metadata=dict(format="pt"))
    neox("gpt_neox", 64, edit, rope_parameters=dict(rope_type="default", rope_theta=300.0, partial_rotary_factor=0.4))


def gpt_neox_serial():
    neox("gpt_neox-serial", 65, None, torch.float16, use_parallel_residual=False, hidden_act="gelu_new",
         rope_parameters=dict(rope_type="linear", factor=2.0, rope_theta=500.0, partial_rotary_factor=1.0))


def gpt_neox_gguf():
    """q, k and v stand one after the other here."""
    rope = dict(rope_type="default", rope_theta=300.0, partial_rotary_factor=0.25)
    model = make(GPTNeoXForCausalLM, GPTNeoXConfig(**NEOX, rope_parameters=rope), 66)
    names = {"gpt_neox.embed_in.weight": "token_embd.weight", "lm_head.weight": "output.weight"}
    kinds = {"attention.query_key_value": "attn_qkv", "attention.dense": "attn_output", "mlp.dense_h_to_4h": "ffn_up",
             "mlp.dense_4h_to_h": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
    for end in ("weight", "bias"):
        names[f"gpt_neox.final_layer_norm.{end}"] = f"output_norm.{end}"
        for i in range(2):
            names |= {f"gpt_neox.layers.{i}.{a}.{end}": f"blk.{i}.{b}.{end}" for a, b in kinds.items()}

    def sizes(w):
        w.add_block_count(2); w.add_embedding_length(32); w.add_feed_forward_length(48)
        w.add_head_count(2); w.add_context_length(40); w.add_layer_norm_eps(1e-3)
        w.add_rope_freq_base(300.0); w.add_rope_dimension_count(4); w.add_parallel_residual(True)
    write_gguf("gpt_neox-gguf", "gptneox", model, 66, names, sizes, {"attn_qkv": Q.Q8_0}, apart)


def apart(name, x):
    """(heads, 3, head_dim) as (3, heads, head_dim)."""
    return x.reshape(2, 3, 16, -1).swapaxes(0, 1).reshape(x.shape) if "attn_qkv" in name else x


# ---- OPT ----

OPT = dict(hidden_size=32, word_embed_proj_dim=32, num_hidden_layers=2, num_attention_heads=4, ffn_dim=48, vocab_size=97,
           max_position_embeddings=40, **MARKS)


def opt():
    save("opt", make(OPTForCausalLM, OPTConfig(**OPT), 67), 67, torch.float16)


def opt_post():
    """Norms after the sublayers, an output of its own, no biases; without the first part of the prefix."""
    def edit(config, folder):
        path = f"{folder}/model.safetensors"
        tensors = {k.removeprefix("model."): v for k, v in load_file(path).items()}
        save_file(tensors, path, metadata=dict(format="pt"))
    config = OPTConfig(**OPT, do_layer_norm_before=False, enable_bias=False, tie_word_embeddings=False)
    save("opt-post", make(OPTForCausalLM, config, 68), 68, edit=edit)
    rename("opt-post", "grad.model.", "grad.")


# ---- SmolLM 3 ----

def smollm3():
    """A window in layers without positions."""
    config = SmolLM3Config(**TINY, **MARKS, num_hidden_layers=5, no_rope_layers=[1, 0, 1, 1, 0], use_sliding_window=True,
                           sliding_window=4, rope_parameters=dict(rope_type="default", rope_theta=300.0))
    save("smollm3", make(SmolLM3ForCausalLM, config, 69), 69, torch.bfloat16)


def smollm3_gguf():
    config = SmolLM3Config(**SIZES | dict(num_hidden_layers=5), **MARKS, tie_word_embeddings=True,
                           rope_parameters=dict(rope_type="default", rope_theta=300.0))
    model = make(SmolLM3ForCausalLM, config, 70)
    names = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    kinds = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
             "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
             "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
    for i in range(5):
        names |= {f"model.layers.{i}.{a}.weight": f"blk.{i}.{b}.weight" for a, b in kinds.items()}

    def sizes(w):
        w.add_block_count(5); w.add_embedding_length(32); w.add_feed_forward_length(48); w.add_head_count(4)
        w.add_head_count_kv(2); w.add_context_length(40); w.add_layer_norm_rms_eps(1e-3)
        w.add_rope_freq_base(300.0); w.add_rope_dimension_count(8)

    def order(name, x):
        heads = 4 if "attn_q" in name else 2 if "attn_k" in name else 0
        return permuted(x, heads) if heads else x
    write_gguf("smollm3-gguf", "smollm3", model, 70, names, sizes, {"attn_q": Q.Q8_0, "ffn_up": Q.Q8_0}, order)


# ---- OLMo 2 ----

def olmo2():
    config = Olmo2Config(**TINY, **MARKS, num_hidden_layers=3, attention_bias=True,
                         rope_parameters=dict(rope_type="default", rope_theta=300.0))
    save("olmo2", make(Olmo2ForCausalLM, config, 71), 71)


def olmo2_gguf():
    config = Olmo2Config(**SIZES, **MARKS, rope_parameters=dict(rope_type="default", rope_theta=300.0))
    model = make(Olmo2ForCausalLM, config, 72)
    names = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
             "lm_head.weight": "output.weight"}
    kinds = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
             "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
             "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
             "post_attention_layernorm": "post_attention_norm", "post_feedforward_layernorm": "post_ffw_norm"}
    for i in range(2):
        names |= {f"model.layers.{i}.{a}.weight": f"blk.{i}.{b}.weight" for a, b in kinds.items()}

    def sizes(w):
        w.add_block_count(2); w.add_embedding_length(32); w.add_feed_forward_length(48); w.add_head_count(4)
        w.add_head_count_kv(2); w.add_context_length(40); w.add_layer_norm_rms_eps(1e-3); w.add_rope_freq_base(300.0)
    write_gguf("olmo2-gguf", "olmo2", model, 72, names, sizes, {"ffn_up": Q.Q8_0})


ALL = dict(phi3=phi3, phi3_plain=phi3_plain, phi3_gguf=phi3_gguf, gpt_neox=gpt_neox, gpt_neox_serial=gpt_neox_serial,
           gpt_neox_gguf=gpt_neox_gguf, opt=opt, opt_post=opt_post, smollm3=smollm3,
           smollm3_gguf=smollm3_gguf, olmo2=olmo2, olmo2_gguf=olmo2_gguf)

if __name__ == "__main__":
    for chosen in sys.argv[1:] or ALL:
        ALL[chosen]()
