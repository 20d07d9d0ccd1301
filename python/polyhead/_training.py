"""Training of models by recipes."""
from __future__ import annotations

import ctypes
import os
from ctypes import byref
from typing import Any, Mapping, NamedTuple, Optional, Sequence, Union

from . import _c
from ._context import Error
from ._model import Model
from ._owner import Owner, Path, as_text, own_context


# Fields of a configuration that have names, in the order of their enumerations.
NAMES = {
    "arch": ("encoder", "decoder", "encoder-decoder"),
    "norm_place": ("pre", "post", "sandwich"), "norm": ("layer", "rms"),
    "activation": ("gelu", "relu", "swiglu", "gelu_erf", "geglu", "silu", "geglu_erf"),
    "positions": ("sinusoidal", "learned", "rope", "alibi", "none", "t5",
                  "sinusoidal_halves", "learned_t5"),
    "pooling": ("none", "first", "mean", "max", "last", "mean_sqrt", "weighted"),
    "pooler": ("none", "tanh", "relu", "identity", "gelu"), "rope_scaling": ("none", "linear", "llama3", "yarn", "longrope"),
}


class Progress(NamedTuple):
    """Of one step of training."""
    step: int
    loss: float
    grad_norm: float
    lr: float
    tokens: int


class Score(NamedTuple):
    """On texts that training never sees."""
    loss: float
    token_accuracy: float
    exact_match: float
    texts: int


class Trainer(Owner):
    """Trains a model by a recipe: a new one, or one that goes on learning.

    Parameters
    ----------
    recipe : str
        "copy", "dates", "pronouns", "text", "pairs", "classes", ...; see `recipes`.
    config : dict, optional
        What differs from the model of the recipe: layers, heads, model_dim, variant, norm,
        positions, ..., as in `Model.config`. With `start` only dropout.
    start : Model or path, optional
        The model to go on from, with recipe "text" or "classes", and its tokenizer; with
        fewer steps and a smaller learning rate by default. A Model is not copied: it
        becomes `model`, and changes with every step. Readings of it must be gone.
    **changes
        What differs from its hyperparameters: steps, batch, lr, warmup, seed, file, ...

    Examples
    --------
    >>> import polyhead
    >>> trainer = polyhead.Trainer("copy", config={"layers": 1}, batch=4)
    >>> trainer.step().step
    1
    """

    def __init__(self, recipe: str, config: Optional[Mapping[str, Any]] = None,
                 start: Union[Model, Path, None] = None, **changes: Any):
        given = isinstance(start, Model)
        if given:
            start._changeable("Trainer")
        train = options_of(_c.model(), recipe, config or {}, start, changes)
        super().__init__(start._context if given else own_context(),
                         start._lock if given else None)
        with self._lock:
            if given:
                self._take_over(start, train)
            else:
                self._check(self._lib.ph_trainer_create(
                    byref(self._handle), self._context.handle, byref(train)))

    def _take_over(self, model: Model, train: Any) -> None:
        """The library owns the model from here on, even where it refuses it."""
        handle, model._owned = model._handle, False
        del model._handle
        self._check(self._lib.ph_trainer_tune(byref(self._handle), self._context.handle,
                                              byref(train), handle))
        model._belongs_to(self)

    @classmethod
    def resume(cls, directory: Path) -> "Trainer":
        """Goes on from the newest checkpoint, with the bits of a training never stopped."""
        trainer = cls.__new__(cls)
        Owner.__init__(trainer, own_context())
        note = ctypes.create_string_buffer(512)
        trainer._check(trainer._lib.ph_trainer_resume(
            byref(trainer._handle), trainer._context.handle, os.fsencode(directory), note,
            512))
        return trainer

    def __del__(self) -> None:
        if "_handle" in self.__dict__:
            self._finish()

    def _free(self, handle: ctypes.c_void_p) -> None:
        self._lib.ph_trainer_free(handle)

    @property
    def model(self) -> Model:
        """The model as it is now; it changes with every step."""
        model = Model(self._context, self._lock)
        model._belongs_to(self)
        return model

    def step(self) -> Progress:
        """One step of the optimiser."""
        found = _c.Progress()
        with self._lock:
            self._check(self._lib.ph_trainer_step(self._handle, byref(found)))
        return Progress(found.step, found.loss, found.grad_norm, found.lr, found.tokens)

    def test(self, texts: int = 100) -> Score:
        """How good the model is on texts that training never sees."""
        found = _c.Score()
        with self._lock:
            self._check(self._lib.ph_trainer_test(self._handle, texts, byref(found)))
        return Score(found.loss, found.token_accuracy, found.exact_match, found.texts)

    def save(self, directory: Path) -> None:
        """Writes a checkpoint, whole or not at all; the directory is made where there is none."""
        os.makedirs(directory, exist_ok=True)
        with self._lock:
            self._check(self._lib.ph_trainer_save(self._handle, os.fsencode(directory)))


def recipes() -> dict[str, str]:
    """What can be trained, with a sentence on each."""
    lib, found = _c.model(), {}
    while name := lib.ph_recipe_name(len(found)):
        found[name.decode()] = lib.ph_recipe_help(len(found)).decode()
    return found


def options_of(lib: Any, recipe: str, config: Mapping[str, Any],
               start: Union[Model, Path, None], changes: Mapping[str, Any]) -> Any:
    """A ph_train: the defaults of the recipe, or of going on from a model, with changes."""
    train = _c.Train()
    if lib.ph_train_defaults(byref(train), as_text("recipe", recipe)):
        raise Error(f"recipe is {recipe!r}, expected one of {', '.join(recipes())}")
    if start is not None:
        path = None if isinstance(start, Model) else os.fsencode(start)
        if set(config) - {"dropout"}:
            raise Error(f"config has {', '.join(config)} beside start, expected dropout only: "
                        f"the model stays what it is")
        if lib.ph_train_from(byref(train), path):
            raise Error(f"start is a path of {len(path or b'')} bytes, expected fewer than "
                        f"{_c.PH_PATH_TEXT}")
    set_fields("config", train.config, config)
    set_fields("training", train, changes)
    return train


def set_fields(what: str, struct: Any, values: Mapping[str, Any]) -> None:
    """Numbers and texts of a struct by name."""
    known: Sequence[str] = [name for name, _ in struct._fields_
                            if name not in ("reserved", "config", "pace", "tuned", "from")]
    for name, value in values.items():
        if name not in known:
            raise Error(f"{what} has no {name!r}, expected {', '.join(known)}")
        if name in NAMES:
            if value not in NAMES[name]:
                raise Error(f"{name} is {value!r}, expected one of {', '.join(NAMES[name])}")
            value = NAMES[name].index(value)
        text = isinstance(value, (str, os.PathLike))
        try:
            setattr(struct, name, os.fsencode(value) if text else value)
        except (TypeError, ValueError) as why:
            raise Error(f"{name} is {value!r}: {why}") from None
