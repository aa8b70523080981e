"""What the job tells the person who started it. Results go to stdout, everything else here."""

import sys


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def progress(text: str) -> None:
    """Replaces the last line of a terminal by `text`; nothing where stderr is none."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
