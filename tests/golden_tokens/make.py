#!/usr/bin/env python3
"""make.py - trains small tokenizers of every kind with the reference and writes down what
it makes of hard strings; see README.md.

    V/bin/python tests/golden_tokens/make.py        (V: tokenizers==0.23.3)

NAME.json is a tokenizer as the reference saves it, strings.bin holds the strings (u32
length, bytes), NAME.gold one 64-bit hash per string over everything asked of it:
ids, types and offsets with and without the template, of pairs, and decoded texts.
"""

import base64
import glob
import json
import os
import struct
import sys
import unicodedata

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors, trainers)

from common import ROOT, SPECIAL, WORDS, in_bytes, strings

HERE = os.path.dirname(os.path.abspath(__file__))
COUNT = 2200
PAIR_EVERY, PAIR_MOST = 8, 24

CASES = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CASES + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + TAIL
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN35 = QWEN2.replace(r"?\p{L}+|", r"?[\p{L}\p{M}]+|").replace(r"[^\s\p{L}\p{N}]+", r"[^\s\p{L}\p{M}\p{N}]+")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def o200k(tail, number):
    before = r"[^\r\n\p{L}\p{N}]?"
    return (f"{before}{UPPER}*{LOWER}+{tail}|{before}{UPPER}+{LOWER}*{tail}|{number}"
            r"| ?[^\s\p{L}\p{N}]+[\r\n/]*" + TAIL)


GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
O200K, TEKKEN = o200k(CASES + "?", r"\p{N}{1,3}"), o200k("", r"\p{N}")


# ---- text to learn from ----

def corpus(wild):
    texts = []
    for path in sorted(glob.glob(os.path.join(ROOT, "docs", "[A-T]*.md")))[:4]:
        texts += open(path, encoding="utf-8").read()[:20000].split("\n")
    return texts + [" ".join(WORDS)] * 20 + (strings(5, 300) if wild else [])


# ---- a small character map ----

def small_map():
    """Some of what the map of SentencePiece does: ligatures, widths, controls, accents."""
    points = [*range(0xa0, 0x100), *range(0xfb00, 0xfb07), *range(0xff01, 0xff5f),
              *range(0x2460, 0x2474), 0x2122, 0x2103, 0x338f, 0x3000, 0xfdfa, 0x1e9b, 0x212b]
    found = {chr(p): unicodedata.normalize("NFKC", chr(p)) for p in points}
    found = {k: v for k, v in found.items() if k != v}
    found.update({chr(p): "" for p in [*range(1, 9), 0xb, *range(0xe, 0x20), 0x7f, 0xad, 0x200b]})
    found.update({c: " " for c in "\t\n\f\r\u2028\u00a0"})
    found.update({a + "\u0301": unicodedata.normalize("NFC", a + "\u0301") for a in "aeiouAEIOU"})
    return found


def double_array(mapping):
    """A trie as SentencePiece stores it, and the texts it leads to."""
    texts, places = b"", {}
    for value in sorted(set(mapping.values())):
        places[value] = len(texts)
        texts += value.encode() + b"\0"
    keys = sorted((k.encode(), places[v]) for k, v in mapping.items())
    units, used = {0: 0}, {0}

    def place(at, group, depth):
        labels = sorted({k[depth] if depth < len(k) else 0 for k, _ in group})
        base = 1
        while any((base ^ c) in used for c in labels):
            base += 1
        used.update(base ^ c for c in labels)
        units[at] = units.get(at, 0) | (at ^ base) << 10
        for c in labels:
            inner = [(k, v) for k, v in group if (k[depth] if depth < len(k) else 0) == c]
            if c == 0:
                units[at] |= 1 << 8
                units[base] = 1 << 31 | inner[0][1]
            else:
                units[base ^ c] = c
                place(base ^ c, inner, depth + 1)

    place(0, keys, 0)
    size = max(units) | 255
    words = [units.get(i, 0) for i in range(size + 1)]
    return struct.pack(f"<I{len(words)}I", 4 * len(words), *words) + texts


# ---- tokenizers ----

def learn(tokenizer, trainer, wild=True):
    tokenizer.train_from_iterator(corpus(wild), trainer)
    return tokenizer


def add_flags(tokenizer):
    """Added tokens with every flag."""
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True),
                                  AddedToken("<pad>", rstrip=True, special=True)])
    tokenizer.add_tokens([AddedToken("<w>", single_word=True), AddedToken("<x>", lstrip=True, rstrip=True, normalized=False),
                          AddedToken("NORM", normalized=True)])
    return tokenizer


