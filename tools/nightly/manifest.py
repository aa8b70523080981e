"""models.lock: which models the job knows, where they come from and what they must be (docs/nightly.md)."""

import dataclasses
import json
import re
from dataclasses import dataclass, field
from pathlib import Path

from . import files

FORMAT = "nightly-models/2"
REFERENCES = ("verify", "layer-diff", "quality", "equivalence", "manifest", "real")
FROZEN = ("ppl", "kld")


class ManifestError(Exception):
    """models.lock breaks a rule; the text names file, field, value and rule."""


@dataclass
class Model:
    """One file, or a folder of vocabularies. It has a `path` in the source tree, which git pins; or it is pinned by `size`,
    `sha256` and `root`, and has an absolute `path` (in the local list), or comes from a hub (`repository`, `revision`, `file`)
    or out of Python packages (`packages`, and `file` or `folder` as its name)."""

    name: str
    family: str
    path: str | None = None
    repository: str | None = None
    revision: str | None = None
    packages: list | None = None  # of {"package", "version", "file", "sha256", "members"}, in the order of joining
    file: str | None = None
    folder: str | None = None
    licence: str | None = None
    refused: bool = False  # not supported yet: exit code 6 is a skip, and anything else is red until this is taken out
    size: int | None = None  # bytes
    sha256: str | None = None
    root: str | None = None  # of the hash tree, as `llmgguf hash --json` gives it
    references: dict = field(default_factory=dict)  # kind -> {"path"}, and "sha256" where git does not pin it
    figures: dict = field(default_factory=dict)  # check -> {figure: number}, frozen

    @property
    def local(self) -> bool:
        return self.path is not None and self.path.startswith("/")

    @property
    def in_tree(self) -> bool:
        return self.path is not None and not self.local

    @property
    def pinned(self) -> bool:
        parts = all(package["sha256"] for package in self.packages or [])
        return self.in_tree or (self.size is not None and self.sha256 is not None and parts)

    @property
    def file_name(self) -> str:
        return Path(self.path or self.file or self.folder).name


def _entry(model: Model) -> dict:
    """The model as the lock has it: without what is not set, but for pins that are wanted."""
    pins = () if model.in_tree else ("size", "sha256") if model.folder else ("size", "sha256", "root")
    return {key: value for key, value in dataclasses.asdict(model).items() if value or key in pins}


@dataclass
class Manifest:
    path: Path
    text: str  # in the source tree: what --ppl, --kld and --quality read
    families: dict  # family -> the model with which the others are compared
    models: list[Model]
    local: Path | None = None  # the list of models with absolute paths, outside the source tree; None: there is none

    def model(self, name: str) -> Model:
        for model in self.models:
            if model.name == name:
                return model
        names = ", ".join(m.name for m in self.models)
        raise ManifestError(f"{self.path}: models: found no {name!r}, need one of {names}")

    def save(self) -> None:
        common = [_entry(model) for model in self.models if not model.local]
        files.write_json(self.path, {"format": FORMAT, "text": self.text, "families": self.families, "models": common})
        if self.local:
            files.write_json(self.local, {"format": FORMAT, "models": [_entry(m) for m in self.models if m.local]})


def _check(path: Path, where: str, value: object, good: bool, rule: str) -> None:
    if not good:
        raise ManifestError(f"{path}: {where}: found {json.dumps(value)}, need {rule}")


def _text(pattern: str):
    return lambda value: isinstance(value, str) and re.fullmatch(pattern, value) is not None


def _is_relative(value: object) -> bool:
    return isinstance(value, str) and value != "" and not value.startswith("/") and ".." not in Path(value).parts


# Rules of fields: a test of the value, and the rule in words. None stands for a field that is not set.
NAME = (_text(r"[\w.-]+"), "letters, digits, . _ -")
HASH = (_text("[0-9a-f]{64}"), "64 lower-case hex digits")
RELATIVE = (_is_relative, "a relative path without ..")
OBJECT = (lambda value: isinstance(value, dict), "an object")
MODEL = {
    "name": NAME, "family": NAME,
    "path": (lambda value: _is_relative(value) or isinstance(value, str) and value.startswith("/"), RELATIVE[1]),
    "repository": (_text(r"[\w.-]+/[\w.-]+"), "OWNER/NAME"), "revision": (_text(r"[\w./-]+"), "a commit, branch or tag"),
    "packages": (lambda value: isinstance(value, list) and value != [], "a list of packages"),
    "file": RELATIVE, "folder": RELATIVE, "licence": (_text(".+"), "a text"),
    "refused": (lambda value: type(value) is bool, "true or false"),
    "size": (lambda value: type(value) is int and value > 0, "a number of bytes or null"),
    "sha256": (HASH[0], f"{HASH[1]} or null"), "root": (HASH[0], f"{HASH[1]} or null"), "references": OBJECT, "figures": OBJECT,
}
PACKAGE = {key: (_text(pattern), f"a text of the form {pattern}") for key, pattern in (
    ("package", r"[\w.-]+"), ("version", r"[\w.+!-]+"), ("file", r"[\w.+-]+\.(whl|tar\.gz)"))} | {
    "sha256": MODEL["sha256"],
    "members": (lambda value: isinstance(value, list) and value != [] and all(isinstance(m, str) and m for m in value),
                "a list of names in the archive")}
