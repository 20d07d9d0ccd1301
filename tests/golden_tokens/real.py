#!/usr/bin/env python3
"""real.py - tokenizers of real models against the reference.

    V/bin/python tests/golden_tokens/real.py [--count N] FILE...

FILE is a tokenizer.json, a BERT vocab.txt, a GGUF file or a tokenizer.bin of llama2.c.
The reference reads the first itself; for the others its tokenizer is put together from
the vocabulary: BERT's components, or the merges of the file, or those that scores stand
for. Prints differences and one line per file; exit status 1 if there is any.
"""

import argparse
import base64
import ctypes
import json
import random
import struct
import sys

from tokenizers import (AddedToken, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors)

from common import Ours, Io, in_bytes, library, some_string


class Chars(ctypes.Structure):
    _fields_ = [("text", ctypes.c_char_p), ("length", ctypes.c_size_t)]


class GgufTokens(ctypes.Structure):
    _fields_ = [("model", ctypes.c_char_p), ("pre", ctypes.c_char_p),
                ("tokens", ctypes.POINTER(Chars)), ("count", ctypes.c_size_t),
                ("scores", ctypes.POINTER(ctypes.c_float)),
                ("types", ctypes.POINTER(ctypes.c_int32)),
                ("merges", ctypes.POINTER(Chars)), ("merge_count", ctypes.c_size_t),
                ("bos", ctypes.c_int32), ("eos", ctypes.c_int32),
                ("unknown", ctypes.c_int32), ("separator", ctypes.c_int32),
                ("padding", ctypes.c_int32), ("add_bos", ctypes.c_int),
                ("add_eos", ctypes.c_int), ("add_space_prefix", ctypes.c_int),
                ("remove_extra_whitespaces", ctypes.c_int),
                ("charsmap", ctypes.c_void_p), ("charsmap_size", ctypes.c_size_t)]


# ---- GGUF ----

SIMPLE = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


def read_gguf(path):
    """The metadata of a GGUF file."""
    file = open(path, "rb")

    def take(form):
        return struct.unpack("<" + form, file.read(struct.calcsize("<" + form)))[0]

    def value(kind):
        if kind in SIMPLE:
            return take(SIMPLE[kind])
        if kind == 8:
            return file.read(take("Q")).decode()
        inner, count = take("I"), take("Q")
        return [value(inner) for _ in range(count)]

    assert file.read(4) == b"GGUF" and take("I") >= 2
    take("Q")
    return {value(8): value(take("I")) for _ in range(take("Q"))}


def chars(texts):
    raw = [t.encode() for t in texts]
    return (Chars * len(raw))(*[Chars(r, len(r)) for r in raw])


MARK = "\u2581"


def bin_as_gguf(path):
    """A tokenizer.bin as a converter writes it into a GGUF file."""
    tokens = bin_tokens(path)
    names = [t.strip("\n") if i < 3 else t if i < 259 else t.replace(" ", MARK) for i, (t, _) in enumerate(tokens)]
    types = [2, 3, 3] + [6] * 256 + [1] * (len(tokens) - 259)
    return {"tokenizer.ggml." + k: v for k, v in dict(
        model="llama", tokens=names, scores=[s for _, s in tokens], token_type=types, bos_token_id=1,
        eos_token_id=2, unknown_token_id=0).items()}


def words_as_gguf(path):
    """A vocab.txt as a converter writes it: a mark where words begin."""
    words = [line.rstrip() for line in open(path, encoding="utf-8")]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    types = [3 if w in special else 1 for w in words]
    names = [w if t == 3 else w[2:] if w.startswith("##") else MARK + w for w, t in zip(words, types)]
    return {"tokenizer.ggml." + k: v for k, v in dict(
        model="bert", tokens=names, token_type=types, bos_token_id=words.index("[CLS]"),
        seperator_token_id=words.index("[SEP]"), unknown_token_id=words.index("[UNK]")).items()}


def unigram_as_gguf(path):
    """A tokenizer.json of T5's kind as arrays."""
    data = json.load(open(path, encoding="utf-8"))
    vocab, added = data["model"]["vocab"], {t["id"] for t in data["added_tokens"]}
    return {"tokenizer.ggml." + k: v for k, v in dict(
        model="t5", tokens=[t for t, _ in vocab], scores=[s for _, s in vocab],
        token_type=[3 if i in added else 1 for i in range(len(vocab))], eos_token_id=data["post_processor"]["single"]
        and data["post_processor"]["special_tokens"]["</s>"]["ids"][0], unknown_token_id=data["model"]["unk_id"],
        precompiled_charsmap=base64.b64decode(data["normalizer"]["precompiled_charsmap"])).items()}


