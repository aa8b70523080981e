#!/usr/bin/env python3
"""The embedded models' matrix on this machine and on a Ray cluster of two workers, of which one is killed in the middle: the
reports must be equal. Needs tools/nightly/requirements-ray.txt and a release build: `./dev nightly ray-check`.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from support import ROOT, normalized

CHECKS = "integrity,verify,layer-diff,ppl"


def start(state: Path, *options: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "nightly", "--offline", "--models", "fable-*", "--checks", CHECKS, "--threads", "1",
               "--state", str(state), *options]
    return subprocess.Popen(command, cwd=ROOT / "tools", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def at_work() -> int:
    """How many llmcheck of this tree run."""
    program, count = str(ROOT / "build/release/bin/llmcheck").encode(), 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            count += path.read_bytes().startswith(program)
        except OSError:  # it has just ended
            pass
    return count


def over_ray(state: Path) -> None:
    """The run on two workers of one task each; one dies when both are at work and the first results are there."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        workers = [cluster.add_node(num_cpus=1, memory=4 << 30) for _ in range(2)]
        process = start(state, "--ray", cluster.address)
        while not (list((state / "results").glob("*/*.json")) and at_work() == 2):
            if process.poll() is not None:
                sys.exit(f"{process.communicate()[0]}FAIL: ended before both workers had a task")
            time.sleep(0.02)
        print("killing one of two workers", flush=True)
        cluster.remove_node(workers[1], allow_graceful=False)
        output = process.communicate()[0].splitlines()
        print("\n".join(line for line in output if line[:1] not in (" ", "(", "")), flush=True)  # without Ray's own
    finally:
        cluster.shutdown()


def main() -> int:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    with tempfile.TemporaryDirectory(prefix="nightly-ray-") as folder:
        local, ray = Path(folder, "local"), Path(folder, "ray")
        print(start(local).communicate()[0])
        over_ray(ray)
        for name in ("report.html", "junit.xml", "result.json", "history.jsonl"):
            if normalized((local / name).read_text()) != normalized((ray / name).read_text()):
                print(f"FAIL: {name} differs")
                return 1
    print("PASS: the reports of the local run and of the Ray cluster that lost a worker are equal")
    return 0


if __name__ == "__main__":
    sys.exit(main())
