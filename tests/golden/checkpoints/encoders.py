#!/usr/bin/env python3
"""encoders.py - tiny random encoders of published architectures, and what transformers makes of them.

    python3 tests/golden/checkpoints/encoders.py [NAME...]

As make.py beside it, whose weights they have; needs transformers 5, torch, safetensors and the
packages of make.py. golden.safetensors holds, in float64 from the stored weights:

    ids, types       tokens of one text, int32; or pixels, one picture
    hidden.N         output_hidden_states, attention.N output_attentions (eager), logits
    vector           of the text, pooled as the folder says
    loss, labels     cross-entropy summed over the labels that are not negative
    wanted           1 for each class that is right, in place of a label: the loss is what transformers computes of them
    grad.NAME        its gradient with respect to the tensor NAME of the checkpoint
    f32.NAME         rms error of the same value when the reference computes in float32
"""
import json
import os
import sys

import gguf
import torch
from safetensors.torch import load_file, save_file
from transformers import (AlbertConfig, AlbertForMaskedLM, AlbertForSequenceClassification, AlbertForTokenClassification,
                          AlbertModel, BertConfig, BertForMaskedLM, BertForSequenceClassification, BertModel,
                          DistilBertConfig, DistilBertForMaskedLM, DistilBertForSequenceClassification,
                          RobertaConfig, RobertaForMaskedLM, RobertaForSequenceClassification,
                          RobertaForTokenClassification, ElectraConfig, ElectraForMaskedLM,
                          ElectraForSequenceClassification, ElectraForTokenClassification, MPNetConfig, MPNetForMaskedLM,
                          MPNetForSequenceClassification, MPNetForTokenClassification, ModernBertConfig, ModernBertForMaskedLM,
                          ModernBertForSequenceClassification, ModernBertForTokenClassification, ModernBertModel,
                          T5Config, T5EncoderModel, ViTConfig, ViTForImageClassification, ViTModel,
                          DeiTConfig, DeiTForImageClassification, DeiTForImageClassificationWithTeacher)

from encoder_decoders import quiet
from make import HERE, T, make

SIZES = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
             vocab_size=97, max_position_embeddings=40, layer_norm_eps=1e-3)
SMALL = dict(dim=32, n_layers=2, n_heads=4, hidden_dim=48, vocab_size=97, max_position_embeddings=40)
LETTERS = [chr(c) for c in range(ord("a"), ord("z") + 1)]
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + LETTERS + ["##" + c for c in LETTERS] + [
    str(n) for n in range(10)] + list(".,!?;:()") + ["the", "cat", "sat", "on", "mat", "dog", "is", "good",
                                                    "a1", "b1", "c1", "d1", "e1", "f1", "g1", "h1", "i1", "j1",
                                                    "k1", "l1", "m1", "n1"]


WANTED = torch.tensor([[1.0, 0, 0, 1, 0]])


def values_of(model, ids, types, labels, dtype):
    model = model.to(dtype)
    model.zero_grad()
    more = {} if types is None else {"token_type_ids": types}
    out = model(ids, output_hidden_states=True, output_attentions=True, **more)
    values = {f"hidden.{i}": h[0] for i, h in enumerate(out.hidden_states)}
    values |= {f"attention.{i}": a[0] for i, a in enumerate(out.attentions)}
    if "logits" in out:
        values["logits"] = out.logits[0]
        scores = out.logits.reshape(-1, out.logits.shape[-1])
        if model.config.problem_type == "multi_label_classification":
            loss = model(ids, labels=WANTED.to(dtype), **more).loss
        else:
            loss = torch.nn.functional.cross_entropy(scores, labels, ignore_index=-1, reduction="sum")
        loss.backward()
        values["loss"] = loss.reshape(1)
        for name, p in model.named_parameters():
            if p.grad is not None:
                values["grad." + name] = p.grad.clone()
    return {k: v.detach().double() for k, v in values.items()}


