#!/usr/bin/env python3
"""random_checkpoints.py - folders of random configurations, polyhead against transformers.

    python3 bench/random_checkpoints.py [COUNT [SEED [NAME...]]]

For each of the architectures COUNT configurations are drawn (sizes that no published model has, head_dim
apart from model_dim / heads, grouped heads, windows, kinds of rope scaling, biases, tied or not, activations),
written by transformers in F32, F16 or BF16, in one file or in shards, with a tokenizer of a kind drawn too
(WordPiece, byte-level BPE, BPE with byte fallback, Unigram) that the package tokenizers trained, and run by both
on the same text: tokens, weights of every head, log-probabilities or scores. Errors are rms against transformers
in double; allowed is four times what transformers itself has in float32, the largest of some orders of its sums (of one
order alone it may be ten times smaller by luck, where a map has four weights or a classifier one score). Prints what
differs or is refused.
"""
import contextlib
import json
import os
import random
import shutil
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../python"))

import numpy as np
import tokenizers as tk
import torch
import transformers as hf
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

import polyhead

torch.set_num_threads(1)
hf.logging.set_verbosity_error()
hf.utils.logging.disable_progress_bar()
TEXT = "the cat sat on the mat near the river, and the cat saw a bird: 3 fish. Na\u00efve caf\u00e9!"
CORPUS = [TEXT, "a dog ran over the hill", "birds sing in the morning 12 34", "the fish swim in the river"] * 5


# ---- tokenizers ----

