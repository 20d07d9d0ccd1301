"""The page of `polyhead look`: as a file, as text, and as what a notebook shows."""
from __future__ import annotations

import ctypes
import json
import os
import tempfile
from ctypes import byref, c_void_p
from typing import Any, Callable, Optional, Sequence

from . import _c
from ._context import exception
from ._owner import Path


class Paged:
    """What has a page; `write_page` is its own."""

    def write_page(self, path: Path) -> None:
        raise NotImplementedError

    def page(self) -> str:
        """The page as text."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "page.html")
            self.write_page(path)
            with open(path, encoding="utf-8") as file:
                return file.read()

    def _repr_html_(self) -> Optional[str]:
        """In a notebook: the page in a frame, so that neither disturbs the other."""
        source = self.page().replace("&", "&amp;").replace('"', "&quot;")
        return f'<iframe srcdoc="{source}" width="100%" height="700" frameborder="0"></iframe>'


def write_report(path: Path, context: Any, create: Callable, report_of: Callable,
                 free: Callable) -> None:
    """Writes the page of what `create` makes, given its handle and a ph_io."""
    text = ctypes.create_string_buffer(512)
    io = _c.Io(error=ctypes.cast(text, ctypes.c_char_p), error_size=512)

    def check(status: int) -> None:
        if status:
            raise exception(status, text.value.decode())

    lib, made, survey = _c.model(), c_void_p(), c_void_p()
    try:
        check(create(byref(made), byref(io)))
        report = report_of(made)
        check(lib.ph_survey_create(byref(survey), byref(report), byref(io)))
        facts = _c.SurveyFacts(ctx=context.handle)
        check(lib.ph_survey_text(survey, byref(report), byref(facts), byref(io)))
        check(lib.ph_survey_end(survey, byref(report), None, byref(io)))
        check(lib.ph_page_write(os.fsencode(path), byref(report), None, None, byref(io)))
    finally:
        lib.ph_survey_free(survey)
        free(made)


def write_maps(path: Path, context: Any, weights: Any, words: Optional[Sequence[str]]) -> None:
    """The page of weights (heads, rows, keys), float32."""
    lib = _c.model()
    head = json.dumps({"attention.0": {"dtype": "F32", "shape": weights.shape,
                                       "data_offsets": [0, weights.nbytes]}}).encode()
    with tempfile.TemporaryDirectory() as folder:
        maps, tokens = (os.path.join(folder, name) for name in ("maps", "words"))
        with open(maps, "wb") as file:
            file.write(len(head).to_bytes(8, "little") + head + weights.tobytes())
        files = _c.MapsFiles(weights=os.fsencode(maps))
        if words is not None:
            with open(tokens, "w", encoding="utf-8") as file:
                json.dump([str(word) for word in words], file)
            files.tokens = os.fsencode(tokens)
        write_report(path, context, lambda made, io: lib.ph_maps_read(made, byref(files), io),
                     lib.ph_maps_report, lib.ph_maps_free)