def golden(folder, cls, seed, vector, grads):
    gen = torch.Generator().manual_seed(seed + 1000)
    model = cls.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager").eval()
    c = model.config
    ids = torch.randint(6, c.vocab_size, (1, T), generator=gen)
    types = torch.randint(0, c.type_vocab_size, (1, T), generator=gen) if getattr(c, "type_vocab_size", 0) > 1 else None
    rows = T if "Masked" in cls.__name__ or "Token" in cls.__name__ else 1
    labels = torch.randint(0, 3, (rows,), generator=gen)
    labels[3:5] = -1
    values = values_of(model, ids, types, labels, torch.float64)
    rough = values_of(model, ids, types, labels, torch.float32)
    out = {"ids": ids.to(torch.int32)}
    if types is not None:
        out["types"] = types.to(torch.int32)
    if "logits" in values:
        out["labels"] = labels.to(torch.int32)
    if c.problem_type == "multi_label_classification":
        out["wanted"] = WANTED
    if vector:
        out["vector"] = vector(values[f"hidden.{c.num_hidden_layers}"])
    for name, v in values.items():
        if name.startswith("grad.") and not grads:
            continue
        out[name] = v.float()
        out["f32." + name] = (rough[name] - v).pow(2).mean().sqrt().reshape(1)
    save_file({k: (v.float() if v.is_floating_point() else v).contiguous() for k, v in out.items()},
              f"{folder}/golden.safetensors")


def save(name, cls, config, seed, dtype=torch.float32, edit=None, vector=None, grads=False, words=True, change=None):
    folder = f"{HERE}/{name}"
    os.makedirs(folder, exist_ok=True)
    for old in os.listdir(folder):
        if os.path.isfile(f"{folder}/{old}"):
            os.remove(f"{folder}/{old}")
    model = make(cls, config, seed)
    if change:
        change(model)
    model.to(dtype).save_pretrained(folder)
    if words:
        open(f"{folder}/vocab.txt", "w").write("\n".join(VOCAB) + "\n")
    golden(folder, cls, seed, vector, grads)
    if edit:
        edit(folder)


def bert():
    save("bert", BertForMaskedLM, BertConfig(**SIZES, type_vocab_size=3), 21, grads=True)


def bert_untied():
    """An output matrix and its bias apart: cls.predictions.bias is in the file and unused."""
    config = BertConfig(**SIZES, type_vocab_size=2, tie_word_embeddings=False)
    save("bert-untied", BertForMaskedLM, config, 35, torch.bfloat16, grads=True)


def bert_gguf():
    """The encoder of bert as GGUF has it: words begin with U+2581, other pieces are bare."""
    w = gguf.GGUFWriter(f"{HERE}/bert.gguf", "bert")
    w.add_block_count(2); w.add_embedding_length(32); w.add_head_count(4); w.add_feed_forward_length(48)
    w.add_context_length(40); w.add_layer_norm_eps(1e-3); w.add_causal_attention(False)
    w.add_pooling_type(gguf.PoolingType.MEAN)
    w.add_tokenizer_model("bert")
    w.add_token_list([t if t[0] == "[" else t[2:] if t[:2] == "##" else "\u2581" + t for t in VOCAB])
    w.add_token_types([3 if t[0] == "[" else 1 for t in VOCAB])
    w.add_pad_token_id(0); w.add_unk_token_id(1); w.add_bos_token_id(2); w.add_sep_token_id(3)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.BERT, 2)
    for name, x in load_file(f"{HERE}/bert/model.safetensors").items():
        if name.startswith("bert."):
            w.add_tensor(names.get_name(name[5:], (".weight", ".bias")), x.numpy())
    w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()


def bert_classes():
    names = {0: "bad", 1: "fair", 2: "good"}
    config = BertConfig(**SIZES, type_vocab_size=2, hidden_act="gelu_new", id2label=names,
                        label2id={v: k for k, v in names.items()})
    save("bert-classes", BertForSequenceClassification, config, 22, grads=True)


def bert_sentence():
    """Without prefix, with the norms' old names and the files of sentence-transformers."""
    def edit(folder):
        path = f"{folder}/model.safetensors"
        old = lambda k: k.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        save_file({old(k): v for k, v in load_file(path).items()}, path)
        types = ["Transformer", "Pooling", "Normalize"]
        modules = [dict(idx=i, name=str(i), path=f"{i}_{t}" if i else "", type="sentence_transformers.models." + t)
                   for i, t in enumerate(types)]
        json.dump(modules, open(f"{folder}/modules.json", "w"), indent=1)
        os.makedirs(f"{folder}/1_Pooling", exist_ok=True)
        json.dump(dict(word_embedding_dimension=32, pooling_mode_cls_token=False, pooling_mode_mean_tokens=True,
                       pooling_mode_max_tokens=False), open(f"{folder}/1_Pooling/config.json", "w"), indent=1)
        json.dump(dict(max_seq_length=20, do_lower_case=False), open(f"{folder}/sentence_bert_config.json", "w"))

    def vector(x):
        return torch.nn.functional.normalize(x.mean(0), dim=0)
    save("bert-sentence", BertModel, BertConfig(**SIZES, type_vocab_size=2), 23, torch.bfloat16, edit, vector)


