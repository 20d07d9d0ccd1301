"""common.py - what the scripts beside it share: the library called through ctypes, the
reference's answer in its form, and strings that are hard for tokenizers."""

import ctypes
import os
import random
import struct

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Io(ctypes.Structure):
    _fields_ = [("alloc", ctypes.c_void_p), ("release", ctypes.c_void_p),
                ("user", ctypes.c_void_p), ("error", ctypes.c_char_p),
                ("error_size", ctypes.c_size_t), ("max_bytes", ctypes.c_size_t)]


class Args(ctypes.Structure):
    _fields_ = [("text", ctypes.c_char_p), ("length", ctypes.c_size_t),
                ("pair", ctypes.c_char_p), ("pair_length", ctypes.c_size_t),
                ("bare", ctypes.c_int), ("special_as_text", ctypes.c_int),
                ("max_tokens", ctypes.c_size_t), ("truncate_left", ctypes.c_int)]


def library():
    path = os.environ.get("POLYHEAD_SO", os.path.join(ROOT, "build", "libpolyhead_model.so"))
    ctypes.CDLL(os.path.join(os.path.dirname(path), "libpolyhead.so"))  # which the other needs, found by its name
    lib = ctypes.CDLL(path)
    for name in ("ph_tokenizer_free", "ph_encoder_free", "ph_detokenizer_free"):
        getattr(lib, name).argtypes = [ctypes.c_void_p]
        getattr(lib, name).restype = None
    return lib


class Ours:
    """One tokenizer of this library."""

    def __init__(self, path, lib=None):
        self.lib = lib or library()
        self.error = ctypes.create_string_buffer(500)
        self.io = Io(error=ctypes.cast(self.error, ctypes.c_char_p), error_size=500)
        self.tokenizer = ctypes.c_void_p()
        self.encoder = ctypes.c_void_p()
        self.check(self.lib.ph_tokenizer_read(ctypes.byref(self.tokenizer),
                                              os.fsencode(path), ctypes.byref(self.io)))
        self.check(self.lib.ph_encoder_create(ctypes.byref(self.encoder), self.tokenizer,
                                              ctypes.byref(self.io)))

    def check(self, status):
        if status:
            raise ValueError(self.error.value.decode())

    def free(self):
        self.lib.ph_encoder_free(self.encoder)
        self.lib.ph_tokenizer_free(self.tokenizer)

    def encode(self, text, pair=None, bare=False, most=0):
        """[(id, type, start, end)], offsets in bytes."""
        raw = text.encode()
        other = pair.encode() if pair is not None else None
        args = Args(raw, len(raw), other, len(other or b""), bare, 0, most, 0)
        tokens, count = ctypes.c_void_p(), ctypes.c_size_t()
        self.check(self.lib.ph_encode(self.encoder, ctypes.byref(args),
                                      ctypes.byref(tokens), ctypes.byref(count)))
        data = ctypes.string_at(tokens, 32 * count.value) if count.value else b""
        return [(i, t, a, b) for i, t, _, _, a, b in struct.iter_unpack("<4i2Q", data)]

    def decode(self, ids, skip):
        """The text, put together from the parts of a stream."""
        stream, text = ctypes.c_void_p(), ctypes.c_void_p()
        length = ctypes.c_size_t()
        self.check(self.lib.ph_detokenizer_create(ctypes.byref(stream), self.tokenizer,
                                                  skip, ctypes.byref(self.io)))
        parts = []
        for i in ids:
            self.check(self.lib.ph_detokenize(stream, i, ctypes.byref(text),
                                              ctypes.byref(length)))
            parts.append(ctypes.string_at(text, length.value).decode())
        self.check(self.lib.ph_detokenize_end(stream, ctypes.byref(text),
                                              ctypes.byref(length)))
        parts.append(ctypes.string_at(text, length.value).decode())
        self.lib.ph_detokenizer_free(stream)
        return "".join(parts)


def byte_offsets(text):
    """Byte offset of every character, and of the end."""
    places = [0]
    for c in text:
        places.append(places[-1] + len(c.encode()))
    return places


def in_bytes(encoding, text, pair=None):
    """The reference's encoding in the form of Ours.encode."""
    places = [byte_offsets(text), byte_offsets(pair or "")]
    found = []
    for i, t, s, (a, b) in zip(encoding.ids, encoding.type_ids, encoding.sequence_ids,
                               encoding.offsets):
        where = places[s or 0]
        found.append((i, t, where[a], where[b]) if s is not None else (i, t, 0, 0))
    return found


# ---- strings ----