def wordpiece(normalizer):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizer
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    learn(t, trainers.WordPieceTrainer(show_progress=False, vocab_size=900, limit_alphabet=300, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    cls, sep = t.token_to_id("[CLS]"), t.token_to_id("[SEP]")
    t.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", [("[CLS]", cls), ("[SEP]", sep)])
    return t


def byte_level(splitter, special=("<|endoftext|>",), normalizer=None):
    t = Tokenizer(models.BPE())
    if normalizer:
        t.normalizer = normalizer
    t.pre_tokenizer = splitter
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=True, add_prefix_space=False)
    return learn(t, trainers.BpeTrainer(show_progress=False, vocab_size=800, special_tokens=list(special), initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))


def by_pattern(pattern, normalizer=None, behavior="isolated", invert=False):
    split = pre_tokenizers.Split(Regex(pattern), behavior, invert)
    return byte_level(pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)]), normalizer=normalizer)


def llama3():
    t = by_pattern(LLAMA3)
    data = json.loads(t.to_str())
    vocab = data["model"]["vocab"]
    for word in ("Ġattention", "Ġsoftmax", "Ġхорошо", "!!!!!!", "ĠUnreachable"):
        vocab.setdefault(word, len(vocab))
    data["model"]["ignore_merges"] = True
    t = Tokenizer.from_str(json.dumps(data))
    bos = t.token_to_id("<|endoftext|>")
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False, add_prefix_space=True), processors.TemplateProcessing(
        "<|endoftext|> $A", "<|endoftext|> $A <|endoftext|>:1 $B:1", [("<|endoftext|>", bos)])])
    return t


def roberta():
    t = byte_level(pre_tokenizers.ByteLevel(True), ("<s>", "<pad>", "</s>", "<unk>"))
    t.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    t.post_processor = processors.RobertaProcessing(("</s>", t.token_to_id("</s>")), ("<s>", t.token_to_id("<s>")))
    return t


def fallback_bpe(normalizer, splitter, decoder):
    """BPE on characters with byte tokens, as LLaMA 2 and Gemma have it."""
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    learn(t, trainers.BpeTrainer(show_progress=False, vocab_size=700, limit_alphabet=150, special_tokens=["<unk>", "<s>", "</s>"]))
    data = json.loads(t.to_str())
    old = sorted(data["model"]["vocab"], key=data["model"]["vocab"].get)
    new = old[:3] + [f"<0x{i:02X}>" for i in range(256)] + old[3:] + ["▁▁", "▁▁▁▁"]
    data["model"]["merges"] = [["▁", "▁"], ["▁▁", "▁▁"]] + data["model"]["merges"]
    data["model"]["vocab"] = {token: i for i, token in enumerate(new)}
    data["model"]["byte_fallback"] = True
    t = Tokenizer.from_str(json.dumps(data))
    if normalizer:
        t.normalizer = normalizer
    t.pre_tokenizer = splitter
    t.decoder = decoder
    t.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s>:1 $B:1", [("<s>", 1)])
    return t


def llama2():
    return fallback_bpe(normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), None, decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]))


def llama2_new():
    return add_flags(fallback_bpe(None, pre_tokenizers.Metaspace(prepend_scheme="first", split=False), decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])))


def gemma():
    return fallback_bpe(normalizers.Replace(" ", "▁"), pre_tokenizers.Split(" ", "merged_with_previous"), decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]))


def unigram(normalizer, splitter, fallback=False, scheme="always"):
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizer
    t.pre_tokenizer = splitter
    special = ["<pad>", "</s>", "<unk>"] + ([f"<0x{i:02X}>" for i in range(256)] if fallback else [])
    learn(t, trainers.UnigramTrainer(vocab_size=900, unk_token="<unk>", special_tokens=special, show_progress=False), False)
    if fallback:
        data = json.loads(t.to_str())
        data["model"]["byte_fallback"] = True
        data["added_tokens"] = data["added_tokens"][:3]
        t = Tokenizer.from_str(json.dumps(data))
    t.decoder = decoders.Metaspace(prepend_scheme=scheme)
    t.post_processor = processors.TemplateProcessing("$A </s>", "$A </s> $B:1 </s>:1", [("</s>", 1)])
    return t


def t5():
    return unigram(normalizers.Precompiled(double_array(small_map())), pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]))


def albert():
    form = normalizers.Sequence([normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(), normalizers.StripAccents(),
                                 normalizers.Lowercase(), normalizers.Replace(Regex(" {2,}"), " ")])
    return add_flags(unigram(form, pre_tokenizers.Metaspace()))


