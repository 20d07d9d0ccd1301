"""Functions of ours as handlers of XLA's foreign-function interface, through ctypes.

The structs are those of version 0.3 of xla/ffi/api/c_api.h, as far as a handler reads them;
fields have been added to them since 0.1, never moved.
"""
from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_void_p
from typing import Any, Callable

INVALID_ARGUMENT, METADATA, EXECUTE = 3, 1, 3


class Head(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("extension_start", c_void_p)]


class Version(Head):
    _fields_ = [("major_version", c_int), ("minor_version", c_int)]


class Buffer(Head):
    _fields_ = [("dtype", c_int), ("data", c_void_p), ("rank", c_int64),
                ("dims", POINTER(c_int64))]


class Buffers(Head):
    """XLA_FFI_Args and XLA_FFI_Rets."""
    _fields_ = [("size", c_int64), ("types", c_void_p), ("entries", POINTER(POINTER(Buffer)))]


class ByteSpan(ctypes.Structure):
    _fields_ = [("ptr", c_void_p), ("len", c_size_t)]


class Attributes(Head):
    _fields_ = [("size", c_int64), ("types", c_void_p), ("names", c_void_p),
                ("attrs", POINTER(POINTER(ByteSpan)))]


class ErrorArgs(Head):
    _fields_ = [("message", c_char_p), ("errc", c_int)]


class Api(Head):
    _fields_ = [("api_version", Version), ("internal_api", c_void_p),
                ("error_create", ctypes.CFUNCTYPE(c_void_p, POINTER(ErrorArgs)))]


class CallFrame(Head):
    _fields_ = [("api", POINTER(Api)), ("ctx", c_void_p), ("stage", c_int),
                ("args", Buffers), ("rets", Buffers), ("attrs", Attributes)]


class Metadata(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("api_version", Version), ("traits", c_uint32)]


class MetadataExtension(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("type", c_int), ("next", c_void_p),
                ("metadata", POINTER(Metadata))]


HANDLER = ctypes.CFUNCTYPE(c_void_p, POINTER(CallFrame))


def answer_metadata(frame: CallFrame) -> bool:
    """Whether XLA only asks what the handler is; then it has been told."""
    if not frame.extension_start:
        return False
    extension = MetadataExtension.from_address(frame.extension_start)
    if extension.type != METADATA:
        return False
    version, runtime = extension.metadata.contents.api_version, frame.api.contents.api_version
    version.major_version = runtime.major_version
    version.minor_version = runtime.minor_version
    return True


def error(frame: CallFrame, sentence: str) -> int:
    args = ErrorArgs(message=sentence.encode(), errc=INVALID_ARGUMENT)
    args.struct_size = ctypes.sizeof(args)
    return frame.api.contents.error_create(ctypes.byref(args))


def handler(function: Callable[[bytes, list, list], None]) -> Any:
    """function(text, inputs, outputs) as a handler, where text is the only attribute of
    the call and the buffers are as XLA passes them. What it raises fails the program."""

    def handle(pointer: Any) -> Any:
        frame = pointer.contents
        try:
            if answer_metadata(frame) or frame.stage != EXECUTE:
                return None
            span = frame.attrs.attrs[0].contents
            function(ctypes.string_at(span.ptr, span.len),
                     [frame.args.entries[i].contents for i in range(frame.args.size)],
                     [frame.rets.entries[i].contents for i in range(frame.rets.size)])
        except Exception as problem:
            return error(frame, str(problem))
        return None

    return HANDLER(handle)
