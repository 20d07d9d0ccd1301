"""Polyhead in Hugging Face transformers.

Importing this module registers the name: ``attn_implementation="polyhead"`` then works
wherever ``"sdpa"`` does, and with soft-caps, sinks and attention weights as well.

>>> import polyhead.transformers
>>> from transformers import AutoModel                                    # doctest: +SKIP
>>> model = AutoModel.from_pretrained(NAME, attn_implementation="polyhead")  # doctest: +SKIP
"""
from __future__ import annotations

import contextlib
from typing import Any, Iterator, NamedTuple, Optional

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers import masking_utils

from ._context import Error
from ._plans import Options
from ._torch_attention import NONE, OPTIONAL, look_at, refusal, run, small, unbroadcast

try:
    from transformers.utils.output_capturing import _active_collector
except ImportError:  # before transformers 5 models pass output_attentions themselves
    _active_collector = None

__all__ = ["Record", "record"]

# Arguments that change what attention computes and that we do not have.
REFUSED = ("indices", "block_indices", "cache")


# ---- masks -------------------------------------------------------------------------------

def mask(batch_size: int, q_length: int, kv_length: int, q_offset: Any = 0,
         kv_offset: Any = 0, mask_function: Any = masking_utils.causal_mask_function,
         attention_mask: Optional[Tensor] = None, **others: Any) -> Optional[Tensor]:
    """What `attention` gets as a mask. Padding alone is left as it is, (batch, 1, 1, keys),
    because a mask of rows and keys takes twice the time: as int8 it means "causal from the
    end, and these keys", as uint8 "these keys". Everything else is transformers' own."""
    simple = (attention_mask is not None and attention_mask.dim() == 2
              and isinstance(kv_offset, int) and kv_offset == 0
              and attention_mask.shape[1] >= kv_length)
    if simple and mask_function is masking_utils.bidirectional_mask_function:
        return attention_mask[:, None, None, :kv_length].to(torch.uint8)
    if (simple and mask_function is masking_utils.causal_mask_function
            and isinstance(q_offset, int) and q_offset + q_length == kv_length):
        return attention_mask[:, None, None, :kv_length].to(torch.int8)
    return masking_utils.sdpa_mask(
        batch_size=batch_size, q_length=q_length, kv_length=kv_length, q_offset=q_offset,
        kv_offset=kv_offset, mask_function=mask_function, attention_mask=attention_mask,
        **others)


class Seen(NamedTuple):
    """What a call may see: causality, and the tensors that say it."""
    causal: bool
    offset: Any
    visible: Optional[Tensor]
    bias: Optional[Tensor]


def seen_by(module: Any, q: Tensor, keys: int, given: Optional[Tensor],
            is_causal: Optional[bool], position_bias: Optional[Tensor]) -> Seen:
    bias = None if position_bias is None else unbroadcast(position_bias, keys).float()
    if given is None:
        # As PyTorch has it: from the top left, and a single row sees all keys.
        causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        return Seen(bool(causal) and q.shape[2] > 1, 0, None, bias)
    if given.dim() == 4 and given.shape[3] > keys:
        given = given[..., :keys]
    if given.dtype in (torch.int8, torch.uint8, torch.bool):
        visible = unbroadcast(given, keys).view(torch.uint8)
        return Seen(given.dtype == torch.int8, "end", visible, bias)
    added = unbroadcast(given.float(), keys)
    return Seen(False, "end", None, added if bias is None else bias + added)


# ---- attention ---------------------------------------------------------------------------

def attention(module: Any, query: Tensor, key: Tensor, value: Tensor,
              attention_mask: Optional[Tensor], dropout: float = 0.0,
              scaling: Optional[float] = None, is_causal: Optional[bool] = None,
              position_bias: Optional[Tensor] = None, softcap: Optional[float] = None,
              s_aux: Optional[Tensor] = None, output_attentions: Optional[bool] = None,
              **others: Any) -> tuple[Tensor, Optional[Tensor]]:
    """The function that models call: (batch, heads, len, dim) in, (batch, len, heads, dim)
    out, and weights where they are wanted."""
    reason = refusal(query, key, value)
    if reason is not None:
        raise Error(f"{reason}; use attn_implementation='sdpa' for this model")
    for name in REFUSED:
        if others.get(name) is not None:
            raise Error(f"the model passes {name} to attention, which polyhead does not have")
    seen = seen_by(module, query, key.shape[2], attention_mask, is_causal, position_bias)
    if softcap and seen.bias is not None:
        raise Error("softcap with an additive mask, expected a boolean one: models cap "
                    "before they add, polyhead after")
    optional: tuple = NONE
    if seen.visible is not None or seen.bias is not None or s_aux is not None:
        given = {"bias": seen.bias, "visible": seen.visible,
                 "sink": small(s_aux, torch.float32)}
        optional = tuple(given.get(name) for name in OPTIONAL)
    options = Options(seen.causal, None, seen.offset, scaling, softcap or 0.0, dropout)
    seed = torch.randint(2**62, (1,)) if dropout else None
    out = run(query, key, value, optional, (), seed, options)
    weights = None
    if wants_weights(output_attentions):
        weights = look_at(query, key, optional, options._replace(dropout=0.0))["weights"]
    if _records:
        _records[-1]._add(module, query, key, optional, options._replace(dropout=0.0))
    return out.transpose(1, 2), weights


def wants_weights(asked: Optional[bool]) -> bool:
    """Models pass output_attentions on, or collect what their layers return."""
    if asked:
        return True
    collected = _active_collector.get() if _active_collector is not None else None
    return bool(collected) and any(name.endswith("attentions") for name in collected)


AttentionInterface.register("polyhead", attention)
AttentionMaskInterface.register("polyhead", mask)


# ---- what heads attended to, in O(T) ------------------------------------------------------

_records: list["Record"] = []


class Record:
    """Summaries of every attention call of a model, by the name of the module.

    Attributes
    ----------
    calls : list of (str, dict)
        The module's name, and "col_sum" (batch, heads, keys), "entropy" (batch, heads,
        rows), "top_weight" and "top_index" (batch, heads, rows, top_k).
    """

    def __init__(self, model: Any, top_k: int):
        self._names = {id(module): name for name, module in model.named_modules()}
        self.top_k, self.calls = top_k, []

    def _add(self, module: Any, q: Tensor, k: Tensor, optional: tuple,
             options: Options) -> None:
        if id(module) in self._names:
            found = look_at(q, k, optional, options, summaries=True, top_k=self.top_k)
            self.calls.append((self._names[id(module)], found))


@contextlib.contextmanager
def record(model: Any, top_k: int = 8) -> Iterator[Record]:
    """Within it, keeps what heads attend to as summaries: never a T x T matrix.

    >>> with polyhead.transformers.record(model) as heads:      # doctest: +SKIP
    ...     model(**inputs)
    """
    made = Record(model, top_k)
    _records.append(made)
    try:
        yield made
    finally:
        _records.remove(made)
