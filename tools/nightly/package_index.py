"""Where the files of a Python package are: the simple index (PEP 503, PEP 691) that pip is set to use, so mirrors work."""

import ast
import html.parser
import json
import subprocess
import sys
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from . import download

PYPI = "https://pypi.org/simple"
ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.1"
LONGEST_PAGE = 64 << 20  # bytes


def indexes() -> list[str]:
    """The addresses of pip's indexes in its order; of http and https, not of folders."""
    done = subprocess.run([sys.executable, "-m", "pip", "config", "list"], check=True, capture_output=True, text=True)
    pairs = (line.partition("=") for line in done.stdout.splitlines() if "=" in line)
    settings = {key: ast.literal_eval(value) for key, _, value in pairs}

    def setting(name: str) -> str:
        return next((settings[f"{group}.{name}"] for group in (":env:", "download", "global") if f"{group}.{name}" in settings), "")

    found = [setting("index-url") or PYPI, *setting("extra-index-url").split()]
    return [url.rstrip("/") for url in found if url.startswith(("http://", "https://"))]


class _Links(html.parser.HTMLParser):
    """The links of an index page of HTML."""

    def __init__(self, text: str):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.found += [value for key, value in attrs if tag == "a" and key == "href" and value]


def _links(page: bytes, kind: str) -> list[str]:
    """The files' addresses, perhaps relative. @throws ValueError for a page that is not what it says"""
    text = page.decode("utf-8")
    if not kind.startswith("application/vnd.pypi.simple.v1+json"):
        return _Links(text).found
    try:
        return [file["url"] for file in json.loads(text)["files"]]
    except (KeyError, TypeError) as error:
        raise ValueError(f"no list of files: {error}") from error


def find(client: download.Client, package: str, file: str, addresses: list[str]) -> str:
    """The address of a package's file in the first index that has it.

    @throws Unreachable with what each index said
    """
    said = []
    for index in addresses:
        url = f"{index}/{package.lower().replace('_', '-').replace('.', '-')}/"
        try:
            response = client.get(url, {"Accept": ACCEPT})
            page = response.read(LONGEST_PAGE, decode_content=True)
            base = urljoin(url, response.geturl() or url)
            for link in _links(page, response.headers.get("Content-Type", "")):
                address = urldefrag(urljoin(base, link))[0]
                if unquote(urlsplit(address).path.rpartition("/")[2]) == file:
                    return address
            said.append(f"{download.shown(url)}: found no {file}")
        except download.Unreachable as error:
            said.append(str(error))
        except (ValueError, download.HTTPError) as error:
            said.append(f"{download.shown(url)}: {error}")
    raise download.Unreachable("; ".join(said) or "pip is set to use no index of http or https")
