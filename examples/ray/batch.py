#!/usr/bin/env python3
"""Answers a file of requests on a Ray cluster, each answer with its receipt.

    batch.py MODEL REQUESTS.jsonl ANSWERS.jsonl [--workers N] [--threads N] [--batch N]

A line of REQUESTS is a body of /v1/completions (or, with "messages", of /v1/chat/completions), with temperature and seed 0 by default.
The same line of ANSWERS has {"request", "answer", "model"}, where the answer is an error for a body that is refused. MODEL is a path
on every machine. LLM_ISA in a machine's environment, when Ray starts there, chooses its instruction set; answers do not depend on it,
nor on who dies and when.
"""

import argparse
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ray

import llmrun


class Worker:
    """A model in a process of its own. The texts of a batch are generated together."""

    def __init__(self, model: str, threads: int):
        self.model = llmrun.Model(model, isa=os.environ.get("LLM_ISA"), threads=threads)

    def answer(self, line: str) -> str:
        request = json.loads(line)
        fields = {"temperature": 0, "seed": 0, "receipt": True, **request}
        try:
            answer = self.model.chat(**fields) if "messages" in fields else self.model.complete(**fields)
            answer = {name: answer[name] for name in ("choices", "usage")}  # without what is of this run
        except llmrun.Error as error:
            answer = {"error": {"code": error.code.name, "param": error.field, "message": str(error)}}
        return json.dumps({"request": request, "answer": answer, "model": self.model.fingerprint}, ensure_ascii=False)

    def __call__(self, batch: dict) -> dict:
        with ThreadPoolExecutor(len(batch["text"])) as pool:
            answers = list(pool.map(self.answer, batch["text"]))
        print(f"{len(answers)} answers by {self.model.isa}", file=sys.stderr, flush=True)  # Ray shows it to whoever started this
        return {"text": answers}


def answer_all(model: Path, requests: Path, answers: Path, workers: int, threads: int, batch: int) -> None:
    """Writes the answers in the order of the requests."""
    ray.data.DataContext.get_current().execution_options.preserve_order = True
    lines = [line for line in requests.read_text(encoding="utf-8").split("\n") if line]
    answered = ray.data.from_items([{"text": line} for line in lines], override_num_blocks=-(-len(lines) // batch)).map_batches(
        Worker, fn_constructor_args=[str(model), threads], batch_size=None, compute=ray.data.ActorPoolStrategy(size=workers),
        num_cpus=threads, scheduling_strategy="SPREAD",
        max_restarts=-1, max_task_retries=-1)  # who has died is started again, elsewhere if need be, and its batch with it
    with answers.open("w", encoding="utf-8") as out:
        for row in answered.iter_rows():
            out.write(row["text"] + "\n")
            out.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("requests", type=Path)
    parser.add_argument("answers", type=Path)
    parser.add_argument("--workers", type=int, default=1, help="machines, or parts of them")
    parser.add_argument("--threads", type=int, default=1, help="threads of a worker, which are CPUs to Ray")
    parser.add_argument("--batch", type=int, default=16, help="requests that a worker has at once")
    args = parser.parse_args()
    ray.init()  # the cluster of RAY_ADDRESS, or one of this machine alone
    answer_all(args.model.resolve(), args.requests, args.answers, args.workers, args.threads, args.batch)


if __name__ == "__main__":
    main()
