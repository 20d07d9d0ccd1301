"""The examples of README.md and of the pages on Python run as printed, one after the other.

Small checkpoints stand for the published ones that they name.
"""
import os
import re
from pathlib import Path

import numpy as np
import pytest

import polyhead

ROOT = Path(__file__).resolve().parents[2]
CHECKPOINTS = {"all-MiniLM-L6-v2": "bert-sentence", "bert-base-uncased": "bert",
               "vit-base-patch16-224": "vit", "whisper-tiny": "whisper"}
NEEDS = {"docs/PYTORCH.md": "torch", "docs/TRANSFORMERS.md": "transformers",
         "docs/JAX.md": "jax"}


def examples(name):
    """Title and Python code of each section that has some."""
    for section in re.split(r"^## ", (ROOT / name).read_text(encoding="utf-8"), flags=re.M):
        code = re.findall(r"^```python\n(.*?)^```", section, flags=re.M | re.S)
        if code:
            yield f"{name}, {section.splitlines()[0]}", "\n".join(code)


EXAMPLES = dict(example for name in ("README.md", "docs/PYTHON.md", *NEEDS)
                for example in examples(name))


def files(folder):
    """What the examples read."""
    golden = ROOT / "tests" / "golden" / "checkpoints"
    for name, stand_in in CHECKPOINTS.items():
        os.symlink(golden / stand_in, folder / name)
    llama = {"heads": 6, "model_dim": 24, "layers": 2, "ff_dim": 32, "norm": "rms",
             "positions": "rope", "activation": "swiglu", "no_bias": 63}
    trainer = polyhead.Trainer("text", llama, batch=2, file=str(ROOT / "README.md"))
    trainer.model.write(folder / "stories15M.bin")
    width = polyhead.Model.read(folder / "whisper-tiny").config
    np.save(folder / "sound.npy", np.zeros((width["mels"], 2 * width["encoder_len"]), "f4"))
    (folder / "cat.png").write_bytes(next(ROOT.glob("docs/**/*.png")).read_bytes())


def test_there_are_examples():
    assert len(EXAMPLES) >= 6


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_run(name, tmp_path, monkeypatch):
    code, needed = EXAMPLES[name], NEEDS.get(name.partition(", ")[0])
    if needed:
        pytest.importorskip(needed, reason=f"no {needed} in this Python")
    if "Model.read" in code:
        files(tmp_path)
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "example"}
    if name.startswith("docs") and "import polyhead\n" not in code:
        names["polyhead"] = polyhead  # the sections go on from the first
    exec(compile(code, name, "exec"), names)
