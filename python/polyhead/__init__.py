"""Polyhead: multi-head attention, forward and backward, with the same bits everywhere.

>>> import numpy as np, polyhead
>>> q = k = v = np.ones((1, 2, 4, 16), np.float32)
>>> polyhead.attention(q, k, v, causal=True).shape
(1, 2, 4, 16)

Frameworks have modules of their own, imported by name: polyhead.torch,
polyhead.transformers, polyhead.jax.
"""
from ._attention import Look, attention, attention_backward, look
from ._c import VERSION as __version__
from ._context import Error, get_threads, set_threads
from ._layer import Cache, Layer
from ._model import Model
from ._reading import Reading
from ._training import Trainer, recipes

__all__ = ["Cache", "Error", "Layer", "Look", "Model", "Reading", "Trainer", "attention",
           "attention_backward", "get_threads", "look", "recipes", "set_threads",
           "__version__"]
