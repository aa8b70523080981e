"""Plants the bugs of tests/mutants in the foreign models: is each found, and named exactly?

Of mutants.json, the bugs that `--layer-diff` is to find. A bug is planted in several cases where it changes what is
computed: NEEDS says which, since a wrong theta of 500000 is no bug in a model whose theta is 500000.
"""

import random
import re
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "mutants"))
from bench import LOAD_ERRORS, Bench, Outcome  # noqa: E402
from kill_matrix import choose_mutants, short  # noqa: E402

FOUND_NEEDED = 0.97
EXACT_NEEDED = 0.90
MOST_WORK = 0.9e9  # tokens times weights; a bug of every token needs no long run
DIFFERING_NORMS = ("peaked", "sharp", "gates", "sharp-outlier100")

# By id: where the bug changes anything, as a predicate over a case.
NEEDS = {
    "rope_theta": lambda case: case["shape"]["theta"] != 500000.0,
    "norm_eps": lambda case: case["shape"]["eps"] != 1e-6,
    "norm_swapped": lambda case: case["variation"] in DIFFERING_NORMS,
    "gqa_map": lambda case: case["shape"]["n_kv_heads"] > 1,
    "kv_stride": lambda case: case["shape"]["n_kv_heads"] > 1,
    "decode_position": lambda case: case["single"] > 0,
    "batch_position": lambda case: case["single"] > 0,
    "kernel_tail_block": lambda case: case["single"] > 0,
    # Scores of almost 0 give equal weights whatever they are divided by.
    "attention_scale": lambda case: case["variation"] != "tiny",
    "bias_dropped": lambda case: case["shape"]["family"] == "qwen2",
    "bias_order": lambda case: case["shape"]["family"] == "qwen2",
    "halves_as_neighbours": lambda case: case["shape"]["family"] in ("qwen2", "qwen3"),
    "head_norm_dropped": lambda case: case["shape"]["family"] == "qwen3",
    "head_norm_swapped": lambda case: case["shape"]["family"] == "qwen3" and case["variation"] in DIFFERING_NORMS,
}
# By id, or by mutants.json's type: the types of files that show the bug, where there are more.
TYPES = {
    "decode_position": ".*",
    "kernel_tail_block": "I?Q.*",
    "QWEN2": ".*",
    "QWEN3": ".*",
    "Q4_K_M": "Q4_K_[MS]",
    "Q5_K_M": "Q5_K_[MS]",
}
# By id: what mutants.json expects of its own model only (rows of one block, one type, calls of 18 tokens).
EXPECT = {
    "kernel_tail_block": r"(G/logits|L\d+/(q|k|v|attn_out|gate|up|ffn_out)) \[\w+\]",
    "kernel_q8k_d_f16": r"(G/logits|L\d+/(q|k|v|attn_out|gate|up|ffn_out)) \[Q\d_K\]",
    "batch_position": r"problem: positions differ at index \d+: .*",
}


class ForeignBench(Bench):
    """A bench whose files are those of the corpus, by the names of its cases."""

    def __init__(self, planted: Path, clean: Path, work: Path, corpus: Path):
        super().__init__(planted, clean, work)
        self.corpus = corpus

    def model(self, kind: str) -> Path:
        return self.corpus / f"{kind}.gguf"

    def reference(self, kind: str, steps: str = "") -> Path:
        return self.corpus / f"{kind}.npz"


@dataclass(frozen=True)
class Trial:
    """One bug in one model."""

    mutant: dict
    case: dict
    clean: Outcome
    planted: Outcome

    @property
    def expect(self) -> str:
        return EXPECT.get(self.mutant["id"], self.mutant["expect"])

    @property
    def found(self) -> bool:
        """llmcheck says no, and not for what it says without the bug."""
        refused = self.planted.code == 1 or self.planted.code in LOAD_ERRORS
        return refused and (self.planted.code, self.planted.named) != (self.clean.code, self.clean.named)

    @property
    def exact(self) -> bool:
        return self.found and bool(self.planted.named) and all(
            re.fullmatch(self.expect, name) for name in self.planted.named)

    @property
    def verdict(self) -> str:
        return ("located" if self.exact else "found" if self.found else "MISSED") + (
            " (clean FAILs)" if self.clean.code else "")


