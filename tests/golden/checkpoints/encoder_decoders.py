#!/usr/bin/env python3
"""encoder_decoders.py - tiny random encoder-decoders, and what transformers makes of them.

    python3 tests/golden/checkpoints/encoder_decoders.py [NAME...]

As encoders.py beside it; needs what make.py needs, and tokenizers. golden.safetensors holds, in
float64 from the stored weights:

    ids, target      tokens of one text and of the decoder, int32
    greedy           20 tokens that the decoder generates for ids
    ended            a text that generate makes of ids by generation_config.json, to its end
    encoder.hidden.N, decoder.hidden.N, encoder.attention.N, decoder.attention.N,
    cross.N          output_hidden_states and attentions (eager); logits
    loss, labels     cross-entropy summed over the labels that are not negative
    grad.NAME        its gradient with respect to the tensor NAME of the checkpoint
    f32.NAME         rms error of the same value when the reference computes in float32
"""
import base64
import json
import os
import struct
import sys

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import (BartConfig, BartForConditionalGeneration, MarianConfig, MarianMTModel, MT5Config, MT5ForConditionalGeneration, T5Config,
                          T5ForConditionalGeneration, WhisperConfig,
                          WhisperForConditionalGeneration)

from make import HERE, T, make

TARGET = 7


def values_of(model, source, target, labels, dtype):
    model = model.to(dtype)
    model.zero_grad()
    source = {k: v.to(dtype) if v.is_floating_point() else v for k, v in source.items()}
    out = model(**source, decoder_input_ids=target, output_hidden_states=True, output_attentions=True)
    loss = torch.nn.functional.cross_entropy(out.logits[0], labels, ignore_index=-1, reduction="sum")
    out.logits.retain_grad()
    loss.backward()
    values = {"logits": out.logits[0], "loss": loss.reshape(1)}
    for kind, list_ in [("encoder.hidden", out.encoder_hidden_states), ("decoder.hidden", out.decoder_hidden_states),
                        ("encoder.attention", out.encoder_attentions), ("decoder.attention", out.decoder_attentions),
                        ("cross", out.cross_attentions)]:
        values |= {f"{kind}.{i}": v[0] for i, v in enumerate(list_)}
    values |= {"grad." + name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    if hasattr(model, "final_logits_bias"):  # a buffer
        values["grad.final_logits_bias"] = out.logits.grad[0].sum(0)
    return {k: v.detach().double() for k, v in values.items()}


def greedy(model, source, banned, forced=(), first=(), languages=()):
    """Tokens without start and padding, whatever ends a text; forced ones, None: a language, and those that are banned
    behind them."""
    ids = torch.tensor([[model.config.decoder_start_token_id]])
    for i in range(20):
        with torch.no_grad():
            logits = model(**source, decoder_input_ids=ids).logits[:, -1]
        if i < len(forced) and forced[i] is None:
            logits[:, [v for v in range(logits.shape[1]) if v not in languages]] = -torch.inf
        else:
            logits[:, banned] = -torch.inf
        if i == len(forced):
            logits[:, list(first)] = -torch.inf
        token = logits.argmax(-1, keepdim=True)
        if i < len(forced) and forced[i] is not None:
            token[:] = forced[i]
        ids = torch.cat([ids, token], 1)
    return ids[:, 1:].to(torch.int32)


def golden(folder, cls, seed, grads, source=None, said=None):
    gen = torch.Generator().manual_seed(seed + 1000)
    model = cls.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager").eval()
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding):
            module.padding_idx = None  # else padding, which a decoder starts with, has no gradient
    c = model.config
    source = source or {"input_ids": torch.randint(6, c.vocab_size, (1, T), generator=gen)}
    start = c.decoder_start_token_id
    target = torch.cat([torch.tensor([[start]]), torch.randint(6, 60, (1, TARGET - 1), generator=gen)], 1)
    labels = torch.randint(6, 60, (TARGET,), generator=gen)
    labels[2:4] = -1
    values = values_of(model, source, target, labels, torch.float64)
    more = {k: v.double() if v.is_floating_point() else v for k, v in source.items()}
    out = {"target": target.to(torch.int32), "labels": labels.to(torch.int32),
           "greedy": greedy(model, more, sorted({start, c.pad_token_id} | set((said or {}).get("suppress_tokens", []))),
                            (said or {}).get("forced", []), (said or {}).get("begin_suppress_tokens", []),
                            (said or {}).get("lang_to_id", {}).values())}
    rough = values_of(model, source, target, labels, torch.float32)
    if "input_ids" in source:
        out["ids"] = source["input_ids"].to(torch.int32)
    else:
        out["features"] = source["input_features"][0]
    for name, v in values.items():
        if name.startswith("grad.") and not grads:
            continue
        out[name] = v
        out["f32." + name] = (rough[name] - v).pow(2).mean().sqrt().reshape(1)
    save_file({k: (v.float() if v.is_floating_point() else v).contiguous() for k, v in out.items()},
              f"{folder}/golden.safetensors")


