"""The file of docs/receipts.md."""

import json
from dataclasses import MISSING, fields
from types import SimpleNamespace

from hparams import UnsupportedModel

from .sampling import Settings

FORMAT, CONTRACT = "llm-receipt/2", 1
NUMBER = (int, float)
OPTIONS = {"chat_template": str, "system": str, "parse_special": bool, "show_special": bool, "n": int, "stop": list, "ignore_eos": bool,
           "logit_bias": list, "context": int, "kv": str, "compute": str}
OUTER = {"prompt_ids": list, "ids": list, "text": str, "stop_reason": str, "drawn_logits_sha256": str}
MAY_BE_ABSENT = {"prompt": str}
JUDGED = OPTIONS.keys() | {field.name for field in fields(Settings)}


def is_id(x) -> bool:
    return type(x) is int and x >= 0


ITEMS = {"prompt_ids": is_id, "ids": is_id, "stop": lambda x: isinstance(x, str),
         "logit_bias": lambda x: isinstance(x, list) and len(x) == 2 and is_id(x[0]) and type(x[1]) in NUMBER}
CHOICES = {"sampler_order": ("hf", "llamacpp"), "kv": ("f16", "f32", "q8"), "compute": ("int8", "f32")}


class Malformed(Exception):
    """No receipt."""


def field(where: dict, name: str, kind, optional: bool = False):
    value = where.get(name)
    if value is None and optional:
        return None
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise Malformed(f"{name}: found {value!r}, need {getattr(kind, '__name__', 'a number')}")
    if name in ITEMS and not all(map(ITEMS[name], value)) or name in CHOICES and value not in CHOICES[name]:
        raise Malformed(f"{name}: found {value!r}, need {CHOICES.get(name, 'items of another kind')}")
    return value


def parse(text: str) -> SimpleNamespace:
    """The fields of the receipt and of its options by their names; `model_sha256`; `settings`, those of sampling."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise Malformed(f"no JSON: {error}") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise Malformed(f"format: need {FORMAT}")
    if document.get("contract_version") != CONTRACT:
        raise UnsupportedModel(f"contract_version: found {document.get('contract_version')!r}, here it is {CONTRACT}")
    options = field(document, "options", dict)
    for name in sorted(options.keys() - JUDGED):
        raise UnsupportedModel(f"options.{name}: outputs with it are not verified here")
    kinds = {int: int, float: NUMBER, str: str}
    settings = Settings(**{f.name: field(options, f.name, kinds[f.type]) for f in fields(Settings)
                           if f.default is MISSING or f.name in options})
    values = {name: field(document, name, kind) for name, kind in OUTER.items()}
    values |= {name: field(document, name, kind, True) for name, kind in MAY_BE_ABSENT.items()}
    values |= {name: field(options, name, kind, name == "show_special") for name, kind in OPTIONS.items()}
    if not values["prompt_ids"]:
        raise Malformed("prompt_ids: need one at least")
    return SimpleNamespace(**values, model_sha256=field(field(document, "model", dict), "sha256", str), settings=settings)