def types_of(mutant: dict) -> str:
    """Which types of files show the bug, as a regular expression. One that names no type is in all of them."""
    if mutant["file"] == "F16" and "\\[" not in mutant["expect"] and mutant["id"] not in TYPES:
        return ".*"
    return TYPES.get(mutant["id"], TYPES.get(mutant["file"], mutant["file"]))


def choose_cases(mutant: dict, cases: list[dict], count: int) -> list[dict]:
    """Up to `count` cases that the bug changes, of different shapes and variations where there are."""
    blocks_of_256 = "_K" in types_of(mutant)  # other rows get other types than the file's name says
    fitting = [case for case in cases
               if re.fullmatch(types_of(mutant), case["type"])
               and (case["shape"]["rows_of_256"] or not blocks_of_256)
               and case["tokens"] * case["shape"]["weights"] <= MOST_WORK
               and NEEDS.get(mutant["id"], lambda case: True)(case)]
    random.Random(zlib.crc32(mutant["id"].encode())).shuffle(fitting)
    chosen: list[dict] = []
    while fitting and len(chosen) < count:
        def met(case):
            return sum((case["shape"] == other["shape"]) + (case["variation"] == other["variation"]) for other in chosen)
        chosen.append(min(fitting, key=met))
        fitting.remove(chosen[-1])
    return chosen


def print_trial(trial: Trial) -> None:
    print(f"{trial.mutant['id']:<20} {trial.case['name']:<36} {trial.verdict:<24} {short(trial.planted.named, 90)}",
          flush=True)


def print_misses(trials: list[Trial]) -> None:
    for trial in trials:
        if not trial.exact:
            wrong = [name for name in trial.planted.named if not re.fullmatch(trial.expect, name)]
            print(f"{trial.mutant['id']} in {trial.case['name']}: exit code {trial.planted.code}; "
                  f"expected {trial.expect}; found {'; '.join(wrong[:6]) or 'no name'}")


def run_planted(bench: ForeignBench, cases: list[dict], only: re.Pattern | None, jobs: int, per_bug: int) -> bool:
    """Prints a line for each bug in each model, then the totals; whether both bars are met."""
    mutants = [m for m in choose_mutants([]) if m["check"] == "layer-diff" and not m.get("harness")
               and (only is None or only.search(m["id"]))]
    pairs = [(mutant, case) for mutant in mutants for case in choose_cases(mutant, cases, per_bug)]
    nowhere = {m["id"] for m in mutants} - {mutant["id"] for mutant, _ in pairs}

    def try_clean(case: dict) -> Outcome:
        return bench.check(case["name"], "layer-diff", build=bench.clean)

    def try_planted(pair: tuple[dict, dict]) -> Outcome:
        mutant, case = pair
        return bench.check(case["name"], "layer-diff", mutant=mutant["id"], args=tuple(mutant.get("args", ())))

    with ThreadPoolExecutor(jobs) as pool:
        used = {case["name"]: case for _, case in pairs}
        clean = dict(zip(used, pool.map(try_clean, used.values())))
        trials = []
        for (mutant, case), outcome in zip(pairs, pool.map(try_planted, pairs)):
            trials.append(Trial(mutant, case, clean[case["name"]], outcome))
            print_trial(trials[-1])
    print()
    print_misses(trials)
    found, exact, n = sum(t.found for t in trials), sum(t.exact for t in trials), len(trials)
    for name in sorted(nowhere):
        print(f"{name}: no model of the corpus that it changes")
    print(f"bugs planted: {n} ({len(mutants)} bugs); found: {found}/{n} (need {FOUND_NEEDED:.0%}); "
          f"named exactly: {exact}/{n} (need {EXACT_NEEDED:.0%})")
    return n > 0 and not nowhere and found >= FOUND_NEEDED * n and exact >= EXACT_NEEDED * n
