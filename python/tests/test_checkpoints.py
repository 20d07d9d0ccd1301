"""Published architectures from Python: what transformers and the program make of them."""
import json
import os
import struct
import subprocess

import numpy as np
import pytest

import polyhead

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
CHECKPOINTS = os.path.join(ROOT, "tests", "golden", "checkpoints")


def read(name):
    return polyhead.Model.read(os.path.join(CHECKPOINTS, name))


def golden(name, tensor):
    """A tensor that transformers left beside a checkpoint."""
    with open(os.path.join(CHECKPOINTS, name, "golden.safetensors"), "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        entry = json.loads(file.read(size))[tensor]
        start, end = entry["data_offsets"]
        file.seek(8 + size + start)
        return np.frombuffer(file.read(end - start), {"F32": "f4", "F64": "f8", "I32": "i4"}
                             [entry["dtype"]]).reshape(entry["shape"])


def program(*words):
    """What the program prints."""
    found = subprocess.run([os.path.join(ROOT, "build", "polyhead"), *words],
                           capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    return found.stdout


@pytest.mark.parametrize("name", ["t5", "marian", "bart-forced"])
def test_encoder_decoders_generate(name):
    path, model = os.path.join(CHECKPOINTS, name), read(name)
    for beams in (1, 3):
        text = model.generate("a b c", max_tokens=6, beams=beams)
        printed = program("generate", path, "a b c", "--max-tokens", "6", "--beams",
                          str(beams))
        assert text and printed.strip() == text.strip()


def test_a_stop_ends_the_text():
    model = read("t5")
    how = {"max_tokens": 8, "temperature": 2.0, "seed": 3}
    text = model.generate("the cat", **how)
    middle = text[len(text) // 2:][:2]
    assert len(middle) == 2
    assert model.generate("the cat", stop=["never", middle], **how) == \
        text[:text.index(middle)]
    with pytest.raises(polyhead.Error, match="chat"):
        model.generate("the cat", chat=True)


def test_sound_as_an_array_or_a_file(tmp_path):
    model, features = read("whisper"), golden("whisper", "features")
    np.save(tmp_path / "sound.npy", features)
    text = model.generate(str(tmp_path / "sound.npy"), max_tokens=5)
    assert model.generate(features, max_tokens=5) == text
    tokens = model.look(str(tmp_path / "sound.npy"))._tokens(1)[1:]  # behind the start mark
    greedy = golden("whisper", "greedy")[0]
    assert len(text) and tokens[:len(greedy)] == greedy.tolist()
    with pytest.raises((polyhead.Error, OSError)):
        model.generate(features[:-1])


def test_classes_of_pictures(tmp_path):
    model, pixels = read("vit"), golden("vit", "pixels").astype(np.float32)
    scores, want = model.classify(pixels), golden("vit", "logits")
    # four times the reference's own error in float32, and one rounding of the stored value
    rms = np.sqrt(np.mean((scores[0] - want.astype(np.float64)) ** 2))
    assert rms <= 4 * golden("vit", "f32.logits").item() + 2.0**-24 * np.sqrt(np.mean(want**2))
    both = model.classify(np.concatenate([pixels[:, :, ::-1], pixels]))
    assert (both[1] == scores[0]).all()  # the bits it has alone
    assert model.embed(pixels).shape == (1, model.config["model_dim"])
    side = model.config["image_size"]
    picture = np.random.default_rng(1).integers(0, 256, (side, side, 3), np.uint8)
    path = tmp_path / "picture.ppm"
    path.write_bytes(b"P6 %d %d 255\n" % (side, side) + picture.tobytes())
    assert model.pixels([path]).shape == (1, 3, side, side)
    of_path = model.classify([path])
    assert (of_path == model.classify(model.pixels([path]))).all()
    p = np.exp(of_path[0] - of_path[0].max())
    # the softmax of three scores, rounded a few times
    np.testing.assert_allclose(model.look(str(path)).classes(), p / p.sum(), rtol=2.0**-20)
    assert len(model.classes) == 3
    with pytest.raises(polyhead.Error, match="pixels have shape"):
        model.classify(pixels[0])
    with pytest.raises(polyhead.Error, match="expected none"):
        model.classify(pixels, ["a"])
    with pytest.raises(TypeError, match="one path"):
        model.classify("picture.ppm")
    with pytest.raises(OSError):
        model.classify([tmp_path / "nothing.png"])


def test_masks_are_filled():
    model, text = read("bert"), "the [MASK] sat on [MASK]"
    found = model.fill(text, top=3)
    masks = json.loads(program("fill", os.path.join(CHECKPOINTS, "bert"), text, "--top", "3",
                               "--json"))["masks"]
    assert [[(guess.token, guess.text) for guess in guesses] for guesses in found] == \
        [[(word["id"], word["word"]) for word in mask["words"]] for mask in masks]
    assert [guess.p for guess in found[0]] == sorted((g.p for g in found[0]), reverse=True)
    with pytest.raises(polyhead.Error, match=r"has no \[MASK\]"):
        model.fill("the cat")
    with pytest.raises(polyhead.Error, match="no masked tokens"):
        polyhead.Model.embedded().fill("the cat")


def test_tokens_cover_characters():
    text = "the cät — sat"  # accents and dashes are several bytes
    words = [text[word.start:word.start + word.length] for word in read("bert").tokens(text)]
    assert words == ["", "the", "cät", "—", "sat", ""]  # marks cover nothing
    model = polyhead.Trainer("text", {"layers": 1, "model_dim": 32, "heads": 2},
                             file=__file__).model
    assert [word[1:] for word in model.tokens("aä—b")] == [(i, 1) for i in range(4)]


def test_settings_that_count_for_nothing_are_named(recwarn):
    """bart-forced asks for four beams, t5 for nothing."""
    read("t5").generate("the cat", max_tokens=2)
    assert not recwarn.list
    with pytest.warns(UserWarning, match="also sets num_beams, which count for nothing"):
        read("bart-forced").generate("the cat", max_tokens=2)
