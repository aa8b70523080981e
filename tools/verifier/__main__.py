"""PYTHONPATH=tools python -m verifier RECEIPT --model FILE: is the receipt's text what the model gives?

Exit codes are those of llmcheck: 0 it is, 1 it is not, 8 another model, 3 no receipt, 4 no file, 6 not judged here.
"""

import argparse
import hashlib
import os
import sys

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # products are too small for more

from gguf_model import GgufModel  # noqa: E402
from hparams import UnsupportedModel  # noqa: E402

from .receipt import Malformed, parse  # noqa: E402
from .verify import Verifier  # noqa: E402


def verdict(arguments: argparse.Namespace) -> int:
    with open(arguments.receipt, encoding="utf-8", errors="replace") as file:
        receipt = parse(file.read())
    with open(arguments.model, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != receipt.model_sha256:
        print(f"FAIL model: {arguments.model} has SHA-256 {found}, the receipt needs {receipt.model_sha256}")
        return 8
    failed = []
    for check in Verifier(receipt, GgufModel(arguments.model)).checks():
        failed += [check.name] if check.reason else []
        said = check.reason or check.note
        print(("FAIL " if check.reason else "PASS ") + check.name + (": " + said if said else ""), flush=True)
    gives = f"gives this text of {len(receipt.ids)} tokens"
    print(f"verdict: the model {'does not give this: ' + ', '.join(failed) if failed else gives}")
    return int(failed != [])


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="verifier", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("receipt")
    parser.add_argument("--model", required=True, help="the GGUF that the receipt names")
    try:
        return verdict(parser.parse_args(argv))
    except (Malformed, OSError, UnsupportedModel) as error:
        print(f"verifier: error: {error}", file=sys.stderr)
        return 3 if isinstance(error, Malformed) else 4 if isinstance(error, OSError) else 6


if __name__ == "__main__":
    sys.exit(main())
