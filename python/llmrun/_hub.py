"""The cache of the Hugging Face hub, which `llmrun -hf` and the package huggingface_hub share."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from . import _llmrun


class CachedModel(NamedTuple):
    """A GGUF in the cache."""

    name: str  # OWNER/REPO:FILE, as `llmrun -hf` takes it
    path: Path  # what Model() opens
    size: int  # bytes of all its parts


def list_models() -> list[CachedModel]:
    """The GGUFs of the cache, of each repository those of the commit last seen, sorted by name, as `llmrun list` prints them. No
    network."""
    return [CachedModel(name, Path(path), size) for name, path, size in _llmrun.cached_models()]
