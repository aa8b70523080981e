"""models.lock: which models the job knows, where they come from and what they must be (docs/nightly.md)."""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

from . import files

FORMAT = "nightly-models/1"
REFERENCES = ("verify", "layer-diff", "quality", "equivalence", "manifest")
FROZEN = ("ppl", "kld")


class ManifestError(Exception):
    """models.lock breaks a rule; the text names file, field, value and rule."""


@dataclass
class Model:
    """One file. It has a `path` in the source tree, or `repository`, `revision` and `file` on the hub."""

    name: str
    family: str
    path: str | None = None
    repository: str | None = None
    revision: str | None = None
    file: str | None = None
    size: int | None = None  # bytes
    sha256: str | None = None
    root: str | None = None  # of the hash tree, as `llmgguf hash --json` gives it
    references: dict = field(default_factory=dict)  # kind -> {"path", "sha256"}
    figures: dict = field(default_factory=dict)  # check -> {figure: number}, frozen

    @property
    def pinned(self) -> bool:
        return self.size is not None and self.sha256 is not None

    @property
    def file_name(self) -> str:
        return Path(self.path or self.file).name


@dataclass
class Manifest:
    path: Path
    text: dict  # {"path", "sha256"}: what --ppl, --kld and --quality read
    families: dict  # family -> the model that the others are held against
    models: list[Model]

    def model(self, name: str) -> Model:
        for model in self.models:
            if model.name == name:
                return model
        names = ", ".join(m.name for m in self.models)
        raise ManifestError(f"{self.path}: models: found no {name!r}, need one of {names}")

    def save(self) -> None:
        models = []
        for model in self.models:
            entry = {"name": model.name, "family": model.family}
            source = ("path",) if model.path else ("repository", "revision", "file")
            for key in (*source, "size", "sha256", "root"):
                entry[key] = getattr(model, key)
            for key in ("references", "figures"):
                if getattr(model, key):
                    entry[key] = getattr(model, key)
            models.append(entry)
        files.write_json(self.path, {"format": FORMAT, "text": self.text, "families": self.families, "models": models})


def _check(path: Path, where: str, value: object, good: bool, rule: str) -> None:
    if not good:
        raise ManifestError(f"{path}: {where}: found {json.dumps(value)}, need {rule}")


def _is_hex(value: object, digits: int) -> bool:
    return isinstance(value, str) and re.fullmatch(f"[0-9a-f]{{{digits}}}", value) is not None


def _pinned_file(path: Path, where: str, value: object) -> None:
    good = isinstance(value, dict) and set(value) == {"path", "sha256"}
    _check(path, where, value, good, 'an object of "path" and "sha256"')
    _relative(path, f"{where}.path", value["path"])
    _check(path, f"{where}.sha256", value["sha256"], _is_hex(value["sha256"], 64), "64 lower-case hex digits")


def _relative(path: Path, where: str, value: object) -> None:
    good = isinstance(value, str) and value != "" and not value.startswith("/") and ".." not in Path(value).parts
    _check(path, where, value, good, "a relative path without ..")


def _parse_model(path: Path, where: str, entry: object) -> Model:
    _check(path, where, entry, isinstance(entry, dict), "an object")
    known = set(Model.__dataclass_fields__)
    for key in entry:
        _check(path, where, key, key in known, f"one of {', '.join(sorted(known))}")
    for key in ("name", "family"):
        good = isinstance(entry.get(key), str) and re.fullmatch(r"[\w.-]+", entry[key]) is not None
        _check(path, f"{where}.{key}", entry.get(key), good, "letters, digits, . _ -")
    model = Model(**entry)
    if model.path is not None:
        _relative(path, f"{where}.path", model.path)
        _check(path, where, model.repository, model.repository is model.file is model.revision is None,
               "a path or a repository, not both")
    else:
        good = isinstance(model.repository, str) and re.fullmatch(r"[\w.-]+/[\w.-]+", model.repository) is not None
        _check(path, f"{where}.repository", model.repository, good, "OWNER/NAME")
        _relative(path, f"{where}.file", model.file)
        good = isinstance(model.revision, str) and re.fullmatch(r"[\w./-]+", model.revision) is not None
        _check(path, f"{where}.revision", model.revision, good, "a commit, branch or tag")
    good = model.size is None or (type(model.size) is int and model.size > 0)
    _check(path, f"{where}.size", model.size, good, "a number of bytes or null")
    for key in ("sha256", "root"):
        value = getattr(model, key)
        _check(path, f"{where}.{key}", value, value is None or _is_hex(value, 64), "64 lower-case hex digits or null")
    for kind, reference in model.references.items():
        _check(path, f"{where}.references", kind, kind in REFERENCES, f"one of {', '.join(REFERENCES)}")
        _pinned_file(path, f"{where}.references.{kind}", reference)
    for check, figures in model.figures.items():
        _check(path, f"{where}.figures", check, check in FROZEN, f"one of {', '.join(FROZEN)}")
        good = isinstance(figures, dict) and all(type(v) in (int, float) for v in figures.values())
        _check(path, f"{where}.figures.{check}", figures, good, "an object of numbers")
    return model


def load(path: Path) -> Manifest:
    """@throws ManifestError, OSError"""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ManifestError(f"{path}: {error}; need JSON") from error
    _check(path, "format", document.get("format") if isinstance(document, dict) else None,
           isinstance(document, dict) and document.get("format") == FORMAT, f'"{FORMAT}"')
    _pinned_file(path, "text", document.get("text"))
    entries = document.get("models")
    _check(path, "models", entries, isinstance(entries, list) and len(entries) > 0, "a list of models")
    models = [_parse_model(path, f"models[{i}]", entry) for i, entry in enumerate(entries)]
    names = [model.name for model in models]
    for i, name in enumerate(names):
        _check(path, f"models[{i}].name", name, name not in names[:i], "a name that no other model has")
    families = document.get("families")
    _check(path, "families", families, isinstance(families, dict), "an object of family: reference model")
    for family, reference in families.items():
        good = any(m.name == reference and m.family == family for m in models)
        _check(path, f"families.{family}", reference, good, "a model of this family")
    return Manifest(path, document["text"], families, models)
