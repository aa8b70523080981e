#!/usr/bin/env python3
"""examples/ray on a Ray cluster of two workers on this machine, unlike in their instruction sets, against one process: 1,000 requests
of which one worker does not see the end, then OpenAI's client at a service of two replicas. `./dev ray` runs it.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# The last: a service on a busy machine takes its time to start.
os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0", "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60"}
ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples/ray"
MODEL = ROOT / "models/fable-3m-q4_k_m.gguf"
os.environ["PYTHONPATH"] = str(EXAMPLES)  # of every worker
sys.path.insert(0, str(EXAMPLES))

import llmrun  # noqa: E402
import openai  # noqa: E402
import ray  # noqa: E402
from batch import Worker  # noqa: E402
from ray import serve  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402
from serve_app import app  # noqa: E402

MARK = "LLM_RAY_GATE"  # in the environment of a worker's processes
BEST = llmrun.Model(MODEL).isa
ISAS = ("avx2", "scalar" if BEST == "avx2" else BEST)  # of the two workers
MESSAGES = [{"role": "user", "content": "Tell me of a fox."}]


def check(is_right: bool, what: str) -> None:
    if not is_right:
        sys.exit(f"FAIL: {what}")
    print(f"ok: {what}", flush=True)


def add_worker(cluster: Cluster, **environment: str) -> str:
    """A machine of its own as far as Ray knows. Returns its mark."""
    mine = {MARK: str(uuid.uuid4()), **environment}
    os.environ |= mine
    cluster.add_node(num_cpus=2)
    for name in mine:
        del os.environ[name]
    return mine[MARK]


def kill_worker(mark: str) -> int:
    """SIGKILL to all of its processes, as if the machine's power went. Returns their number."""
    killed = 0
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # it has just ended, or is another user's
            if f"{MARK}={mark}".encode() in path.read_bytes().split(b"\0"):
                os.kill(int(path.parent.name), signal.SIGKILL)
                killed += 1
    return killed


