#!/usr/bin/env python3
"""generation.py - greedy texts by settings of generation_config.json, as transformers generates them.

    python3 tests/golden/checkpoints/generation.py

Writes generation.tsv beside itself: a line for each text, with TAB between the checkpoint (the folders that make.py
and encoder_decoders.py made), the text of a generation_config.json, the tokens of a prompt and those that follow up to
an end, of NEW at most; and beams.tsv, lines of the same kind of texts with a forced token and BEAMS beams. Settings are drawn from what the model would generate without them, so that each of them changes
something: an end is a token that comes, what is banned or suppressed came. Padding is never generated here, which is
said to transformers as bad_words_ids.
"""
import json
import os
import random
import warnings

import torch
import transformers as hf

HERE = os.path.dirname(os.path.abspath(__file__))
NEW = 20
BEAMS = 4
CLASSES = {"llama": hf.LlamaForCausalLM, "qwen2": hf.Qwen2ForCausalLM, "gpt2": hf.GPT2LMHeadModel,
           "gemma": hf.GemmaForCausalLM, "gpt_neox": hf.GPTNeoXForCausalLM, "opt": hf.OPTForCausalLM,
           "bart-forced": hf.BartForConditionalGeneration, "marian": hf.MarianMTModel,
           "t5": hf.T5ForConditionalGeneration}


def generate(model, prompt, settings, beams=1):
    ids = torch.tensor([prompt])
    wide = dict(num_beams=beams, early_stopping="never", length_penalty=1.0) if beams > 1 else {}
    with torch.no_grad():
        new = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW, do_sample=False, **wide,
                             generation_config=hf.GenerationConfig(**settings))[0].tolist()
    new = new[1:] if model.config.is_encoder_decoder else new[len(prompt):]
    ends = settings["eos_token_id"]
    return new[:-1] if new[-1] in (ends if isinstance(ends, list) else [ends]) else new


def marks_of(c):
    return dict(eos_token_id=c.eos_token_id, decoder_start_token_id=c.decoder_start_token_id,
                pad_token_id=c.pad_token_id, bad_words_ids=[[c.pad_token_id]])


def draw(r, model, prompt):
    """Settings that change the text of this prompt, each of them."""
    c = model.config
    marks = marks_of(c) if c.is_encoder_decoder else {"eos_token_id": 3}
    for _ in range(200):
        text = generate(model, prompt, marks)
        at = r.randrange(len(text) - 1) if len(text) > 1 else 0
        settings = dict(marks)
        if not c.is_encoder_decoder and r.random() < 0.7:
            settings["eos_token_id"] = r.choice([text[at], [95, text[-1]]])
        said = dict(repetition_penalty=r.choice([1.1, 1.3, 2.0, 0.7]), no_repeat_ngram_size=r.choice([1, 2, 3]),
                    min_length=r.choice([4, 12, 20]), min_new_tokens=r.choice([3, 8, 15]),
                    suppress_tokens=r.sample(text, 1) + [96, 500], begin_suppress_tokens=text[:1] + [5, 6, 7],
                    forced_bos_token_id=r.randrange(4, 97),
                    bad_words_ids=marks.get("bad_words_ids", []) + [text[at:at + 2], [7], [prompt[-1], text[0]]])
        names = r.sample(sorted(said), r.choice([1, 2, 2, 3]))
        settings |= {name: said[name] for name in names}
        with_all = generate(model, prompt, settings)
        without = [{k: v for k, v in settings.items() if k != n} | {k: marks[k] for k in [n] if k in marks}
                   for n in names]
        if all(generate(model, prompt, less) != with_all for less in without):
            return settings, with_all
    raise SystemExit("no settings change a text")


def line(name, settings, prompt, text):
    return "\t".join([name, json.dumps(settings), " ".join(map(str, prompt)), " ".join(map(str, text))]) + "\n"


def write_beams():
    """A forced token that the model finds unlikely, and an end that comes; texts that a wider search finds too, since
    transformers finishes a text only where its end is among the best BEAMS continuations."""
    with open(f"{HERE}/beams.tsv", "w", encoding="utf-8") as file:
        for name in ("bart-forced", "marian"):
            r = random.Random(name)
            model = CLASSES[name].from_pretrained(f"{HERE}/{name}", dtype=torch.float64).eval()
            model.generation_config = hf.GenerationConfig()
            c = model.config
            count = 0
            while count < 12:
                prompt = [r.randrange(4, 97) for _ in range(6)]
                text = generate(model, prompt, dict(marks_of(c), eos_token_id=3))
                never = [[c.pad_token_id], [c.decoder_start_token_id]]  # not here either
                settings = dict(marks_of(c), eos_token_id=r.choice(text), forced_bos_token_id=r.randrange(4, 96),
                                bad_words_ids=never)
                text = generate(model, prompt, settings, BEAMS)
                if text == generate(model, prompt, settings, 4 * BEAMS):
                    file.write(line(name, settings, prompt, text))
                    count += 1


def main():
    warnings.filterwarnings("ignore")
    hf.utils.logging.set_verbosity_error()
    hf.utils.logging.disable_progress_bar()
    lines, used = [], set()
    for name, cls in CLASSES.items():
        r = random.Random(name)
        model = cls.from_pretrained(f"{HERE}/{name}", dtype=torch.float64).eval()
        model.generation_config = hf.GenerationConfig()
        for length in (1, 2, 5, 9, 12):
            prompt = [r.randrange(4, 97) for _ in range(length)]
            settings, text = draw(r, model, prompt)
            used |= set(settings)
            lines.append(line(name, settings, prompt, text))
    missing = {"repetition_penalty", "no_repeat_ngram_size", "min_length", "min_new_tokens", "suppress_tokens",
               "begin_suppress_tokens", "forced_bos_token_id", "bad_words_ids"} - used
    assert not missing, missing
    with open(f"{HERE}/generation.tsv", "w", encoding="utf-8") as file:
        file.writelines(lines)
    write_beams()


main()
