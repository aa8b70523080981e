"""One file of a Python package, out of the indexes that pip is set to use, its SHA-256 checked: `python -m nightly.pypi PACKAGE FILE
SHA256 FOLDER` prints where it is. Nothing in it is run. Ends with 77 where it cannot be had here, and with 1 where its bytes are others."""

import ast
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import requests
from pypi_simple import NoSuchProjectError, PyPISimple, UnsupportedContentTypeError
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from . import files

PYPI = "https://pypi.org/simple"
PATIENCE = {"status_forcelist": (408, 429, 500, 502, 503, 504), "backoff_factor": 1.0, "respect_retry_after_header": True}


class Unreachable(Exception):
    """No index has it; says what each one answered."""


class WrongContent(Exception):
    """The bytes are not those that are pinned."""


def indexes() -> list[str]:
    """The addresses of pip's indexes in its order; of http and https, not of folders."""
    done = subprocess.run([sys.executable, "-m", "pip", "config", "list"], check=True, capture_output=True, text=True)
    pairs = (line.partition("=") for line in done.stdout.splitlines() if "=" in line)
    settings = {key: ast.literal_eval(value) for key, _, value in pairs}

    def setting(name: str) -> str:
        return next((settings[f"{group}.{name}"] for group in (":env:", "download", "global") if f"{group}.{name}" in settings), "")

    found = [setting("index-url") or PYPI, *setting("extra-index-url").split()]
    return [url.rstrip("/") for url in found if url.startswith(("http://", "https://"))]


def _shown(url: str) -> str:
    """Without the login."""
    return re.sub(r"//[^/@]*@", "//", url)


def fetch(package: str, file: str, pinned: str | None, folder: Path, *, tries: int = 3) -> Path:
    """The file in `folder`, from the first index that has it; `pinned`: its SHA-256, where that is known. @throws Unreachable, WrongContent, OSError"""
    path, said = folder / file, []
    if path.exists() and pinned and files.sha256(path) == pinned:
        return path
    folder.mkdir(parents=True, exist_ok=True)
    session = requests.Session()
    session.mount("http", HTTPAdapter(max_retries=Retry(total=tries - 1, **PATIENCE)))
    for index in indexes():
        shown = _shown(index)
        try:
            with PyPISimple(index, session=session) as client, tempfile.TemporaryDirectory(dir=folder) as scratch:
                found = next((p for p in client.get_project_page(package).packages if p.filename == file), None)
                if found is None:
                    said.append(f"{shown}: found no {file}")
                    continue
                part = Path(scratch) / file
                client.download_package(found, part, verify=False, keep_on_error=False)
                if pinned and (got := files.sha256(part)) != pinned:
                    raise WrongContent(f"{file}: found SHA-256 {got}, expected {pinned}")
                os.replace(part, path)
                return path
        except NoSuchProjectError:
            said.append(f"{shown}: found no package {package}")
        except (requests.RequestException, UnsupportedContentTypeError, ValueError) as error:
            said.append(f"{shown}: {str(error).replace(index, shown)}")
    raise Unreachable("; ".join(said) or "pip is set to use no index of http or https")


def main(package: str, file: str, pinned: str, folder: str) -> int:
    try:
        print(fetch(package, file, pinned, Path(folder)))
    except (Unreachable, WrongContent) as error:
        print(f"{file}: {error}", file=sys.stderr)
        return 77 if isinstance(error, Unreachable) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
