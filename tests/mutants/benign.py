"""Variants that change how the engine computes and nothing of what it must compute: none may raise an alarm."""

import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from bench import PACKED, ROOT, STEPS, TOKENS, Bench
from generate import ISAS

UNSUPPORTED = 6  # exit code


@dataclass
class Variant:
    name: str
    kind: str  # weight types of the file
    check: str = "layer-diff"
    args: tuple = ()
    env: dict = field(default_factory=dict)
    steps: str = STEPS
    build: Path | None = None  # nothing: the build with mutants, none of them on
    verdict: str = ""  # "ok", "ALARM", or "skipped: why"

    def judge(self, bench: Bench) -> "Variant":
        if self.verdict:
            return self
        if self.build and not (self.build / "llmcheck").exists():
            self.verdict = f"skipped: no {self.build.relative_to(ROOT)}/llmcheck"
            return self
        outcome = bench.check(self.kind, self.check, args=self.args, env=self.env, steps=self.steps, build=self.build)
        if outcome.code == UNSUPPORTED and "--isa" in self.args and "which this CPU" in outcome.words:
            self.verdict = "skipped: not on this CPU"
        elif outcome.code != 0:
            self.verdict = f"ALARM: exit code {outcome.code}: {'; '.join(outcome.named) or outcome.words[-200:]}"
        else:
            self.verdict = "ok"
        return self


def decimal_commas(work: Path) -> tuple[dict, str]:
    """The environment of a German locale, made without root and set by a preloaded library; else why it is skipped."""
    locales, library = work / "locales", work / "set_locale.so"
    locales.mkdir(parents=True, exist_ok=True)
    for command in (("localedef", "-i", "de_DE", "-f", "UTF-8", "--no-archive", locales / "de_DE.UTF-8"),
                    ("cc", "-shared", "-fPIC", "-o", library, ROOT / "tests/support/set_locale.c")):
        try:
            subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            return {}, f"skipped: {error}"
    return {"LOCPATH": str(locales), "LC_ALL": "de_DE.UTF-8", "LD_PRELOAD": str(library)}, ""


def variants(bench: Bench) -> list[Variant]:
    out = []
    for kind in ("F16", "Q4_0", "Q4_K_M", "Q6_K"):
        out += [Variant(f"{kind}, {isa}", kind, args=("--isa", isa)) for isa in ISAS]
    out += [Variant(f"Q8_0, {n} threads", "Q8_0", args=("-t", n)) for n in (1, 2, 3, 7)]
    out += [Variant(f"Q5_K_M, {n} threads", "Q5_K_M", args=("-t", n)) for n in (2, 7)]
    for name, steps in (("one batch", str(TOKENS)), ("one token a call", ",".join(["1"] * TOKENS)),
                        ("batches of 7", "7,7,7"), ("batches of 16 and 5", "16,5")):
        out.append(Variant(f"Q4_K_M, {name}", "Q4_K_M", steps=steps))
    out += [Variant(f"Q4_0, {mode} only", "Q4_0", args=("--compute", mode)) for mode in ("int8", "f32")]
    out += [Variant(f"weights {kind}", kind) for kind in ("BF16", "F32", "Q2_K", "Q3_K_M", "Q4_1", "Q5_0", "Q5_1")]
    for name, env in (("memory filled with 0xA5", {"MALLOC_PERTURB_": "90"}), ("memory filled with 0xFF", {"MALLOC_PERTURB_": "255"}),
                      ("one OpenMP thread", {"OMP_NUM_THREADS": "1"}),
                      ("dynamic OpenMP teams", {"OMP_DYNAMIC": "true"}), ("a small stack of workers", {"OMP_STACKSIZE": "256k"})):
        out.append(Variant(f"Q4_K_M, {name}", "Q4_K_M", args=("-t", 2), env=env))
    env, missing = decimal_commas(bench.work)
    out.append(Variant("Q4_K_M, a locale with decimal commas", "Q4_K_M", args=("-t", 2), env=env, verdict=missing))
    out += [Variant("release build", "Q5_K_M", build=bench.clean),
            Variant("sanitized build", "Q4_0", args=("--compute", "int8"), build=ROOT / "build/asan-ubsan/bin"),
            Variant("clang build", "Q6_K", args=("--compute", "int8"), build=ROOT / "build/clang/bin"),
            Variant("Q4_K_M, --self: batches, threads, cache", "Q4_K_M", check="self"),
            Variant("F16, --self, memory filled with 0xFF", "F16", check="self", env={"MALLOC_PERTURB_": "255"}),
            Variant("tokenizer", "F16", check="tokenizer")]
    out += [Variant(f"{check} cache", "Q8_0", check=check) for check in PACKED]
    return out
