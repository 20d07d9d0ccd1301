"""What `Model.importance` and `Model.convert` take and return."""
from __future__ import annotations

from ctypes import c_void_p
from typing import Any, Mapping, NamedTuple

from . import _c
from ._context import Error
from ._owner import as_text

# In the order of ph_alignment, ph_grouping and ph_merging.
CHOICES = {"align": ("full", "pair", "none"), "group": ("similar", "consecutive"),
           "merge": ("fit", "mean", "first", "random")}


class Worth(NamedTuple):
    """What a head is worth: a mean over texts with its standard error."""
    site: str
    head: int
    value: float
    error: float


class Conversion(NamedTuple):
    """What a conversion lost and saved; losses and the distance are NaN where unknown.

    Errors are those of keys (collab: of scores) and values of each attention site, relative
    to the original; NaN for variants, whose outputs alone are compared.
    """
    loss: float
    converted_loss: float
    distance: float
    kv_bytes: int
    converted_kv_bytes: int
    parameters: int
    converted_parameters: int
    key_errors: list[float]
    value_errors: list[float]


def conversion_options(to: str, chosen: Mapping[str, str], **others: Any) -> Any:
    """A ph_conversion."""
    for name, value in chosen.items():
        if value not in CHOICES[name]:
            raise Error(f"{name} is {value!r}, expected one of {', '.join(CHOICES[name])}")
    how = _c.Conversion(**others, **{name: CHOICES[name].index(value)
                                     for name, value in chosen.items()})
    name = as_text("to", to)
    if len(name) >= _c.PH_VARIANT_TEXT:
        raise Error(f"to has {len(name)} bytes, expected a name such as gqa:2")
    how.to = name
    return how


def conversion_of(handle: c_void_p) -> Conversion:
    """Copies a ph_conversion_report."""
    report = _c.ConversionReport.from_address(handle.value)
    sites = (_c.ConvertedSite * report.site_count).from_address(report.sites)
    return Conversion(
        **{name: getattr(report, name) for name in Conversion._fields[:-2]},
        key_errors=[site.key_error for site in sites],
        value_errors=[site.value_error for site in sites])