def roberta():
    config = RobertaConfig(**SIZES, type_vocab_size=1, pad_token_id=5)
    save("roberta", RobertaForMaskedLM, config, 24, torch.bfloat16, words=False)


def roberta_untied():
    config = RobertaConfig(**SIZES, type_vocab_size=1, pad_token_id=5, tie_word_embeddings=False)
    save("roberta-untied", RobertaForMaskedLM, config, 36, torch.bfloat16, words=False)


def roberta_classes():
    config = RobertaConfig(**SIZES, type_vocab_size=1, pad_token_id=5, num_labels=4)
    save("roberta-classes", RobertaForSequenceClassification, config, 25, torch.bfloat16, words=False, grads=True)


def roberta_tokens():
    config = RobertaConfig(**SIZES, type_vocab_size=1, pad_token_id=5, num_labels=5, hidden_act="relu")
    save("roberta-tokens", RobertaForTokenClassification, config, 26, torch.float16, words=False)


def electra():
    save("electra", ElectraForMaskedLM, ElectraConfig(**SIZES, embedding_size=40, type_vocab_size=2), 71,
         torch.bfloat16, grads=True)


def electra_classes():
    save("electra-classes", ElectraForSequenceClassification, ElectraConfig(**SIZES, embedding_size=32, num_labels=3),
         72, torch.bfloat16, grads=True)


def electra_tokens():
    config = ElectraConfig(**SIZES | dict(num_hidden_layers=1), embedding_size=20, num_labels=4, hidden_act="relu")
    save("electra-tokens", ElectraForTokenClassification, config, 73, torch.float16)


ALBERT = SIZES | dict(num_hidden_layers=4, pad_token_id=0, bos_token_id=2, eos_token_id=3)


def albert():
    """Three layers with the same parameters, then three with others."""
    save("albert", AlbertForMaskedLM, AlbertConfig(**ALBERT | dict(num_hidden_layers=6), num_hidden_groups=2,
                                                   embedding_size=20, type_vocab_size=3), 91, torch.bfloat16, grads=True)


def albert_classes():
    save("albert-classes", AlbertForSequenceClassification, AlbertConfig(**ALBERT, embedding_size=32, num_labels=5), 92,
         torch.bfloat16, grads=True)


def albert_tokens():
    config = AlbertConfig(**ALBERT, num_hidden_groups=4, embedding_size=40, num_labels=4, hidden_act="relu")
    save("albert-tokens", AlbertForTokenClassification, config, 93, torch.float16, grads=True)


def albert_sentence():
    """AlbertModel, whose vector is the mean; its pooler is in the file, and nothing uses it."""
    save("albert-sentence", AlbertModel, AlbertConfig(**ALBERT, embedding_size=24, type_vocab_size=2), 94,
         torch.bfloat16, vector=lambda x: x.mean(0))


def mpnet():
    """Padding is token 1 in the reference, whatever the configuration says."""
    save("mpnet", MPNetForMaskedLM, MPNetConfig(**SIZES, pad_token_id=3), 64, torch.bfloat16, words=False, grads=True)


def mpnet_classes():
    save("mpnet-classes", MPNetForSequenceClassification, MPNetConfig(**SIZES, num_labels=3), 65, torch.bfloat16,
         words=False, grads=True)


def mpnet_tokens():
    config = MPNetConfig(**SIZES | dict(num_hidden_layers=1), num_labels=4, hidden_act="relu")
    save("mpnet-tokens", MPNetForTokenClassification, config, 63, torch.float16, words=False)


# padding, start and end of ModernBERT are tokens that these vocabularies do not have
MODERN = {**SIZES, "norm_eps": 1e-3, "pad_token_id": 0, "bos_token_id": 2, "cls_token_id": 2, "eos_token_id": 3,
          "sep_token_id": 3, "num_hidden_layers": 3}
