"""Files that are complete or absent, and what they hash to."""

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import tempfile
from pathlib import Path

BLOCK = 1 << 20


def write_atomically(path: Path, content: str | bytes) -> None:
    """`content` in `path`, or the file as it was before, also when the process is killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as out:
        out.write(content.encode() if isinstance(content, str) else content)
        os.fsync(out.fileno())
    os.chmod(out.name, 0o644)
    os.replace(out.name, path)


def write_json(path: Path, value: object) -> None:
    write_atomically(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def size(path: Path) -> int:
    """Bytes of a file, or of all files of a folder."""
    return sum(p.stat().st_size for p in path.rglob("*") if p.is_file()) if path.is_dir() else path.stat().st_size


def sha256(path: Path) -> str:
    """SHA-256 of a file. Of a folder: of the lines `HASH  RELATIVE PATH` of its files, sorted by path."""
    if path.is_dir():
        lines = (f"{sha256(file)}  {file.relative_to(path).as_posix()}\n" for file in sorted(path.rglob("*")) if file.is_file())
        return hashlib.sha256("".join(lines).encode()).hexdigest()
    status = path.stat()
    return _sha256(path, status.st_size, status.st_mtime_ns, status.st_ino)


@functools.cache
def _sha256(path: Path, *_stamp: int) -> str:
    """Of a file's content, which is hashed once as long as its stamp stays."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def locked(path: Path, wait: bool = True):
    """Holds the lock file `path`. Without `wait`, BlockingIOError when another process has it. A process that ends, however it
    ends, gives its locks back."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
