#!/usr/bin/env python3
"""polyhead_c.py - structs and functions of polyhead.h and polyhead_layer.h for ctypes.

    python3 bench/polyhead_c.py --c        a C program that prints where the headers put
                                           every field named here
    python3 bench/polyhead_c.py --layout   the same lines from the classes below

tests/test_peers.sh compares the two. Nothing but the standard library is needed.
"""
import ctypes
import sys
from ctypes import (POINTER, Structure, byref, c_char_p, c_float, c_int, c_int64, c_size_t,
                    c_uint64, c_void_p)


# ---- polyhead.h ----

class Options(Structure):
    _fields_ = [("device", c_int), ("device_index", c_int), ("threads", c_int),
                ("isa", c_char_p), ("checked", c_int), ("alloc", c_void_p),
                ("release", c_void_p), ("parallel", c_void_p), ("user", c_void_p),
                ("error", c_char_p), ("error_size", c_size_t)]


class Strides(Structure):
    _fields_ = [("batch", c_int64), ("head", c_int64), ("time", c_int64)]


class Broadcast(Structure):
    _fields_ = [("batch", c_int), ("heads", c_int), ("q_len", c_int)]


class Attn(Structure):
    _fields_ = ([(name, c_int) for name in ("batch", "q_heads", "k_heads", "v_heads", "q_len",
                                            "kv_len", "qk_dim", "v_dim", "dtype")]
                + [(name, Strides) for name in ("q", "k", "v", "out", "dq", "dk", "dv")]
                + [(name, c_float) for name in ("scale", "softcap", "dropout")]
                + [(name, c_int) for name in ("mask", "band_left", "band_right", "anchor",
                                              "q_offset")]
                + [("bias", Broadcast), ("visible", Broadcast), ("reach", c_int),
                   ("gate", c_int), ("variant", c_char_p), ("backward", c_int)])


class Param(Structure):
    _fields_ = [("name", c_char_p), ("rank", c_int), ("dims", c_int * 4), ("optional", c_int),
                ("unused", c_size_t)]


class Args(Structure):
    _fields_ = ([(name, c_void_p) for name in ("q", "k", "v", "out", "lse", "bias", "visible",
                                               "gate", "sink", "alibi", "relative", "q_lens",
                                               "kv_lens", "extra", "look")]
                + [("seed", c_uint64), ("workspace", c_void_p), ("stream", c_void_p)])


class Grads(Structure):
    _fields_ = [(name, c_void_p) for name in ("dout", "dlse", "dq", "dk", "dv", "dbias",
                                              "dgate", "dsink", "drelative", "dextra")]


# ---- polyhead_layer.h ----

class LayerDesc(Structure):
    _fields_ = ([(name, c_int) for name in ("model_dim", "memory_dim", "out_dim", "concat")]
                + [("attn", Attn)]
                + [(name, c_int) for name in ("q_form", "k_form", "v_form", "rope")]
                + [("rope_base", c_float), ("rope_dims", c_int), ("rope_scaling", c_int),
                   ("rope_factor", c_float), ("rope_length", c_int), ("rope_low", c_float),
                   ("rope_high", c_float), ("yarn_untruncated", c_int), ("qk_norm", c_int),
                   ("norm_eps", c_float), ("norm_plus_one", c_int), ("cache", c_int)])


class LayerWeights(Structure):
    _fields_ = [(name, c_void_p) for name in ("wq", "wk", "wv", "wo", "bq", "bk", "bv", "bo",
                                              "q_norm", "k_norm", "extra")]


class LayerArgs(Structure):
    _fields_ = ([(name, c_void_p) for name in ("x", "memory", "out", "heads")]
                + [("attn", Args), ("balance", c_float)]
                + [(name, c_void_p) for name in ("balance_loss", "gate_out", "past", "k_cache",
                                                 "v_cache", "extra_cache", "saved")])


class LayerGrads(Structure):
    _fields_ = [(name, c_void_p) for name in (
        "dout", "dlse", "dx", "dmemory", "dwq", "dwk", "dwv", "dwo", "dbq", "dbk", "dbv",
        "dbo", "dq_norm", "dk_norm", "dbias", "dgate", "dsink", "drelative", "dextra")]


