"""settings.py - random settings of a tokenizer.json: normalizers, pre-tokenizers,
post-processors, decoders, added tokens, and options of its model, as other people's files
have them, in any combination."""

import base64

from make import GPT2, LLAMA3, QWEN2, QWEN35, O200K, TEKKEN, double_array, small_map

FLAG = (True, False)
PATTERNS = [{"Regex": r} for r in (GPT2, LLAMA3, QWEN2, QWEN35, O200K, TEKKEN, r"\w+|[^\w\s]+", r"\s+", r"\s{2,}", " +", " {2,}", r"\s")]
TEXTS = [" ", "  ", "a", "the", "é", "▁", "'", "中", "e\u0301"]
BEHAVIORS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
MAP = base64.b64encode(double_array(small_map())).decode()


def pattern(rng):
    return rng.choice(PATTERNS) if rng.random() < 0.6 else {"String": rng.choice(TEXTS)}


def metaspace(rng, split):
    made = {"type": "Metaspace", "replacement": rng.choice("▁▁▁_"), "prepend_scheme": rng.choice(["always", "first", "never"])}
    return {**made, "split": rng.choice(FLAG)} if split else made


def normalizer(rng):
    kind = rng.choice(["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Strip", "Replace", "Prepend", "BertNormalizer",
                       "Precompiled", "Nmt", "ByteLevel"])
    fields = {"Strip": lambda: {"strip_left": rng.choice(FLAG), "strip_right": rng.choice(FLAG)},
              "Replace": lambda: {"pattern": pattern(rng), "content": rng.choice(["", " ", "▁", "xy", "é", "\u0301"])},
              "Prepend": lambda: {"prepend": rng.choice(["▁", " ", "ab", "é"])},
              "BertNormalizer": lambda: {"clean_text": rng.choice(FLAG), "handle_chinese_chars": rng.choice(FLAG),
                                         "strip_accents": rng.choice([True, False, None]), "lowercase": rng.choice(FLAG)},
              "Precompiled": lambda: {"precompiled_charsmap": MAP}}
    return {"type": kind, **fields.get(kind, dict)()}


def splitter(rng):
    kind = rng.choice(["ByteLevel", "Metaspace", "Split", "Split", "Digits", "Punctuation", "Whitespace", "WhitespaceSplit",
                       "BertPreTokenizer", "CharDelimiterSplit", "UnicodeScripts"])
    fields = {"ByteLevel": lambda: {"add_prefix_space": rng.choice(FLAG), "trim_offsets": rng.choice(FLAG), "use_regex": rng.choice(FLAG)},
              "Split": lambda: {"pattern": pattern(rng), "behavior": rng.choice(BEHAVIORS), "invert": rng.choice(FLAG)},
              "Digits": lambda: {"individual_digits": rng.choice(FLAG)},
              "Punctuation": lambda: {"behavior": rng.choice(BEHAVIORS)},
              "CharDelimiterSplit": lambda: {"delimiter": "a"}}
    return metaspace(rng, True) if kind == "Metaspace" else {"type": kind, **fields.get(kind, dict)()}


def some(rng, draw, field, most=3):
    """None, one, or a sequence, which may hold another."""
    count = rng.choice([0, 1, 1, 2, most])
    parts = [draw(rng) for _ in range(count)]
    if count > 1 and rng.random() < 0.2:
        parts = [{"type": "Sequence", field: parts[:2]}, *parts[2:]]
    return None if not parts else parts[0] if len(parts) == 1 and rng.random() < 0.8 else {"type": "Sequence", field: parts}


def template(rng, names):
    """A template for one text and for two, with tokens anywhere."""
    def special():
        return [{"SpecialToken": {"id": rng.choice(names), "type_id": rng.randrange(2)}} for _ in range(rng.randrange(3))]

    def text(name):
        return [{"Sequence": {"id": name, "type_id": rng.randrange(2)}}]

    return special() + text("A") + special(), special() + text("A") + special() + text("B") + special()


