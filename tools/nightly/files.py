"""Files that are complete or absent, and what they hash to."""

import contextlib
import fcntl
import hashlib
import json
import os
import tempfile
from pathlib import Path

BLOCK = 1 << 20


def write_atomically(path: Path, content: str | bytes) -> None:
    """`content` in `path`, or the file as it was before: also when the process is killed or the machine stops."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode() if isinstance(content, str) else content
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Makes renames in `folder` last."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_json(path: Path, value: object) -> None:
    write_atomically(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def size(path: Path) -> int:
    """Bytes of a file, or of all files of a folder."""
    return sum(p.stat().st_size for p in path.rglob("*") if p.is_file()) if path.is_dir() else path.stat().st_size


def sha256(path: Path) -> str:
    """SHA-256 of a file. Of a folder: of the lines `HASH  RELATIVE PATH` of its files, sorted by path."""
    digest = hashlib.sha256()
    if path.is_dir():
        for file in sorted(p for p in path.rglob("*") if p.is_file()):
            digest.update(f"{sha256(file)}  {file.relative_to(path).as_posix()}\n".encode())
        return digest.hexdigest()
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


@contextlib.contextmanager
def locked(path: Path, wait: bool = True):
    """Holds the lock file `path`. Without `wait`, BlockingIOError when another process has it. A process that ends, however it
    ends, gives its locks back."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
