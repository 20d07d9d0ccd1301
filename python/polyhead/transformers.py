"""Polyhead in Hugging Face transformers.

Importing this module registers the name: ``attn_implementation="polyhead"`` then works
wherever ``"sdpa"`` does, and with soft-caps, sinks and attention weights as well.

>>> import polyhead.transformers
>>> from transformers import AutoModel                                    # doctest: +SKIP
>>> model = AutoModel.from_pretrained(NAME, attn_implementation="polyhead")  # doctest: +SKIP
"""
from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator, NamedTuple, Optional

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers import masking_utils

from ._context import Error
from ._plans import Options
from ._torch_attention import NONE, OPTIONAL, look_at, refusal, run, small, unbroadcast
from ._torch_layers import Heads

try:
    from transformers.utils.output_capturing import _active_collector
except ImportError:  # before transformers 5 models pass output_attentions themselves
    _active_collector = None

__all__ = ["Record", "record", "replace_heads"]

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
                 "sink": small("s_aux", s_aux, torch.float32)}
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


# ---- other heads in a loaded model ---------------------------------------------------------

class Old(NamedTuple):
    """Attention of a model as it is: options of the layer that computes the same, its
    weights by the layer's names, (in, out), and the dropout behind it."""
    options: dict
    weights: dict[str, Tensor]
    dropout: Optional[nn.Module] = None


def linear(letter: str, layer: nn.Linear) -> dict[str, Tensor]:
    found = {"w" + letter: layer.weight.T}
    return found if layer.bias is None else {**found, "b" + letter: layer.bias}


def read_bert(module: Any) -> Old:
    """Projections of q, k and v; that of the result follows in a module of its own."""
    options = {"causal": bool(module.is_causal), "dropout": module.dropout.p, "concat": True,
               "heads": module.num_attention_heads, "head_dim": module.attention_head_size}
    return Old(options, {**linear("q", module.query), **linear("k", module.key),
                         **linear("v", module.value)})


def read_gpt2(module: Any) -> Old:
    """One matrix for q, k and v, stored (in, out)."""
    options = {"causal": True, "dropout": module.attn_dropout.p, "heads": module.num_heads,
               "head_dim": module.head_dim}
    weights = {"wo": module.c_proj.weight, "bo": module.c_proj.bias}
    for kind, whole in (("w", module.c_attn.weight), ("b", module.c_attn.bias)):
        weights |= {kind + letter: part for letter, part
                    in zip("qkv", whole.split(module.embed_dim, dim=-1))}
    return Old(options, weights, module.resid_dropout)


def read_llama(module: Any) -> Old:
    """Rotary positions and grouped heads."""
    config = module.config
    rope = getattr(config, "rope_parameters", None) or {
        "rope_theta": config.rope_theta, **(getattr(config, "rope_scaling", None) or {})}
    kind = rope.get("rope_type", "default")
    if kind != "default" or rope.get("partial_rotary_factor", 1.0) != 1.0:
        raise Error(f"the model has rotary positions of type {kind!r}, expected 'default' "
                    f"ones of whole heads")
    options = {"causal": True, "dropout": module.attention_dropout, "rope": "half",
               "rope_base": rope["rope_theta"], "head_dim": module.head_dim,
               "heads": config.num_attention_heads, "k_heads": config.num_key_value_heads,
               "v_heads": config.num_key_value_heads}
    return Old(options, {**linear("q", module.q_proj), **linear("k", module.k_proj),
                         **linear("v", module.v_proj), **linear("o", module.o_proj)})


READERS: dict[str, Callable[[Any], Old]] = {
    "BertSelfAttention": read_bert, "RobertaSelfAttention": read_bert,
    "GPT2Attention": read_gpt2, "LlamaAttention": read_llama, "MistralAttention": read_llama,
    "Qwen2Attention": read_llama}


