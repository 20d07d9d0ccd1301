"""Models: the embedded one, and a small one that is trained here."""
import copy
import ctypes
import gc
import json
import os
import shutil
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
    # A row is 2^(score - lse) for each key. Roundings in units of 1: kv_len of the sum in lse and of
    # this one, two of an exponential and two of a logarithm; in units of lse one each for m + log, two
    # changes of base and the difference, where |lse| is at most the largest score plus log(kv_len).
    for head, rows in enumerate(weights):
        found = reading.vectors(site.name, head)
        scores = np.abs(found.q.astype(np.float64) @ found.k.T).max() / np.sqrt(found.q.shape[1])
        roundings = 2 * site.kv_len + 4 + 4 * (scores + np.log(site.kv_len))
        np.testing.assert_allclose(rows.sum(-1, dtype=np.float64), 1, rtol=0, atol=roundings * 2.0**-24)
    before = reading.links()
    reading.ablate({(0, head): "zero" for head in range(site.heads)})
    assert (reading.links() != before).any()
    reading.ablate({})
    assert (reading.links() == before).all()
    with pytest.raises(polyhead.Error, match="expected one of"):
        reading.ablate({(0, 99): "zero"})
    with pytest.raises(polyhead.Error, match="expected one of"):
        reading.weights("nowhere")


def test_vectors_and_gates(embedded):
    reading = embedded.look(SENTENCE)
    site, head = reading.sites[0], 3
    found = reading.vectors(site.name, head)
    assert len(found.q) == len(found.out) == site.q_len and len(found.v) == site.kv_len
    # A weighted mean: kv_len products and sums on each side, each within a unit of the sum.
    weights = reading.weights(site.name)[head]
    bound = 2 * site.kv_len * 2.0**-24 * (weights @ np.abs(found.v))
    assert (np.abs(weights @ found.v - found.out) <= bound).all()
    reading.ablate({(site.name, head): 0.5})
    assert (reading.vectors(site.name, head).out == found.out / 2).all()
    reading.ablate({(site.name, head): 0.0})
    closed = reading.links()
    reading.ablate({(site.name, head): "zero"})
    assert (reading.links() == closed).all()
    for wrong in (1.5, float("nan"), -1, "off"):
        with pytest.raises(polyhead.Error, match="a gate from 0 to 1"):
            reading.ablate({(site.name, head): wrong})
    assert reading.vectors("links", 0).v.size == 0


def test_page(embedded, tmp_path):
    reading = embedded.look(SENTENCE)
    page = reading.page()
    assert page.lstrip().lower().startswith("<!doctype html") and len(page) < 1 << 20
    frame = reading._repr_html_()
    assert frame.startswith("<iframe srcdoc=") and frame.count('"') == 8
    reading.write_page(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page


@pytest.mark.parametrize("order", [1, -1])
def test_garbage_with_cycles_is_freed_in_any_order(order):
    model = polyhead.Model.embedded()
    trainer = polyhead.Trainer("copy", config={"layers": 1}, batch=4)
    made = [model, model.look("It was tired."), model.look("It ran."), trainer]
    made.append(trainer.model.look("1 2 3"))
    ends = [model, trainer]
    cycle = made[::order]
    cycle.append(cycle)
    del model, made
    finished = []
    for end in ends:
        end._free = lambda handle, free=end._free: (finished.append(1), free(handle))
    del end, ends, trainer, cycle
    gc.collect()
    assert finished == [1, 1]


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


def test_classes_of_tokens(tmp_path):
    """A classifier of texts as one of tokens: the same matrix, without its pooler."""
    folder = shutil.copytree(os.path.join(CHECKPOINTS, "bert-classes"), tmp_path / "tokens")
    config = folder / "config.json"
    config.write_text(config.read_text().replace("SequenceClass", "TokenClass"))
    reading = polyhead.Model.read(folder).look("the cat sat")
    found = reading.classes()
    assert found.shape == (5, 3)
    np.testing.assert_allclose(found.sum(1), 1, rtol=2.0**-20)


def test_generate_many_texts(tmp_path):
    path = tmp_path / "text"
    path.write_text("the cat sat on the mat.\n" * 120)
    model = polyhead.Trainer("text", SMALL, file=path, batch=2).model
    texts = ["the cat", "a", "the cat"]
    how = {"max_tokens": 6, "temperature": 1.0, "seed": 7}
    several = model.generate(texts, batch=2, **how)
    assert several[0] == model.generate(texts[0], **how)  # what it gets alone
    assert several[2] != several[0]  # equal texts get other samples
    assert model.generate([]) == []
    assert isinstance(model.generate("a", max_tokens=3, kv_dtype="f16"), str)
    with pytest.raises(polyhead.Error, match="kv_dtype is"):
        model.generate("a", kv_dtype="f64")


def test_generate_long_text_once(tmp_path, monkeypatch):
    folder = shutil.copytree(os.path.join(CHECKPOINTS, "llama"), tmp_path / "llama")
    vocab = {"[UNK]": 0, "a": 1, **{f"{i:0200d}": i for i in range(2, 97)}}
    tokenizer = {"model": {"type": "WordPiece", "unk_token": "[UNK]", "vocab": vocab,
                           "continuing_subword_prefix": "##", "max_input_chars_per_word": 300},
                 "pre_tokenizer": {"type": "Whitespace"}, "added_tokens": [],
                 "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": False}}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "generation_config.json").write_text('{"suppress_tokens": [0, 1, 2]}')
    model = polyhead.Model.read(folder)
    calls, generate = [], model._lib.ph_generate_batch
    monkeypatch.setattr(model._lib, "ph_generate_batch",
                        lambda *of: calls.append(of) or generate(*of))
    texts = model.generate(["a", "a a"])
    assert len(calls) == 1
    assert [len(text.split()) for text in texts] == [39, 38]
    assert texts == [model.generate("a"), model.generate("a a")]
    assert min(len(text) for text in texts) > 4096