def save(name, cls, config, seed, dtype, grads=False, change=None, edit=None, source=None, said=None):
    folder = f"{HERE}/{name}"
    os.makedirs(folder, exist_ok=True)
    for old in os.listdir(folder):
        os.remove(f"{folder}/{old}")
    model = make(cls, config, seed)
    if change:
        change(model)
    model.to(dtype).save_pretrained(folder)
    if os.path.exists(f"{folder}/generation_config.json"):
        os.remove(f"{folder}/generation_config.json")
    golden(folder, cls, seed, grads, source, said)
    if edit:
        edit(folder)


# ---- T5 ----

T5 = dict(d_model=24, d_kv=6, num_heads=3, d_ff=20, num_layers=3, num_decoder_layers=2, vocab_size=97,
          relative_attention_num_buckets=8, relative_attention_max_distance=9, layer_norm_epsilon=1e-3,
          n_positions=40, decoder_start_token_id=5, pad_token_id=5, eos_token_id=1)


def tokenizer(folder):
    """A token is a letter or a word, by Unigram; a text ends with a mark."""
    words = ["translate", "the", "cat", "sat", "on", "mat", "is", "good", "a", "dog"]
    pieces = [("<unk>", 0.0), ("</s>", 0.0), ("\u2581", -2.0), ("<extra>", 0.0), (".", -3.0), ("<pad>", 0.0)]
    pieces += [("\u2581" + w, -4.0) for w in words] + [(chr(c), -5.0) for c in range(ord("a"), ord("z") + 1)]
    t = Tokenizer(models.Unigram(pieces, unk_id=0))
    t.add_special_tokens(["</s>", "<pad>", "<unk>"])
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.decoder = decoders.Metaspace()
    t.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>",
                                                     special_tokens=[("</s>", 1)])
    t.save(f"{folder}/tokenizer.json")


def quiet(model):
    """No scale keeps the scores small."""
    for name, p in model.named_parameters():
        if name.endswith("Attention.q.weight"):
            p.data /= model.config.d_kv ** 0.5


def untied(model):
    quiet(model)
    gen = torch.Generator().manual_seed(43)
    model.lm_head.weight = torch.nn.Parameter(torch.randn(97, 24, generator=gen) / 24 ** 0.5)


def t5():
    save("t5", T5ForConditionalGeneration, T5Config(**T5), 41, torch.float32, grads=True, change=quiet,
         edit=tokenizer)


def t5_gated():
    """As 1.1 and FLAN-T5, and as older files: the embeddings under the name of the decoder's."""
    def edit(folder):
        path = f"{folder}/model.safetensors"
        tensors = load_file(path)
        tensors["decoder.embed_tokens.weight"] = tensors.pop("shared.weight")
        name = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
        tensors[name] = torch.ones(8, 3, dtype=torch.bfloat16)
        save_file(tensors, path)
    config = T5Config(**T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False)
    save("t5-gated", T5ForConditionalGeneration, config, 42, torch.bfloat16, change=untied, edit=edit)


def mt5():
    """1.1 too, as mT5 has it: its output is never scaled, though the file says that it is tied."""
    config = MT5Config(**T5, feed_forward_proj="gated-gelu")
    save("mt5", MT5ForConditionalGeneration, config, 44, torch.bfloat16, change=quiet)


# ---- Marian ----

MARIAN = dict(d_model=24, encoder_layers=1, decoder_layers=2, encoder_attention_heads=3, decoder_attention_heads=3,
              encoder_ffn_dim=20, decoder_ffn_dim=20, vocab_size=97, decoder_vocab_size=97,
              max_position_embeddings=40, activation_function="swish", scale_embedding=True, pad_token_id=96,
              decoder_start_token_id=96, eos_token_id=0, forced_eos_token_id=0)


def biased(model):
    gen = torch.Generator().manual_seed(44)
    model.final_logits_bias = 0.2 * torch.randn(1, 97, generator=gen)
    model.model.shared.weight.data *= 1 if model.config.scale_embedding else 4


def field(number, value):
    """A field of a protocol buffer: bytes, a float, or a small number."""
    if isinstance(value, bytes):
        return bytes([number << 3 | 2]) + varint(len(value)) + value
    if isinstance(value, float):
        return bytes([number << 3 | 5]) + struct.pack("<f", value)
    return bytes([number << 3]) + varint(value)


def varint(n):
    return bytes([n]) if n < 128 else bytes([n & 127 | 128]) + varint(n >> 7)


