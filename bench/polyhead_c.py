#!/usr/bin/env python3
"""polyhead_c.py - structs and functions of polyhead.h and polyhead_layer.h for ctypes.

The structs are read from the headers: ph_layer_args becomes LayerArgs.

    python3 bench/polyhead_c.py --c        a C program that prints where the headers put
                                           every field found here
    python3 bench/polyhead_c.py --layout   the same lines from the classes below

tests/test_peers.sh compares the two. Nothing but the standard library is needed.
"""
import ctypes
import os
import re
import sys
from ctypes import POINTER, Structure, byref, c_char_p, c_int, c_size_t, c_void_p

HEADERS = ("polyhead.h", "polyhead_io.h", "polyhead_layer.h")


# ---- structs ----

SCALARS = {"int": c_int, "float": ctypes.c_float, "double": ctypes.c_double,
           "size_t": c_size_t, "int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64,
           "uint64_t": ctypes.c_uint64, "uint8_t": ctypes.c_uint8}


def read_headers():
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "include")
    texts = [open(os.path.join(folder, name), encoding="utf-8").read() for name in HEADERS]
    return re.sub(r"/\*.*?\*/", "", "".join(texts), flags=re.S)


def number_of(text, header):
    if text.isdigit():
        return int(text)
    return int(re.search(rf"\b{text}\s*=\s*(\d+)", header).group(1))


def field_of(base, declarator, types, header):
    """('wq', c_void_p) of 'const float *' and 'wq'"""
    if "(*" in declarator:
        return re.search(r"\(\*(\w+)\)", declarator).group(1), c_void_p
    stars, name, size = re.match(r"([*\s]|const\b)*(\w+)(?:\[(\w+)\])?$",
                                 declarator.strip()).group(1, 2, 3)
    kind = types.get(base, c_void_p)
    if "*" in declarator:
        kind = c_char_p if base == "char" and declarator.count("*") == 1 else c_void_p
    return name, kind * number_of(size, header) if size else kind


def fields_of(body, types, header):
    for line in body.split(";"):
        words = " ".join(line.split())
        if not words:
            continue
        head = re.match(r"((?:const |struct )*)(\w+) ?", words)
        rest = words[head.end():]
        for declarator in [rest] if "(*" in rest else rest.split(","):
            yield field_of(head.group(2), declarator, types, header)


def read_structs(header):
    """Classes by name, in the order of the headers."""
    types, structs = dict(SCALARS), {}
    for kind, name, body in re.findall(r"typedef (enum|struct) (\w+) \{(.*?)\} \2;", header,
                                       flags=re.S):
        if kind == "enum":
            types[name] = c_int
        else:
            fields = list(fields_of(body, types, header))
            types[name] = structs[name] = type(name, (Structure,), {"_fields_": fields})
    return structs


HEADER = read_headers()
VERSION = int("".join(re.search(rf"PH_VERSION_{part} (\d+)", HEADER).group(1).zfill(3)
                      for part in ("MAJOR", "MINOR", "PATCH")))
MIRRORED = read_structs(HEADER)
for _name, _mirror in MIRRORED.items():
    globals()["".join(word.capitalize() for word in _name.split("_")[1:])] = _mirror


# ---- functions ----

def load_library(path):
    lib = ctypes.CDLL(path)
    lib.ph_version.restype = c_char_p
    lib.ph_error.argtypes = [c_void_p]
    lib.ph_error.restype = c_char_p
    lib.ph_isa.argtypes = [c_void_p]
    lib.ph_isa.restype = c_char_p
    lib.ph_open_version.argtypes = [POINTER(c_void_p), POINTER(Options), c_int]
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
        if lib.ph_open_version(byref(self.handle), byref(options), VERSION):
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
    print('#include "polyhead_io.h"\n#include "polyhead_layer.h"\n#include <stdio.h>\nint main(void)\n{')
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
