"""The build backend: what wheels and source archives hold, and that pip installs them.

Compiling is left out: the wheel here takes the libraries of the ordinary build.
"""
import os
import subprocess
import sys
import tarfile
import venv
import zipfile

import numpy
import pytest

import build_backend
import polyhead


def build_wheel(folder, build=build_backend.build_wheel):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build_backend, "make", lambda *_: None)
        patch.setattr(build_backend, "BUILD", "build")
        return os.path.join(folder, build(str(folder)))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def run(*words, **environment):
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(words, capture_output=True, text=True, check=False, cwd="/",
                          env=environment or clean)


def test_version_is_that_of_the_header():
    assert build_backend.version() == polyhead.__version__


def environment(wheel, folder):
    """Where the wheel is, NumPy and what else this Python has, and neither a compiler nor
    anything else: no PATH, no variables. Its packages, and what runs Python there."""
    bare = {"PATH": str(folder), "HOME": str(folder)}
    venv.create(folder, with_pip=False)
    python = str(folder / "bin" / "python")
    pip = run(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-index",
              "--no-deps", wheel, **bare)
    if "No module named pip" in pip.stderr:
        pytest.skip("no pip in this Python")
    assert pip.returncode == 0, pip.stderr
    packages = next(folder.glob("lib/python*/site-packages"))
    (packages / "z.pth").write_text(os.path.dirname(os.path.dirname(numpy.__file__)))
    return packages, lambda *words: run(python, *words, **bare)


@pytest.fixture(scope="module")
def fresh(wheel, tmp_path_factory):
    return environment(wheel, tmp_path_factory.mktemp("fresh"))


def test_an_installed_wheel_works(fresh):
    packages, python = fresh
    code = "import numpy, polyhead, shutil; q = numpy.ones((1, 1, 2, 4), 'f'); " \
           "assert not any(map(shutil.which, ('cc', 'gcc', 'clang', 'make', 'ld'))); " \
           "print(polyhead.__file__, polyhead.attention(q, q, q).sum()); " \
           "print(polyhead.Model.embedded().look('The cat is tired.').words[1])"
    found = python("-c", code)
    assert found.stdout == f"{packages}/polyhead/__init__.py 8.0\ncat\n", found
    program = python("-m", "polyhead", "--version")
    assert polyhead.__version__ in program.stdout, program
    help_text = python("-m", "polyhead", "variants", "dcmha")
    assert "dc_static" in help_text.stdout, help_text


def test_an_installed_wheel_works_with_torch(fresh):
    pytest.importorskip("torch", reason="no PyTorch in this Python")
    code = "import torch, polyhead.torch as ph; " \
           "q = torch.ones(1, 2, 4, 8, requires_grad=True); " \
           "ph.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward(); " \
           "heads = ph.Heads(16, 2, variant='talking'); " \
           "heads(torch.ones(1, 3, 16)).sum().backward(); " \
           "print(q.grad.shape == q.shape, heads.w_logits.grad.shape)"
    found = fresh[1]("-c", code)
    assert found.stdout == "True torch.Size([2, 2])\n", found


def test_an_editable_install_uses_the_checkout(tmp_path):
    _, python = environment(build_wheel(tmp_path, build_backend.build_editable), tmp_path)
    found = python("-c", "import polyhead, polyhead.__main__ as program; "
                   "print(polyhead.__file__); polyhead._c.model(); print(program.program())")
    module, program = found.stdout.splitlines()
    assert os.path.samefile(module, polyhead.__file__), found
    # the one that make builds, not the copy of the day it was installed
    assert os.path.samefile(program, os.path.join(build_backend.ROOT, "build", "polyhead"))


def test_a_wheel_is_the_same_each_time(wheel, tmp_path):
    with open(wheel, "rb") as first, open(build_wheel(tmp_path), "rb") as second:
        assert first.read() == second.read()
    names = zipfile.ZipFile(wheel).namelist()
    assert "polyhead/py.typed" in names and "polyhead/include/polyhead.h" in names
    assert "py3-none-" in wheel


def test_a_source_archive_is_complete(tmp_path):
    name = build_backend.build_sdist(str(tmp_path))
    with tarfile.open(tmp_path / name) as archive:
        archive.extractall(tmp_path, **({"filter": "data"} if sys.version_info >= (3, 12)
                                        else {}))
    folder = tmp_path / name[:-len(".tar.gz")]
    assert (folder / "PKG-INFO").exists()
    # make finds every source that the libraries and the program are built from
    plan = run("make", "-n", "-C", str(folder), "CUDA=0", "program")
    assert plan.returncode == 0, plan.stderr
    assert sorted(build_backend.tracked_below(str(folder))) == \
        sorted(name for name in build_backend.tracked() if name != "PKG-INFO")