def sentencepiece(folder):
    """source.spm, target.spm and vocab.json as Marian has them; the map of characters is that of
    tests/golden_tokens/t5.json."""
    words = ["the", "cat", "sat", "on", "a", "mat"]
    pieces = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3), ("\u2581", -2.0, 1)]
    pieces += [("\u2581" + w, -4.0, 1) for w in words] + [(chr(c), -8.0, 1) for c in range(ord("a"), ord("z") + 1)]
    pieces += [("q\u2581", -1.0, 1), ("ab", -9.0, 1), ("xyz", -9.0, 1)]  # the last has no id
    tokens = ["</s>", "<unk>"] + [p for p, _, kind in pieces if kind == 1 and p not in ("xyz", "z")]
    tokens += [">>deu<<", "\u2581Katze", "\u00df", "z"] + [f"\u2581target{i}" for i in range(97)]
    tokens = tokens[:96] + ["<pad>"]
    charsmap = json.load(open(f"{HERE}/../../golden_tokens/t5.json"))["normalizer"]
    while "precompiled_charsmap" not in charsmap:
        charsmap = charsmap["normalizers"][0]
    german = pieces[:4] + [("\u2581Katze", -4.0, 1), ("\u2581target0", -5.0, 1), ("\u00df", -6.0, 1)]
    german += [(chr(c), -8.0, 1) for c in range(ord("a"), ord("z") + 1)] + [("ab", -30.0, 1)]
    for name, list_ in (("source", pieces), ("target", german)):
        model = b"".join(field(1, field(1, p.encode()) + field(2, s) + field(3, kind)) for p, s, kind in list_)
        model += field(2, field(3, 1)) + field(3, field(1, b"nmt_nfkc") +
                                               field(2, base64.b64decode(charsmap["precompiled_charsmap"])))
        open(f"{folder}/{name}.spm", "wb").write(model)
    json.dump({t: i for i, t in enumerate(tokens)}, open(f"{folder}/vocab.json", "w"), ensure_ascii=False)


def marian():
    save("marian", MarianMTModel, MarianConfig(**MARIAN), 44, torch.float32, grads=True, change=biased,
         edit=sentencepiece)


def marian_relu():
    """As older files: with tables of positions and the embeddings once more."""
    def edit(folder):
        path = f"{folder}/model.safetensors"
        tensors = load_file(path)
        for stack in ("encoder", "decoder"):
            tensors[f"model.{stack}.embed_positions.weight"] = torch.ones(40, 24, dtype=torch.float16)
            tensors[f"model.{stack}.embed_tokens.weight"] = tensors["model.shared.weight"].clone()
        save_file(tensors, path)
    config = MarianConfig(**MARIAN | dict(activation_function="relu", scale_embedding=False))
    save("marian-relu", MarianMTModel, config, 45, torch.float16, change=biased, edit=edit)


# ---- BART ----

BART = dict(d_model=24, encoder_layers=1, decoder_layers=2, encoder_attention_heads=3, decoder_attention_heads=3,
            encoder_ffn_dim=20, decoder_ffn_dim=20, vocab_size=97, max_position_embeddings=40, pad_token_id=1,
            bos_token_id=0, eos_token_id=2, decoder_start_token_id=2, forced_eos_token_id=2)


def bart():
    """As BartModel writes it, which has the embeddings for an output and no bias of the scores."""
    def edit(folder):
        model = BartForConditionalGeneration.from_pretrained(folder)
        model.model.config.architectures = ["BartModel"]
        model.model.save_pretrained(folder)
        path = f"{folder}/golden.safetensors"
        values = {k.replace("grad.model.", "grad."): v for k, v in load_file(path).items()}
        save_file({k: v for k, v in values.items() if "final_logits_bias" not in k}, path)

    def calm(model):
        model.model.shared.weight.data *= 0.5
    save("bart", BartForConditionalGeneration, BartConfig(**BART), 49, torch.float32, grads=True, change=calm,
         edit=edit)


def byte_level(folder):
    """vocab.json and merges.txt as BART has them."""
    merges = ["t h", "th e", "\u0120 c", "a t", "\u0120c at", "\u0120 s", "\u0120s at", "\u0120 d", "o g",
              "\u0120d og"]
    tokens = ["<s>", "<pad>", "</s>", "<unk>", "\u0120"] + [chr(c) for c in range(ord("a"), ord("z") + 1)]
    tokens += [m.replace(" ", "") for m in merges] + [chr(c) for c in range(ord("!"), ord("!") + 55)]
    tokens = tokens[:96] + ["<mask>"]
    json.dump({t: i for i, t in enumerate(tokens)}, open(f"{folder}/vocab.json", "w"), ensure_ascii=False)
    open(f"{folder}/merges.txt", "w").write("\n".join(["#version: 0.2"] + merges) + "\n")
    json.dump({"tokenizer_class": "BartTokenizer"}, open(f"{folder}/tokenizer_config.json", "w"))