HARD = ["", " ", "  ", "\t", "\n", "\n\n", " \n \n", "a\r\nb", "x  y", "  lead", "trail  ",
        "I'LL'd've 'ſ", "don’t", "3.14 1234567 ½ ² Ⅳ ٣", "##ing [MASK] [mask] </s> <s>x",
        "a<mask> b", "hello <mask> x", "▁a", "▁▁ ▁", "Ġ", "Ġhello", "\u00a0\u3000\u2028\u0085\u001c\u000b",
        "\u00ad\u200b\u200d\ufeff\ufffd", "a\0b", "é e\u0301", "ﬁ\u0301", "ΑΣ ΑΣΑ", "İ", "ß ẞ",
        "한글 \u1112\u1161\u11ab", "中文abc", "\U0002b820 \U00020000", "ក្រុមហ៊ុន", "हिन्दी में", "👩\u200d👩\u200d👧\u200d👦 👍🏽",
        "🇫🇷🇩🇪🇯", "a" * 101, "a" * 100, "a" * 3000, " " * 3000, "ab" * 1000, "é" * 300, "e\u0301" * 200,
        "\u0301" * 100, "a" + "\u0301\u0323" * 40, "\u0323\u0301a\u0301\u0323", "q\u0307\u0323", "©\u200d©", "©\u200da",
        "\r\n\r\n", "\u0600a", "\u0958\u093c", "<unk>", "<unk><unk>", "<0x0A>", "<|endoftext|>", "a<|endoftext|> b",
        "[CLS] x [SEP]", "[UNK]", "n't do not 's", "Hello, World! 'S 'T 'RE", "x\ty\tz", "www.example.com/a/b?c=d&e=f",
        "def f(x):\n    return x**2  # comment\n", "१२३ ４５６ 𝟙𝟚", "ｆｕｌｌ ｗｉｄｔｈ", "ﷺ", "①②③ ㎏ ㍿", "㋿", "\U0001e900\U0001e922",
        "ǅ ǆ Ǆ ʰ ª", "_a_b_ __init__", "1,000,000.00", "0123456789012345678901234567890123", "ᾳ ᾼ ΐ", "Å Å Å",
        "the\x0fこんにちは***naïve[CLS]fooBar   ", "e\u0301\U000e0111\U000e015c(", "e\u0301\u0301x \U000e0001\u0301\u0301",
        "日本語のテキスト、句読点。", "ไทยภาษา", "עברית العربية", "Zürich naïve façade", "\U000e0001\U000e0067", "\ue000\uf8ff\U000f0000"]

WORDS = ("the of and to in a is that for it as was with be by on not he his but at are this have "
         "from or had an they which one you were all her she there would their we him been has when "
         "attention head token weight layer model softmax query key value don't it's I'm we've "
         "Über größe été naïve señor mañana привет мир слово Ελλάδα κόσμος 你好 世界 注意力 机器 日本 こんにちは "
         "한국어 안녕하세요 שלום مرحبا नमस्ते สวัสดี 123 2024 3.14 1e-5 0xff http://a.b/c foo_bar fooBar").split()

RANGES = [(0x20, 0x7f)] * 6 + [(0, 0x20), (0x7f, 0xa1), (0xa0, 0x250), (0x250, 0x370), (0x300, 0x370),
          (0x370, 0x530), (0x530, 0x750), (0x750, 0x900), (0x900, 0xe00), (0xe00, 0x1100), (0x1100, 0x1200),
          (0x1200, 0x1d00), (0x1d00, 0x2000), (0x2000, 0x2070), (0x2070, 0x2c00), (0x2c00, 0x3000),
          (0x3000, 0x3400), (0x3400, 0xa000), (0xa000, 0xac00), (0xac00, 0xd7a4), (0xd7a4, 0xd800),
          (0xe000, 0xf900), (0xf900, 0x10000), (0xfe00, 0xfe10), (0xff00, 0x10000), (0x10000, 0x11000),
          (0x11000, 0x12000), (0x12000, 0x1d000), (0x1d000, 0x1e000), (0x1e000, 0x1f000), (0x1f000, 0x20000),
          (0x20000, 0x32400), (0x32400, 0xe0000), (0xe0000, 0xe0200), (0xf0000, 0x110000)]
MARKS = [0x300, 0x301, 0x308, 0x323, 0x327, 0x338, 0x345, 0x5b0, 0x64b, 0x93c, 0x94d, 0x200d, 0xfe0f, 0x20e3,
         0x3099, 0x1161, 0x11a8, 0x1f3fd, 0x302e, 0x1d165, 0x0e38, 0x0f71]
SPECIAL = ["[CLS]", "[SEP]", "[MASK]", "[UNK]", "<s>", "</s>", "<unk>", "<mask>", "<|endoftext|>", "<pad>",
           "<w>", "<x>", "NORM", "<0x41>", "▁", "Ġ", "##"]
SPACES = [" ", " ", " ", "  ", "   ", "\n", "\t", "\r\n", "\u00a0", "\u3000", "\u2028", "\x0b", "\x85", "\x1c"]


def some_part(rng):
    kind = rng.random()
    if kind < 0.35:
        return rng.choice(WORDS)
    if kind < 0.55:
        return rng.choice(SPACES)
    if kind < 0.60:
        return rng.choice(SPECIAL)
    if kind < 0.66:
        return chr(rng.choice(MARKS)) * rng.randint(1, 3)
    if kind < 0.70:
        return rng.choice("'‘’.,;:!?-_/\\#@$%&*()[]{}<>|~^`\"+=") * rng.randint(1, 3)
    if kind < 0.74:
        return str(rng.randrange(10 ** rng.randint(1, 9)))
    if kind < 0.77:
        return rng.choice(["'s", "'S", "'t", "'re", "'VE", "'m", "'ll", "'LL", "'d", "'ſ", "n't", "do not"])
    low, high = rng.choice(RANGES)
    return "".join(chr(rng.randrange(low, high)) for _ in range(rng.randint(1, 5)))


def some_string(rng):
    if rng.random() < 0.02:
        return rng.choice(HARD)
    text = "".join(some_part(rng) for _ in range(rng.randint(1, 12)))
    if rng.random() < 0.1:
        text = text.upper() if rng.random() < 0.5 else text.title()
    return "".join(c for c in text if not 0xd800 <= ord(c) <= 0xdfff)


def strings(seed, count):
    rng = random.Random(seed)
    return HARD[:count] + [some_string(rng) for _ in range(count - len(HARD[:count]))]
