"""What the job tells the person who started it. Results go to stdout, everything else here."""

import sys


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