def request(i: int) -> dict:
    words = ("fox", "girl", "king", "dog", "bird", "tree", "boat", "frog", "cat", "star")
    beginnings = ("Once there was a {}", "The {} said", "One day, a {}", "It was raining and the {}")
    sampled = {"temperature": 0.8, "seed": i} if i % 2 else {}
    return {"prompt": beginnings[i % 4].format(words[i // 4 % 10]) + f" {i}", "max_tokens": 16, **sampled}


def count_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def batch(cluster: Cluster, folder: Path, doomed: str) -> None:
    """1,000 requests; one worker is killed when both have answered and a third of the answers is there."""
    lines = [json.dumps(request(i)) for i in range(1000)]
    begun = time.monotonic()
    alone = Worker(str(MODEL), 1)
    with ThreadPoolExecutor(16) as pool:
        expected = list(pool.map(alone.answer, lines))
    print(f"one process: {time.monotonic() - begun:.1f} s", flush=True)

    requests, answers, log = folder / "requests.jsonl", folder / "answers.jsonl", folder / "log"
    requests.write_text("\n".join(lines) + "\n")
    begun = time.monotonic()
    with log.open("w") as out:
        process = subprocess.Popen([sys.executable, EXAMPLES / "batch.py", MODEL, requests, answers, "--workers", "2"],
                                   stdout=out, stderr=subprocess.STDOUT, env=os.environ | {"RAY_ADDRESS": cluster.address})
    by = {}
    while not (count_lines(answers) > 333 and len(by) == 2):
        if process.poll() is not None:
            sys.exit(f"{log.read_text()}\nFAIL: it ended before one of two workers could be killed, {by}")
        time.sleep(0.05)
        said = log.read_text()
        by = {isa: said.count(f"answers by {isa}\n") for isa in ISAS if f"answers by {isa}\n" in said}
    there = count_lines(answers)
    killed = kill_worker(doomed)
    print(f"{killed} processes of the worker with {ISAS[0]} killed at {there} of {len(lines)} answers; batches done: {by}", flush=True)
    check(killed > 1 and there < 900, "a worker was killed in the middle")
    if process.wait(timeout=900) != 0:
        sys.exit(f"{log.read_text()}\nFAIL: batch.py ended with {process.returncode}")
    print(f"two workers, one killed: {time.monotonic() - begun:.1f} s", flush=True)
    got = answers.read_text().splitlines()
    check(len(got) == len(lines), "all 1,000 answers are there")
    for one, other in zip(got, expected, strict=True):
        if one != other:
            print(f"found    {one}\nexpected {other}")
            break
    check(got == expected, "each has the bytes of one process, receipts and their logits' SHA-256 among them")
    check(len({json.loads(line)["answer"]["choices"][0]["receipt"]["drawn_logits_sha256"] for line in got}) > 990, "they differ from each other")
    for line in (got[0], got[501], got[-1]):
        receipt = folder / "receipt.json"
        receipt.write_text(json.dumps(json.loads(line)["answer"]["choices"][0]["receipt"]))
        replay = subprocess.run([Path(sys.executable).parent / "llmcheck", MODEL, "--replay", receipt], capture_output=True, text=True)
        check(replay.returncode == 0, "llmcheck --replay confirms a receipt")


def ask(client: openai.OpenAI, i: int) -> tuple[list[str], str]:
    """The pieces of a streamed text, of a chat for every third, and who answered."""
    fields = {"model": "any", "max_tokens": 24, "seed": i, "temperature": 0.7, "stream": True}
    if i % 3 == 0:
        answer = client.chat.completions.with_raw_response.create(messages=MESSAGES, **fields)
        pieces = [chunk.choices[0].delta.content or "" for chunk in answer.parse()]
    else:
        answer = client.completions.with_raw_response.create(prompt=request(i)["prompt"], **fields)
        pieces = [chunk.choices[0].text for chunk in answer.parse()]
    return pieces, answer.headers["x-isa"]


def service(cluster: Cluster) -> None:
    """Streams of two replicas against a model of this process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ray.init(cluster.address, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    serve.run(app({"model": str(MODEL), "replicas": "2", "chat_template": "zephyr"}))
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none")
    model = llmrun.Model(MODEL, threads=1, chat_template="zephyr")
    check([one.id for one in client.models.list()] == [model.name], "the service names its model")
    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda i: ask(client, i), range(48)))
    fields = {"max_tokens": 24, "temperature": 0.7}
    expected = [model.chat(MESSAGES, seed=i, **fields)["choices"][0]["message"]["content"] if i % 3 == 0 else
                "".join(model.generate(request(i)["prompt"], seed=i, **fields)) for i in range(48)]
    check(["".join(pieces) for pieces, _ in got] == expected, "48 streams have llmrun's texts")
    check(min(len(pieces) for pieces, _ in got) > 5, "they come in pieces")
    by = {isa: sum(one == isa for _, one in got) for _, isa in got}
    check(set(by) == set(ISAS), f"both replicas have answered: {by}")
    whole = client.chat.completions.create(model="any", messages=MESSAGES, seed=3, **fields)
    check(whole.choices[0].message.content == expected[3], "a response that is not streamed as well")
    try:
        client.completions.create(model="any", prompt="x", temperature=-1)
        check(False, "a wrong field is refused")
    except openai.BadRequestError as error:
        check(error.param == "temperature", "a wrong field is refused by its name")


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="llm-ray-") as folder:
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        try:
            add_worker(cluster, LLM_ISA=ISAS[1])
            batch(cluster, Path(folder), doomed=add_worker(cluster, LLM_ISA=ISAS[0]))
            add_worker(cluster, LLM_ISA=ISAS[0])
            service(cluster)
        finally:
            ray.shutdown()
            cluster.shutdown()
    print("PASS")
    return 0


if __name__ == "__main__":
    sys.exit(main())
