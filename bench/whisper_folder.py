#!/usr/bin/env python3
"""whisper_folder.py - weights of OpenAI's Whisper as a Hugging Face folder, and spoken sentences as features.

    python3 bench/whisper_folder.py MODEL.pt GPT2.tiktoken ESPEAK FOLDER

Called by tools/real-models. Needs torch (which reads the pickle with weights_only, so that it runs no code),
tokenizers and transformers. ESPEAK is the unpacked package espeakng-loader; it speaks four sentences, written as
log-mel features sound-0.npy to sound-3.npy of FOLDER.
"""
import base64
import ctypes
import os
import sys

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import WhisperConfig, WhisperFeatureExtractor, WhisperForConditionalGeneration
from transformers.models.whisper.tokenization_whisper import LANGUAGES

END, START, NO_TIMESTAMPS = 50256, 50257, 50362  # of the English models
NAMES = [("blocks", "layers"), ("mlp.0", "fc1"), ("mlp.2", "fc2"), ("mlp_ln", "final_layer_norm"),
         (".cross_attn.query", ".encoder_attn.q_proj"), (".cross_attn.key", ".encoder_attn.k_proj"),
         (".cross_attn.value", ".encoder_attn.v_proj"), (".cross_attn.out", ".encoder_attn.out_proj"),
         (".cross_attn_ln", ".encoder_attn_layer_norm"), (".attn.query", ".self_attn.q_proj"),
         (".attn.key", ".self_attn.k_proj"), (".attn.value", ".self_attn.v_proj"), (".attn.out", ".self_attn.out_proj"),
         (".attn_ln", ".self_attn_layer_norm"), ("decoder.ln.", "decoder.layer_norm."),
         ("encoder.ln_post.", "encoder.layer_norm."), ("token_embedding", "embed_tokens"),
         ("positional_embedding", "embed_positions.weight")]
SENTENCES = ["The quick brown fox jumps over the lazy dog.", "Once upon a time there was a little girl named Lily.",
             "Attention is all you need, said the teacher to the class.",
             "Paris is the capital of France, and Rome is the capital of Italy."]


def rename(name):
    for theirs, new in NAMES:
        name = name.replace(theirs, new)
    return "model." + name


def write_model(path, folder):
    stored = torch.load(path, map_location="cpu", weights_only=True)
    d, tensors = stored["dims"], stored["model_state_dict"]
    dim = d["n_text_state"]
    model = WhisperForConditionalGeneration(WhisperConfig(
        vocab_size=d["n_vocab"], num_mel_bins=d["n_mels"], d_model=dim, encoder_layers=d["n_audio_layer"],
        encoder_attention_heads=d["n_audio_head"], decoder_layers=d["n_text_layer"],
        decoder_attention_heads=d["n_text_head"], encoder_ffn_dim=4 * dim, decoder_ffn_dim=4 * dim,
        max_source_positions=d["n_audio_ctx"], max_target_positions=d["n_text_ctx"], bos_token_id=END,
        eos_token_id=END, pad_token_id=END, decoder_start_token_id=START, tie_word_embeddings=True)).eval()
    state = {rename(name): t.float() for name, t in tensors.items()}
    state["proj_out.weight"] = state["model.decoder.embed_tokens.weight"]
    model.load_state_dict(state)
    g = model.generation_config
    g.suppress_tokens, g.begin_suppress_tokens, g.forced_decoder_ids = None, [220, END], None
    g.is_multilingual, g.no_timestamps_token_id, g.max_length = False, NO_TIMESTAMPS, 448
    g.decoder_start_token_id, g.eos_token_id = START, END
    model.save_pretrained(folder)


def split(token, ranks):
    """The two tokens that a merge joins to this one."""
    parts = [bytes([b]) for b in token]
    while len(parts) > 2:
        joined = [ranks.get(a + b, len(ranks)) for a, b in zip(parts, parts[1:])]
        i = joined.index(min(joined))
        parts[i:i + 2] = [parts[i] + parts[i + 1]]
    return parts


def write_tokenizer(path, folder):
    with open(path, encoding="ascii") as file:
        ranks = {base64.b64decode(token): int(rank) for token, rank in map(str.split, filter(str.strip, file))}
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letter = {b: chr(b) for b in printable}
    for b in range(256):
        letter.setdefault(b, chr(256 + len(letter) - len(printable)))

    def spell(token):
        return "".join(letter[b] for b in token)
    order = sorted(ranks, key=ranks.get)
    merges = [tuple(map(spell, split(t, ranks))) for t in order if len(t) > 1]
    tokenizer = Tokenizer(models.BPE({spell(t): r for t, r in ranks.items()}, merges))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    special = ["endoftext", "startoftranscript", *list(LANGUAGES)[:99], "translate", "transcribe", "startoflm",
               "startofprev", "nospeech", "notimestamps", *(f"{0.02 * i:.2f}" for i in range(1501))]
    tokenizer.add_special_tokens([AddedToken(f"<|{name}|>", special=True) for name in special])
    assert tokenizer.token_to_id("<|notimestamps|>") == NO_TIMESTAMPS
    tokenizer.save(f"{folder}/tokenizer.json")


def speak(espeak, sentences):
    """Each sentence as 16,000 samples a second."""
    library = ctypes.CDLL(f"{espeak}/libespeak-ng.so")
    rate = library.espeak_Initialize(2, 0, espeak.encode(), 0)  # 2: samples are handed over, not played
    chunks, callback = [], ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)

    def take(samples, count, _):
        if samples and count:
            chunks.append(np.ctypeslib.as_array(samples, (count,)).copy())
        return 0
    take = callback(take)
    library.espeak_SetSynthCallback(take)
    library.espeak_SetVoiceByName(b"en-us")
    library.espeak_SetParameter(1, 130, 0)  # words a minute
    for sentence in sentences:
        chunks.clear()
        text = sentence.encode() + b"\0"
        library.espeak_Synth(text, ctypes.c_size_t(len(text)), 0, 1, 0, 1, None, None)
        library.espeak_Synchronize()
        sound = np.concatenate(chunks).astype(np.float32) / 32768
        places = np.arange(len(sound) * 16000 // rate) * rate / 16000
        yield np.interp(places, np.arange(len(sound)), sound).astype(np.float32)


def main():
    model, tiktoken, espeak, folder = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    write_model(model, folder)
    write_tokenizer(tiktoken, folder)
    extract = WhisperFeatureExtractor()
    for i, sound in enumerate(speak(os.path.abspath(espeak), SENTENCES)):
        features = extract(sound, sampling_rate=16000, return_tensors="np").input_features[0]
        np.save(f"{folder}/sound-{i}.npy", features.astype(np.float32))


if __name__ == "__main__":
    main()