def t5_new():
    form = normalizers.Sequence([normalizers.Precompiled(double_array(small_map())), normalizers.Strip(False, True), normalizers.Replace(Regex(" {2,}"), "▁")])
    return unigram(form, pre_tokenizers.Metaspace(prepend_scheme="first", split=False), True)


def mixed():
    """Components that few models use, all at once."""
    form = normalizers.Sequence([normalizers.Strip(True, True), normalizers.NFKC(), normalizers.Lowercase()])
    split = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits(False), pre_tokenizers.Punctuation("merged_with_next")])
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20))
    t.normalizer, t.pre_tokenizer = form, split
    learn(t, trainers.WordPieceTrainer(show_progress=False, vocab_size=700, limit_alphabet=200, special_tokens=["[UNK]", "[CLS]", "[SEP]"]))
    t.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    return add_flags(t)


def digits_gpt2():
    t = byte_level(pre_tokenizers.Sequence([pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(False)]))
    return add_flags(t)


def gaps(unknown):
    """A byte-level vocabulary that lacks most bytes."""
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True) if unknown else models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(True)
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=True)
    return learn(t, trainers.BpeTrainer(show_progress=False, vocab_size=400, limit_alphabet=120, special_tokens=["<unk>"]))


def words():
    """Whole words, as models of molecules and of events have them; no decoder, so blanks stand between tokens."""
    t = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    t.normalizer, t.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    learn(t, trainers.WordLevelTrainer(show_progress=False, vocab_size=600, special_tokens=["[UNK]", "[CLS]", "[SEP]"]))
    t.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    return add_flags(t)


KINDS = {
    "words": words,
    "gaps": lambda: gaps(False),
    "gaps_unknown": lambda: gaps(True),
    "bert_uncased": lambda: wordpiece(normalizers.BertNormalizer()),
    "bert_cased": lambda: add_flags(wordpiece(normalizers.BertNormalizer(lowercase=False))),
    "mixed": mixed,
    "gpt2": lambda: byte_level(pre_tokenizers.ByteLevel(False)),
    "roberta": roberta,
    "smollm": digits_gpt2,
    "llama3": llama3,
    "qwen2": lambda: by_pattern(QWEN2, normalizers.NFC()),
    "qwen35": lambda: by_pattern(QWEN35, normalizers.NFC()),
    "o200k": lambda: by_pattern(O200K, behavior="removed", invert=True),
    "tekken": lambda: by_pattern(TEKKEN, normalizers.NFD()),
    "llama2": llama2,
    "llama2_new": llama2_new,
    "gemma": gemma,
    "t5": t5,
    "t5_new": t5_new,
    "albert": albert,
}

# ---- what the reference says ----

BASIS, PRIME = 0xcbf29ce484222325, 0x100000001b3


def fnv(value, data):
    for byte in data:
        value = (value ^ byte) * PRIME & 0xffffffffffffffff
    return value


def tokens_hash(value, tokens):
    value = fnv(value, struct.pack("<I", len(tokens)))
    return fnv(value, b"".join(struct.pack("<iiII", *t) for t in tokens))


def golden(tokenizer, texts, at):
    text, value = texts[at], BASIS
    whole = tokenizer.encode(text)
    bare = tokenizer.encode(text, add_special_tokens=False)
    value = tokens_hash(value, in_bytes(whole, text))
    value = tokens_hash(value, in_bytes(bare, text))
    for ids, skip in ((whole.ids, False), (whole.ids, True)):
        value = fnv(value, tokenizer.decode(ids, skip_special_tokens=skip).encode())
    if at % PAIR_EVERY == 0:
        other = texts[(at + 1) % len(texts)]
        tokenizer.enable_truncation(PAIR_MOST)
        value = tokens_hash(value, in_bytes(tokenizer.encode(text, other), text, other))
        tokenizer.no_truncation()
    return value


def main():
    texts = strings(1, COUNT)
    chosen = sys.argv[1:] or KINDS
    with open(os.path.join(HERE, "strings.bin"), "wb") as out:
        for text in texts:
            raw = text.encode()
            out.write(struct.pack("<I", len(raw)) + raw)
    for name in chosen:
        path = os.path.join(HERE, name + ".json")
        if not os.path.exists(path):
            data = json.loads(KINDS[name]().to_str())
            with open(path, "w", encoding="utf-8") as out:
                json.dump(data, out, ensure_ascii=False, separators=(",", ":"))
                out.write("\n")
        tokenizer = Tokenizer.from_file(path)
        with open(os.path.join(HERE, name + ".gold"), "wb") as out:
            for at in range(len(texts)):
                out.write(struct.pack("<Q", golden(tokenizer, texts, at)))
        print(name, tokenizer.get_vocab_size())


if __name__ == "__main__":
    main()
