"""Builds wheels and source archives of Polyhead: make, then a zip file (PEP 517, 660).

The wheel holds C libraries that Python loads through ctypes, so one serves every version
of Python from 3.10 on. Nothing needs to be installed for it but a C compiler and make.
The same tree gives the same bytes.
"""
from __future__ import annotations

import base64
import gzip
import hashlib
import io
import os
import re
import subprocess
import sysconfig
import tarfile
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = "build-wheel"  # a folder of its own: other flags than an ordinary build
LINES = """\
Metadata-Version: 2.1
Name: polyhead
Version: {version}
Summary: Multi-head attention, every variant, forward and backward, with the same bits
License: MIT
Requires-Python: >=3.10
Requires-Dist: numpy>=1.24
Provides-Extra: bf16
Requires-Dist: ml_dtypes>=0.3; extra == "bf16"
Provides-Extra: torch
Requires-Dist: torch>=2.4; extra == "torch"
Provides-Extra: hf
Requires-Dist: torch>=2.4; extra == "hf"
Requires-Dist: transformers>=4.48; extra == "hf"
Provides-Extra: jax
Requires-Dist: jax>=0.5; extra == "jax"
Description-Content-Type: text/markdown

"""


def read(*path: str) -> bytes:
    with open(os.path.join(ROOT, *path), "rb") as file:
        return file.read()


def version() -> str:
    """Of include/polyhead.h, where alone it is written."""
    header = read("include", "polyhead.h").decode()
    return ".".join(re.search(rf"PH_VERSION_{part} (\d+)", header).group(1)
                    for part in ("MAJOR", "MINOR", "PATCH"))


def abi() -> str:
    """What the names of the libraries end with: before 1.0 minor versions do not fit."""
    major, minor, _ = version().split(".")
    return f"0.{minor}" if major == "0" else major


def metadata() -> bytes:
    return LINES.format(version=version()).encode() + read("docs", "PYTHON.md")


def make(folder: str, *variables: str) -> None:
    targets = ["program", *(f"{folder}/lib{name}.so.{version()}"
                            for name in ("polyhead", "polyhead_model"))]
    environment = {name: value for name, value in os.environ.items()
                   if name not in ("MAKEFLAGS", "MAKELEVEL", "BUILD")}
    subprocess.run(["make", "-s", f"-j{os.cpu_count() or 1}", f"BUILD={folder}", *variables,
                    *targets], cwd=ROOT, env=environment, check=True)


# ---- wheels ------------------------------------------------------------------------------

class Wheel:
    """A zip file with its list of contents; files in the order of their names."""

    def __init__(self, directory: str):
        self.name = f"polyhead-{version()}"
        self.tag = "py3-none-" + re.sub(r"[-.]", "_", sysconfig.get_platform())
        self.path = os.path.join(directory, f"{self.name}-{self.tag}.whl")
        self.files: dict[str, tuple[bytes, int]] = {}

    def add(self, name: str, data: bytes, mode: int = 0o644) -> None:
        self.files[name] = (data, mode)

    def add_info(self) -> None:
        info = f"{self.name}.dist-info"
        self.add(f"{info}/METADATA", metadata())
        self.add(f"{info}/licenses/LICENSE", read("LICENSE"))
        self.add(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: polyhead\n"
                                  f"Root-Is-Purelib: false\nTag: {self.tag}\n".encode())
        lines = []
        for name, (data, _) in sorted(self.files.items()):
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
            lines.append(f"{name},sha256={digest.decode()},{len(data)}\n")
        lines.append(f"{info}/RECORD,,\n")
        self.add(f"{info}/RECORD", "".join(lines).encode())

    def write(self) -> str:
        self.add_info()
        with zipfile.ZipFile(self.path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, (data, mode) in sorted(self.files.items()):
                entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
                entry.external_attr = (0o100000 | mode) << 16
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, data)
        return os.path.basename(self.path)


def sources() -> list[str]:
    folder = os.path.join(ROOT, "python", "polyhead")
    return sorted(name for name in os.listdir(folder) if name.endswith((".py", ".typed")))


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    # Without debugging symbols a wheel is a seventh of the size. The second library finds
    # the first beside it.
    make(BUILD, "CFLAGS=-O3", "LDFLAGS=-s -Wl,-rpath,'$$ORIGIN'")
    wheel = Wheel(wheel_directory)
    for name in sources():
        wheel.add(f"polyhead/{name}", read("python", "polyhead", name))
    for name in sorted(os.listdir(os.path.join(ROOT, "include"))):
        wheel.add(f"polyhead/include/{name}", read("include", name))
    for name in ("polyhead", "polyhead_model"):
        wheel.add(f"polyhead/lib/lib{name}.so.{abi()}",
                  read(BUILD, f"lib{name}.so.{version()}"), 0o755)
    wheel.add(f"{wheel.name}.data/scripts/polyhead", read(BUILD, "polyhead"), 0o755)
    return wheel.write()


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """The package stays in the checkout, with the libraries of an ordinary build."""
    make("build")
    wheel = Wheel(wheel_directory)
    wheel.add("polyhead.pth", os.path.join(ROOT, "python").encode() + b"\n")
    wheel.add(f"{wheel.name}.data/scripts/polyhead", read("build", "polyhead"), 0o755)
    return wheel.write()


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    info = f"polyhead-{version()}.dist-info"
    os.makedirs(os.path.join(metadata_directory, info), exist_ok=True)
    with open(os.path.join(metadata_directory, info, "METADATA"), "wb") as file:
        file.write(metadata())
    return info


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


# ---- source archives ---------------------------------------------------------------------

def tracked() -> list[str]:
    """Files of the repository; of an unpacked archive everything but builds."""
    found = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True,
                           check=False)
    if found.returncode == 0 and found.stdout:
        return sorted(name for name in found.stdout.decode().split("\0")
                      if name and os.path.isfile(os.path.join(ROOT, name)))
    return tracked_below(ROOT)


def tracked_below(root: str) -> list[str]:
    names = []
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders
                      if not re.match(r"build$|build-|\.git$|__pycache__$|dist$", name)]
        names += [os.path.relpath(os.path.join(folder, name), root) for name in files]
    return sorted(name for name in names if name not in ("PKG-INFO", ".git"))


def build_sdist(sdist_directory, config_settings=None):
    base = f"polyhead-{version()}"
    path = os.path.join(sdist_directory, f"{base}.tar.gz")
    with open(path, "wb") as file, \
            gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed, \
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in tracked():
            add_file(archive, f"{base}/{name}", read(name),
                     os.access(os.path.join(ROOT, name), os.X_OK))
        add_file(archive, f"{base}/PKG-INFO", metadata(), False)
    return os.path.basename(path)


def add_file(archive: tarfile.TarFile, name: str, data: bytes, executable: bool) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), 0o755 if executable else 0o644
    archive.addfile(entry, io.BytesIO(data))