def test_export(tmp_path):
    source = os.path.join(CHECKPOINTS, "bert.gguf")
    polyhead.Model.export(source, tmp_path / "bert", "f32")
    have = polyhead.Model.read(tmp_path / "bert").tensors()
    for name, array in polyhead.Model.read(source).tensors().items():
        if array.dtype == np.float32:
            assert (have[name] == array).all(), name
    with pytest.raises((polyhead.Error, OSError)):
        polyhead.Model.export(source, tmp_path / "bert")  # which is not empty any more
    with pytest.raises(polyhead.Error, match="dtype is"):
        polyhead.Model.export(source, tmp_path / "other", "q4_0")


@pytest.fixture
def labelled(tmp_path):
    path = tmp_path / "labelled"
    path.write_text("".join(f"{label}\t{text} {'abcdefg'[i % 7]}\n" for i in range(28)
                            for label, text in (("yes", "a b"), ("no", "c d"))))
    return path


TUNED = {"length": 16, "batch": 4, "lr": 3e-3, "warmup": 2, "seed": 1}


def test_training_goes_on_from_a_model(labelled, tmp_path):
    path = os.path.join(CHECKPOINTS, "bert")
    model = polyhead.Model.read(path)
    trainer = polyhead.Trainer("classes", start=model, file=labelled, **TUNED)
    first, *_, last = [trainer.step() for _ in range(20)]
    assert last.loss < first.loss
    scores = model.classify(["a b"])  # the model that was given is that of the trainer
    assert scores.shape == (1, 2) and (scores == trainer.model.classify(["a b"])).all()
    by_path = polyhead.Trainer("classes", start=path, file=labelled, **TUNED)
    assert by_path.step() == first
    trainer.save(tmp_path)
    onward = trainer.step()
    del trainer  # the model keeps it
    assert model.classify(["a b"]).shape == (1, 2)
    assert polyhead.Trainer.resume(tmp_path).step() == onward


def test_refused_models_to_go_on_from(labelled):
    model = polyhead.Model.read(os.path.join(CHECKPOINTS, "bert"))
    with pytest.raises(polyhead.Error, match="expected dropout only"):
        polyhead.Trainer("classes", {"layers": 1}, start=model, file=labelled)
    with pytest.raises(polyhead.Error, match="nonsense"):
        polyhead.Trainer("nonsense", start=model)
    reading = model.look("a b")
    with pytest.raises(polyhead.Error, match="reading"):
        polyhead.Trainer("classes", start=model, file=labelled)
    del reading
    assert model.tokens("a b")  # untouched so far
    with pytest.raises(polyhead.Error, match="makes a model of its own"):
        polyhead.Trainer("copy", start=model, length=16)
    with pytest.raises(polyhead.Error, match="expected one that was read again"):
        model.tokens("a b")
    with pytest.raises(polyhead.Error, match="model of a trainer"):
        polyhead.Trainer("classes", start=polyhead.Trainer("copy", SMALL).model)
    with pytest.raises(OSError):
        polyhead.Trainer("classes", start="nowhere", file=labelled)


def printed(field, value):
    config, text = polyhead._c.Config(), ctypes.create_string_buffer(1 << 14)
    setattr(config, field, value)
    polyhead._c.model().ph_config_print(ctypes.byref(config), text, len(text))
    return json.loads(text.value)[field]


def test_names_in_a_configuration_are_those_it_prints():
    for field, names in polyhead._training.NAMES.items():
        assert [printed(field, i) for i in range(len(names))] == list(names)
    model = polyhead.Trainer("copy", {"norm": "rms", "positions": "rope", "layers": 1}).model
    assert model.config["norm"] == "rms" and model.config["positions"] == "rope"
    with pytest.raises(polyhead.Error, match="norm is 'best', expected one of layer, rms"):
        polyhead.Trainer("copy", {"norm": "best"})