MIRRORED = {"ph_options": Options, "ph_strides": Strides, "ph_broadcast": Broadcast,
            "ph_attn": Attn, "ph_param": Param, "ph_args": Args, "ph_grads": Grads,
            "ph_layer_desc": LayerDesc, "ph_layer_weights": LayerWeights,
            "ph_layer_args": LayerArgs, "ph_layer_grads": LayerGrads}


# ---- functions ----

def load_library(path):
    lib = ctypes.CDLL(path)
    lib.ph_version.restype = c_char_p
    lib.ph_error.argtypes = [c_void_p]
    lib.ph_error.restype = c_char_p
    lib.ph_isa.argtypes = [c_void_p]
    lib.ph_isa.restype = c_char_p
    lib.ph_open.argtypes = [POINTER(c_void_p), POINTER(Options)]
    lib.ph_close.argtypes = [c_void_p]
    lib.ph_plan_create.argtypes = [POINTER(c_void_p), c_void_p, POINTER(Attn)]
    lib.ph_plan_free.argtypes = [c_void_p]
    lib.ph_plan_workspace.argtypes = [c_void_p]
    lib.ph_plan_workspace.restype = c_size_t
    lib.ph_plan_extra.argtypes = [c_void_p, c_int]
    lib.ph_plan_extra.restype = POINTER(Param)
    lib.ph_forward.argtypes = [c_void_p, POINTER(Args)]
    lib.ph_backward.argtypes = [c_void_p, POINTER(Args), POINTER(Grads)]
    lib.ph_layer_create.argtypes = [POINTER(c_void_p), c_void_p, POINTER(LayerDesc)]
    lib.ph_layer_free.argtypes = [c_void_p]
    lib.ph_layer_saved.argtypes = [c_void_p]
    lib.ph_layer_saved.restype = c_size_t
    lib.ph_layer_param.argtypes = [c_void_p, c_int]
    lib.ph_layer_param.restype = POINTER(Param)
    lib.ph_layer_named.argtypes = [c_void_p]
    lib.ph_layer_forward.argtypes = [c_void_p, POINTER(LayerWeights), POINTER(LayerArgs)]
    lib.ph_layer_backward.argtypes = [c_void_p, POINTER(LayerWeights), POINTER(LayerArgs),
                                      POINTER(LayerGrads)]
    return lib


class Context:
    """A ph_ctx; calls that fail end the program with its sentence."""

    def __init__(self, lib, threads, **hooks):
        text = ctypes.create_string_buffer(256)
        options = Options(threads=threads, error=ctypes.cast(text, c_char_p), error_size=256,
                          **hooks)
        self.lib, self.handle = lib, c_void_p()
        if lib.ph_open(byref(self.handle), byref(options)):
            sys.exit("ph_open: " + text.value.decode())
        self.isa = lib.ph_isa(self.handle).decode()

    def check(self, status):
        if status:
            sys.exit("polyhead: " + self.lib.ph_error(self.handle).decode())

    def close(self):
        self.lib.ph_close(self.handle)


# ---- the layout, as a check of the classes against the headers ----

def print_layout():
    for name, mirror in MIRRORED.items():
        print(name, ctypes.sizeof(mirror))
        for field, _ in mirror._fields_:
            place = getattr(mirror, field)
            print(f"{name}.{field}", place.offset, place.size)


def print_layout_program():
    print('#include "polyhead_layer.h"\n#include <stdio.h>\nint main(void)\n{')
    for name, mirror in MIRRORED.items():
        print(f'    printf("{name} %zu\\n", sizeof({name}));')
        for field, _ in mirror._fields_:
            print(f'    printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), '
                  f"sizeof((({name} *)0)->{field}));")
    print("    return 0;\n}")


if __name__ == "__main__":
    if sys.argv[1:] not in (["--c"], ["--layout"]):
        sys.exit("usage: polyhead_c.py --c | --layout")
    (print_layout_program if sys.argv[1] == "--c" else print_layout)()
