"""The C libraries through ctypes: structs, constants and functions, as the headers say.

Nothing is declared twice: `ph_layer_args` of polyhead_layer.h becomes `LayerArgs` here,
enumerators are attributes (`PH_MASK_CAUSAL`), and prototypes become `argtypes` and
`restype`. Pointers are plain addresses. Needs the standard library only.

    python3 _c.py --c        a C program that prints where the headers put every field
    python3 _c.py --layout   the same lines from the classes made here
"""
from __future__ import annotations

import ctypes
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
CHECKOUT = os.path.dirname(os.path.dirname(HERE))
CORE = ("polyhead.h", "polyhead_io.h", "polyhead_layer.h")
MODEL = ("polyhead_model.h", "polyhead_train.h", "polyhead_view.h", "polyhead_heads.h",
         "polyhead_maps.h", "polyhead_scene.h", "polyhead_prune.h", "polyhead_convert.h")

TYPES: dict = {"int": ctypes.c_int, "unsigned": ctypes.c_uint, "float": ctypes.c_float,
               "double": ctypes.c_double, "char": ctypes.c_char, "size_t": ctypes.c_size_t,
               "uint8_t": ctypes.c_uint8, "int32_t": ctypes.c_int32,
               "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64, "void": None}
STRUCTS: dict = {}
CONSTANTS: dict = {}


# ---- reading headers ---------------------------------------------------------------------

def folder_of_headers() -> str:
    """Beside the package where it is installed, else those of the checkout."""
    inside = os.path.join(HERE, "include")
    return inside if os.path.isdir(inside) else os.path.join(CHECKOUT, "include")


def text_of(headers) -> str:
    texts = []
    for name in headers:
        with open(os.path.join(folder_of_headers(), name), encoding="utf-8") as file:
            texts.append(file.read())
    return re.sub(r"/\*.*?\*/", "", "".join(texts), flags=re.S)


def value_of(expression: str) -> int:
    """Of an enumerator or the length of an array: numbers and earlier constants."""
    return eval(expression, {"__builtins__": {}}, CONSTANTS)


def add_constants(body: str) -> None:
    following = 0
    for entry in body.split(","):
        name, _, expression = (part.strip() for part in entry.partition("="))
        if name:
            CONSTANTS[name] = value_of(expression) if expression else following
            following = CONSTANTS[name] + 1


def field_of(base: str, declarator: str):
    """('wq', c_void_p) of 'const float' and '*wq'."""
    if "(*" in declarator:
        return re.search(r"\(\*(\w+)\)", declarator).group(1), ctypes.c_void_p
    name, length = re.search(r"(\w+)(?:\[(.*)\])?$", declarator.strip()).group(1, 2)
    if "*" in declarator:
        text = base == "char" and declarator.count("*") == 1
        kind = ctypes.c_char_p if text else ctypes.c_void_p
    else:
        kind = TYPES[base]
    return name, kind * value_of(length) if length else kind


def fields_of(body: str):
    for line in body.split(";"):
        words = " ".join(line.split())
        if not words:
            continue
        head = re.match(r"(?:const |struct )*(\w+) ?", words)
        rest = words[head.end():]
        for declarator in [rest] if "(*" in rest else rest.split(","):
            yield field_of(head.group(1), declarator)


def add_types(header: str) -> None:
    pattern = r"(enum|struct)(?: (\w+))? \{(.*?)\n?\}(?: \w+)?;"
    for kind, name, body in re.findall(pattern, header, flags=re.S):
        if kind == "enum":
            add_constants(body)
            TYPES[name] = ctypes.c_int
        else:
            made = type(name, (ctypes.Structure,), {"_fields_": list(fields_of(body))})
            TYPES[name] = STRUCTS[name] = made


def type_of(text: str, returned: bool = False):
    """Of a parameter or a result: 'const ph_attn *attn'."""
    words = text.replace("*", " * ").split()
    base = next(word for word in words if word not in ("const", "struct"))
    stars = words.count("*") + text.count("[")
    if not stars:
        return TYPES[base]
    if stars == 1 and base == "char" and (returned or "const" in words):
        return ctypes.c_char_p
    if returned and stars == 1 and base in STRUCTS:
        return ctypes.POINTER(STRUCTS[base])
    return ctypes.c_void_p


def declare(library, header: str) -> None:
    for result, name, arguments in re.findall(r"^PH_API ([^;(]*?)(\w+)\(([^;]*)\);", header,
                                              flags=re.M):
        function = getattr(library, name)
        function.restype = type_of(result, returned=True)
        function.argtypes = [type_of(argument) for argument in arguments.split(",")
                             if argument.strip() != "void"]


def export(header: str) -> None:
    """Makes what a header declares an attribute of this module."""
    add_types(header)
    names = {"".join(word.capitalize() for word in name.split("_")[1:]): struct
             for name, struct in STRUCTS.items()}
    globals().update(CONSTANTS, **names)


CORE_HEADER = text_of(CORE)
export(CORE_HEADER)
VERSION_PARTS = tuple(int(re.search(rf"PH_VERSION_{part} (\d+)", CORE_HEADER).group(1))
                      for part in ("MAJOR", "MINOR", "PATCH"))
VERSION = ".".join(map(str, VERSION_PARTS))
# What the names of the libraries end with: before 1.0 minor versions do not fit.
ABI = str(VERSION_PARTS[0] or f"0.{VERSION_PARTS[1]}")
VERSION_NUMBER = (VERSION_PARTS[0] * 1000 + VERSION_PARTS[1]) * 1000 + VERSION_PARTS[2]


# ---- libraries ---------------------------------------------------------------------------

def path_of(library: str) -> str:
    """POLYHEAD_LIBRARY names a folder; else the package's own, else the checkout's."""
    folders = [os.environ.get("POLYHEAD_LIBRARY"), os.path.join(HERE, "lib"),
               os.path.join(CHECKOUT, os.environ.get("BUILD", "build"))]
    name = f"lib{library}.so.{ABI}"
    for folder in filter(None, folders):
        path = os.path.join(folder, name)
        if os.path.exists(path):
            return path
    raise ImportError(f"{name} was found neither in POLYHEAD_LIBRARY, nor in the package, nor "
                      f"in a checkout of Polyhead: install the package, or build with make")


def load_library(path: str):
    """libpolyhead at this path; it must be of the version of the headers."""
    library = ctypes.CDLL(path)
    declare(library, CORE_HEADER)
    found = library.ph_version().decode()
    if found != VERSION:
        raise ImportError(f"{path} is version {found}, its headers are of {VERSION}")
    return library


_loaded: dict = {}


def core():
    """libpolyhead: attention, layers, variants, safetensors."""
    if "core" not in _loaded:
        _loaded["core"] = load_library(path_of("polyhead"))
    return _loaded["core"]


def model():
    """libpolyhead_model, which stands on it: models, training, pages."""
    if "model" not in _loaded:
        core()
        header = text_of(MODEL)
        export(header)
        library = ctypes.CDLL(path_of("polyhead_model"))
        declare(library, header)
        _loaded["model"] = library
    return _loaded["model"]


# ---- the layout, as a check of the classes against the headers ----------------------------

def layout():
    for name, struct in STRUCTS.items():
        yield f"{name} {ctypes.sizeof(struct)}"
        for field, _ in struct._fields_:
            place = getattr(struct, field)
            yield f"{name}.{field} {place.offset} {place.size}"
    for name, value in CONSTANTS.items():
        yield f"{name} {value}"


def layout_program():
    for header in CORE + MODEL:
        yield f'#include "{header}"'
    yield "#include <stdio.h>\nint main(void)\n{"
    for name, struct in STRUCTS.items():
        yield f'    printf("{name} %zu\\n", sizeof({name}));'
        for field, _ in struct._fields_:
            yield (f'    printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), '
                   f"sizeof((({name} *)0)->{field}));")
    for name in CONSTANTS:
        yield f'    printf("{name} %d\\n", (int){name});'
    yield "    return 0;\n}"


if __name__ == "__main__":
    if sys.argv[1:] not in (["--c"], ["--layout"]):
        sys.exit("usage: _c.py --c | --layout")
    export(text_of(MODEL))
    print("\n".join(layout_program() if sys.argv[1] == "--c" else layout()))
