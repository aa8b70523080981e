"""Fills models.lock: commits for revisions, sizes, hashes. What is pinned is never changed silently."""

import dataclasses
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from . import files
from .manifest import Manifest, Model
from .fetch import Place, Source, Unreachable, WrongContent, fetch, hub_facts, say


class Conflict(Exception):
    """What was found is not what is pinned."""


@dataclass(frozen=True)
class Locker:
    place: Place
    source: Source
    update: bool  # replace what is pinned

    def pin(self, model: Model, field: str, value: object) -> None:
        """@throws Conflict"""
        pinned = getattr(model, field)
        if value is None or pinned == value:
            return
        if pinned is not None and not self.update:
            raise Conflict(f"{model.name}: {field}: found {value}, pinned {pinned} (--update replaces it)")
        setattr(model, field, value)

    def lock(self, model: Model, download_it: bool) -> None:
        """@throws Conflict, Unreachable, WrongContent, OSError"""
        if model.in_tree:
            return  # pinned by git
        path = Path(model.path) if model.local else self._fetched(model, download_it)
        if path:
            self._pin_content(model, path)

    def _fetched(self, model: Model, download_it: bool) -> Path | None:
        """The model's file or folder, downloaded; None when the hub is believed."""
        if model.repository:
            facts = hub_facts(model, self.source.hub)
            if facts["revision"]:
                model.revision = facts["revision"]  # the commit of a branch or tag; of a commit, itself
            self.pin(model, "size", facts["size"])
            self.pin(model, "sha256", facts["sha256"])
        if not download_it:
            return None
        unpinned = dataclasses.replace(model, size=None, sha256=None,
                                       packages=[{**package, "sha256": None} for package in model.packages or []])
        again = bool(self.update and model.packages)
        path = fetch(unpinned if again else model, self.place.cache, self.source)
        if again:
            model.packages = unpinned.packages
        return path

    def _pin_content(self, model: Model, path: Path) -> None:
        self.pin(model, "size", files.size(path))
        self.pin(model, "sha256", files.sha256(path))
        if model.folder:
            return
        hashed = subprocess.run([self.place.bin / "llmgguf", "hash", path, "--json"], capture_output=True, text=True)
        if hashed.returncode != 0:
            raise Conflict(f"{model.name}: {hashed.stderr.strip()}")
        if model.root is None or model.refused or self.update:  # otherwise it was accepted, and a refusal stays red
            verified = subprocess.run([self.place.bin / "llmgguf", "verify", path], capture_output=True)
            model.refused = verified.returncode == 6
        self.pin(model, "root", json.loads(hashed.stdout).get("root"))
        for reference in model.references.values():
            if self.update and "sha256" in reference and (place := self.place.path(reference["path"])).exists():
                reference["sha256"] = files.sha256(place)


def lock(manifest: Manifest, models: list[Model], locker: Locker, download_them: bool) -> int:
    """Locks each; what succeeded is written also when another fails. The exit code."""
    code = 0
    for model in models:
        try:
            locker.lock(model, download_them)
            pins = "pinned by git" if model.in_tree else f"{model.size} bytes, SHA-256 {model.sha256}, root {model.root}"
            say(f"{model.name}: {pins}")
        except (Conflict, WrongContent) as error:
            say(f"error: {error}")
            code = 1
        except (Unreachable, OSError) as error:
            say(f"error: {model.name}: {error}")
            code = code or 2
        manifest.save()
    return code
