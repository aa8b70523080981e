#!/usr/bin/env python3
"""Checks the oracles themselves, on small random models written to a temporary folder. Exit code 1 if a check fails.

    python tools/reference_f64/selftest.py
    python tools/reference_f64/selftest.py --model stories260K.gguf --greedy stories260K_greedy.json

The second form also compares greedy texts with recorded ones (needs sentencepiece).
"""

import argparse
import json
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np

import selftest_contract
import selftest_equal
import selftest_layers
import selftest_ops
import selftest_refusals
from dump import ActivationDump
from from_gguf import metadata, run
from gguf_model import GgufModel
from selftest_models import IDS, VOCAB, Bench, random_weights


def check_dump(bench: Bench) -> None:
    model = bench.model(random_weights(10))
    dump, greedy = run(model, IDS, [len(IDS)], 2, probs=True)
    path = model.path.with_suffix(".npz")
    dump.write(path, metadata(model, greedy), n_layers=2, probs=True)
    with np.load(path) as file:
        assert file["tokens"].tolist() == IDS + greedy[:2] and file["positions"].tolist() == list(range(10))
        assert file["step_ptr"].tolist() == [0, 8, 9, 10] and file["tokens"].dtype == "<i4"
        meta = json.loads(file["__meta__"].tobytes())
        assert meta["model_sha256"] == model.sha256() and meta["oracle"] == "R0" and meta["taps_absent"] == {}
        assert file["s0002/L001/probs"].shape == (4, 1, 10) and file["s0000/G/logits"].shape == (8, VOCAB)
        assert file["s0001/L000/q"].dtype == np.float32
        assert int(np.argmax(file["s0000/G/logits"][-1])) == greedy[0]
    partial = ActivationDump()
    partial.begin_step([1], [0])
    try:
        partial.write(path, metadata(model, []), n_layers=2)
    except ValueError:
        return
    raise AssertionError("a dump with missing taps was written")


def check_greedy(model_path: str, greedy_path: str) -> None:
    """Greedy texts (BOS added) against a list of {"prompt", "greedy_N"}, N the number of generated tokens."""
    from spm_proto import load_processor  # sentencepiece is needed by this check alone

    model, spm = GgufModel(model_path), load_processor(model_path)
    bos = model.value("tokenizer.ggml.bos_token_id", 1)
    for case in json.loads(Path(greedy_path).read_text(encoding="utf-8")):
        key = next(k for k in case if k.startswith("greedy_"))
        ids = [bos, *spm.encode(case["prompt"])]
        _, greedy = run(model, ids, [len(ids)], int(key.removeprefix("greedy_")) - 1)
        text = spm.decode(ids + greedy)[len(spm.decode(ids)):]
        assert text == case[key], f"{case['prompt']!r}: {text!r}, recorded {case[key]!r}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="GGUF whose greedy texts are compared, with --greedy")
    parser.add_argument("--greedy", help="JSON list of {prompt, greedy_N}")
    args = parser.parse_args()
    if bool(args.model) != bool(args.greedy):
        parser.error("--model and --greedy belong together")
    subjects = (sys.modules[__name__], selftest_ops, selftest_equal, selftest_contract)
    checks = [(name, check) for subject in subjects for name, check in vars(subject).items()
              if name.startswith("check_") and name != "check_greedy"]
    checks += selftest_layers.CHECKS + selftest_refusals.CHECKS
    if args.model:
        checks.append(("check_greedy", lambda _bench: check_greedy(args.model, args.greedy)))
    failed = 0
    warnings.simplefilter("error")  # of numpy: an operation that was not expected to overflow
    with tempfile.TemporaryDirectory() as folder:
        for name, check in checks:
            try:
                check(Bench(tempfile.mkdtemp(dir=folder)))
                print(f"ok    {name}")
            except (AssertionError, RuntimeWarning) as error:
                failed += 1
                print(f"FAIL  {name}: {error}")
    print(f"{len(checks) - failed}/{len(checks)} checks passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
