"""Whole models: read, generate, look inside, change their heads."""
from __future__ import annotations

import ctypes
import json
import os
import tempfile
import warnings
import weakref
from ctypes import byref, c_int, c_void_p
from typing import Any, Iterable, Mapping, NamedTuple, Optional, Sequence, Union

import numpy as np

from . import _c
from ._attention import address
from ._context import Context, Error
from ._owner import Owner, Path, as_text, as_texts, own_context
from ._reading import Reading
from ._surgery import Conversion, Worth, conversion_of, conversion_options

FIELDS = {_c.PH_F32: np.float32, _c.PH_F16: np.float16, _c.PH_I32: np.int32}
EACH = ctypes.CFUNCTYPE(None, c_void_p, c_int, ctypes.c_char_p)  # of ph_generation
KV_DTYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1")


class Word(NamedTuple):
    """A token of a text: its number, and which characters it covers, in whole or in part."""
    token: int
    start: int
    length: int


class Guess(NamedTuple):
    """A token that may stand in the place of a mask, with its probability."""
    token: int
    text: str
    p: float


class Model(Owner):
    """A Transformer: made by training, or read from a file.

    Use `Model.read`, `Model.embedded` or the `model` of a `Trainer`.
    """

    _owned = True  # else a trainer frees it

    def __init__(self, context: Context, lock: Any = None):
        super().__init__(context, lock)
        self._readings: weakref.WeakSet = weakref.WeakSet()

    def __getattr__(self, name: str) -> Any:
        if name == "_handle":
            raise Error("the model went to a trainer that refused it, expected one that was "
                        "read again")
        raise AttributeError(f"a Model has no {name!r}")

    def _belongs_to(self, trainer: Any) -> None:
        """Which frees it, and the context too."""
        self._owned, self._trainer = False, trainer
        self._handle = c_void_p(self._lib.ph_trainer_model(trainer._handle))

    @classmethod
    def read(cls, path: Path) -> "Model":
        """From a checkpoint of Polyhead, a Hugging Face folder, a GGUF or llama2.c file."""
        model = cls(own_context())
        with model._lock:
            model._check(model._lib.ph_model_read(byref(model._handle), model._context.handle,
                                                  os.fsencode(path)))
        return model

    @classmethod
    def embedded(cls) -> "Model":
        """The trained model inside the library, which knows what pronouns refer to."""
        model = cls(own_context())
        with model._lock:
            model._check(model._lib.ph_model_embedded(byref(model._handle),
                                                      model._context.handle))
        return model

    def __del__(self) -> None:
        if self._owned and "_handle" in self.__dict__:
            self._finish()

    def _free(self, handle: c_void_p) -> None:
        self._lib.ph_model_free(handle)

    def __repr__(self) -> str:
        return f"Model of {self.parameters} parameters, {json.dumps(self.config)}"

    def write(self, path: Path) -> None:
        """Writes a checkpoint; the file appears whole or not at all."""
        with self._lock:
            self._check(self._lib.ph_model_write(self._handle, os.fsencode(path)))

    @staticmethod
    def export(source: Path, folder: Path, dtype: Optional[str] = None) -> None:
        """Writes the model at `source`, anything that `read` takes, as a Hugging Face folder.

        The folder must be new or empty, and appears whole or not at all. dtype is what all
        weights become, "f32", "f16" or "bf16"; None: they stay as stored, and quantised
        ones are refused.
        """
        if dtype not in (None, "f32", "f16", "bf16"):
            raise Error(f"dtype is {dtype!r}, expected f32, f16, bf16 or None")
        kind = dtype and byref(c_int(getattr(_c, "PH_" + dtype.upper())))
        context = own_context()
        try:
            context.check(_c.model().ph_model_export(context.handle, os.fsencode(source),
                                                     os.fsencode(folder), kind))
        finally:
            context.close()

    @property
    def config(self) -> dict[str, Any]:
        """Layers, heads, sizes and so on, as the file has them."""
        config = self._lib.ph_model_config(self._handle)
        size = self._lib.ph_config_print(config, None, 0) + 1
        text = ctypes.create_string_buffer(size)
        self._lib.ph_config_print(config, text, size)
        return json.loads(text.value)

    @property
    def parameters(self) -> int:
        """How many parameters the model uses."""
        return self._lib.ph_model_parameters(self._handle)

    def tensors(self) -> dict[str, np.ndarray]:
        """Copies of the parameters of float32, float16 or int32, by name."""
        found: dict[str, np.ndarray] = {}
        index = 0
        while entry := self._lib.ph_model_tensor(self._handle, index):
            tensor, index = entry.contents, index + 1
            if tensor.type in FIELDS:
                shape = tuple(tensor.shape[:tensor.rank])
                data = ctypes.string_at(tensor.data, tensor.bytes)
                found[tensor.name.decode()] = np.frombuffer(
                    bytearray(data), FIELDS[tensor.type]).reshape(shape)
        return found

    def tokens(self, text: str) -> list[Word]:
        """The tokens of a text."""
        encoded, count = as_text("text", text), c_int()
        capacity = len(encoded) + 16
        words = (_c.Word * capacity)()
        with self._lock:
            self._check(self._lib.ph_model_split(self._handle, encoded, words, capacity,
                                                 byref(count)))
        # The character of each byte: continuation bytes belong to the one before.
        at = np.cumsum([byte & 0xC0 != 0x80 for byte in encoded]) - 1
        return [Word(w.token, *characters(at, w.start, w.length))
                for w in words[:min(count.value, capacity)]]

    def token_text(self, token: int) -> str:
        """The text of a token; empty where there is none."""
        return self._lib.ph_model_token(self._handle, token).decode(errors="replace")

    def generate(self, text: Union[str, np.ndarray, Sequence[str]], *, max_tokens: int = 0,
                 temperature: float = 0.0, top_k: int = 0, top_p: float = 0.0,
                 beams: int = 0, seed: int = 0, chat: bool = False, stop: Sequence[str] = (),
                 kv_dtype: str = "f32", batch: int = 0, system: Optional[str] = None) -> Any:
        """Continues a text (decoder) or translates it (encoder-decoder).

        Parameters
        ----------
        text : str, sequence of str, or ndarray
            Several texts are decoded side by side; each gets what it gets alone, greedy or
            not. Where the encoder reads sound (Whisper): its log-mel features, float32
            (mels, frames), or the path of a .npy or safetensors file of them.
        max_tokens : int
            At most so many new tokens; 0: as many as the checkpoint says (max_new_tokens or
            max_length), or fit.
        temperature, top_k, top_p
            0: greedy, all tokens, all tokens.
        beams : int
            Width of beam search, of encoder-decoders.
        seed : int
            Of the samples; equal texts of one call get different ones.
        chat : bool
            The text is a message of a user: the model's chat template goes around it.
        stop : sequence of str
            The new text ends before the first of these that comes up.
        kv_dtype : str
            Of cached keys and values: "f32", "f16", "bf16", "q8_0", "q4_0" or "q4_1".
        batch : int
            How many texts are decoded side by side; 0: 16.
        system : str
            With chat: a message of the system before the text.

        Returns
        -------
        str, or list of str
            The new text, or those of several texts.
        """
        if kv_dtype not in KV_DTYPES:
            raise Error(f"kv_dtype is {kv_dtype!r}, expected one of {', '.join(KV_DTYPES)}")
        ignored = self._lib.ph_model_ignored(self._handle)
        if ignored:
            warnings.warn(f"the checkpoint also sets {ignored.decode()}, which count for "
                          "nothing here: transformers may write another text", stacklevel=2)
        ends = given_texts(stop, None)
        how = _c.Generation(max_tokens=max_tokens, temperature=temperature, top_k=top_k,
                            top_p=top_p, beams=beams, seed=seed, chat=int(chat), batch=batch,
                            stop=ends.texts, stop_count=ends.count,
                            system=None if system is None else system.encode(),
                            kv_dtype=getattr(_c, "PH_" + kv_dtype.upper()))
        if isinstance(text, np.ndarray):
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "sound.npy")
                np.save(path, text, allow_pickle=False)
                return self._generate([path], how)[0]
        return self._generate([text], how)[0] if isinstance(text, str) else self._generate(
            text, how)

    def _generate(self, texts: Sequence[str], how: Any) -> list[str]:
        encoded = as_texts("text", texts)
        prompts = (_c.Prompt * max(len(texts), 1))()
        pieces: list[list[bytes]] = [[] for _ in texts]

        def add(_user: Any, text: int, piece: bytes) -> None:
            pieces[text].append(piece)

        each = EACH(add)
        how.each = ctypes.cast(each, c_void_p)
        for i, prompt in enumerate(prompts[:len(texts)]):
            prompt.text, prompt.number = encoded[i], i
        with self._lock:
            self._check(self._lib.ph_generate_batch(self._handle, prompts, len(texts),
                                                    byref(how)))
        return [b"".join(of_text).decode(errors="replace") for of_text in pieces]

    def fill(self, text: str, top: int = 5) -> list[list[Guess]]:
        """The likeliest tokens for each mask of a text ("[MASK]", "<mask>"), best first; of
        encoders that predict masked tokens."""
        mask = self._lib.ph_model_mask(self._handle)
        if mask < 0:
            raise Error("the model predicts no masked tokens, expected one that does")
        reading = self.look(text)
        places = [i for i, token in enumerate(reading._tokens(0)) if token == mask]
        if not places:
            raise Error(f"the text has no {self.token_text(mask)}, expected one at least")
        guesses = []
        for row in reading.next()[places]:
            best = np.argsort(-row, kind="stable")[:top]
            guesses.append([Guess(int(token), self.token_text(token), float(np.exp(row[token])))
                            for token in best])
        return guesses

    def embed(self, texts: Union[Sequence[Path], np.ndarray],
              pairs: Optional[Sequence[str]] = None) -> np.ndarray:
        """A vector of each text, (texts, elements), as the model pools it: encoders, decoders that embed.

        Of encoders of pictures texts are the paths of PNG, JPEG or PPM files, or `pixels`.
        """
        width = self._lib.ph_model_vector_dim(self._handle)
        if self._config().image_size:
            return self._of_pictures(texts, pairs, vectors=width)
        return self._of_texts(self._lib.ph_model_embed, width, texts, pairs)

    def classify(self, texts: Union[Sequence[Path], np.ndarray],
                 pairs: Optional[Sequence[str]] = None) -> np.ndarray:
        """Scores of each text, (texts, classes), before a softmax; of models with classes.

        Of encoders of pictures texts are the paths of PNG, JPEG or PPM files, or `pixels`.
        """
        classes = self._config().classes
        if self._config().image_size:
            return self._of_pictures(texts, pairs, scores=classes)
        return self._of_texts(self._lib.ph_model_classify, classes, texts, pairs)

    @property
    def classes(self) -> list[str]:
        """What the classes of `classify` are called; empty texts where no one said."""
        return [self._lib.ph_model_class(self._handle, i).decode()
                for i in range(self._config().classes)]

    def pixels(self, paths: Sequence[Path]) -> np.ndarray:
        """Pictures as their encoder reads them, (pictures, channels, image_size, image_size):
        resized, cropped and scaled as the checkpoint says."""
        if isinstance(paths, (str, os.PathLike)):
            raise TypeError("paths is one path, expected a list of them")
        found = np.empty((len(paths), *self._picture_shape()), np.float32)
        with self._lock:
            for path, out in zip(paths, found):
                self._check(self._lib.ph_model_open_picture(self._handle, os.fsencode(path),
                                                            address(out)))
        return found

    def _picture_shape(self) -> tuple:
        config = self._config()
        return config.channels, config.image_size, config.image_size

    def _of_pictures(self, pictures: Any, pairs: Any, **columns: int) -> np.ndarray:
        """vectors or scores, with so many columns."""
        if pairs is not None:
            raise Error("pairs are given to an encoder of pictures, expected none")
        pixels = pictures if isinstance(pictures, np.ndarray) else self.pixels(pictures)
        if pixels.ndim != 4 or pixels.shape[1:] != self._picture_shape():
            raise Error(f"pixels have shape {pixels.shape}, expected (pictures, "
                        f"{', '.join(map(str, self._picture_shape()))})")
        pixels = np.require(pixels, np.float32, "CA")
        out = {name: np.empty((len(pixels), width), np.float32)
               for name, width in columns.items()}
        vectors, scores = (address(out[name]) if name in out else None
                           for name in ("vectors", "scores"))
        with self._lock:
            self._check(self._lib.ph_model_pictures(self._handle, address(pixels),
                                                    len(pixels), vectors, scores))
        return next(iter(out.values()))

    def _config(self) -> Any:
        return self._lib.ph_model_config(self._handle).contents

    def _of_texts(self, call: Any, columns: int, texts: Sequence[str],
                  pairs: Optional[Sequence[str]]) -> np.ndarray:
        given = given_texts(texts, pairs)
        out = np.empty((len(texts), columns), np.float32)
        with self._lock:
            self._check(call(self._handle, byref(given), address(out)))
        return out

    def look(self, text: str, target: Optional[str] = None) -> "Reading":
        """Runs the model on a text with everything open to view.

        target is the decoder's text of an encoder-decoder; what the model generates where
        it is not given. In a notebook the result shows as a page.
        """
        return Reading(self, text, target)

    def importance(self, texts: Sequence[str], pairs: Optional[Sequence[str]] = None, *,
                   method: str = "path", normalise: bool = False,
                   max_tokens: int = 0) -> list[Worth]:
        """What every head is worth on these texts, in the order of the model.

        Parameters
        ----------
        pairs : sequence of str, optional
            The target of each text (encoder-decoder), or its class.
        method : str
            "token" and "sample" (gradients) and "confidence" take one pass over the texts,
            "path" (gradients with the gates of all heads lowered in steps) three,
            "lrp_ratio" and "lrp_ab" (layer-wise relevance) two to six;
            "zero", "mean", "resampled" and "alone" one for each head.
        normalise : bool
            Divide values by their norm in each site.
        max_tokens : int
            Truncate texts to so many; 0: to what the model takes.
        """
        names = [self._lib.ph_worth_name(i).decode() for i in range(_c.PH_WORTHS)]
        if method not in names:
            raise Error(f"method is {method!r}, expected one of {', '.join(names)}")
        given, measured = given_texts(texts, pairs), c_void_p()
        with self._lock:
            places = self._places()
            found = (_c.Estimate * max(len(places), 1))()
            try:
                self._check(self._lib.ph_eval_create(byref(measured), self._handle,
                                                     byref(given), max_tokens))
                self._check(self._lib.ph_importance(measured, names.index(method), None,
                                                    found))
            finally:
                self._lib.ph_eval_free(measured)
            if normalise:
                self._lib.ph_importance_normalise(self._handle, found)
        return [Worth(*place, at.value, at.error) for place, at in zip(places, found)]

    def prune(self, heads: Iterable[Sequence[Any]]) -> None:
        """Removes heads for good: matrices shrink, results are those with these heads at 0.

        heads are (site, head), or what `importance` returns: `model.prune(sorted(worths,
        key=lambda w: w.value)[:4])` removes the four that are worth least. Heads keep the
        index they had before any was removed. Readings of the model must be gone.
        """
        with self._lock:
            self._changeable("prune")
            places = self._places()
            removed = np.zeros(max(len(places), 1), np.uint8)
            for site, head in (tuple(each)[:2] for each in heads):
                if (site, head) not in places:
                    raise Error(f"there is no head {head!r} of {site!r}, expected one of "
                                f"{', '.join(sorted({name for name, _ in places}))}")
                removed[places.index((site, head))] = 1
            self._check(self._lib.ph_model_remove(self._handle, address(removed)))

    def convert(self, to: str, texts: Optional[Sequence[str]] = None,
                pairs: Optional[Sequence[str]] = None, *, align: str = "full",
                group: str = "similar", merge: str = "fit", renorm: bool = False,
                error: float = 0.0, max_tokens: int = 0, seed: int = 0) -> Conversion:
        """Gives the model other attention from the weights it has.

        Parameters
        ----------
        to : str
            "gqa:G", "mqa", "mha", "collab:R", "collab" with an `error`, or a variant that has
            the weights of plain heads: "mohsa:overlap=2", "talking", "dcmha", "gated:head",
            "moh:shared=2,top=4", "moh-norm:...", "entmax", "sparsemax".
        texts, pairs : sequence of str, optional
            The first half aligns heads, the others measure the loss; without them heads
            are aligned by their weights.
        align, group, merge : str
            "full", "pair" or "none"; "similar" or "consecutive"; "fit", "mean", "first" or
            "random".
        renorm : bool
            Scale merged heads to the norm of their members.
        error : float
            "collab": the smallest rank that loses at most this share of the scores.

        Readings of the model must be gone.
        """
        how = conversion_options(to, {"align": align, "group": group, "merge": merge},
                                 renorm=int(renorm), error=error, max_tokens=max_tokens,
                                 seed=seed)
        given, report = None if texts is None else given_texts(texts, pairs), c_void_p()
        with self._lock:
            self._changeable("convert")
            self._check(self._lib.ph_convert(self._handle, byref(how),
                                             given and byref(given), byref(report)))
            try:
                return conversion_of(report)
            finally:
                self._lib.ph_conversion_report_free(report)

    def _places(self) -> list[tuple[str, int]]:
        """Site and index of every head."""
        place, places = _c.HeadPlace(), []
        for i in range(self._lib.ph_model_heads(self._handle)):
            self._check(self._lib.ph_model_head(self._handle, i, byref(place)))
            places.append((place.site.decode(), place.head))
        return places

    def _changeable(self, what: str) -> None:
        """Nothing may use the matrices of a model whose heads are about to change."""
        if not self._owned:
            raise Error(f"{what} was called on the model of a trainer, expected one that was "
                        f"read from a file")
        if self._readings:
            raise Error(f"{what} was called while a reading of the model exists, expected "
                        f"none: delete it first")


def characters(at: np.ndarray, start: int, length: int) -> tuple[int, int]:
    """Where these bytes are in the text, whose byte i is part of character at[i]."""
    first = int(at[start]) if start < len(at) else int(at[-1]) + 1 if len(at) else 0
    return first, int(at[start + length - 1]) + 1 - first if length else 0


def given_texts(texts: Sequence[str], pairs: Optional[Sequence[str]]) -> Any:
    """A ph_texts, which keeps alive what it points at."""
    groups = as_texts("texts", texts), None if pairs is None else as_texts("pairs", pairs)
    if pairs is not None and len(pairs) != len(texts):
        raise Error(f"there are {len(texts)} texts and {len(pairs)} pairs, expected as many")
    tables = [None if group is None else (ctypes.c_char_p * max(len(group), 1))(*group)
              for group in groups]
    given = _c.Texts(texts=ctypes.addressof(tables[0]), count=len(texts),
                     pairs=ctypes.addressof(tables[1]) if tables[1] else None)
    given.tables = tables
    return given
