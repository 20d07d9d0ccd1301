#!/usr/bin/env python3
"""sound.py - what texts of sound begin with by generation_config.json, and how they go on, as transformers has them.

    python3 tests/golden/checkpoints/sound.py

Writes sound.tsv beside itself: a line for each text, with TAB between the text of a generation_config.json, the number
of beams, the tokens that the text begins with behind its start, and those that follow up to an end, of NEW at most. The
features are those of the checkpoint "whisper" (encoder_decoders.py). Padding is never generated here, which is said to
transformers as bad_words_ids.
"""
import json
import os
import warnings

import torch
import transformers as hf
from safetensors.torch import load_file

HERE = os.path.dirname(os.path.abspath(__file__))
NEW = 14
MARKS = dict(decoder_start_token_id=90, eos_token_id=96, pad_token_id=96, bos_token_id=96)
LANGUAGES = {"lang_to_id": {"<|en|>": 13, "<|de|>": 14, "<|ca|>": 15, "<|haw|>": 16}}
TASKS = {"task_to_id": {"transcribe": 91, "translate": 95}}
LAST = {"no_timestamps_token_id": 92}
NEWER = LANGUAGES | TASKS | LAST
SETTINGS = [
    {}, LAST, NEWER, LANGUAGES | LAST, NEWER | {"is_multilingual": False},
    NEWER | {"task": "translate"}, NEWER | {"task": "transcribe"}, TASKS | LAST | {"task": "translate"},
    NEWER | {"language": "<|de|>"}, NEWER | {"language": "de", "task": "translate"},
    NEWER | {"language": "German"}, NEWER | {"language": "valencian", "task": "transcribe"},
    NEWER | {"language": "haw"}, LANGUAGES | {"language": "EN"},
    NEWER | {"forced_decoder_ids": [[1, None], [2, 91]]}, NEWER | {"forced_decoder_ids": [[1, 15], [2, 95], [3, 92]]},
    LAST | {"forced_decoder_ids": [[1, None], [2, 91]]}, LAST | {"forced_decoder_ids": [[1, 92]]},
    NEWER | {"forced_decoder_ids": [[1, 15], [2, 95]], "task": "transcribe"},
    NEWER | {"forced_decoder_ids": [[1, 15], [2, 95]], "language": "english"},
    NEWER | {"repetition_penalty": 1.3, "suppress_tokens": [13, 14, 20], "begin_suppress_tokens": [23]},
    NEWER | {"language": "german", "min_new_tokens": 6, "no_repeat_ngram_size": 2}]


def generate(model, features, settings, beams):
    model.generation_config = hf.GenerationConfig(**MARKS, **settings, bad_words_ids=[[90]])
    found, retrieve = [], type(model)._retrieve_init_tokens
    model._retrieve_init_tokens = lambda *a, **k: found.append(retrieve(model, *a, **k)) or found[0]
    wide = dict(num_beams=beams, early_stopping="never", length_penalty=1.0) if beams > 1 else {}
    with torch.no_grad():
        text = model.generate(features, max_new_tokens=NEW, do_sample=False, **wide)[0].tolist()
    first = found[0][0].tolist()
    return first[1:], text[:text.index(96)] if 96 in text else text


def main():
    warnings.filterwarnings("ignore")
    hf.utils.logging.set_verbosity_error()
    hf.utils.logging.disable_progress_bar()
    model = hf.WhisperForConditionalGeneration.from_pretrained(f"{HERE}/whisper", dtype=torch.float64).eval()
    features = load_file(f"{HERE}/whisper/golden.safetensors")["features"][None].double()
    lines = []
    for settings in SETTINGS:
        for beams in (1, 4):
            first, text = generate(model, features, settings, beams)
            lines.append("\t".join([json.dumps(MARKS | settings | {"bad_words_ids": [[90]]}), str(beams),
                                    " ".join(map(str, first)), " ".join(map(str, text))]))
    with open(f"{HERE}/sound.tsv", "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


main()
