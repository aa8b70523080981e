#!/usr/bin/env python3
"""lm-eval's log-likelihoods by llmserve, held against llmcheck's: the same in every bit.

    tests/serving/lm_eval_gate.py BIN_DIR [--documents 20]

Runs `local-completions` on a local task of the documents of models/heldout.txt. Exit code 1 when a document's mean
differs.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import lm_eval
import server
from lm_eval.tasks import TaskManager

TASK = """
task: heldout
dataset_path: json
dataset_kwargs:
  data_files: {{test: {documents}}}
output_type: loglikelihood_rolling
test_split: test
doc_to_text: ""
doc_to_target: "{{{{text}}}}"
metric_list:
  - metric: word_perplexity
"""


def by_llmcheck(bin_dir: pathlib.Path, directory: pathlib.Path, text: str) -> tuple[float, int]:
    """The mean nll, and the number of tokens."""
    (directory / "document").write_text(text, encoding="utf-8")
    report = directory / "report.json"
    command = [bin_dir / "llmcheck", server.MODEL, "-t", "1", "-q", "--ppl", directory / "document", "--report", report]
    subprocess.run(command, check=True, capture_output=True)
    row = json.loads(report.read_text(encoding="utf-8"))["figures"][0]["rows"][0]
    return row["nll"], int(row["tokens"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin_dir", type=pathlib.Path)
    parser.add_argument("--documents", type=int, default=20)
    arguments = parser.parse_args()
    heldout = (server.ROOT / "models" / "heldout.txt").read_text(encoding="utf-8")
    documents = [document.strip("\n") for document in heldout.split("\n\n\n")]
    documents = [document for document in documents if 0 < len(document) < 1500][: arguments.documents]
    with tempfile.TemporaryDirectory() as name, server.serve(arguments.bin_dir) as url:
        directory = pathlib.Path(name)
        lines = "".join(json.dumps({"text": document}) + "\n" for document in documents)
        (directory / "documents.jsonl").write_text(lines, encoding="utf-8")
        (directory / "heldout.yaml").write_text(TASK.format(documents=directory / "documents.jsonl"), encoding="utf-8")
        result = lm_eval.simple_evaluate(
            model="local-completions",
            model_args={
                "base_url": url + "/v1/completions",
                "model": server.MODEL.stem,
                "tokenizer_backend": "remote",
                "custom_prefix_token_id": 1,
                "max_length": 512,
                "num_concurrent": 4,
            },
            tasks=["heldout"],
            task_manager=TaskManager(include_path=str(directory), include_defaults=False),
            bootstrap_iters=0,
        )
        wrong = 0
        for sample in result["samples"]["heldout"]:
            nll, tokens = by_llmcheck(arguments.bin_dir, directory, sample["doc"]["text"])
            [[likelihood]] = sample["resps"]
            likelihood = float(likelihood[0] if isinstance(likelihood, (list, tuple)) else likelihood)
            if -likelihood / tokens != nll:
                print(f"document {sample['doc_id']}: lm-eval {-likelihood / tokens}, llmcheck {nll}, {tokens} tokens")
                wrong += 1
        print(f"lm-eval {lm_eval.__version__}: {len(documents) - wrong}/{len(documents)} documents as llmcheck has them")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
