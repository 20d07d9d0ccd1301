"""The build backend: what wheels and source archives hold, and that pip installs them.

Compiling is left out: the wheel here takes the libraries of the ordinary build.
"""
import os
import subprocess
import sys
import tarfile
import zipfile

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
                          env={**clean, **environment})


def test_version_is_that_of_the_header():
    assert build_backend.version() == polyhead.__version__


def install(wheel, *where):
    pip = run(sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps",
              "--ignore-installed", *where, wheel)
    if "No module named pip" in pip.stderr:
        pytest.skip("no pip in this Python")
    assert pip.returncode == 0, pip.stderr


def test_an_installed_wheel_works(wheel, tmp_path):
    place = str(tmp_path / "installed")
    install(wheel, "--target", place)
    code = "import numpy, polyhead; q = numpy.ones((1, 1, 2, 4), 'f'); " \
           "print(polyhead.__file__, polyhead.attention(q, q, q).sum()); polyhead._c.model()"
    found = run(sys.executable, "-c", code, PYTHONPATH=place)
    assert found.stdout == f"{place}/polyhead/__init__.py 8.0\n", found
    program = run(sys.executable, "-m", "polyhead", "--version", PYTHONPATH=place)
    assert polyhead.__version__ in program.stdout, program


def test_an_editable_install_uses_the_checkout(tmp_path):
    install(build_wheel(tmp_path, build_backend.build_editable), "--prefix",
            str(tmp_path / "installed"))
    place = str(next(tmp_path.rglob("polyhead.pth")).parent)
    code = f"import site; site.addsitedir({place!r}); import polyhead, polyhead.__main__ as " \
           "program; print(polyhead.__file__); polyhead._c.model(); print(program.program())"
    found = run(sys.executable, "-c", code)
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
        archive.extractall(tmp_path)
    folder = tmp_path / name[:-len(".tar.gz")]
    assert (folder / "PKG-INFO").exists()
    # make finds every source that the libraries and the program are built from
    plan = run("make", "-n", "-C", str(folder), "CUDA=0", "program")
    assert plan.returncode == 0, plan.stderr
    assert sorted(build_backend.tracked_below(str(folder))) == \
        sorted(name for name in build_backend.tracked() if name != "PKG-INFO")