def processor(rng, specials):
    kind = rng.choice(["TemplateProcessing", "TemplateProcessing", "BertProcessing", "RobertaProcessing", "ByteLevel"])
    names = list(specials)
    sep, cls = ([name, specials[name]] for name in (rng.choice(names), rng.choice(names)))
    if kind == "TemplateProcessing":
        single, pair = template(rng, names)
        return {"type": kind, "single": single, "pair": pair,
                "special_tokens": {n: {"id": n, "ids": [specials[n]], "tokens": [n]} for n in names}}
    if kind == "BertProcessing":
        return {"type": kind, "sep": sep, "cls": cls}
    flags = {"add_prefix_space": rng.choice(FLAG), "trim_offsets": rng.choice(FLAG)}
    return {"type": kind, "sep": sep, "cls": cls, **flags} if kind == "RobertaProcessing" else {"type": kind, **flags, "use_regex": True}


def decoder(rng):
    kind = rng.choice(["ByteLevel", "WordPiece", "Metaspace", "Replace", "ByteFallback", "Fuse", "Strip", "BPEDecoder", "CTC"])
    fields = {"ByteLevel": lambda: {"add_prefix_space": True, "trim_offsets": True, "use_regex": True},
              "WordPiece": lambda: {"prefix": rng.choice(["##", "@@"]), "cleanup": rng.choice(FLAG)},
              "Replace": lambda: {"pattern": {"String": rng.choice(TEXTS)}, "content": rng.choice(["", " ", "ab"])},
              "Strip": lambda: {"content": rng.choice(" a▁"), "start": rng.randrange(3), "stop": rng.randrange(3)},
              "BPEDecoder": lambda: {"suffix": "</w>"},
              "CTC": lambda: {"pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": True}}
    return metaspace(rng, False) if kind == "Metaspace" else {"type": kind, **fields.get(kind, dict)()}


def added(rng, tokens, ids, size):
    """The file's own with other flags, and a few more."""
    known = {t["content"] for t in tokens} | set(ids)
    more = rng.sample([c for c in ["<w>", "<x>", "NORM", "é", "Ab", " b", "<|x|>", "中", "the"] if c not in known], rng.randrange(4))
    made = [dict(t) for t in tokens] + [{"id": size + i, "content": c} for i, c in enumerate(more)]
    for token in made:
        if "special" not in token or rng.random() < 0.5:
            for flag in ("single_word", "lstrip", "rstrip", "normalized", "special"):
                token[flag] = rng.random() < 0.3
    return made


def model(rng, old):
    made = dict(old)
    if made["type"] == "BPE":
        made.update({f: rng.choice(FLAG) for f in ("fuse_unk", "byte_fallback", "ignore_merges") if rng.random() < 0.3})
    elif made["type"] == "WordPiece" and rng.random() < 0.3:
        made["max_input_chars_per_word"] = rng.choice([1, 5, 20, 100])
    elif made["type"] == "Unigram" and rng.random() < 0.3:
        made["byte_fallback"] = rng.choice(FLAG)
    return made


def vary(data, rng):
    """A tokenizer.json (as Python has it) with other settings; most parts change."""
    made = dict(data, model=model(rng, data["model"]))
    vocab = data["model"]["vocab"]
    ids = vocab if isinstance(vocab, dict) else {text: i for i, (text, _) in enumerate(vocab)}
    size = 1 + max([*ids.values(), *(t["id"] for t in data["added_tokens"])])
    if rng.random() < 0.6:
        made["added_tokens"] = added(rng, data["added_tokens"], ids, size)
    specials = {t["content"]: t["id"] for t in made["added_tokens"]} or dict([next(iter(ids.items()))])
    if rng.random() < 0.7:
        made["normalizer"] = some(rng, normalizer, "normalizers")
    if rng.random() < 0.7:
        made["pre_tokenizer"] = some(rng, splitter, "pretokenizers")
    if rng.random() < 0.7:
        made["post_processor"] = some(rng, lambda r: processor(r, specials), "processors", 2)
    if rng.random() < 0.7:
        made["decoder"] = some(rng, decoder, "decoders", 4)
    made["truncation"] = rng.choice([None, {"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0}])
    made["padding"] = rng.choice([None, {"strategy": {"Fixed": 16}, "direction": "Left", "pad_to_multiple_of": None, "pad_id": 0,
                                         "pad_type_id": 0, "pad_token": "x"}])
    return made
