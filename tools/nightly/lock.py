"""Fills models.lock: commits for revisions, sizes, hashes. What is pinned is never changed silently."""

import json
import subprocess
from dataclasses import dataclass

from . import download, files
from .manifest import Manifest, Model
from .resolve import Place, hub_facts, wanted
from .run import say


class Conflict(Exception):
    """What was found is not what is pinned."""


@dataclass(frozen=True)
class Locker:
    place: Place
    client: download.Client
    hub: str
    update: bool  # replace what is pinned

    def pin(self, model: Model, field: str, value: object) -> None:
        """@throws Conflict"""
        pinned = getattr(model, field)
        if value is None or pinned == value:
            return
        if pinned is not None and not self.update:
            raise Conflict(f"{model.name}: {field}: found {value}, pinned {pinned} (--update replaces it)")
        setattr(model, field, value)

    def lock(self, model: Model, fetch: bool) -> None:
        """@throws Conflict, Unreachable, WrongContent, NoSpace, OSError"""
        if model.path:
            path = self.place.root / model.path
        else:
            facts = hub_facts(self.client, model, self.hub)
            if facts["revision"]:
                model.revision = facts["revision"]  # the commit of a branch or tag; of a commit, itself
            self.pin(model, "size", facts["size"])
            self.pin(model, "sha256", facts["sha256"])
            if not fetch:
                return
            path = download.fetch(self.client, wanted(model, self.hub), self.place.cache)
        self.pin(model, "size", path.stat().st_size)
        self.pin(model, "sha256", files.sha256(path))
        hashed = subprocess.run([self.place.bin / "llmgguf", "hash", path, "--json"], capture_output=True, text=True)
        if hashed.returncode != 0:
            raise Conflict(f"{model.name}: {hashed.stderr.strip()}")
        self.pin(model, "root", json.loads(hashed.stdout).get("root"))
        for reference in model.references.values():
            if (place := self.place.path(reference["path"])).exists() and self.update:
                reference["sha256"] = files.sha256(place)


def lock(manifest: Manifest, models: list[Model], locker: Locker, fetch: bool) -> int:
    """Locks each; what succeeded is written also when another fails. The exit code."""
    code = 0
    for model in models:
        try:
            locker.lock(model, fetch)
            say(f"{model.name}: {model.size} bytes, SHA-256 {model.sha256}, root {model.root}")
        except (Conflict, download.WrongContent) as error:
            say(f"error: {error}")
            code = 1
        except (download.Unreachable, download.NoSpace, OSError) as error:
            say(f"error: {model.name}: {error}")
            code = code or 2
        manifest.save()
    return code