def bart_forced():
    """As summarisers: the first token is forced, an end comes late, no three tokens come twice. And as older files:
    the embeddings once more, numbers of a version."""
    said = dict(forced_bos_token_id=0, forced_eos_token_id=2, min_length=9, no_repeat_ngram_size=3)

    def change(model):
        biased(model)
        model.final_logits_bias[0, 2] = 2.5

    def generate(folder):
        model = BartForConditionalGeneration.from_pretrained(folder, dtype=torch.float64).eval()
        path = f"{folder}/golden.safetensors"
        values = load_file(path)
        ids = values["ids"].long()
        free = dict(max_new_tokens=20, num_beams=1, do_sample=False, bad_words_ids=[[1]])
        ended = model.generate(ids, **free | dict(max_new_tokens=35), **said)[:, 1:]
        assert ended[0, -1] == 2 and len(ended[0]) < 35, ended
        for left_out in ("min_length", "no_repeat_ngram_size", "forced_bos_token_id"):
            less = {k: v for k, v in said.items() if k != left_out}
            other = model.generate(ids, **free | dict(max_new_tokens=35), **less)[:, 1:]
            assert other.tolist() != ended.tolist(), left_out
        values["ended"] = ended[:, :-1].to(torch.int32)
        free |= dict(min_new_tokens=20, suppress_tokens=[2], forced_bos_token_id=0, no_repeat_ngram_size=3)
        values["greedy"] = model.generate(ids, **free, forced_eos_token_id=None)[:, 1:].to(torch.int32)
        save_file(values, path)

    def edit(folder):
        path = f"{folder}/model.safetensors"
        generate(folder)
        tensors = load_file(path)
        for stack in ("encoder", "decoder"):
            tensors[f"model.{stack}.version"] = torch.ones(1, dtype=torch.float16)
            tensors[f"model.{stack}.embed_tokens.weight"] = tensors["model.shared.weight"].clone()
        save_file(tensors, path)
        more = dict(decoder_start_token_id=2, eos_token_id=2, pad_token_id=1, bos_token_id=0, num_beams=4)
        json.dump(said | more, open(f"{folder}/generation_config.json", "w"), indent=1)
        byte_level(folder)
    config = BartConfig(**BART | dict(activation_function="relu", scale_embedding=True, encoder_layers=2,
                                      decoder_layers=1))
    save("bart-forced", BartForConditionalGeneration, config, 50, torch.float16, change=change, edit=edit)


# ---- Whisper ----

WHISPER = dict(d_model=24, encoder_layers=2, decoder_layers=1, encoder_attention_heads=3, decoder_attention_heads=3,
               encoder_ffn_dim=20, decoder_ffn_dim=20, vocab_size=97, num_mel_bins=5, max_source_positions=9,
               max_target_positions=40, pad_token_id=96, bos_token_id=96, eos_token_id=96, decoder_start_token_id=90)


def conv(model):
    """make.py takes the second dimension for the fan-in."""
    gen = torch.Generator().manual_seed(46)
    for layer in (model.model.encoder.conv1, model.model.encoder.conv2):
        w = layer.weight
        w.data = 1.5 * torch.randn(w.shape, generator=gen) / (w.shape[1] * w.shape[2]) ** 0.5
    model.model.decoder.embed_tokens.weight.data *= 0.3
    model.model.decoder.embed_positions.weight.data *= 0.3


def features(frames):
    return {"input_features": torch.randn(1, 5, frames, generator=torch.Generator().manual_seed(47))}


def whisper():
    save("whisper", WhisperForConditionalGeneration, WhisperConfig(**WHISPER), 46, torch.float32, grads=True,
         change=conv, source=features(18))


def whisper_forced():
    """What a text begins with, and tokens that are not generated."""
    said = dict(suppress_tokens=[69, 16], begin_suppress_tokens=[23, 96], forced=[None, 91, 92],
                lang_to_id={"<|en|>": 13, "<|de|>": 69})

    def edit(folder):
        config = dict(forced_decoder_ids=[[1, None], [2, 91]], no_timestamps_token_id=92, eos_token_id=96,
                      decoder_start_token_id=90, pad_token_id=96)
        config |= {k: v for k, v in said.items() if k != "forced"}
        json.dump(config, open(f"{folder}/generation_config.json", "w"), indent=1)
    config = WhisperConfig(**WHISPER | dict(activation_function="relu"))
    save("whisper-forced", WhisperForConditionalGeneration, config, 48, torch.float16, change=conv, edit=edit,
         source=features(18), said=said)


ALL = dict(whisper=whisper, whisper_forced=whisper_forced, t5=t5, t5_gated=t5_gated, mt5=mt5, marian=marian,
           marian_relu=marian_relu, bart=bart, bart_forced=bart_forced)

if __name__ == "__main__":
    for chosen in sys.argv[1:] or ALL:
        ALL[chosen]()
