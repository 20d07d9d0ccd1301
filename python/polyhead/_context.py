"""Where calls run: contexts of the library, and the errors it reports.

A ph_ctx runs one call at a time. A call takes a free one and gives it back; two Python
threads that call at once have two. A context that a thread holds while the process forks is
simply missing in the child, so nothing needs to be repaired there.
"""
from __future__ import annotations

import ctypes
import os
from ctypes import byref, c_void_p
from typing import Any, Callable, Hashable

from . import _c


class Error(ValueError):
    """A call that the library refused; the text is its sentence."""


def exception(status: int, sentence: str) -> Exception:
    if status == _c.PH_OUT_OF_MEMORY:
        return MemoryError(sentence)
    if status == _c.PH_IO_ERROR:
        return OSError(sentence)
    return Error(sentence)


class Context:
    """A ph_ctx with what was created on it: plans and layers, by their description."""

    LARGEST = 256  # plans and layers; then the oldest goes

    def __init__(self, threads: int, library: Any = None, **options: Any):
        self.lib = library or _c.core()
        self.key: Hashable = threads  # under which it is free
        self.made: dict = {}
        self.handle = c_void_p()
        text = ctypes.create_string_buffer(512)
        asked = _c.Options(threads=threads, error=ctypes.cast(text, ctypes.c_char_p),
                           error_size=512, **options)
        status = self.lib.ph_open_version(byref(self.handle), byref(asked),
                                          _c.VERSION_NUMBER)
        if status:
            raise exception(status, text.value.decode())
        self.isa = self.lib.ph_isa(self.handle).decode()

    def check(self, status: int) -> None:
        if status:
            raise self.error(status)

    def error(self, status: int) -> Exception:
        return exception(status, self.lib.ph_error(self.handle).decode())

    def make(self, key: Hashable, create: Callable) -> Any:
        """What `create` makes of this context, kept under the key."""
        if len(self.made) >= self.LARGEST:
            self.made.pop(next(iter(self.made))).free()
        made = self.made[key] = create(self)
        return made

    def close(self) -> None:
        for made in self.made.values():
            made.free()
        self.made.clear()
        self.lib.ph_close(self.handle)
        self.handle = None


_free: dict[Hashable, list[Context]] = {}
_threads = int(os.environ.get("POLYHEAD_THREADS", 0))


def set_threads(threads: int) -> None:
    """How many threads a call uses; 0: one per core this process may use.

    The results do not depend on it. The environment variable ``POLYHEAD_THREADS`` sets it
    from outside.
    """
    global _threads
    if threads < 0:
        raise ValueError(f"threads is {threads}, expected 0 (all cores) or more")
    _threads = threads


def get_threads() -> int:
    """The number of threads that a call uses."""
    context = take()
    try:
        return context.lib.ph_threads(context.handle)
    finally:
        give(context)


def take(threads: int | None = None) -> Context:
    """A context of this thread alone, until it is given back."""
    count = _threads if threads is None else threads
    try:
        return _free[count].pop()
    except (KeyError, IndexError):
        _free.setdefault(count, [])
        return Context(count)


def take_gpu(index: int) -> Context:
    """The same on a GPU; where the library cannot use it its sentence is raised."""
    key = "gpu", index
    try:
        return _free[key].pop()
    except (KeyError, IndexError):
        _free.setdefault(key, [])
        made = Context(1, device=_c.PH_CUDA, device_index=index)
        made.key = key
        return made


def give(context: Context) -> None:
    _free[context.key].append(context)
