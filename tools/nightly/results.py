"""What a task is, what came of it, and where that is kept."""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from . import files

PASS, FAIL, INFO, ERROR, SKIP = "PASS", "FAIL", "INFO", "ERROR", "SKIP"
STORED = (PASS, FAIL, INFO)  # what could not run is tried again


@dataclass(frozen=True)
class Task:
    """One cell of the matrix. `inputs`: role -> [name for Place.path, SHA-256]; `verdict` and `message` when it is decided
    without being run."""

    model: str
    check: str
    inputs: dict = field(default_factory=dict)
    frozen: dict = field(default_factory=dict)  # figures that it is compared with
    refused: bool = False  # of a model that the engine is known not to support yet
    verdict: str = ""
    message: str = ""

    @property
    def name(self) -> str:
        return f"{self.model} {self.check}"

    def key(self, build: "Build", machine: str) -> str:
        """Names what the result depends on. Paths are no part of it."""
        inputs = {role: sha for role, (_, sha) in self.inputs.items()}
        parts = [self.model, self.check, inputs, self.frozen, self.refused, build.commit, build.tools, machine]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Build:
    """What was run: the commit (with a hash of uncommitted changes) and a hash of the programs."""

    commit: str
    tools: str


@dataclass
class Result:
    model: str
    check: str
    verdict: str
    message: str = ""
    figures: dict = field(default_factory=dict)
    details: str = ""  # output of a check that did not pass
    machine: str = ""
    started: str = ""  # UTC, ISO 8601
    seconds: float = 0.0

    @property
    def name(self) -> str:
        return f"{self.model} {self.check}"


class Store:
    """Results by key, each complete or absent."""

    def __init__(self, folder: Path):
        self.folder = folder

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.json"

    def get(self, key: str) -> Result | None:
        try:
            return Result(**json.loads(self._path(key).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def put(self, key: str, result: Result) -> None:
        if result.verdict in STORED:
            files.write_json(self._path(key), asdict(result))
