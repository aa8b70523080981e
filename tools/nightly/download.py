"""One file from a public hub or package index: in parts, after interruptions, from servers that answer as they like.

The file appears in the cache complete and with the promised SHA-256, or not at all. What has arrived so far stays in
`partial/`, and is continued by Range; the hash tells whether the parts are of one file.
"""

import hashlib
import json
import os
import shutil
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

import urllib3

from . import files
from .output import progress

RESERVE = 64 << 20  # bytes that stay free on the disk
PASSING = (408, 429, 500, 502, 503, 504)  # statuses worth another try
HTTPError = urllib3.exceptions.HTTPError


class Unreachable(Exception):
    """The hub, the index or the network does not answer: named SKIP."""


class NoSpace(Exception):
    """The disk is too small: the job could not run."""


class WrongContent(Exception):
    """The hub or the index has other bytes than promised: red."""


@dataclass(frozen=True)
class Wanted:
    url: str  # or what else messages call its source
    name: str
    size: int | None
    sha256: str | None


@dataclass(frozen=True)
class Patience:
    """How often and how long is waited. `tries` counts tries in a row that brought no byte."""

    tries: int = 6
    backoff: float = 1.0  # seconds before the second try, doubled for each further one
    longest: float = 120.0  # seconds; also the most that Retry-After may ask for
    timeout: float = 60.0  # seconds without a byte


