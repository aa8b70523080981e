#!/usr/bin/env python3
"""Clients do their ordinary jobs against llmserve with SmolLM2-135M-Instruct (docs/clients.md).

    tests/clients/run.py BIN_DIR MODEL VENVS [--only CLIENT,...] [--record]

VENVS has an environment for each list of requirements/, by its name. With --record the requests of each job that was done are kept, for
agent_traces_test, and docs/clients.md gets its row. Exit code 1 where a job was not done.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import jobs
import protocol
import proxy
import traces

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "serving"))
import server  # noqa: E402


def version_of(python: pathlib.Path, package: str) -> str:
    code = f"import importlib.metadata; print(importlib.metadata.version('{package}'))"
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def done(name: str, url: str, venvs: pathlib.Path, record: bool) -> bool:
    job = jobs.JOBS[name]
    venv = venvs / job.environment
    version, start = version_of(venv / "bin" / "python", job.package), time.monotonic()
    with tempfile.TemporaryDirectory() as folder, proxy.between(url, job.replies) as between:
        try:
            job.run(jobs.Stage(name, between.url, venv, pathlib.Path(folder)))
            left = list(between.replies)
            assert not left, f"the client did not ask for {len(left)} of the replies"
            for one in between.exchanges:
                if one["is_whole"]:  # some clients go when they have read enough
                    protocol.check(one["path"], one["body"], one["status"], one["reply"])
        except Exception as error:
            exchanges = "\n".join(json.dumps(one)[-1500:] for one in between.exchanges[-3:])
            print(f"{name} {version}: NOT DONE\n{error!r}\nthe last requests and answers:\n{exchanges}", flush=True)
            return False
    print(f"{name} {version}: done, {len(between.exchanges)} requests, {time.monotonic() - start:.0f} s", flush=True)
    if record:
        traces.keep(name, job, version, between.exchanges)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("bin_dir", "model", "venvs"):
        parser.add_argument(name, type=lambda name: pathlib.Path(name).absolute())
    parser.add_argument("--only", type=lambda names: names.split(","), default=list(jobs.JOBS))
    parser.add_argument("--record", action="store_true")
    arguments = parser.parse_args()
    options = ["--alias", jobs.MODEL, "--api-key", jobs.KEY, "--max-tokens", "400"]
    with server.serve(arguments.bin_dir, *options, model=arguments.model) as url:
        failed = [name for name in arguments.only if not done(name, url, arguments.venvs, arguments.record)]
    print(f"{len(arguments.only) - len(failed)} of {len(arguments.only)} jobs done")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