del MODERN["layer_norm_eps"]


def modernbert():
    """A window of two tokens on each side in layers 1 and 2; no bias but that of the scores."""
    save("modernbert", ModernBertForMaskedLM, ModernBertConfig(**MODERN, local_attention=5), 81, torch.bfloat16, grads=True)


def modernbert_biased():
    """Biases everywhere but in the scores, layers in another order, configuration as version 4 has it."""
    config = ModernBertConfig(**MODERN, local_attention=3, attention_bias=True, mlp_bias=True, norm_bias=True,
                              classifier_bias=True, decoder_bias=False, hidden_activation="silu",
                              classifier_activation="silu", tie_word_embeddings=False, global_attn_every_n_layers=2,
                              global_rope_theta=700.0, local_rope_theta=30.0)

    def edit(folder):
        c = json.load(open(f"{folder}/config.json"))
        del c["rope_parameters"], c["layer_types"]
        c |= dict(global_attn_every_n_layers=2, global_rope_theta=700.0, local_rope_theta=30.0)
        json.dump(c, open(f"{folder}/config.json", "w"), indent=1)
    save("modernbert-biased", ModernBertForMaskedLM, config, 82, torch.bfloat16, edit, grads=True)


def modernbert_classes():
    config = ModernBertConfig(**MODERN, local_attention=4, num_labels=3, classifier_pooling="mean", classifier_bias=True,
                              layer_types=["sliding_attention", "full_attention", "full_attention"])
    save("modernbert-classes", ModernBertForSequenceClassification, config, 83, torch.bfloat16, grads=True)


def modernbert_tokens():
    config = ModernBertConfig(**MODERN | dict(num_hidden_layers=2), local_attention=1, num_labels=4, norm_bias=True,
                              hidden_activation="gelu_new", classifier_activation="tanh")
    save("modernbert-tokens", ModernBertForTokenClassification, config, 84, torch.float16, grads=True)


def modernbert_first():
    """The vector is that of the first token, as gte-modernbert has it."""
    config = ModernBertConfig(**MODERN | dict(num_hidden_layers=2), local_attention=6)

    def edit(folder):
        types = ["Transformer", "Pooling"]
        modules = [dict(idx=i, name=str(i), path=f"{i}_{t}" if i else "", type="sentence_transformers.models." + t)
                   for i, t in enumerate(types)]
        json.dump(modules, open(f"{folder}/modules.json", "w"), indent=1)
        os.makedirs(f"{folder}/1_Pooling", exist_ok=True)
        json.dump(dict(word_embedding_dimension=32, pooling_mode_cls_token=True, pooling_mode_mean_tokens=False),
                  open(f"{folder}/1_Pooling/config.json", "w"), indent=1)
    save("modernbert-first", ModernBertModel, config, 85, torch.bfloat16, edit, lambda x: x[0])


def t5_encoder():
    """An encoder alone, gated, with heads whose dims do not add up to that of the model."""
    config = T5Config(d_model=32, d_kv=6, num_heads=4, d_ff=48, num_layers=2, vocab_size=97, relative_attention_num_buckets=8,
                      relative_attention_max_distance=9, layer_norm_epsilon=1e-3, n_positions=40, feed_forward_proj="gated-gelu")
    save("t5-encoder", T5EncoderModel, config, 95, torch.bfloat16, words=False, vector=lambda x: x.mean(0),
         change=quiet)


def distilbert():
    save("distilbert", DistilBertForMaskedLM, DistilBertConfig(**SMALL), 27, torch.bfloat16)


def distilbert_untied():
    save("distilbert-untied", DistilBertForMaskedLM, DistilBertConfig(**SMALL, tie_word_embeddings=False), 37,
         torch.bfloat16)


def distilbert_classes():
    config = DistilBertConfig(**SMALL, num_labels=3, sinusoidal_pos_embds=True)
    save("distilbert-classes", DistilBertForSequenceClassification, config, 28, torch.bfloat16, grads=True)


def distilbert_multi():
    config = DistilBertConfig(**SMALL, num_labels=5, problem_type="multi_label_classification")
    save("distilbert-multi", DistilBertForSequenceClassification, config, 29, torch.bfloat16, grads=True)


# ---- pictures ----

PICTURE = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, image_size=12,
               patch_size=4, num_channels=3, layer_norm_eps=1e-3)