def shown(url: str) -> str:
    """An address without the password in it, for messages."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


class Client:
    """Requests with redirects, retries and Retry-After; through the proxy that HTTPS_PROXY or HTTP_PROXY names, if any."""

    def __init__(self, patience: Patience = Patience()):
        self.patience = patience
        retry = urllib3.Retry(
            total=None, connect=patience.tries, read=patience.tries, status=patience.tries, other=0, redirect=10,
            status_forcelist=PASSING, allowed_methods=("GET", "HEAD"), backoff_factor=patience.backoff,
            backoff_max=patience.longest, retry_after_max=int(patience.longest), raise_on_status=False)
        timeout = urllib3.Timeout(connect=patience.timeout, read=patience.timeout)
        self.settings = {"retries": retry, "timeout": timeout, "headers": {"User-Agent": "llmrun-nightly/1"}}
        self.pools: dict[str, urllib3.PoolManager] = {}

    def _pool(self, url: str) -> urllib3.PoolManager:
        parts = urlsplit(url)
        proxy = "" if urllib.request.proxy_bypass(parts.hostname or "") else urllib.request.getproxies().get(parts.scheme, "")
        if proxy not in self.pools:
            self.pools[proxy] = (urllib3.ProxyManager(proxy, **self.settings) if proxy else urllib3.PoolManager(**self.settings))
        return self.pools[proxy]

    def get(self, url: str, headers: dict | None = None) -> urllib3.BaseHTTPResponse:
        """The answer, its body not yet read; of statuses >= 400 only 416. @throws Unreachable"""
        all_headers = {**self.settings["headers"], "Accept-Encoding": "identity", **(headers or {})}
        if (parts := urlsplit(url)).username is not None:
            all_headers |= urllib3.make_headers(basic_auth=f"{unquote(parts.username)}:{unquote(parts.password or '')}")
        address = shown(url)
        try:
            response = self._pool(url).request("GET", address, headers=all_headers, preload_content=False)
        except HTTPError as error:
            raise Unreachable(f"{address}: {error}") from error
        if response.status >= 400 and response.status != 416:
            response.release_conn()
            raise Unreachable(f"{address}: status {response.status}")
        return response

    def json(self, url: str) -> dict:
        """@throws Unreachable also for an answer that is no JSON object"""
        response = self.get(url)
        try:
            value = json.loads(response.read(16 << 20, decode_content=True))
        except (ValueError, HTTPError) as error:
            raise Unreachable(f"{url}: {error}") from error
        if not isinstance(value, dict):
            raise Unreachable(f"{url}: found {type(value).__name__}, need an object")
        return value


def check_space(folder: Path, needed: int) -> None:
    """@throws NoSpace unless `needed` bytes fit into the file system of `folder`"""
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if needed + RESERVE > free:
        raise NoSpace(f"{folder}: {free} bytes free, need {needed} and a reserve of {RESERVE}")


def _receive(client: Client, wanted: Wanted, partial: Path) -> None:
    """One request, from where the last one ended. Returns when the server says that it sent everything."""
    begin = files.size(partial) if wanted.sha256 and partial.exists() else 0  # parts without a hash may be of two files
    response = client.get(wanted.url, {"Range": f"bytes={begin}-"} if begin else {})
    try:
        if begin and response.status != 206:
            begin = 0
            if response.status == 416:  # there is no such part: ask for all of it
                response.close()
                response = client.get(wanted.url)
        if begin == 0 and response.status != 200:
            raise Unreachable(f"{shown(wanted.url)}: status {response.status}, need 200")
        total = wanted.size or begin + int(response.headers.get("Content-Length") or 0)
        with open(partial, "ab" if begin else "wb") as out:
            for block in response.stream(files.BLOCK, decode_content=False):
                out.write(block)
                progress(f"{wanted.name}: {out.tell() / 1e6:.0f}{f' of {total / 1e6:.0f}' if total else ''} MB")
                if wanted.size is not None and out.tell() > wanted.size:
                    return  # too much: the size is refused
    finally:
        progress("")
        response.close()


def _fetch_all(client: Client, wanted: Wanted, partial: Path) -> bool:
    """Continues until the file is whole; whether it came in several parts. @throws Unreachable after `tries` attempts in a row
    without a new byte"""
    failures, parts = 0, partial.exists()
    while True:
        before = files.size(partial) if partial.exists() else 0
        try:
            _receive(client, wanted, partial)
            size = files.size(partial)
            if wanted.size is None or size >= wanted.size:
                return parts
            error = f"the connection ended at byte {size} of {wanted.size}"
        except HTTPError as problem:  # cut or stalled while the body was read
            error = str(problem)
        parts = True
        failures = 1 if partial.exists() and files.size(partial) > before else failures + 1
        if failures >= client.patience.tries:
            raise Unreachable(f"{shown(wanted.url)}: {error}; gave up after {failures} attempts without progress")
        time.sleep(min(client.patience.longest, client.patience.backoff * 2 ** (failures - 1)))


def _fault(path: Path, wanted: Wanted) -> str | None:
    """What is wrong with a whole file or folder, if anything."""
    size = files.size(path)
    if wanted.size is not None and size != wanted.size:
        return f"size: found {size} bytes, need {wanted.size}"
    if wanted.sha256 is not None and (found := files.sha256(path)) != wanted.sha256:
        return f"SHA-256: found {found}, need {wanted.sha256}"
    return None


def fetch(client: Client, wanted: Wanted, cache: Path) -> Path:
    """The file in `cache/sha256/HASH/NAME`; nothing is asked for when it is there.

    A file with other bytes than promised goes to `cache/quarantine`; when it was put together from several answers, it is
    first fetched once more from its first byte.
    @throws Unreachable, NoSpace, WrongContent
    """
    if wanted.sha256 and (ready := cached(wanted, cache)):
        return ready
    key = hashlib.sha256(json.dumps([wanted.url, wanted.sha256]).encode()).hexdigest()[:32]
    partial = cache / "partial" / f"{key}.part"
    with files.locked(partial.with_suffix(".lock")):
        if wanted.sha256 and (ready := cached(wanted, cache)):
            return ready  # by another process meanwhile
        check_space(cache, max(0, (wanted.size or 0) - (files.size(partial) if partial.exists() else 0)))
        try:
            if _fetch_all(client, wanted, partial) and _fault(partial, wanted):
                partial.unlink()
                _fetch_all(client, wanted, partial)
            return keep(partial, wanted, cache)
        except OSError as error:
            raise NoSpace(f"{partial}: {error}") from error


def keep(data: Path, wanted: Wanted, cache: Path) -> Path:
    """Moves a whole file, or folder of files, to its place in the cache; one with other bytes than promised to `quarantine`.

    @throws WrongContent, OSError
    """
    if fault := _fault(data, wanted):
        raise WrongContent(f"{shown(wanted.url)}: {fault}; kept as {quarantine(data, wanted.name, cache)}")
    place = cache / "sha256" / (wanted.sha256 or files.sha256(data)) / wanted.name
    place.parent.mkdir(parents=True, exist_ok=True)
    for file in data.iterdir() if data.is_dir() else [data]:
        with open(file, "rb+") as open_file:
            os.fsync(open_file.fileno())
    data.replace(place)
    files.sync_folder(place.parent)
    return place


def quarantine(data: Path, name: str, cache: Path) -> Path:
    """Moves wrong content to where it can be looked at. The new place."""
    place = cache / "quarantine" / f"{files.sha256(data)[:16]}-{name}"
    if place.is_dir():  # the same content, from an earlier try
        shutil.rmtree(place)
    place.parent.mkdir(parents=True, exist_ok=True)
    data.replace(place)
    return place


def cached(wanted: Wanted, cache: Path) -> Path | None:
    """The file or folder of the promised hash, when the cache has it at its full size. Its bytes are checked by who uses it."""
    place = cache / "sha256" / str(wanted.sha256) / wanted.name
    if not place.exists() or (wanted.size is not None and files.size(place) != wanted.size):
        return None
    return place
