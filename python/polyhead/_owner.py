"""Handles of models, readings and trainers: each has a context, and a lock around its calls."""
from __future__ import annotations

import os
import threading
from ctypes import c_void_p
from typing import Any, Union

from . import _c, _context
from ._context import Context, Error

Path = Union[str, "os.PathLike[str]"]


class Owner:
    """A handle of the library with a context of its own, used by one thread at a time."""

    def __init__(self, context: Context, lock: Any = None):
        self._lib, self._context = _c.model(), context
        self._handle, self._lock = c_void_p(), lock or threading.RLock()
        self._dependents: set[int] = set()  # readings, which are freed before this
        self._finished = False

    def _free(self, handle: c_void_p) -> None:
        raise NotImplementedError

    def _finish(self) -> None:
        """Frees the handle, where readings live with the last of them: in garbage with cycles
        finalizers are called in any order."""
        self._finished = True
        if self._dependents:
            return
        handle = self.__dict__.pop("_handle", None)  # one of several threads gets it
        if handle is not None:
            self._free(handle)
            self._context.close()

    def _without(self, dependent: int) -> None:
        self._dependents.discard(dependent)
        if self._finished:
            self._finish()

    def _check(self, status: int) -> None:
        self._context.check(status)

    def __getstate__(self) -> None:
        raise TypeError(f"a {type(self).__name__} cannot be pickled or copied: write it to "
                        f"a file and read that")


def own_context() -> Context:
    _c.model()
    return Context(_context._threads)


def as_text(name: str, value: Any) -> bytes:
    """A text as the library reads it: UTF-8, ended by a 0."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is a {type(value).__name__}, expected a str")
    if "\0" in value:
        raise Error(f"{name} has a character 0, expected a text without")
    try:
        return value.encode()
    except UnicodeEncodeError as why:
        raise Error(f"{name} has a lone surrogate at {why.start}, expected Unicode") from None


def as_texts(name: str, values: Any) -> list[bytes]:
    if isinstance(values, (str, bytes)):
        raise TypeError(f"{name} is one text, expected a list of them")
    if not hasattr(values, "__len__"):
        raise TypeError(f"{name} is a {type(values).__name__}, expected a list of texts")
    return [as_text(name, value) for value in values]
