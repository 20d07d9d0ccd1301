"""Threads, forks and the program: what surrounds a call."""
import doctest
import multiprocessing
import os
import subprocess
import sys
import threading

import numpy as np

import polyhead

RNG = np.random.default_rng(3)
Q, K, V = (RNG.standard_normal((2, 4, 50, 16)).astype(np.float32) for _ in range(3))


def run():
    return polyhead.attention(Q, K, V, causal=True)


def test_threads_at_once_give_the_same_bits():
    want, wrong = run(), []

    def work():
        for _ in range(50):
            if not (run() == want).all():
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def in_child(_):
    return run().tobytes()


def test_a_forked_child_goes_on():
    want = run().tobytes()
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(in_child, range(4)) == [want] * 4


def test_number_of_threads():
    want, before = run(), polyhead.get_threads()
    try:
        for count in (1, 3):
            polyhead.set_threads(count)
            assert polyhead.get_threads() == count
            assert (run() == want).all()
    finally:
        polyhead.set_threads(0)
    assert polyhead.get_threads() == before


def test_import_needs_no_framework():
    code = "import polyhead, sys; print([n for n in ('torch', 'jax', 'pandas') if n in " \
           "sys.modules])"
    assert python("-c", code).stdout == "[]\n"


def python(*words):
    path = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return subprocess.run([sys.executable, *words], capture_output=True, text=True,
                          check=False, env={**os.environ, "PYTHONPATH": path})


def test_the_program():
    found = python("-m", "polyhead", "--version")
    assert found.returncode == 0 and polyhead.__version__ in found.stdout, found
    assert python("-m", "polyhead", "nonsense").returncode == 2


def test_a_library_that_is_not_there(tmp_path):
    code = "import polyhead._c as c; c.HERE = c.CHECKOUT = '/nowhere'; c.core()"
    found = python("-c", code)
    assert "ImportError" in found.stderr and "build with make" in found.stderr


def test_examples_of_docstrings():
    for module in (polyhead, polyhead._attention, polyhead._layer, polyhead._training):
        failed, tried = doctest.testmod(module)
        assert tried and not failed, module
