"""The cache of the Hugging Face hub, which `llmrun -hf` and the package huggingface_hub share."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class CachedModel:
    """A GGUF in the cache."""

    name: str  # OWNER/REPO/FILE
    path: Path  # what Model() opens
    size: int  # bytes


def cache_folder() -> Path:
    """$HF_HUB_CACHE, else $HF_HOME/hub, else $XDG_CACHE_HOME/huggingface/hub, else ~/.cache/huggingface/hub, as huggingface_hub has it."""
    environment = os.environ
    home = Path(environment.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    home = Path(environment.get("HF_HOME") or home)
    return Path(environment.get("HF_HUB_CACHE") or environment.get("HUGGINGFACE_HUB_CACHE") or home / "hub").expanduser()


def list_models() -> list[CachedModel]:
    """The GGUFs of the cache, of each repository those of the commit last seen, sorted by name. Later parts of a split model are left
    out: Model() finds them. No network."""
    found = []
    for repo in cache_folder().glob("models--*--*"):
        try:
            commit = (repo / "refs/main").read_text().strip()
        except OSError:
            continue
        name = repo.name.removeprefix("models--").replace("--", "/", 1)
        snapshot = repo / "snapshots" / commit
        for path in snapshot.rglob("*.gguf"):
            part = path.stem.rpartition("-of-")[0].rpartition("-")[2]
            if path.is_file() and not (part.isdigit() and int(part) > 1):
                found.append(CachedModel(f"{name}/{path.relative_to(snapshot)}", path, path.stat().st_size))
    return sorted(found, key=lambda model: model.name)
