"""A model that has read one text: weights, vectors and outputs of its heads."""
from __future__ import annotations

import numbers
from ctypes import byref
from typing import Any, Mapping, NamedTuple, Optional, Union

import numpy as np

from . import _c
from ._attention import address
from ._context import Error
from ._owner import Owner, Path, as_text
from ._page import Paged, write_report

ABLATIONS = {"on": 0, "zero": 1, "mean": 2}


class Site(NamedTuple):
    """One attention site of a model: the attention of one layer."""
    name: str
    heads: int
    q_len: int
    kv_len: int
    variant: str


class Vectors(NamedTuple):
    """Of one head: q and out (q_len, dim), k and v (kv_len, dim); out is after ablation."""
    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    out: np.ndarray


class Reading(Owner, Paged):
    """A model that has read one text: what every head attended to.

    Attributes
    ----------
    words : list of str
        Tokens of the text as the model saw them.
    sites : list of Site
        Where there is attention, in order.
    """

    def __init__(self, model: Any, text: str, target: Optional[str] = None):
        super().__init__(model._context, model._lock)
        self._model, self.text, self.target = model, text, target
        self._owner = model if model._owned else model._trainer
        with self._lock:
            self._check(self._lib.ph_reading_create(
                byref(self._handle), model._handle, as_text("text", text),
                None if target is None else as_text("target", target)))
            self._owner._dependents.add(id(self))
        model._readings.add(self)
        self.words = [model.token_text(token) for token in self._tokens(0)]
        self.sites = self._sites()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._lib.ph_reading_free(self._handle)
            self._owner._without(id(self))

    def __repr__(self) -> str:
        heads = sum(site.heads for site in self.sites)
        return f"Reading of {len(self.words)} tokens by {heads} heads: {self.text!r}"

    def _tokens(self, decoder: int) -> list[int]:
        count = self._lib.ph_reading_length(self._handle, decoder)
        words = (self._lib.ph_reading_word(self._handle, decoder, i) for i in range(count))
        return [word.contents.token for word in words]

    def _sites(self) -> list[Site]:
        sites: list[Site] = []
        while found := self._lib.ph_reading_site(self._handle, len(sites)):
            site = found.contents
            sites.append(Site(site.name.decode(), site.heads, site.q_len, site.kv_len,
                              (site.variant or b"").decode()))
        return sites

    def _site(self, site: Union[int, str]) -> int:
        names = [each.name for each in self.sites]
        if site in names:
            return names.index(site)
        if isinstance(site, int) and 0 <= site < len(names):
            return site
        raise Error(f"site is {site!r}, expected one of {', '.join(names)}")

    def weights(self, site: Union[int, str]) -> np.ndarray:
        """All weights of a site, (heads, q_len, kv_len)."""
        index = self._site(site)
        at = self.sites[index]
        weights = np.empty((at.heads, at.q_len, at.kv_len), np.float32)
        wanted = _c.LookAt(weights=address(weights))
        with self._lock:
            self._check(self._lib.ph_reading_look(self._handle, index, byref(wanted)))
        return weights

    def vectors(self, site: Union[int, str], head: int) -> "Vectors":
        """Of one head as attention sees them, after norm and rotation."""
        index = self._site(site)
        at = self._lib.ph_reading_site(self._handle, index).contents
        found = Vectors(*(np.empty(shape, np.float32) for shape in (
            (at.q_len, at.qk_dim), (at.kv_len, at.qk_dim), (at.kv_len, at.v_dim),
            (at.q_len, at.v_dim))))
        where = [address(array) if array.size else None for array in found]
        with self._lock:
            self._check(self._lib.ph_reading_vectors(self._handle, index, head, *where))
        return found

    def ablate(self, heads: Mapping[tuple, Union[str, float]], frozen: bool = False) -> None:
        """Runs the text again with heads changed.

        heads says for (site, head) what becomes of its output: "zero", "mean" or "on", or a
        gate from 0 to 1 that multiplies it.
        frozen: the weights of all heads stay those of the first run.
        """
        first = np.cumsum([0, *(site.heads for site in self.sites)])
        plan, gates = np.zeros(first[-1], np.uint8), np.ones(first[-1], np.float32)
        for (site, head), kind in heads.items():
            index = self._site(site)
            gated = isinstance(kind, numbers.Real) and 0 <= kind <= 1
            if head not in range(self.sites[index].heads) \
                    or not gated and kind not in tuple(ABLATIONS):
                raise Error(f"head {head} of {site!r} becomes {kind!r}, expected one of "
                            f"{self.sites[index].heads} heads and {', '.join(ABLATIONS)} or "
                            f"a gate from 0 to 1")
            if gated:
                gates[first[index] + head] = kind
            else:
                plan[first[index] + head] = ABLATIONS[kind]
        with self._lock:
            self._check(self._lib.ph_reading_gates(self._handle, address(gates)))
            self._check(self._lib.ph_reading_run(self._handle, address(plan), int(frozen)))

    def links(self) -> np.ndarray:
        """Encoders: how likely word i belongs to each word, (words, words)."""
        found = np.empty((len(self.words), len(self.words)), np.float32)
        with self._lock:
            self._check(self._lib.ph_reading_links(self._handle, address(found)))
        return found

    def next(self) -> np.ndarray:
        """Log-probabilities, (tokens, vocab): decoders: of the token after each one; encoders
        that predict masked tokens: of the token in its place."""
        vocab = self._lib.ph_model_config(self._model._handle).contents.vocab
        rows = len(self._tokens(1)) or len(self._tokens(0))
        found = np.empty((rows, vocab), np.float32)
        with self._lock:
            self._check(self._lib.ph_reading_next(self._handle, address(found)))
        return found

    def classes(self) -> np.ndarray:
        """Probabilities of the classes of the text or picture, (classes,), of a regression its
        scores; or of every token, (tokens, classes), where the model classifies each."""
        config = self._model._config()
        each = config.classes and not config.pooling
        found = np.empty((len(self._tokens(0)),) * bool(each) + (config.classes,), np.float32)
        call = self._lib.ph_reading_token_classes if each else self._lib.ph_reading_classes
        with self._lock:
            self._check(call(self._handle, address(found)))
        return found

    def write_page(self, path: Path) -> None:
        """Writes the page: one HTML file that needs no network."""
        lib, target = self._lib, as_text("target", self.target) if self.target else None

        def create(scene: Any, io: Any) -> int:
            return lib.ph_scene_create(scene, self._model._handle, self._handle, b"polyhead",
                                       self.text.encode(), target, io)

        with self._lock:
            write_report(path, self._context, create, lib.ph_scene_report, lib.ph_scene_free)