class ReplacedHeads(nn.Module):
    """A layer of ours where a model had its attention."""

    def __init__(self, heads: Heads, dropout: Optional[nn.Module]):
        super().__init__()
        self.heads, self.dropout = heads, dropout

    def forward(self, hidden_states: Tensor, *_: Any, attention_mask: Optional[Tensor] = None,
                past_key_values: Any = None, output_attentions: Optional[bool] = None,
                **others: Any) -> tuple[Tensor, None]:
        if past_key_values is not None:
            raise Error("the call has a cache, expected use_cache=False: replaced heads read "
                        "the whole text each time")
        if wants_weights(output_attentions):
            raise Error("attention weights are asked of replaced heads, which have none")
        if attention_mask is not None and attention_mask.dtype == torch.int8:
            attention_mask = attention_mask.view(torch.uint8)  # causal is the layer's option
        out = self.heads(hidden_states, attn_mask=attention_mask)
        return out if self.dropout is None else self.dropout(out), None


def pooled(weight: Tensor, columns: int, dim: int) -> Tensor:
    """k or v with fewer heads: the mean of those that become one."""
    *rows, have = weight.shape
    if have % columns:
        return weight
    return weight.reshape(*rows, columns // dim, have // columns, dim).mean(-2).flatten(-2)


@torch.no_grad()
def carry(heads: Heads, old: Old, grouped: bool) -> list[str]:
    """Copies the weights that fit; the names of parameters that start anew."""
    fresh = []
    for name, parameter in heads.named_parameters():
        weight = old.weights.get(name)
        if grouped and weight is not None and name in ("wk", "wv", "bk", "bv"):
            weight = pooled(weight, parameter.shape[-1], old.options["head_dim"])
        if weight is not None and weight.shape == parameter.shape:
            parameter.copy_(weight)
        elif name in ("bq", "bk", "bv", "bo"):
            parameter.zero_()
        else:
            fresh.append(name)
    return fresh


def replacement(module: Any, variant: Optional[str]) -> tuple[ReplacedHeads, list[str]]:
    old = READERS[type(module).__name__](module)
    options = dict(old.options)
    if module.scaling != options["head_dim"] ** -0.5:
        options["scale"] = module.scaling
    grouped = (variant or "").startswith(("gqa", "mqa"))
    if grouped:  # then the variant says how many
        options = {name: x for name, x in options.items() if name not in ("k_heads", "v_heads")}
    heads = Heads(old.weights["wq"].shape[0], options.pop("heads"), variant=variant,
                  bias=any(name.startswith("b") for name in old.weights), **options)
    fresh = carry(heads, old, grouped)
    made = ReplacedHeads(heads, old.dropout).train(module.training)
    return made, fresh


def replace_heads(model: Any, variant: Optional[str]) -> dict[str, list[str]]:
    """Replaces every self-attention of a loaded model by heads of a variant, in place.

    Parameters
    ----------
    model : PreTrainedModel
        BERT, RoBERTa, GPT-2, LLaMA, Mistral or Qwen2, on the CPU.
    variant : str, optional
        ``"moh:shared=2,top=4"``, ``"talking"``, ``"gqa:2"``, ...; None: plain heads.

    Returns
    -------
    dict of list of str
        By the name of the module, parameters that start anew, because the model had none
        or others. Weights that fit are carried over; where the variant has fewer heads of
        k and v, as means.

    The model has no cache from now on, so `generate` reads the whole text for each token.
    Parameters of the heads stay float32. To load a checkpoint of a changed model, replace
    the heads first.
    """
    found = {name: module for name, module in model.named_modules()
             if type(module).__name__ in READERS}
    config = model.config
    if not found or getattr(config, "add_cross_attention", False):
        raise Error(f"the model is a {config.model_type} model"
                    + (" with cross-attention" if found else "") + ", expected one of "
                    + ", ".join(name.partition("Self")[0].removesuffix("Attention")
                                for name in READERS))
    made = {name: replacement(module, variant) for name, module in found.items()}
    for name, (module, _) in made.items():
        model.set_submodule(name, module)
    model.set_attn_implementation("polyhead")  # masks come as ours then
    config.use_cache = False
    if getattr(model, "generation_config", None) is not None:
        model.generation_config.use_cache = False
    return {name: fresh for name, (_, fresh) in made.items()}