def stored_name(name):
    # version 5 has other names in memory than on disk
    for now, then in [("layers.", "encoder.layer."), ("attention.q_proj", "attention.attention.query"),
                      ("attention.k_proj", "attention.attention.key"),
                      ("attention.v_proj", "attention.attention.value"),
                      ("attention.o_proj", "attention.output.dense"), ("mlp.fc1", "intermediate.dense"),
                      ("mlp.fc2", "output.dense")]:
        name = name.replace(now, then)
    return name


def picture_values(model, pixels, label, dtype):
    model = model.to(dtype)
    model.zero_grad()
    out = model(pixels.to(dtype), output_hidden_states=True, output_attentions=True)
    values = {f"hidden.{i}": h[0] for i, h in enumerate(out.hidden_states)}
    values |= {f"attention.{i}": a[0] for i, a in enumerate(out.attentions)}
    if "logits" in out:
        values["logits"] = out.logits[0]
        loss = torch.nn.functional.cross_entropy(out.logits, label, reduction="sum")
        loss.backward()
        values["loss"] = loss.reshape(1)
        values |= {"grad." + stored_name(name): p.grad.clone() for name, p in model.named_parameters()
                   if p.grad is not None}
    else:
        values["vector"] = out.pooler_output[0]
    return {k: v.detach().double() for k, v in values.items()}


def picture(name, cls, config, seed, dtype, grads=False):
    folder = f"{HERE}/{name}"
    os.makedirs(folder, exist_ok=True)
    for old in os.listdir(folder):
        os.remove(f"{folder}/{old}")
    make(cls, config, seed).to(dtype).save_pretrained(folder)
    model = cls.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager").eval()
    gen = torch.Generator().manual_seed(seed + 1000)
    pixels, label = torch.randn(1, 3, 12, 12, generator=gen), torch.tensor([1])
    values = picture_values(model, pixels, label, torch.float64)
    rough = picture_values(model, pixels, label, torch.float32)
    out = {"pixels": pixels, "labels": label.to(torch.int32)}
    for key, v in values.items():
        if key.startswith("grad.") and not grads:
            continue
        out[key] = v
        out["f32." + key] = (rough[key] - v).pow(2).mean().sqrt().reshape(1)
    save_file({k: (v.float() if v.is_floating_point() else v).contiguous() for k, v in out.items()},
              f"{folder}/golden.safetensors")


def vit():
    picture("vit", ViTForImageClassification, ViTConfig(**PICTURE, num_labels=3), 31, torch.float32, grads=True)


def vit_plain():
    picture("vit-plain", ViTModel, ViTConfig(**PICTURE, qkv_bias=False), 32, torch.bfloat16)


def deit():
    picture("deit", DeiTForImageClassification, DeiTConfig(**PICTURE, num_labels=5), 33, torch.bfloat16)


def deit_teacher():
    config = DeiTConfig(**PICTURE | dict(num_hidden_layers=1), num_labels=4)
    picture("deit-teacher", DeiTForImageClassificationWithTeacher, config, 34, torch.bfloat16, grads=True)


ALL = dict(bert=bert, bert_untied=bert_untied, roberta_untied=roberta_untied, distilbert_untied=distilbert_untied,
           bert_gguf=bert_gguf, bert_classes=bert_classes, bert_sentence=bert_sentence, roberta=roberta,
           roberta_classes=roberta_classes, roberta_tokens=roberta_tokens, electra=electra,
           electra_classes=electra_classes, electra_tokens=electra_tokens, albert=albert,
           albert_classes=albert_classes, albert_tokens=albert_tokens, albert_sentence=albert_sentence, mpnet=mpnet,
           mpnet_classes=mpnet_classes, mpnet_tokens=mpnet_tokens, modernbert=modernbert,
           modernbert_biased=modernbert_biased, modernbert_classes=modernbert_classes,
           modernbert_tokens=modernbert_tokens, modernbert_first=modernbert_first, t5_encoder=t5_encoder,
           distilbert=distilbert,
           distilbert_classes=distilbert_classes, distilbert_multi=distilbert_multi, vit=vit, vit_plain=vit_plain, deit=deit,
           deit_teacher=deit_teacher)

if __name__ == "__main__":
    for chosen in sys.argv[1:] or ALL:
        ALL[chosen]()
