"""Polyhead in PyTorch: attention and whole layers with autograd, for tensors on the CPU.

>>> import torch
>>> from polyhead.torch import scaled_dot_product_attention
>>> q = torch.ones(1, 2, 4, 16, requires_grad=True)
>>> scaled_dot_product_attention(q, q, q, is_causal=True, dropout_p=0.1).sum().backward()
"""
from ._torch_attention import scaled_dot_product_attention
from ._torch_layers import Heads, MultiheadAttention

__all__ = ["Heads", "MultiheadAttention", "scaled_dot_product_attention"]
