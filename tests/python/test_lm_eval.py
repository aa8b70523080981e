"""lm-eval by the package's plugin and by llmserve over HTTP: the same figures, which are llmcheck's in every bit. Needs lm_eval
(./dev wheel --lm-eval)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

lm_eval = pytest.importorskip("lm_eval")
ROOT = Path(__file__).resolve().parents[2]
BIN = Path(os.environ["LLM_BIN"])
sys.path.insert(0, str(ROOT / "tests/serving"))

import server  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

import llmrun.lm_eval  # noqa: E402, F401

TASKS = {
    "rolling": 'output_type: loglikelihood_rolling\ndoc_to_text: ""\ndoc_to_target: "{{text}}"\nmetric_list: [{metric: word_perplexity}]',
    "choice": 'output_type: multiple_choice\ndoc_to_text: "{{text[:200]}}"\ndoc_to_choice: ["fox", "the dog", "x"]\ndoc_to_target: 0',
    "text": 'output_type: generate_until\ndoc_to_text: "{{text[:200]}}"\ndoc_to_target: "x"\n'
            'generation_kwargs: {until: ["\\n\\n"], max_gen_toks: 24}\nmetric_list: [{metric: exact_match}]',
}


def evaluate(folder, kind, **arguments):
    result = lm_eval.simple_evaluate(
        model=kind, model_args=arguments, tasks=[f"llmrun_{name}" for name in TASKS], batch_size=4, bootstrap_iters=0,
        task_manager=TaskManager(include_path=str(folder), include_defaults=False))
    responses = {task: [sample["resps"] for sample in samples] for task, samples in result["samples"].items()}
    return result["results"], responses


def by_llmcheck(folder, text):
    """The log-likelihood of a document's tokens, in the mean, and their number."""
    (folder / "document").write_text(text)
    report = folder / "report.json"
    subprocess.run([BIN / "llmcheck", server.MODEL, "-t", "1", "-q", "--ppl", folder / "document", "--report", report], check=True,
                   capture_output=True)
    row = json.loads(report.read_text())["figures"][0]["rows"][0]
    return -row["nll"], row["tokens"]


def test_figures_are_those_of_the_server(tmp_path):
    documents = [text.strip("\n") for text in (ROOT / "models/heldout.txt").read_text().split("\n\n\n")]
    documents = [text for text in documents if 200 < len(text) < 1500][:20]
    (tmp_path / "documents.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    for name, text in TASKS.items():
        (tmp_path / f"{name}.yaml").write_text(
            f"task: llmrun_{name}\ndataset_path: json\ntest_split: test\n"
            f"dataset_kwargs:\n  data_files: {{test: {tmp_path / 'documents.jsonl'}}}\n{text}\n")
    here = evaluate(tmp_path, "llmrun", path=str(server.MODEL))
    with server.serve(BIN) as url:
        there = evaluate(tmp_path, "local-completions", base_url=url + "/v1/completions", model=server.MODEL.stem,
                         tokenizer_backend="remote", max_length=512, custom_prefix_token_id=1)  # BOS, which it does not find itself
    assert here[1] == there[1]
    assert {task: {k: v for k, v in row.items() if "perplexity" in k} for task, row in here[0].items()} == \
           {task: {k: v for k, v in row.items() if "perplexity" in k} for task, row in there[0].items()}
    for text, [[likelihood]] in zip(documents, there[1]["llmrun_rolling"], strict=True):
        mean, tokens = by_llmcheck(tmp_path, text)
        assert float(likelihood[0] if isinstance(likelihood, (list, tuple)) else likelihood) / tokens == mean
    assert len({str(response) for responses in here[1].values() for response in responses}) == 3 * len(documents)
