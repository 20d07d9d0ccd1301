#!/usr/bin/env python3
"""chat_templates.py - prompts of chat templates against transformers, byte by byte.

    make build/tests/test_chat
    python3 bench/chat_templates.py FOLDER          every file of FOLDER is a template

Each template is rendered for a message, for one full of quotes, braces and characters beyond ASCII, and for
both behind a message of a system, without tools, an answer asked for. A conversation that raises in
transformers must be refused. Needs transformers. llama.cpp comes with a folder of templates.
"""
import datetime
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAM = os.path.join(ROOT, "build", "tests", "test_chat")
HOSTILE = " What is {{ 1 }}?\n 'a' \"b\" {% x %} äöü 😀 \\n\t</s>  "
CONVERSATIONS = [("Hi", None), (HOSTILE, None), ("Hi", "Be brief."), (HOSTILE, " Be \"kind\" Ä\n")]


def reference(chat_template_utils, template, message, system):
    """What transformers writes, or None and why it raises."""
    chat = [{"role": "user", "content": message}]
    if system is not None:
        chat.insert(0, {"role": "system", "content": system})
    try:
        return chat_template_utils.render_jinja_template(
            [chat], chat_template=template, add_generation_prompt=True, bos_token="<B>", eos_token="</s>")[0][0], ""
    except Exception as error:  # whatever a template raises
        return None, f"{type(error).__name__}: {error}"


def ours(path, message, system):
    words = [PROGRAM, "--render", path, message] + ([] if system is None else [system])
    run = subprocess.run(words, capture_output=True, check=False)
    return run.stdout.decode() if run.returncode == 0 else None, run.stderr.decode().strip()


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        from transformers.utils import chat_template_utils
    except ImportError:
        print("transformers is not installed: there is nothing to compare with")
        return

    class Fixed(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls(2025, 3, 7, 15, 4, 9)

    chat_template_utils.datetime = Fixed
    counts = {"equal": 0, "different": 0, "refused here only": 0, "taken here only": 0, "refused by both": 0}
    names = sorted(os.listdir(sys.argv[1]))
    for name in names:
        path = os.path.join(sys.argv[1], name)
        with open(path, newline="", encoding="utf-8") as file:
            template = file.read()
        for message, system in CONVERSATIONS:
            want, why = reference(chat_template_utils, template, message, system)
            got, sentence = ours(path, message, system)
            kind = ("equal" if got is not None else "refused by both") if got == want else (
                "refused here only" if got is None else "taken here only" if want is None else "different")
            counts[kind] += 1
            if kind != "equal":
                print(f"{name}, {'with' if system else 'without'} a system: {kind}: {why} | {sentence}")
    print(f"{len(names)} templates, {len(CONVERSATIONS)} conversations each:",
          ", ".join(f"{count} {kind}" for kind, count in counts.items()))
    sys.exit(counts["different"] + counts["refused here only"] > 0)


if __name__ == "__main__":
    main()