REFERENCE = {"sha256": HASH, "path": (lambda value: _is_relative(value) and Path(value).parts[0] in ("root", "references"),
                                      "root/... or references/...")}
FIGURES = (lambda value: isinstance(value, dict) and all(type(v) in (int, float) for v in value.values()), "an object of numbers")
SOURCES = {  # kind -> the fields that make it, of which the first tells it
    "path": ("path",),
    "repository": ("repository", "revision", "file"),
    "packages": ("packages", "file", "folder"),
}


def _check_fields(path: Path, where: str, value: object, rules: dict, needed: tuple[str, ...]) -> None:
    _check(path, where, value, isinstance(value, dict), "an object")
    for key in value:
        _check(path, where, key, key in rules, f"one of {', '.join(sorted(rules))}")
    for key, (is_good, rule) in rules.items():
        if value.get(key) is not None or key in needed:
            _check(path, f"{where}.{key}", value.get(key), is_good(value.get(key)), rule)


def _check_source(path: Path, where: str, model: Model) -> None:
    """Whether the model comes from one place, and all of it is said."""
    kinds = [kind for kind in SOURCES if getattr(model, kind) is not None]
    _check(path, where, kinds, len(kinds) == 1, f"one of {', '.join(SOURCES)}")
    kind = kinds[0]
    for key in {key for keys in SOURCES.values() for key in keys} - set(SOURCES[kind]):
        _check(path, f"{where}.{key}", getattr(model, key), getattr(model, key) is None, f"none together with {kind}")
    for key in ("size", "sha256", "root") if model.in_tree else ():
        value = getattr(model, key)
        _check(path, f"{where}.{key}", value, value is None, "none together with a path: git pins what is in the source tree")
    for key in ("revision", "file") if kind == "repository" else ():
        _check(path, f"{where}.{key}", None, getattr(model, key) is not None, MODEL[key][1])
    for i, package in enumerate(model.packages or ()):
        _check_fields(path, f"{where}.packages[{i}]", package, PACKAGE, ("package", "version", "file", "members"))
        package.setdefault("sha256", None)
    if kind == "packages":
        _check(path, where, [model.file, model.folder], (model.file is None) != (model.folder is None), "a file or a folder")


def _parse_model(path: Path, where: str, entry: object) -> Model:
    _check_fields(path, where, entry, MODEL, ("name", "family"))
    model = Model(**{key: value for key, value in entry.items() if value is not None})
    _check_source(path, where, model)
    for kind, reference in model.references.items():
        of_kind = f"{where}.references.{kind}"
        _check(path, f"{where}.references", kind, kind in REFERENCES, f"one of {', '.join(REFERENCES)}")
        _check_fields(path, of_kind, reference, REFERENCE, ("path",))
        by_git, sha256 = reference["path"].startswith("root/"), reference.get("sha256")
        _check(path, f"{of_kind}.sha256", sha256, by_git == (sha256 is None),
               "none: git pins what is in the source tree" if by_git else HASH[1])
    for check, figures in model.figures.items():
        _check(path, f"{where}.figures", check, check in FROZEN, f"one of {', '.join(FROZEN)}")
        _check(path, f"{where}.figures.{check}", figures, FIGURES[0](figures), FIGURES[1])
    return model


def _read(path: Path) -> dict:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ManifestError(f"{path}: {error}; need JSON") from error
    _check(path, "format", document.get("format") if isinstance(document, dict) else None,
           isinstance(document, dict) and document.get("format") == FORMAT, f'"{FORMAT}"')
    return document


def _parse_models(path: Path, entries: object, taken: list[str], local: bool) -> list[Model]:
    _check(path, "models", entries, isinstance(entries, list) and (local or len(entries) > 0), "a list of models")
    models = [_parse_model(path, f"models[{i}]", entry) for i, entry in enumerate(entries)]
    for i, model in enumerate(models):
        names = taken + [m.name for m in models[:i]]
        _check(path, f"models[{i}].name", model.name, model.name not in names, "a name that no other model has")
        rule = "an absolute path" if local else "a relative path without .."
        _check(path, f"models[{i}].path", model.path, model.local == local, rule)
    return models


def load(path: Path, local: Path | None = None) -> Manifest:
    """The lock, and with it the local list where there is one. @throws ManifestError, OSError"""
    document = _read(path)
    _check(path, "text", document.get("text"), _is_relative(document.get("text")), RELATIVE[1])
    models = _parse_models(path, document.get("models"), [], local=False)
    families = document.get("families")
    _check(path, "families", families, isinstance(families, dict), "an object of family: reference model")
    for family, reference in families.items():
        good = any(m.name == reference and m.family == family for m in models)
        _check(path, f"families.{family}", reference, good, "a model of this family")
    if local and local.exists():
        models += _parse_models(local, _read(local).get("models"), [m.name for m in models], local=True)
    return Manifest(path, document["text"], families, models, local)
