"""Is a receipt's text what the model gives? One prefill of all its tokens, then every draw again (docs/receipts.md)."""

import functools
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np

from gguf_model import GgufModel

from . import model
from .receipt import Malformed
from .sampling import OTHERS, Settings, distribution, draw, uniform
from .tokenizer import Tokenizer


@dataclass
class Check:
    name: str
    reason: str  # why it failed; empty where it passed
    note: str = ""


class Verifier:
    def __init__(self, receipt: SimpleNamespace, file: GgufModel):
        self.receipt, self.file, self.tokenizer = receipt, file, Tokenizer(file)
        self.ids, self.ends = receipt.prompt_ids + receipt.ids, self.tokenizer.ends()
        self.drawn = np.zeros((0, 0), np.float32)  # the rows that tokens were drawn from
        if (most := max(self.ids + [i for i, _ in receipt.logit_bias])) >= len(self.tokenizer.tokens):
            raise Malformed(f"id {most}: the vocabulary has {len(self.tokenizer.tokens)} tokens")

    def checks(self) -> Iterator[Check]:
        """@throws UnsupportedModel"""
        yield self.prompt()
        yield Check("context", self.context())
        yield Check("text", self.text())
        logits = self.logits()
        tokens = self.tokens(self.receipt.settings)
        yield Check("logits", logits + self.other_arithmetic(not tokens) if logits else "")
        yield Check("tokens", tokens + self.other_settings() if tokens and not logits else tokens)
        yield Check("stop reason", self.stop_reason())

    def prompt(self) -> Check:
        r = self.receipt
        if r.prompt is None:
            return Check("prompt", "", "given as ids")
        if r.chat_template:
            spelled = self.tokenizer.decode(r.prompt_ids, True)
            wrong = [name for name in ("prompt", "system") if getattr(r, name).strip() not in spelled]
            reason = f"{wrong[0]}: prompt_ids spell another text" if wrong else ""
            return Check("prompt", reason, "what a chat template adds is not judged here")
        found = self.tokenizer.encode(r.prompt, r.parse_special)
        at = first_difference(found, r.prompt_ids)
        ids = [str(ids[at]) if at is not None and at < len(ids) else "none" for ids in (found, r.prompt_ids)]
        return Check("prompt", "" if at is None else f"prompt: id {at} of its text is {ids[0]}, prompt_ids has {ids[1]}")

    def context(self) -> str:
        most = self.file.hparams.context_length
        if not 0 < self.receipt.context <= most:
            return f"context: found {self.receipt.context}, the model has {most} positions"
        # Of a full context the last token was drawn, and has no position.
        full = len(self.ids) > self.receipt.context + 1
        return f"context: {self.receipt.context} positions do not give {len(self.ids)} tokens" if full else ""

    def text_of(self, ids: list[int]) -> str:
        text = self.tokenizer.decode(ids, bool(self.receipt.show_special))
        starts_anew = self.receipt.chat_template or self.receipt.prompt == ""
        return text.removeprefix(" ") if starts_anew and self.tokenizer.has_space_prefix() else text

    def stop_at(self, text: str) -> int | None:
        return min((at for stop in self.receipt.stop if (at := text.find(stop)) >= 0), default=None)

    def text(self) -> str:
        need, have = self.text_of(self.receipt.ids), self.receipt.text
        need = need[:self.stop_at(need)]
        at = first_difference(need, have)
        if at is None:
            return ""
        return f"text: the tokens give {need[at:at + 20]!r} at character {at}, the receipt has {have[at:at + 20]!r}"

    def logits(self) -> str:
        """Computes them; what is wrong with their hash."""
        r = self.receipt
        positions = self.ids[:r.context] if len(self.ids) == r.context + 1 else self.ids
        drawn, first, rows, at = hashlib.sha256(), len(r.prompt_ids) - 1, [], 0
        for part in model.logits(self.file, r.kv, r.compute, positions):
            rows.append(part[max(0, first - at):])
            drawn.update(rows[-1].astype("<f4").tobytes())
            at += len(part)
        self.drawn = np.concatenate(rows)
        need, have = drawn.hexdigest(), r.drawn_logits_sha256
        return "" if have == need else f"drawn_logits_sha256: found {have}, the model gives {need}"

    @functools.cache
    def distribution(self, step: int, settings: Settings):
        row = self.drawn[step].copy()
        for token, bias in self.receipt.logit_bias:
            row[token] += np.float32(bias)
        if self.receipt.ignore_eos:
            row[list(self.ends)] = -np.inf
        return distribution(row, self.ids[:len(self.receipt.prompt_ids) + step], settings, step)

    def draw(self, step: int, s: Settings) -> int:
        among = self.distribution(step, replace(s, seed=0, sequence=0))
        return draw(among, uniform(s.seed, s.sequence, len(self.receipt.prompt_ids) + step))

    def tokens(self, settings: Settings) -> str:
        for step, token in enumerate(self.receipt.ids[:len(self.drawn)]):
            row = self.drawn[step]
            if np.isnan(row).any() or not np.isfinite(row.max()):
                return f"token {step}: no token can be drawn from its logits"
            if (found := self.draw(step, settings)) != token:
                return f"token {step}: {self.shown(found)} is drawn, the receipt has {self.shown(token)}"
        return ""

    def other_arithmetic(self, are_drawn: bool) -> str:
        for name, value in [("kv", "f32" if self.receipt.kv == "f16" else "f16"), ("compute", "int8")]:
            other = Verifier(SimpleNamespace(**vars(self.receipt) | {name: value}), self.file)
            if getattr(self.receipt, name) != value and not other.logits():
                return f"; {name} {value} would give them"
        return "; yet its tokens are drawn: a hash, an id of the prompt, kv, compute or the model was changed" if are_drawn else ""

    def other_settings(self) -> str:
        """The values of each single setting that would draw all tokens."""
        would = []
        for name, values in OTHERS.items():
            found = [str(value) for value in values if not self.tokens(replace(self.receipt.settings, **{name: value}))]
            would += [f"{name} {', '.join(found[:3])}{' ...' if len(found) > 3 else ''}"] if found else []
        return f"; {' or '.join(would)} would give all of them" if would else "; no single setting that was tried gives all of them"

    def stop_reason(self) -> str:
        """What ended the text, from its tokens, and whether it should have ended before."""
        r, count = self.receipt, len(self.receipt.ids)
        early = next((i for i, token in enumerate(r.ids) if token in self.ends), None)
        if early is not None:
            return f"ids: token {early}, {self.shown(r.ids[early])}, ends a text"
        if count and self.stop_at(self.text_of(r.ids[:-1])) is not None:
            return "stop: a stop string is in the text of all tokens but the last"
        found = self.draw(count, r.settings) if count < len(self.drawn) else None
        if self.stop_at(self.text_of(r.ids)) is not None:
            need = "stop_string"
        elif count == r.n:
            need = "length"
        elif count == r.context + 1 - len(r.prompt_ids):
            need = "context_full"
        else:
            need = "eos" if found in self.ends else "interrupted"
        after = "" if found is None else f"; {self.shown(found)} is drawn next"
        said = f"stop_reason: found {r.stop_reason}; {count} tokens of n {r.n} in {r.context} positions need {need}{after}"
        return "" if need == r.stop_reason and not 0 <= r.n < count else said

    def shown(self, token: int) -> str:
        return f"{token} {self.tokenizer.decode([token], True)!r}"


def first_difference(a, b) -> int | None:
    return None if a == b else next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
