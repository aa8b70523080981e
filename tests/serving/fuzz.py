#!/usr/bin/env python3
"""Requests that schemathesis makes from the server's own OpenAPI document, right and wrong ones: each must get an answer that the
document describes, and the server must be as before afterwards.

    tests/serving/fuzz.py BIN_DIR [--examples 100]
"""

import argparse
import pathlib
import subprocess
import sys

import server

KEY = "secret"

def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin_dir", type=pathlib.Path)
    parser.add_argument("--examples", type=int, default=100, help="for each operation")
    arguments = parser.parse_args()
    options = ["--max-tokens", "16", "--chat-template", "zephyr", "--api-key", KEY]
    with server.serve(arguments.bin_dir, *options) as url:
        command = [
            pathlib.Path(sys.executable).with_name("schemathesis"),
            "run",
            url + "/openapi.json",
            "--max-examples",
            str(arguments.examples),
            "--seed",
            "1",
            "--header",
            f"Authorization: Bearer {KEY}",
            # Some rules are between fields, and no schema says them.
            "--exclude-checks",
            "positive_data_acceptance",
        ]
        code = subprocess.run(command, check=False).returncode
        left = sum(server.metric(url, name, KEY) for name in ("texts_running", "texts_waiting"))
    if left:
        print(f"{left:.0f} texts are still there")
    return 1 if code or left else 0


if __name__ == "__main__":
    sys.exit(main())
