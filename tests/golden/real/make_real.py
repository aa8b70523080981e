#!/usr/bin/env python3
"""Freezes what transformers computes with a public model: greedy texts with the five most likely tokens of every step,
perplexity, token ids. tests/public_models/check.py holds llmrun against it.

    build/hf-venv/bin/python tests/golden/real/make_real.py MODEL.gguf FOLDER

transformers loads the GGUF itself, dequantized to f32. FOLDER is tests/golden/real/NAME; its text.txt is read, `logits_hash` of
facts.json is ours and kept (tests/public_models/check.py --freeze).
"""

import argparse
import json
import sys
from pathlib import Path

import torch
import transformers
from tokenizers import pre_tokenizers

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[2] / "tools/reference_f64"), str(HERE.parent)]

from gguf_model import GgufModel  # noqa: E402
from random_texts import make_texts  # noqa: E402
from verify_reference import TOP_K, prompt_json, reference_json, shortest, top  # noqa: E402

STEPS = 48
WINDOW = 512
LONG_WINDOW = 1536  # of a model whose layers have windows of 512: three of them
BASE = {"france": "The capital of France is", "story": "Once upon a time, in a village by the sea,",
        "code": "def fibonacci(n):\n    \"\"\"Return the n-th Fibonacci number.\"\"\"\n", "years": "In 1905, 1912 and 2024 the"}
CHATS = {"hello": "Hello! Who are you?", "sum": "What is 17 plus 25?", "list": "Name three fruits that are red.",
         "haiku": "Write a haiku about autumn rain in Zürich."}
TEXTS = 400


class Theirs:
    """The model as transformers has it."""

    def __init__(self, path: Path, ours: GgufModel):
        self.model = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
        self.model.eval()
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
        self.backend = self.tokenizer.backend_tokenizer
        self.backend.encode_special_tokens = True  # a text is plain text
        self.bos = [ours.value("tokenizer.ggml.bos_token_id")] if ours.value("tokenizer.ggml.add_bos_token", True) else []
        self.window = LONG_WINDOW if ours.hparams.window else WINDOW
        if ours.value("tokenizer.ggml.pre", "") == "smollm":  # not known to the import, which splits as GPT-2 does
            self.backend.pre_tokenizer = pre_tokenizers.Sequence(
                [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])

    def encode(self, text: str) -> list[int]:
        return self.backend.encode(text, add_special_tokens=False).ids

    def logits(self, ids: list[int]) -> torch.Tensor:
        with torch.inference_mode():
            return self.model(torch.tensor([ids])).logits[0]


def continued(theirs: Theirs, ids: list[int]) -> tuple[list[list[int]], list[list[str]]]:
    """Top ids and logits of each greedy step."""
    top_ids, top_logits, cache = [], [], None
    for _ in range(STEPS):
        with torch.inference_mode():
            done = theirs.model(torch.tensor([ids]), past_key_values=cache, use_cache=True)
        row, cache = done.logits[0, -1].numpy(), done.past_key_values
        top_ids.append(top(row, TOP_K))
        top_logits.append([shortest(row[i]) for i in top_ids[-1]])
        ids = top_ids[-1][:1]
    return top_ids, top_logits


def prompts(theirs: Theirs, text: str) -> list[str]:
    """Texts, one of them long where layers have windows, and questions where the model has a chat template."""
    made = []
    base = BASE | ({"long": text[:7000]} if theirs.window > WINDOW else {})
    for kind, texts in (("base", base), ("instruct", CHATS if theirs.tokenizer.chat_template else {})):
        for name, text in texts.items():
            if kind == "base":
                prompt, ids = {"id": name, "kind": kind, "text": text}, theirs.bos + theirs.encode(text)
            else:
                chat = theirs.tokenizer.apply_chat_template([{"role": "user", "content": text}], tokenize=False,
                                                            add_generation_prompt=True)
                theirs.backend.encode_special_tokens = False
                ids = theirs.encode(chat)
                theirs.backend.encode_special_tokens = True
                prompt = {"id": name, "kind": kind, "ids": ids}
            top_ids, top_logits = continued(theirs, ids)
            made.append(prompt_json(prompt, ids, top_ids, top_logits))
            print(f"{name}: {theirs.tokenizer.decode([row[0] for row in top_ids])!r}")
    return made


def perplexity(theirs: Theirs, text: str) -> dict:
    """As docs/quality.md defines it: windows begin with BOS, or in a vocabulary without it with the token before them, and then
    the first token of the text is not scored."""
    ids = theirs.encode(text)
    total, first = 0.0, 0 if theirs.bos else 1
    for begin in range(first, len(ids), theirs.window):
        window = ids[begin:begin + theirs.window]
        before = theirs.bos or [ids[begin - 1]]
        rows = torch.log_softmax(theirs.logits([*before, *window[:-1]]).double(), dim=-1)
        total -= sum(float(row[i]) for row, i in zip(rows, window, strict=True))
    scored = len(ids) - first
    return {"window": theirs.window, "tokens": scored, "perplexity": float(torch.tensor(total / scored, dtype=torch.float64).exp())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(2)
    ours = GgufModel(args.model)
    theirs = Theirs(args.model, ours)
    # Of a longer run of blanks, SentencePiece and llama.cpp take the longest user-defined tokens first, which transformers'
    # import of a GGUF does not know.
    texts = [text for text in make_texts(20261123, TEXTS) if not theirs.bos or " " * 32 not in text]
    lines = [json.dumps({"text": text, "ids": theirs.bos + theirs.encode(text)}) for text in texts]
    (args.folder / "tokens.jsonl").write_text("\n".join(lines) + "\n")
    facts_path = args.folder / "facts.json"
    facts = json.loads(facts_path.read_text()) if facts_path.exists() else {}
    facts |= {"model_sha256": ours.sha256(), "oracle": f"transformers {transformers.__version__}, torch {torch.__version__}, f32"}
    text = (args.folder / "text.txt").read_text(encoding="utf-8")
    facts |= perplexity(theirs, text)
    facts_path.write_text(json.dumps(facts, indent=2) + "\n")
    reference = reference_json(ours, prompts(theirs, text), STEPS, "make_real.py", "transformers")
    (args.folder / "verify.json").write_text(reference)


if __name__ == "__main__":
    main()
