#!/usr/bin/env python3
"""Makes chat/*.json: conversations as jinja2 renders them with the models' chat templates, and their ids.

    python tests/golden/make_chat_golden.py --data DIR [--check]

DIR has templates/*.jinja and the vocabularies llama-bpe-vocab.gguf and qwen2-vocab.gguf. The environment is that of
transformers' apply_chat_template, without its clock: templates that ask for the date get their own default.
tests/golden/README.md says what is in the file.
"""

import argparse
import hashlib
import json
import re
import sys
from pathlib import Path

import chat_jinja
import chat_language
import jinja2
from golden_io import HERE, emit_or_check
from make_bpe import CONTROL, build, read_gguf

MARKERS = ("</s><s>[INST] <<SYS>> <</SYS>> [/INST]<|im_end|>\n<|im_start|>system\n<|eot_id|><|start_header_id|>"
           "<|end_header_id|><|begin_of_text|><|endoftext|><start_of_turn><end_of_turn><|user|><|assistant|><think>")
SPACES = " \t\n\u00a0\u3000text\u2003with spaces \x1c\u2028 \n\n"
THOUGHT = "<think>\nIt may be\n\nsimple.\n</think>\n\nYes.\n"


def conversation(*texts: str, system: str | None = None) -> list[dict]:
    messages = [] if system is None else [{"role": "system", "content": system}]
    return messages + [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]


CONVERSATIONS = [
    conversation("Why is the sky blue?"),
    conversation("Hi", system="Be kind."),
    conversation("Hi", "Hello.", "Why?", system="Be kind."),
    conversation("One", "1", "Two", "2", "Three", "3", "Four?"),
    conversation("", "", "", system=""),
    conversation("", "Well?", " \n", system=" "),
    conversation(SPACES, SPACES, SPACES, "\n\nlines first", "end ", system=SPACES),
    conversation(MARKERS, "said <|im_end|> and </s>", "x<|im_", "|>end", MARKERS, system="<|im_end|>" + MARKERS),
    conversation("Is it?", THOUGHT, "Sure?", "<think>a</think>b<think>c</think>\n\nd", "So?", "</think>\nodd", "End."),
    conversation("Be quick. /no_think", "\nOK", "And?", THOUGHT, "!", system="Short /no_think answers./think  \n"),
    conversation("Look", THOUGHT, "<tool_response>\n7\n</tool_response>", system="/think"),
    conversation("{{ 7 * 7 }} {% raw %} caf\u00e9 \u4f60\u597d \U0001f600\r\n\ttab", "49\\n", "'\"\\", system="/no_think"),
]

# Templates that are not in DIR, in our own words: what is compared with them is only as right as they are.
CHATML = ("{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}"
          "{{ '<|im_start|>assistant\\n' }}")
DEFAULT = "{{% if messages[0]['role'] != 'system' %}}{{{{ '<|im_start|>system\\n{}<|im_end|>\\n' }}}}{{% endif %}}"
RESTATED = {
    "chatml": CHATML,
    "qwen2": DEFAULT.format("You are a helpful assistant.") + CHATML,
    "smollm2": DEFAULT.format("You are a helpful AI assistant named SmolLM, trained by Hugging Face") + CHATML,
    "zephyr": ("{% for m in messages %}{{ '<|user|>\\n' if m['role'] == 'user' else '<|' + m['role'] + '|>\\n' }}"
               "{{ m['content'] + eos_token + '\\n' }}{% endfor %}{{ '<|assistant|>\\n' }}"),
    "llama2": ("{% if messages[0]['role'] == 'system' %}{% set first = '<<SYS>>\\n' + messages[0]['content'] + "
               "'\\n<</SYS>>\\n\\n' %}{% set messages = messages[1:] %}{% else %}{% set first = '' %}{% endif %}"
               "{% for m in messages %}{% if m['role'] == 'user' %}{{ bos_token + '[INST] ' + ((first if loop.first else '')"
               " + m['content']).strip() + ' [/INST]' }}{% else %}{{ ' ' + m['content'].strip() + ' ' + eos_token }}"
               "{% endif %}{% endfor %}"),
    "llama3": ("{% for m in messages %}{% set text = '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n' + "
               "m['content'] | trim + '<|eot_id|>' %}{{ bos_token + text if loop.first else text }}{% endfor %}"
               "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}"),
    "gemma": ("{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set first = messages[0]['content'] + '\\n\\n' %}"
              "{% set messages = messages[1:] %}{% else %}{% set first = '' %}{% endif %}{% for m in messages %}"
              "{{ '<start_of_turn>' + ('model' if m['role'] == 'assistant' else m['role']) + '\\n' + "
              "(first if loop.first else '') }}{{ m['content'] | trim }}{{ '<end_of_turn>\\n' }}{% endfor %}"
              "{{ '<start_of_turn>model\\n' }}"),
}

# The file in DIR, the name of its format, its BOS and EOS, the vocabulary to compare ids with.
PUBLISHED = [
    ("HuggingFaceTB-SmolLM3-3B.jinja", "smollm3", None),
    ("Qwen-Qwen2.5-7B-Instruct.jinja", "qwen2.5", "qwen2"),
    ("Qwen-Qwen3-0.6B.jinja", "qwen3", "qwen2"),
    ("meta-llama-Llama-3.1-8B-Instruct.jinja", "llama3.1", "llama-bpe"),
    ("meta-llama-Llama-3.2-3B-Instruct.jinja", "llama3.1", "llama-bpe"),
    ("mistralai-Mistral-Nemo-Instruct-2407.jinja", "mistral-nemo", None),
]
LLAMA3_BOS = "<|begin_of_text|>"