class OursGguf(Ours):
    def __init__(self, data):
        get = lambda key, usual: data.get("tokenizer.ggml." + key, usual)
        self.lib = library()
        self.error = ctypes.create_string_buffer(500)
        self.io = Io(error=ctypes.cast(self.error, ctypes.c_char_p), error_size=500)
        self.tokenizer, self.encoder = ctypes.c_void_p(), ctypes.c_void_p()
        tokens, merges = get("tokens", []), get("merges", [])
        scores, types = get("scores", None), get("token_type", None)
        charsmap = get("precompiled_charsmap", b"")
        arrays = GgufTokens(
            get("model", "").encode(), get("pre", "gpt-2").encode(), chars(tokens), len(tokens),
            (ctypes.c_float * len(tokens))(*scores) if scores else None,
            (ctypes.c_int32 * len(tokens))(*types) if types else None, chars(merges), len(merges),
            get("bos_token_id", -1), get("eos_token_id", -1), get("unknown_token_id", -1),
            get("seperator_token_id", -1), get("padding_token_id", -1), int(get("add_bos_token", -1)),
            int(get("add_eos_token", -1)), int(get("add_space_prefix", -1)), -1,
            ctypes.cast(ctypes.c_char_p(bytes(charsmap)), ctypes.c_void_p), len(charsmap))
        self.check(self.lib.ph_tokenizer_of_gguf(ctypes.byref(self.tokenizer), ctypes.byref(arrays),
                                                 ctypes.byref(self.io)))
        self.check(self.lib.ph_encoder_create(ctypes.byref(self.encoder), self.tokenizer,
                                              ctypes.byref(self.io)))


def reference_gguf(data):
    """SmolLM's components around the vocabulary of the file."""
    tokens, types = data["tokenizer.ggml.tokens"], data["tokenizer.ggml.token_type"]
    merges = [tuple(m.split(" ")) for m in data["tokenizer.ggml.merges"]]
    assert data["tokenizer.ggml.pre"] == "smollm", data["tokenizer.ggml.pre"]
    t = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(False)])
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(x, special=True, normalized=False) for x, k in zip(tokens, types) if k == 3])
    return t


# ---- llama2.c ----

def bin_tokens(path):
    data, at, tokens = open(path, "rb").read(), 4, []
    while at < len(data):
        score, length = struct.unpack_from("<fi", data, at)
        tokens.append((data[at + 8:at + 8 + length].decode(), score))
        at += 8 + length
    tokens[3:259] = [(f"<0x{i:02X}>", 0.0) for i in range(256)]
    return tokens


def reference_bin(path, mark=" "):
    tokens = [(t if i < 259 else t.replace(" ", mark), s) for i, (t, s) in enumerate(bin_tokens(path))]
    if mark != " ":
        tokens[:3] = [(t.strip("\n"), s) for t, s in tokens[:3]]
    vocab = {token: i for i, (token, _) in enumerate(tokens)}
    merges = sorted((-score, i, k) for i, (token, score) in enumerate(tokens) if i >= 259
                    for k in range(1, len(token)) if token[:k] in vocab and token[k:] in vocab)
    merges = [(tokens[i][0][:k], tokens[i][0][k:]) for _, i, k in merges]
    t = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend(mark), normalizers.Replace(" ", mark)])
    t.decoder = decoders.Sequence([decoders.Replace(mark, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.post_processor = processors.TemplateProcessing("BOS $A", None, [("BOS", 1)])
    t.add_special_tokens([AddedToken(tokens[i][0], special=True, normalized=False) for i in range(3)])
    return t


def reference_words(path):
    lines = [line.rstrip() for line in open(path, encoding="utf-8")]
    t = Tokenizer(models.WordPiece({word: i for i, word in enumerate(lines)}, unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer()
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    cls, sep = lines.index("[CLS]"), lines.index("[SEP]")
    t.post_processor = processors.BertProcessing(("[SEP]", sep), ("[CLS]", cls))
    t.add_special_tokens(["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"])
    return t


def open_both(path, arrays):
    if arrays and path.endswith(".bin"):
        return OursGguf(bin_as_gguf(path)), reference_bin(path, MARK)
    if arrays and path.endswith(".txt"):
        return OursGguf(words_as_gguf(path)), reference_words(path)
    if arrays:
        return OursGguf(unigram_as_gguf(path)), Tokenizer.from_file(path)
    if path.endswith(".gguf"):
        data = read_gguf(path)
        return OursGguf(data), reference_gguf(data)
    if path.endswith(".bin"):
        return Ours(path), reference_bin(path)
    if path.endswith(".txt"):
        return Ours(path), reference_words(path)
    return Ours(path), Tokenizer.from_file(path)


parser = argparse.ArgumentParser()
parser.add_argument("--count", type=int, default=20000)
parser.add_argument("--text", help="a text file whose lines are tried too")
parser.add_argument("--arrays", action="store_true", help="hand the vocabulary over as a GGUF file would")
parser.add_argument("file", nargs="+")
args = parser.parse_args()
lines = open(args.text, encoding="utf-8", errors="ignore").read().split("\n") if args.text else []
bad = 0
for path in args.file:
    ours, reference = open_both(path, args.arrays)
    reference.no_truncation()
    reference.no_padding()
    rng, wrong = random.Random(3), 0
    for text in lines + [some_string(rng) for _ in range(args.count)]:
        encoding = reference.encode(text)
        expected, found = in_bytes(encoding, text), ours.encode(text)
        words = reference.decode(encoding.ids, skip_special_tokens=True)
        if expected != found or ours.decode(encoding.ids, True) != words:
            wrong += 1
            if wrong <= 3:
                print(f"  {text!a}\n    reference {expected} {words!a}\n    ours      {found} {ours.decode(encoding.ids, True)!a}")
    bad += wrong
    print(f"{path}: {args.count} random strings, {len(lines)} lines, {wrong} differ", flush=True)
sys.exit(bad > 0)
