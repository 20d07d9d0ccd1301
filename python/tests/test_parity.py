"""The comparisons of bench/ with transformers pass where both give the same, and fail where they do not: on tiny
random models, one of which is another one for each."""
import json
import math
import os
import sys

import pytest

BENCH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench")
sys.path.insert(0, BENCH)

import verdict  # noqa: E402


def test_limits():
    assert not verdict.within("it", 1.0, 1.0)
    assert verdict.within("it", 2.0, 1.0) == ["it is 2.00e+00, expected at most 1.00e+00"]
    assert verdict.within("it", math.nan, 1.0)
    assert not verdict.parted("a text", 3, verdict.TIE) and verdict.parted("a text", 3, math.nan)
    for breaches in ([], ["one"]):
        with pytest.raises(SystemExit) as ended:
            verdict.end(breaches)
        assert ended.value.code == len(breaches)


@pytest.fixture(scope="module")
def made():
    """What draws models and tokenizers."""
    pytest.importorskip("torch", reason="no PyTorch in this Python")
    pytest.importorskip("transformers", reason="no transformers in this Python")
    import random_checkpoints
    return random_checkpoints


def save(made, folder, model, tokenizer):
    made.randomise(model, 1).save_pretrained(folder)
    made.hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer,
                                    pad_token=tokenizer.id_to_token(0)).save_pretrained(folder)
    return model


def test_texts(made, tmp_path):
    import real_models
    tokenizer = made.byte_level()
    config = made.hf.LlamaConfig(vocab_size=tokenizer.get_vocab_size(), hidden_size=32, intermediate_size=48,
                                 num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=64)
    model = save(made, tmp_path, made.hf.LlamaForCausalLM(config), tokenizer)

    def tiny(folder):
        return str(folder), model, lambda text: tokenizer.encode(text).ids, tokenizer.decode, [2]
    assert not real_models.compare(tiny, tmp_path, 8)
    made.randomise(model, 2)
    assert len(real_models.compare(tiny, tmp_path, 8)) == len(real_models.PROMPTS)


def test_vectors(made, tmp_path):
    import encoders
    tokenizer = made.wordpiece()
    config = made.hf.BertConfig(vocab_size=tokenizer.get_vocab_size(), hidden_size=32, intermediate_size=48,
                                num_hidden_layers=2, num_attention_heads=4)
    modules = [{"path": path, "type": f"sentence_transformers.models.{name}"}
               for path, name in (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize"))]
    save(made, tmp_path, made.hf.BertModel(config), tokenizer)
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 256}))
    (tmp_path / "1_Pooling").mkdir()
    pooling = tmp_path / "1_Pooling" / "config.json"
    pooling.write_text(json.dumps({"pooling_mode": "mean"}))
    assert not encoders.parity(str(tmp_path), 40)
    pooling.write_text(json.dumps({"pooling_mode": "cls"}))
    assert len(encoders.parity(str(tmp_path), 40)) == 2


def test_sound(made, tmp_path):
    import whisper
    tokenizer = made.byte_level()
    config = made.hf.WhisperConfig(
        vocab_size=tokenizer.get_vocab_size(), d_model=32, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, num_mel_bins=8,
        max_source_positions=20, max_target_positions=64, pad_token_id=2, bos_token_id=2, eos_token_id=2,
        decoder_start_token_id=3, begin_suppress_tokens=[])
    save(made, tmp_path, made.hf.WhisperForConditionalGeneration(config), tokenizer)
    sound = str(tmp_path / "sound.npy")
    made.np.save(sound, made.torch.randn(8, 40, generator=made.torch.Generator().manual_seed(1)).numpy())
    whisper.TEXT = 30
    assert not whisper.parity(str(tmp_path), [sound])
    path = tmp_path / "generation_config.json"
    generation = json.loads(path.read_text())
    first = whisper.Model.read(str(tmp_path)).look(sound)._tokens(1)[1]
    path.write_text(json.dumps({**generation, "suppress_tokens": [first]}))  # obeyed here, not by the reference
    assert whisper.parity(str(tmp_path), [sound])