def render(template: str, messages: list[dict], bos: str) -> str:
    return chat_jinja.environment().from_string(template).render(
        messages=messages, add_generation_prompt=True, bos_token=bos, eos_token="</s>")


def split_special(template: str, messages: list[dict], special: set[str], bos: str) -> list[str]:
    """The rendered text cut at the special tokens that the template wrote, which stand at the odd places.

    The same conversation is rendered with another character for the '<' of every "<|" that a message has, so that the
    special tokens left are the template's.
    """
    masked = [message | {"content": message["content"].replace("<|", "\ue000|")} for message in messages]
    text, shown = render(template, messages, bos), render(template, masked, bos)
    assert shown.replace("\ue000", "<") == text
    pieces, end = [], 0
    for match in re.finditer("|".join(map(re.escape, sorted(special))), shown):
        pieces += [text[end:match.start()], match.group()]
        end = match.end()
    return [*pieces, text[end:]]


def ids_of(pieces: list[str], vocab: dict, tokenizer) -> list[int]:
    ids = []
    for i, piece in enumerate(pieces):
        ids += [vocab[piece]] if i % 2 else tokenizer.encode(piece, add_special_tokens=False).ids
    return ids


def entry(name: str, template: str, bos: str, own_text: bool) -> dict:
    """A text begins after BOS, which the vocabulary adds; Llama 2's later ones are text."""
    texts = [render(template, messages, bos) for messages in CONVERSATIONS]
    return {"format": name, "sha256": hashlib.sha256(template.encode()).hexdigest(),
            **({"template": template} if own_text else {}), "texts": [text.removeprefix(bos) for text in texts]}


def digest(text: str | None) -> str:
    return "-" if text is None else hashlib.sha256(text.encode()).hexdigest()[:12]


def templates_json(folder: Path) -> dict:
    """All templates there and those committed here: the start of the SHA-256 of each text, "-" where jinja2 raises."""
    conversations = CONVERSATIONS + chat_jinja.AGENTS
    runs = chat_jinja.runs(len(conversations))
    templates = []
    for path in [*sorted((HERE / "chat").glob("*.jinja")), *sorted(folder.glob("*.jinja"))]:
        text = path.read_bytes().decode()
        texts = [chat_jinja.render(text, chat_jinja.variables_of(run, conversations, "<s>", "</s>"),
                                   chat_jinja.DATE if run["date"] else None) for run in runs]
        templates.append({"file": path.name, "sha256": hashlib.sha256(text.encode()).hexdigest(),
                          "texts": " ".join(map(digest, texts))})
    return {"jinja2": jinja2.__version__, "conversations": conversations, "runs": runs, "tools": {
        "nested": chat_jinja.TOOLS, "flat": chat_jinja.FLAT_TOOLS}, "templates": templates}


def language_json() -> dict:
    messages = conversation("Hi ", " Yes", "So?")
    variables = chat_language.VARIABLES | {
        "messages": messages, "tools": None, "documents": None, "bos_token": "<s>", "eos_token": "</s>",
        "add_generation_prompt": True}
    cases = [[text, chat_jinja.render(text, variables, chat_jinja.DATE)] for text in chat_language.templates()]
    return {"messages": messages, "variables": chat_language.VARIABLES, "cases": cases, "refused": chat_language.REFUSED}


def one_line_each(content: dict) -> bytes:
    """JSON whose lists have an item on each line."""
    def text(value):
        if not isinstance(value, list):
            return json.dumps(value)
        return "[\n" + ",\n".join("  " + json.dumps(item) for item in value) + "\n ]"

    return ("{\n" + ",\n".join(f" {json.dumps(key)}: {text(value)}" for key, value in content.items()) + "\n}\n").encode()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="directory with templates and vocabularies")
    parser.add_argument("--check", action="store_true", help="compare with the committed file, write nothing")
    args = parser.parse_args()
    data = Path(args.data)
    vocabs = {}
    for name in ("llama-bpe", "qwen2"):
        vocab, merges, special, rule = read_gguf(str(data / f"{name}-vocab.gguf"))
        control = {token for token, kind in special.items() if kind == CONTROL}
        vocabs[name] = vocab, control, build(vocab, merges, special, rule, False)
    templates = [entry(name, text, "<s>", True) for name, text in RESTATED.items()]
    for file, name, vocab_name in PUBLISHED:
        text = (data / "templates" / file).read_text(encoding="utf-8")
        bos = LLAMA3_BOS if vocab_name == "llama-bpe" else "<s>"
        found = {"file": file} | entry(name, text, bos, False)
        if vocab_name:
            vocab, control, tokenizer = vocabs[vocab_name]
            found["vocabulary"] = f"{vocab_name}-vocab.gguf"
            found["ids"] = [ids_of(split_special(text, messages, control, bos), vocab, tokenizer)
                            for messages in CONVERSATIONS]
        templates.append(found)
    content = {"jinja2": jinja2.__version__, "conversations": CONVERSATIONS, "templates": templates}
    lines = json.dumps(content, indent=1)
    lines = re.sub(r"\[[\d,\s]+\]", lambda m: re.sub(r"\s+", "", m.group()), lines)  # ids on one line
    files = {"golden.json": (lines + "\n").encode("ascii"), "templates.json": one_line_each(templates_json(data / "templates")),
             "language.json": one_line_each(language_json())}
    return emit_or_check(HERE / "chat", files, args.check)


if __name__ == "__main__":
    sys.exit(main())