@pytest.mark.parametrize("sentence, text", [
    ("is a int, expected a str", 3), ("is a NoneType, expected", None),
    ("a character 0, expected", "a\0b"), ("a lone surrogate at 1, expected", "a\ud800")])
def test_texts_that_are_none(embedded, sentence, text):
    for call in (embedded.tokens, embedded.look, lambda x: embedded.generate([x]),
                 lambda x: embedded.embed([x]), lambda x: embedded.convert("gqa:2", [x]),
                 polyhead.Trainer):
        with pytest.raises((polyhead.Error, TypeError)) as found:
            call(text)
        assert sentence in str(found.value), str(found.value)
    with pytest.raises(TypeError, match="expected a list of texts"):
        embedded.generate(3)


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


@pytest.fixture
def trained(tmp_path):
    """A small encoder-decoder that was trained a little and read from its file."""
    trainer = polyhead.Trainer("copy", {**SMALL, "heads": 4}, batch=4, seed=3)
    for _ in range(5):
        trainer.step()
    trainer.model.write(tmp_path / "model.safetensors")
    return polyhead.Model.read(tmp_path / "model.safetensors")


TEXTS, TARGETS = ["a b c", "c d", "b b a d"], ["a b c", "c d", "b b a d"]


def test_importance(trained):
    worths = trained.importance(TEXTS, TARGETS, method="token")
    assert len(trained.importance(TEXTS, TARGETS)) == len(worths)
    assert [(w.site, w.head) for w in worths[:4]] == [("encoder.0.self", h) for h in range(4)]
    assert len(worths) == 12 and all(w.value > 0 and w.error > 0 for w in worths)
    norms = [np.linalg.norm([w.value for w in trained.importance(
        TEXTS, TARGETS, normalise=True)[site:site + 4]]) for site in (0, 4, 8)]
    # a norm of four values, each rounded when it was divided and squared
    np.testing.assert_allclose(norms, 1, rtol=0, atol=16 * 2.0**-53)
    with pytest.raises(polyhead.Error, match="method is 'best', expected one of token"):
        trained.importance(TEXTS, TARGETS, method="best")
    with pytest.raises(TypeError, match="expected a list"):
        trained.importance("a b c", TARGETS)


def test_next_has_a_row_for_each_token_of_the_decoder(trained):
    reading = trained.look("a b c d", "a")
    assert len(reading.next()) == len(trained.look("b", "a").next()) < len(reading.words)


def test_prune_is_ablation(trained):
    worths = sorted(trained.importance(TEXTS, TARGETS), key=lambda w: w.value)
    reading = trained.look("a b c", "a b c")
    reading.ablate({(w.site, w.head): "zero" for w in worths[:5]})
    expected, before = reading.next(), trained.parameters
    with pytest.raises(polyhead.Error, match="while a reading of the model exists"):
        trained.prune(worths[:5])
    del reading
    trained.prune(worths[:5])
    assert trained.parameters < before
    assert (trained.look("a b c", "a b c").next() == expected).all()
    assert len(trained.importance(TEXTS, TARGETS)) == 7
    with pytest.raises(polyhead.Error, match="there is no head 9"):
        trained.prune([("encoder.0.self", 9)])
    with pytest.raises(polyhead.Error, match="the model of a trainer"):
        polyhead.Trainer("copy", SMALL, batch=4).model.prune([])


def test_convert_and_back(trained):
    report = trained.convert("gqa:2", TEXTS, TARGETS, merge="mean")
    assert report.converted_kv_bytes * 2 == report.kv_bytes
    assert report.converted_parameters == trained.parameters < report.parameters
    assert len(report.key_errors) == 3 and all(0 < e < 1 for e in report.key_errors)
    merged = trained.look("a b c", "a b c").next()
    exact = trained.convert("mha")
    assert exact.parameters < exact.converted_parameters == report.parameters
    assert (trained.look("a b c", "a b c").next() == merged).all()
    with pytest.raises(polyhead.Error, match="weights cannot be converted to 'diff'"):
        trained.convert("diff")
    talking = trained.convert("talking", TEXTS, TARGETS)
    # identities: roundings alone, within the bound for the models of tests/convert_bed.h
    assert talking.distance <= 3.6e-4 and np.isnan(talking.key_errors[0])
    with pytest.raises(polyhead.Error, match="is talking, expected mha, gqa or mqa"):
        trained.convert("mha")
    with pytest.raises(polyhead.Error, match="merge is 'sum', expected one of fit"):
        trained.convert("mqa", merge="sum")
    with pytest.raises(polyhead.Error):
        trained.convert("gqa:3")
