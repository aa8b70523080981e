"""A source package of pip's index, its hash checked: `python -m nightly.source_package PACKAGE FILE SHA256 CACHE` prints
where it is. Nothing in it is run. Ends with 77 where it cannot be had here."""

import sys
from pathlib import Path

from . import download, package_index


def main(package: str, file: str, sha256: str, cache: str) -> int:
    client = download.Client(download.Patience(tries=3))
    try:
        url = package_index.find(client, package, file, package_index.indexes())
        print(download.fetch(client, download.Wanted(url, file, None, sha256), Path(cache)))
    except (download.Unreachable, download.NoSpace, download.WrongContent) as error:
        print(f"{file}: {error}", file=sys.stderr)
        return 77 if isinstance(error, download.Unreachable) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