def wordpiece():
    t = tk.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer, t.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    t.train_from_iterator(CORPUS, trainers.WordPieceTrainer(
        show_progress=False, vocab_size=150, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    t.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", t.token_to_id("[CLS]")), ("[SEP]", t.token_to_id("[SEP]"))])
    t.decoder = decoders.WordPiece()
    return t


def byte_level():
    t = tk.Tokenizer(models.BPE())
    t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(
        show_progress=False, vocab_size=330, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<s>", "</s>", "<pad>"]))
    return t


def byte_fallback():
    t = tk.Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(
        show_progress=False, vocab_size=400,
        special_tokens=["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]))
    t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                   decoders.Strip(" ", 1, 0)])
    t.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return t


def unigram():
    t = tk.Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    t.pre_tokenizer, t.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    t.train_from_iterator(CORPUS, trainers.UnigramTrainer(
        show_progress=False, vocab_size=120, unk_token="<unk>", special_tokens=["<pad>", "</s>", "<unk>"]))
    t.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return t


KINDS = [wordpiece, byte_level, byte_fallback, unigram]


# ---- configurations ----

PAD = 5  # of RoBERTa: positions of other tokens are counted from it; it may occur in TEXT


def sizes(r):
    """heads, kv heads, head_dim, model_dim, ff_dim, layers."""
    kv = r.choice([1, 2, 3])
    heads = kv * r.choice([1, 2, 3])
    dim = r.choice([4, 8, 10, 12, 16, 20, 32, 64])
    return heads, kv, dim, heads * r.choice([5, 8, 10, 20, 24]), r.choice([17, 36, 50, 64, 96]), r.choice([1, 2, 3])


def rope(r, base):
    kinds = [{"rope_type": "default"}, {"rope_type": "linear", "factor": 2.5},
             {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
              "original_max_position_embeddings": 16},
             {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}]
    return {"rope_theta": r.choice([base, 500.0, 1e6]), **r.choice(kinds)}


def llama_family(r, v, config, cls, **more):
    h, k, d, dim, ff, layers = sizes(r)
    return cls, config(vocab_size=v, hidden_size=dim, intermediate_size=ff, num_hidden_layers=layers,
                       num_attention_heads=h, num_key_value_heads=k, head_dim=d, max_position_embeddings=128,
                       rms_norm_eps=r.choice([1e-6, 1e-3]), tie_word_embeddings=r.random() < 0.5,
                       rope_parameters=rope(r, 1e4), **more)


def llama(r, v):
    return llama_family(r, v, hf.LlamaConfig, hf.LlamaForCausalLM, attention_bias=r.random() < 0.3,
                        mlp_bias=r.random() < 0.3)


def mistral(r, v):
    return llama_family(r, v, hf.MistralConfig, hf.MistralForCausalLM, sliding_window=r.choice([None, 3, 8, 500]))


def qwen2(r, v):
    return llama_family(r, v, hf.Qwen2Config, hf.Qwen2ForCausalLM, use_sliding_window=r.random() < 0.5,
                        sliding_window=5, max_window_layers=r.choice([0, 1, 2]))


def qwen3(r, v):
    return llama_family(r, v, hf.Qwen3Config, hf.Qwen3ForCausalLM, attention_bias=r.random() < 0.3,
                        use_sliding_window=r.random() < 0.3, sliding_window=7, max_window_layers=r.choice([0, 1]))


def smollm3(r, v):
    cls, config = llama_family(r, v, hf.SmolLM3Config, hf.SmolLM3ForCausalLM, attention_bias=r.random() < 0.3,
                               mlp_bias=r.random() < 0.3, no_rope_layer_interval=r.choice([1, 2, 3, 4]), pad_token_id=0,
                               use_sliding_window=r.random() < 0.5, sliding_window=r.choice([3, 9]))
    return cls, config


def olmo2(r, v):
    return llama_family(r, v, hf.Olmo2Config, hf.Olmo2ForCausalLM, attention_bias=r.random() < 0.3, pad_token_id=0)


def gemma3(r, v):
    h, k, d, dim, ff, layers = sizes(r)
    return hf.Gemma3ForCausalLM, hf.Gemma3TextConfig(
        vocab_size=v, hidden_size=dim, intermediate_size=ff, num_hidden_layers=layers + 1, num_attention_heads=h,
        num_key_value_heads=k, head_dim=d, max_position_embeddings=128, sliding_window=r.choice([3, 9, 400]),
        query_pre_attn_scalar=r.choice([d, 33]), pad_token_id=0,
        layer_types=["full_attention" if (i + 1) % 2 == 0 else "sliding_attention" for i in range(layers + 1)])


def gemma2(r, v):
    h, k, d, dim, ff, layers = sizes(r)
    return hf.Gemma2ForCausalLM, hf.Gemma2Config(
        vocab_size=v, hidden_size=dim, intermediate_size=ff, num_hidden_layers=layers + 1, num_attention_heads=h,
        num_key_value_heads=k, head_dim=d, max_position_embeddings=128, sliding_window=r.choice([3, 9, 400]),
        query_pre_attn_scalar=r.choice([d, 33]), pad_token_id=0, rope_parameters=rope(r, 1e4),
        attn_logit_softcapping=r.choice([None, 1.5, 50.0]), final_logit_softcapping=r.choice([None, 2.0, 30.0]))


def gemma(r, v):
    return llama_family(r, v, hf.GemmaConfig, hf.GemmaForCausalLM, hidden_act=r.choice(["gelu_pytorch_tanh", "gelu"]),
                        pad_token_id=0)


def phi3(r, v):
    kv = r.choice([1, 2, 3])
    heads, d = kv * r.choice([1, 2]), r.choice([8, 16, 24, 32])
    part = r.choice([1.0, 0.75, 0.5])
    kind = {"rope_type": "default"}
    if r.random() < 0.7:
        pairs = int(d * part) // 2
        kind = {"rope_type": "longrope", "short_factor": [1 + r.random() for _ in range(pairs)],
                "long_factor": [1 + 9 * r.random() for _ in range(pairs)]}
        if r.random() < 0.3:
            kind["attention_factor"] = 1.25
    return hf.Phi3ForCausalLM, hf.Phi3Config(
        vocab_size=v, hidden_size=heads * d, intermediate_size=r.choice([17, 36, 64]),
        num_hidden_layers=r.choice([1, 2, 3]), num_attention_heads=heads, num_key_value_heads=kv,
        max_position_embeddings=r.choice([128, 1024]), original_max_position_embeddings=128,
        rms_norm_eps=r.choice([1e-5, 1e-3]), tie_word_embeddings=r.random() < 0.5, pad_token_id=0, bos_token_id=0,
        eos_token_id=1, sliding_window=r.choice([None, 3, 8, 500]),
        rope_parameters={"rope_theta": r.choice([1e4, 500.0]), "partial_rotary_factor": part, **kind})


def gpt_neox(r, v):
    heads, d = r.choice([1, 3, 5]), r.choice([8, 16, 24])
    return hf.GPTNeoXForCausalLM, hf.GPTNeoXConfig(
        vocab_size=v, hidden_size=heads * d, num_attention_heads=heads, num_hidden_layers=r.choice([1, 2, 3]),
        intermediate_size=r.choice([17, 50, 96]), max_position_embeddings=128, layer_norm_eps=r.choice([1e-5, 1e-3]),
        use_parallel_residual=r.random() < 0.7, hidden_act=r.choice(["gelu", "gelu_new", "relu"]),
        attention_bias=r.random() < 0.7, tie_word_embeddings=r.random() < 0.3,
        rope_parameters={**rope(r, 1e4), "partial_rotary_factor": r.choice([0.25, 0.5, 1.0])})


def opt(r, v):
    heads, d = r.choice([1, 3, 5]), r.choice([4, 8, 12])
    return hf.OPTForCausalLM, hf.OPTConfig(
        vocab_size=v, hidden_size=heads * d, word_embed_proj_dim=heads * d, num_attention_heads=heads,
        num_hidden_layers=r.choice([1, 2, 3]), ffn_dim=r.choice([17, 50, 96]), max_position_embeddings=128,
        do_layer_norm_before=r.random() < 0.7, enable_bias=r.random() < 0.7, pad_token_id=0,
        activation_function=r.choice(["relu", "gelu", "gelu_new"]), tie_word_embeddings=r.random() < 0.7)


def gpt2(r, v):
    heads, d = r.choice([1, 3, 5]), r.choice([4, 8, 12])
    return hf.GPT2LMHeadModel, hf.GPT2Config(
        vocab_size=v, n_embd=heads * d, n_head=heads, n_layer=r.choice([1, 2, 3]), n_positions=100,
        n_inner=r.choice([None, 50]), activation_function=r.choice(["gelu_new", "relu", "gelu", "silu"]),
        scale_attn_weights=r.random() < 0.8, scale_attn_by_inverse_layer_idx=r.random() < 0.3,
        tie_word_embeddings=r.random() < 0.7)


def encoder(r, v, config, classes, **more):
    heads, d = r.choice([1, 3, 4]), r.choice([4, 8, 12])
    return r.choice(classes), config(
        vocab_size=v, hidden_size=heads * d, num_hidden_layers=r.choice([1, 2, 3]), num_attention_heads=heads,
        intermediate_size=r.choice([17, 50, 96]), max_position_embeddings=120,
        layer_norm_eps=r.choice([1e-12, 1e-5]), num_labels=r.choice([1, 3, 7]), **more)


def bert(r, v):
    return encoder(r, v, hf.BertConfig, [hf.BertForMaskedLM, hf.BertForSequenceClassification,
                                         hf.BertForTokenClassification, hf.BertModel],
                   hidden_act=r.choice(["gelu", "gelu_new", "relu", "silu"]), type_vocab_size=r.choice([1, 2, 3]))


def roberta(r, v):
    return encoder(r, v, hf.RobertaConfig, [hf.RobertaForMaskedLM, hf.RobertaForSequenceClassification,
                                            hf.RobertaForTokenClassification], type_vocab_size=1, pad_token_id=PAD)


def xlm_roberta(r, v):
    return encoder(r, v, hf.XLMRobertaConfig, [hf.XLMRobertaForMaskedLM, hf.XLMRobertaForSequenceClassification],
                   type_vocab_size=1, pad_token_id=PAD)


def camembert(r, v):
    return encoder(r, v, hf.CamembertConfig, [hf.CamembertForMaskedLM], type_vocab_size=1, pad_token_id=PAD)


def electra(r, v):
    cls, config = encoder(r, v, hf.ElectraConfig, [hf.ElectraForMaskedLM, hf.ElectraForSequenceClassification,
                                                   hf.ElectraForTokenClassification, hf.ElectraModel],
                          type_vocab_size=r.choice([1, 2, 3]))
    config.embedding_size = r.choice([config.hidden_size, 10, 70])
    if cls is not hf.ElectraForMaskedLM:
        config.hidden_act = r.choice(["gelu", "gelu_new", "relu", "silu"])
    return cls, config


def albert(r, v):
    cls, config = encoder(r, v, hf.AlbertConfig, [hf.AlbertForMaskedLM, hf.AlbertForSequenceClassification,
                                                  hf.AlbertForTokenClassification, hf.AlbertModel],
                          type_vocab_size=r.choice([1, 2, 3]), pad_token_id=0, bos_token_id=2, eos_token_id=3,
                          hidden_act=r.choice(["gelu", "gelu_new", "relu", "silu"]))
    config.embedding_size = r.choice([config.hidden_size, 10, 70])
    config.num_hidden_groups = r.choice([n for n in (1, 2, 3) if config.num_hidden_layers % n == 0])
    return cls, config


def mpnet(r, v):
    return encoder(r, v, hf.MPNetConfig, [hf.MPNetForMaskedLM, hf.MPNetForSequenceClassification,
                                          hf.MPNetForTokenClassification, hf.MPNetModel])


def modernbert(r, v):
    heads, d, layers = r.choice([1, 3, 4]), r.choice([4, 8, 12]), r.choice([1, 2, 3, 5])
    cls = r.choice([hf.ModernBertForMaskedLM, hf.ModernBertForSequenceClassification,
                    hf.ModernBertForTokenClassification, hf.ModernBertModel])
    activation = r.choice(["gelu", "gelu_new", "silu"])
    of_head = activation if cls is hf.ModernBertForMaskedLM else r.choice(["gelu", "relu", "tanh"])
    kinds = [None, [r.choice(["full_attention", "sliding_attention"]) for _ in range(layers)]]
    return cls, hf.ModernBertConfig(
        vocab_size=v, hidden_size=heads * d, num_hidden_layers=layers, num_attention_heads=heads,
        intermediate_size=r.choice([17, 50, 96]), max_position_embeddings=120, norm_eps=r.choice([1e-5, 1e-3]),
        hidden_activation=activation, classifier_activation=of_head, classifier_pooling=r.choice(["cls", "mean"]),
        attention_bias=r.random() < 0.3, mlp_bias=r.random() < 0.3, norm_bias=r.random() < 0.3,
        classifier_bias=r.random() < 0.3, decoder_bias=r.random() < 0.7, tie_word_embeddings=r.random() < 0.7,
        local_attention=r.choice([1, 2, 5, 8, 128]), layer_types=r.choice(kinds), num_labels=r.choice([1, 3, 7]),
        global_attn_every_n_layers=r.choice([1, 2, 3]), pad_token_id=0, bos_token_id=2, cls_token_id=2, eos_token_id=3,
        sep_token_id=3, rope_parameters={"full_attention": rope(r, 160000.0),
                                         "sliding_attention": {"rope_type": "default", "rope_theta": r.choice([1e4, 77.0])}})


def distilbert(r, v):
    heads, d = r.choice([1, 3, 4]), r.choice([4, 8, 12])
    cls = r.choice([hf.DistilBertForMaskedLM, hf.DistilBertForSequenceClassification,
                    hf.DistilBertForTokenClassification])
    return cls, hf.DistilBertConfig(vocab_size=v, dim=heads * d, n_layers=r.choice([1, 2, 3]), n_heads=heads,
                                    hidden_dim=r.choice([17, 50]), max_position_embeddings=90, num_labels=3,
                                    activation=r.choice(["gelu", "relu"]), tie_word_embeddings=r.random() < 0.7)


def t5(r, v):
    tied = r.random() < 0.5
    return r.choice([hf.T5ForConditionalGeneration] * 2 + [hf.T5EncoderModel]), hf.T5Config(
        vocab_size=v, d_model=r.choice([24, 40]), d_kv=r.choice([4, 7, 16]), num_heads=r.choice([1, 3, 5]),
        d_ff=r.choice([17, 50]), num_layers=r.choice([1, 2]), num_decoder_layers=r.choice([1, 2, 3]),
        relative_attention_num_buckets=r.choice([8, 32]), relative_attention_max_distance=r.choice([16, 128]),
        feed_forward_proj=r.choice(["relu", "gated-gelu", "gated-silu"]), tie_word_embeddings=tied,
        decoder_start_token_id=0, pad_token_id=0)


def marian(r, v):
    h = r.choice([1, 3, 4])
    ff = r.choice([17, 50])
    return hf.MarianMTModel, hf.MarianConfig(
        vocab_size=v, decoder_vocab_size=v, d_model=h * r.choice([4, 8, 10]), encoder_layers=r.choice([1, 2]),
        decoder_layers=r.choice([1, 3]), encoder_attention_heads=h, decoder_attention_heads=h, encoder_ffn_dim=ff,
        decoder_ffn_dim=ff, activation_function=r.choice(["swish", "relu", "gelu"]), scale_embedding=r.random() < 0.5,
        max_position_embeddings=100, pad_token_id=0, decoder_start_token_id=0, eos_token_id=1, forced_eos_token_id=1)


def bart(r, v):
    h, ff, tied = r.choice([1, 3, 4]), r.choice([17, 50]), r.random() < 0.7
    cls = r.choice([hf.BartForConditionalGeneration, hf.BartModel]) if tied else hf.BartForConditionalGeneration
    return cls, hf.BartConfig(
        vocab_size=v, d_model=h * r.choice([4, 8, 10]), encoder_layers=r.choice([1, 2, 3]),
        decoder_layers=r.choice([1, 2, 3]), encoder_attention_heads=h, decoder_attention_heads=h, encoder_ffn_dim=ff,
        decoder_ffn_dim=ff, activation_function=r.choice(["gelu", "relu", "swish", "gelu_new"]),
        scale_embedding=r.random() < 0.5, tie_word_embeddings=tied, max_position_embeddings=100, pad_token_id=1,
        bos_token_id=0, decoder_start_token_id=2, eos_token_id=2)


def picture(r, config, cls):
    heads, d, patch = r.choice([1, 3, 4]), r.choice([4, 8, 12]), r.choice([2, 3, 5])
    return cls, config(hidden_size=heads * d, num_hidden_layers=r.choice([1, 2]), num_attention_heads=heads,
                       intermediate_size=r.choice([17, 50]), image_size=patch * r.choice([3, 4]), patch_size=patch,
                       num_channels=3, qkv_bias=r.random() < 0.7, num_labels=r.choice([2, 9]),
                       hidden_act=r.choice(["gelu", "gelu_new", "relu"]), layer_norm_eps=r.choice([1e-12, 1e-5]))


def vit(r, v):
    return picture(r, hf.ViTConfig, hf.ViTForImageClassification)


def deit(r, v):
    return picture(r, hf.DeiTConfig, r.choice([hf.DeiTForImageClassification,
                                               hf.DeiTForImageClassificationWithTeacher]))


def whisper(r, v):
    h, ff = r.choice([1, 3]), r.choice([17, 50])
    return hf.WhisperForConditionalGeneration, hf.WhisperConfig(
        vocab_size=v, d_model=h * r.choice([4, 8]), encoder_layers=r.choice([1, 2]), decoder_layers=r.choice([1, 2]),
        encoder_attention_heads=h, decoder_attention_heads=h, encoder_ffn_dim=ff, decoder_ffn_dim=ff,
        num_mel_bins=r.choice([5, 8]), max_source_positions=r.choice([9, 20]), max_target_positions=80, pad_token_id=2,
        bos_token_id=2, eos_token_id=2, decoder_start_token_id=3, activation_function=r.choice(["gelu", "relu"]))


ALL = dict(llama=llama, mistral=mistral, qwen2=qwen2, qwen3=qwen3, smollm3=smollm3, olmo2=olmo2, gemma3=gemma3,
           gemma2=gemma2, gemma=gemma, phi3=phi3, gpt_neox=gpt_neox, opt=opt, gpt2=gpt2, bert=bert,
           roberta=roberta, xlm_roberta=xlm_roberta, camembert=camembert, electra=electra, albert=albert, mpnet=mpnet,
           modernbert=modernbert, distilbert=distilbert, t5=t5, marian=marian, bart=bart, vit=vit, deit=deit,
           whisper=whisper)


# ---- what both make of them ----

def randomise(model, seed):
    gen = torch.Generator().manual_seed(seed)
    for name, p in model.named_parameters():
        scale = 1 / p.shape[-1] ** 0.5 if p.dim() > 1 else 0.3
        shift = 1 if p.dim() == 1 and "norm" in name.lower() and "bias" not in name else 0
        if "gemma" in model.config.model_type:
            shift = 0
        p.data = shift + scale * torch.randn(p.shape, generator=gen)
    if hasattr(model, "final_logits_bias"):
        model.final_logits_bias = 0.3 * torch.randn(model.final_logits_bias.shape, generator=gen)
    if model.config.model_type == "bart" and not model.config.tie_word_embeddings:  # of the output alone
        for stack in (model.model.encoder, model.model.decoder):
            stack.embed_tokens.weight.data = model.model.shared.weight.data.clone()
    if hasattr(model, "tie_weights"):
        model.tie_weights()
    return model.eval()


ORDERS = 6  # of summation that the reference runs in: its own and five drawn at random


@contextlib.contextmanager
def reordered(seed):
    """Products of matrices add their terms in a random order within; seed 0: in the order of PyTorch."""
    gen = torch.Generator().manual_seed(seed)
    old = torch.nn.functional.linear, torch.matmul, torch.addmm

    def order(n):
        return torch.randperm(n, generator=gen) if seed else torch.arange(n)

    def linear(x, w, b=None):
        terms = order(w.shape[-1])
        return old[0](x[..., terms], w[:, terms], b)

    def matmul(x, y):
        terms = order(x.shape[-1])
        return old[1](x[..., terms], y[..., terms, :])

    def addmm(b, x, w):
        terms = order(w.shape[0])
        return old[2](b, x[:, terms], w[terms])

    torch.nn.functional.linear, torch.matmul, torch.addmm = linear, matmul, addmm
    try:
        yield
    finally:
        torch.nn.functional.linear, torch.matmul, torch.addmm = old


def reference(model, given, dtype):
    """Names as polyhead has them: maps in the order of sites, then the end of the model."""
    model = model.to(dtype)
    cast = {k: v.to(dtype) if v.is_floating_point() else v for k, v in given.items()}
    with torch.no_grad():
        out = model(**cast, output_attentions=True)
    if hasattr(out, "cross_attentions") and out.cross_attentions:
        maps = list(out.encoder_attentions)
        for own, cross in zip(out.decoder_attentions, out.cross_attentions):
            maps += [own, cross]
    else:
        maps = list(out.attentions)
    end = out.logits[0] if "logits" in out else out.last_hidden_state[0]
    return [m[0].double().numpy() for m in maps], end.double().numpy()


def ours(folder, cls, text, target, pixels):
    """The same from polyhead, the inputs that it read, and what the end is."""
    own = polyhead.Model.read(folder)
    if pixels is not None:
        return None, own.classify(pixels)[0].astype(float), None, "scores"
    reading = own.look(text, target)
    maps = [reading.weights(s.name).astype(float) for s in reading.sites]
    tokens = [reading._tokens(i) for i in (0, 1)]
    if "Token" in cls.__name__:
        return maps, np.log(reading.classes().astype(float)), tokens, "log"
    if "Sequence" in cls.__name__:
        return maps, own.classify([text])[0].astype(float), tokens, "scores"
    if cls in (hf.AlbertModel, hf.BertModel, hf.ElectraModel, hf.ModernBertModel, hf.MPNetModel, hf.T5EncoderModel):
        return maps, own.embed([text])[0].astype(float), tokens, "mean"
    return maps, reading.next().astype(float), tokens, "log"


def rms(x):
    return float(np.sqrt(np.mean(np.square(x)))) if np.size(x) else 0.0


def finish(end, kind):
    """The end of the reference as polyhead gives it."""
    if kind == "log":
        shifted = end - end.max(-1, keepdims=True)
        return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return end.mean(0) if kind == "mean" else end


def compare(what, found, exact, rough, problems):
    if found.shape != exact.shape:
        problems.append(f"{what} has shape {found.shape}, expected {exact.shape}")
        return
    errors = [rms(r - exact) for r in rough]
    allowed = 4 * max(errors) + 8 * 2 ** -24 * rms(exact)  # eight roundings where the reference has none
    off = rms(found - exact)
    if not off <= allowed:
        of_theirs = f"{min(errors):.2e} to {max(errors):.2e}"
        problems.append(f"{what} is off by {off:.2e}, transformers in float32 by {of_theirs}")


def inputs(model):
    """What goes into models that read no text."""
    c = model.config
    if c.model_type == "whisper":
        return {"input_features": torch.randn(1, c.num_mel_bins, 2 * c.max_source_positions)}
    if c.model_type in ("vit", "deit"):
        return {"pixel_values": torch.randn(1, 3, c.image_size, c.image_size)}
    return {}


def age_modernbert(c):
    """Older files scale no frequencies of some layers alone, and have no list of layers."""
    full, kinds = c["rope_parameters"]["full_attention"], c["layer_types"]
    if full["rope_type"] == "default":
        c["global_rope_theta"] = full["rope_theta"]
        c["local_rope_theta"] = c.pop("rope_parameters")["sliding_attention"]["rope_theta"]
    for every in (1, 2, 3):
        if kinds == ["sliding_attention" if i % every else "full_attention" for i in range(len(kinds))]:
            c["global_attn_every_n_layers"] = every
            c.pop("layer_types", None)


def age_others(c):
    rope_of = c.pop("rope_parameters", None)
    if rope_of and "full_attention" in rope_of:
        c["rope_local_base_freq"] = rope_of["sliding_attention"]["rope_theta"]
        rope_of = rope_of["full_attention"]
        c["sliding_window_pattern"] = c["layer_types"].index("full_attention") + 1
    if rope_of:
        base, share = "rope_theta", "partial_rotary_factor"
        if c["model_type"] == "gpt_neox":  # which transformers knows by these names alone
            base, share = "rotary_emb_base", "rotary_pct"
        c[base] = rope_of.pop("rope_theta")
        if "partial_rotary_factor" in rope_of:
            c[share] = rope_of.pop("partial_rotary_factor")
        c["rope_scaling"] = None if rope_of["rope_type"] == "default" else rope_of
    c.pop("layer_types", None)


def age(folder):
    """config.json as version 4 wrote it."""
    with open(f"{folder}/config.json", encoding="utf-8") as file:
        c = json.load(file)
    (age_modernbert if c["model_type"] == "modernbert" else age_others)(c)
    c["torch_dtype"] = c.pop("dtype", "float32")
    with open(f"{folder}/config.json", "w", encoding="utf-8") as file:
        json.dump(c, file)


def write_folder(folder, model, tokenizer, r):
    """As transformers writes it; half of the folders with the configuration of version 4. Which of them it is."""
    model.save_pretrained(folder, max_shard_size=r.choice(["5GB", "20KB"]))
    if tokenizer:
        tokenizer.save(f"{folder}/tokenizer.json")
    shutil.copy(f"{folder}/config.json", f"{folder}/new.json")
    if r.random() < 0.5:
        age(folder)
        return " (old config)"
    return ""


def write_generation(folder, r):
    """How BART generates, in a file of its own or in config.json as older folders have it."""
    said = dict(forced_bos_token_id=r.choice([None, 0]), forced_eos_token_id=r.choice([None, 2]),
                min_length=r.choice([0, 12, 30]), no_repeat_ngram_size=r.choice([0, 1, 2, 3]))
    own = r.random() < 0.5
    for name in ["generation_config.json"] if own else ["config.json", "new.json"]:
        path = f"{folder}/{name}"
        old = {}
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                old = json.load(file)
        with open(path, "w", encoding="utf-8") as file:
            marks = dict(decoder_start_token_id=2, bos_token_id=0, eos_token_id=2, pad_token_id=1)
            json.dump({**old, **marks, **{k: v for k, v in said.items() if v is not None}}, file)
    if not own and os.path.exists(f"{folder}/generation_config.json"):
        os.remove(f"{folder}/generation_config.json")
    return f" {said}"


def compare_generated(found, model, problems):
    """Tokens of source and decoder that `look` showed without a target, up to an end. What forced_eos_token_id
    puts last is no part of a text here."""
    source, tokens = found
    with torch.no_grad():
        expected = model.double().generate(torch.tensor([source]), max_length=99, num_beams=1, do_sample=False,
                                           bad_words_ids=[[model.config.pad_token_id]])[0].tolist()
    end = model.config.eos_token_id
    expected = expected[:-1] if expected[-1] == end else expected
    if tokens[:len(expected)] != expected or (len(expected) < 98 and len(tokens) > len(expected)):
        problems.append(f"generated {tokens}, expected {expected}")


def load_reference(folder, cls, dtype):
    os.replace(f"{folder}/new.json", f"{folder}/config.json")
    if cls is hf.BartModel:  # the embeddings score tokens, too
        cls = hf.BartForConditionalGeneration
    model = cls.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager").eval()
    if "gemma" in model.config.model_type:  # in its own type the model rounds the scale of its embeddings
        scale = model.model.embed_tokens.embed_scale
        scale.data = scale.to(dtype).to(scale.dtype)
    return model


def compare_all(found, model, given, ids):
    """What differs, of what `ours` returned."""
    maps, end, tokens, ending = found
    problems = []
    if tokens and not given:
        if tokens[0] != ids:
            problems.append("other tokens")
        given = {"input_ids": torch.tensor([tokens[0]])}
    if tokens and model.config.is_encoder_decoder:
        given = {**given, "decoder_input_ids": torch.tensor([tokens[1]])}
    exact, exact_end = reference(model, given, torch.float64)
    rough, rough_ends = [], []
    for seed in range(ORDERS):
        with reordered(seed):
            some_maps, some_end = reference(model, given, torch.float32)
        rough.append(some_maps)
        rough_ends.append(finish(some_end, ending))
    if maps is not None and len(maps) != len(exact):
        problems.append(f"{len(maps)} sites, expected {len(exact)}")
    for i, (m, e) in enumerate(zip(maps or [], exact)):
        compare(f"attention {i}", m, e, [r[i] for r in rough], problems)
    compare(ending, end, finish(exact_end, ending), rough_ends, problems)
    return problems


def check(name, r, seed):
    """One configuration: what is wrong with it, if anything."""
    kind = r.choice(KINDS)
    tokenizer = kind()
    vocab = tokenizer.get_vocab_size() + r.choice([0, 5])
    ids = tokenizer.encode(TEXT).ids
    global PAD
    PAD = r.choice([next(i for i in range(vocab) if i not in ids), min(ids)])
    cls, config = ALL[name](r, vocab)
    torch.manual_seed(seed)
    model = randomise(cls(config), seed)
    dtype = r.choice([torch.float32, torch.float16, torch.bfloat16])
    model = model.to(dtype)
    config.torch_dtype = dtype
    given = inputs(model)
    what = f"{name} seed {seed} {cls.__name__} {kind.__name__} {str(dtype)[6:]}"
    with tempfile.TemporaryDirectory() as folder:
        what += write_folder(folder, model, None if "pixel_values" in given else tokenizer, r)
        text, pixels, generated = TEXT, None, None
        if name == "bart":
            what += write_generation(folder, r)
        if "input_features" in given:
            text = f"{folder}/sound.npy"
            np.save(text, given["input_features"][0].numpy())
        if "pixel_values" in given:
            pixels = given["pixel_values"].numpy()
        try:
            found = ours(folder, cls, text, "the cat ran" if config.is_encoder_decoder else None, pixels)
            if name == "bart":
                reading = polyhead.Model.read(folder).look(text)
                generated = [reading._tokens(i) for i in (0, 1)]
        except (polyhead.Error, OSError) as error:
            problems = [error]
        else:
            reference_model = load_reference(folder, cls, dtype)
            problems = compare_all(found, reference_model, given, ids)
            if generated:
                compare_generated(generated, reference_model, problems)
    return [f"{what}: {p}\n    {json.dumps(config.to_diff_dict())}" for p in problems[:1]]


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 4
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    wrong = 0
    for name in sys.argv[3:] or ALL:
        bad = 0
        for seed in range(first, first + count):
            for line in check(name, random.Random(f"{name} {seed}"), seed):
                print(line, flush=True)
                bad += 1
        print(f"{name}: {count} configurations, {bad} differ or are refused", flush=True)
        wrong += bad
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
