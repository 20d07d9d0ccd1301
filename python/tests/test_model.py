"""Models: the embedded one, and a small one that is trained here."""
import copy
import os
import subprocess

import numpy as np
import pytest

import polyhead

SENTENCE = "The animal didn't cross the street because it was too tired."
SMALL = {"layers": 1, "model_dim": 32, "heads": 2, "dropout": 0.0}


@pytest.fixture(scope="module")
def embedded():
    return polyhead.Model.embedded()


def test_what_it_belongs_to(embedded):
    reading = embedded.look(SENTENCE)
    assert "animal" in reading.words
    row = reading.links()[reading.words.index("it")]
    assert reading.words[row.argmax()] == "animal" and row.max() > 0.9
    assert len(embedded.tokens(SENTENCE)) == len(reading.words)


def test_weights_and_ablation(embedded):
    reading = embedded.look(SENTENCE)
    site = reading.sites[0]
    weights = reading.weights(site.name)
    assert weights.shape == (site.heads, site.q_len, site.kv_len)
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=0, atol=site.kv_len * 2.0**-24)
    before = reading.links()
    reading.ablate({(0, head): "zero" for head in range(site.heads)})
    assert (reading.links() != before).any()
    reading.ablate({})
    assert (reading.links() == before).all()
    with pytest.raises(polyhead.Error, match="expected one of"):
        reading.ablate({(0, 99): "zero"})
    with pytest.raises(polyhead.Error, match="expected one of"):
        reading.weights("nowhere")


def test_page(embedded, tmp_path):
    reading = embedded.look(SENTENCE)
    page = reading.page()
    assert page.lstrip().lower().startswith("<!doctype html") and len(page) < 1 << 20
    frame = reading._repr_html_()
    assert frame.startswith("<iframe srcdoc=") and frame.count('"') == 8
    reading.write_page(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page


def test_parameters(embedded):
    tensors = embedded.tensors()
    assert sum(array.size for array in tensors.values()) >= embedded.parameters > 0
    assert embedded.config["heads"] == 8
    with pytest.raises(TypeError, match="cannot be pickled or copied"):
        copy.deepcopy(embedded)


def test_train_save_resume_generate(tmp_path):
    trainer = polyhead.Trainer("copy", SMALL, batch=4, seed=3)
    first = [trainer.step() for _ in range(3)]
    assert [progress.step for progress in first] == [1, 2, 3]
    trainer.save(tmp_path)
    onward = [trainer.step() for _ in range(2)]
    again = polyhead.Trainer.resume(tmp_path)
    assert [again.step() for _ in range(2)] == onward
    assert again.test(4).texts == 4
    trainer.model.write(tmp_path / "model.safetensors")
    model = polyhead.Model.read(tmp_path / "model.safetensors")
    del trainer
    for name, array in model.tensors().items():
        assert (array == again.model.tensors()[name]).all()
    text = model.generate("a b c", max_tokens=5)
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    program = subprocess.run([os.path.join(root, "build", "polyhead"), "generate",
                              str(tmp_path / "model.safetensors"), "a b c", "--max-tokens",
                              "5"], capture_output=True, text=True, check=False)
    assert program.returncode == 0, program.stderr
    assert program.stdout.strip() == text.strip()


CHECKPOINTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests",
                           "golden", "checkpoints")


def test_vectors_and_classes_of_texts():
    model = polyhead.Model.read(os.path.join(CHECKPOINTS, "bert-sentence"))
    both = model.embed(["a cat", "the dog sat"])
    assert both.shape == (2, model.config["model_dim"]) and np.isfinite(both).all()
    assert (model.embed(["the dog sat"])[0] == both[1]).all()  # the bits it has alone
    with pytest.raises(TypeError, match="a list"):
        model.embed("a cat")
    with pytest.raises(polyhead.Error, match="expected as many"):
        model.embed(["a", "b"], ["c"])
    with pytest.raises(polyhead.Error):
        model.classify(["a cat"])
    classes = polyhead.Model.read(os.path.join(CHECKPOINTS, "bert-classes"))
    assert classes.classify(["a cat"]).shape[1] > 1


def test_refused(tmp_path, embedded):
    with pytest.raises(polyhead.Error, match="nonsense"):
        polyhead.Trainer("nonsense")
    with pytest.raises(polyhead.Error, match="config has no 'layer'"):
        polyhead.Trainer("copy", {"layer": 1})
    with pytest.raises(polyhead.Error):
        polyhead.Trainer("copy", {"layers": "many"})
    with pytest.raises(polyhead.Error):
        polyhead.Trainer("copy", {"heads": 7})
    with pytest.raises(OSError):
        polyhead.Model.read(tmp_path / "nothing.safetensors")
    (tmp_path / "bad.safetensors").write_bytes(b"not a model")
    with pytest.raises(polyhead.Error):
        polyhead.Model.read(tmp_path / "bad.safetensors")
    with pytest.raises(polyhead.Error):
        embedded.generate("a text")  # an encoder
    with pytest.raises(polyhead.Error):
        embedded.look("")
    assert "copy" in polyhead.recipes()
