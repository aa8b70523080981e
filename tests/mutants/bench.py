"""Runs llmcheck on one model, with or without a planted bug, and reads what it found."""

import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
MODEL = ROOT / "models" / "fable-3m-f16.gguf"
TOKENS = 21  # no multiple of 16, so that tails are real; the last three are fed one at a time
STEPS = "18,1,1,1"
TEXT = "Once upon a time, there was a little fox named Pip. He lost his red ball near the old mill and asked"
LONG_TOKENS = 530  # past the second chunk of 256 keys
VERIFY_STEPS = 16
# Models that reach what a quantization of MODEL does not: the change of make_models.py, then llmquant's arguments.
VARIANTS = {"LONG": ("long", ("Q8_0",)), "WIDE": ("wide", ("Q4_0", "--pure")), "EXTREME": ("extreme", ("Q8_0",)),
            "QWEN2": ("qwen2", ("F16",)), "QWEN3": ("qwen3", ("F16",)), "HEADS": ("heads", ("Q8_0",)), "BPE": ("bpe", ("F16",))}
MIX = {"attn_q": "Q4_0", "attn_k": "Q6_K", "attn_v": "Q8_0", "attn_output": "Q5_K", "ffn_gate": "Q5_1", "ffn_up": "Q3_K",
       "ffn_down": "IQ4_NL"}
# What befalls a packed cache and its model between the run that makes the cache and the one that is judged.
PACKED = {"packed": "", "packed-replaced": "", "packed-damaged": "", "packed-layout": "packed_other_layout"}  # by this mutant
LOAD_ERRORS = (3, 5, 7)  # malformed, resource, non-finite: the file was refused
PARALLEL = 2
TIMEOUT = 900


@dataclass
class Outcome:
    """What one run of llmcheck found."""

    code: int
    named: list[str] = field(default_factory=list)
    words: str = ""


class Bench:
    """Tools, models and references of one matrix.

    Models are quantized, and token ids frozen, by `clean`: tools without bugs, which other tests hold to independent
    programs. `planted` is the build of the copy with the bugs in it.
    """

    def __init__(self, planted: Path, clean: Path, work: Path):
        self.planted, self.clean, self.work = planted, clean, work
        self.ids: list[str] = []
        work.mkdir(parents=True, exist_ok=True)

    def clean_tool(self, name: str, *args: object) -> str:
        return subprocess.run([str(self.clean / name), *map(str, args)], capture_output=True, text=True, check=True,
                              timeout=TIMEOUT).stdout

    def model(self, kind: str) -> Path:
        return MODEL if kind == "F16" else self.work / f"{kind}.gguf"

    def reference(self, kind: str, steps: str = STEPS) -> Path:
        return self.work / f"{kind}-{steps}.npz"

    def prepare(self, wanted: set[tuple[str, str]]) -> None:
        """Makes the files that are needed: (type, steps) pairs; steps "" is the model alone."""
        self.ids = self.clean_tool("llmtok", MODEL, "--ids", "-p", TEXT).split()[:TOKENS]
        if len(self.ids) != TOKENS:
            raise RuntimeError(f"the text gives {len(self.ids)} tokens, need {TOKENS}")
        with concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool:
            list(pool.map(self.quantize, sorted({kind for kind, _ in wanted})))
            list(pool.map(lambda w: self.refer(*w), sorted(w for w in wanted if w[1])))
        lines = (ROOT / "models/heldout.txt").read_text(encoding="utf-8").split("\n")
        texts = [line for line in lines if line][:40] + ["  two  spaces", "naïve café ☃", "a\nb"]
        with open(self.work / "tokens.jsonl", "w", encoding="utf-8") as out:
            for text in texts:
                ids = json.loads(self.clean_tool("llmtok", MODEL, "--json", "-p", text))["ids"]
                out.write(json.dumps({"text": text, "ids": ids}) + "\n")

    def quantize(self, kind: str) -> None:
        if kind in VARIANTS:
            change, arguments = VARIANTS[kind]
            source = self.work / f"{change}.gguf"
            self.python("tests/mutants/make_models.py", MODEL, source, change)
            self.clean_tool("llmquant", source, self.model(kind), *arguments, "-q")
        elif kind == "MIX":
            types = [word for name, type in MIX.items() for word in ("--tensor-type", f"{name}={type}")]
            self.clean_tool("llmquant", MODEL, self.model(kind), "Q4_K_M", *types, "-q")
        elif kind.endswith("-pure"):
            self.clean_tool("llmquant", MODEL, self.model(kind), kind.removesuffix("-pure"), "--pure", "-q")
        elif kind != "F16":
            self.clean_tool("llmquant", MODEL, self.model(kind), kind, "-q")

    @staticmethod
    def python(script: str, *args: object) -> None:
        subprocess.run([os.environ.get("LLM_PYTHON", sys.executable), ROOT / script, *map(str, args)], check=True,
                       timeout=TIMEOUT, stdout=subprocess.DEVNULL)

    def refer(self, kind: str, steps: str) -> None:
        ids = self.long_ids() if sum(map(int, steps.split(","))) > TOKENS else self.ids
        self.python("tools/oracle/from_gguf.py", self.model(kind), "--ids", ",".join(ids), "--steps", steps, "-o",
                    self.reference(kind, steps))

    def long_ids(self) -> list[str]:
        text = (ROOT / "models/heldout.txt").read_text(encoding="utf-8")
        return self.clean_tool("llmtok", MODEL, "--ids", "-p", text[:4 * LONG_TOKENS]).split()[:LONG_TOKENS]

    def check(self, kind: str, check: str, *, mutant: str = "", args: tuple = (), steps: str = STEPS,
              env: dict | None = None, build: Path | None = None) -> Outcome:
        """One check of one file; `named` is what it says is at fault."""
        what = {"layer-diff": ["--layer-diff", self.reference(kind, steps)], "self": ["--self", "-p", TEXT],
                "tokenizer": ["--tokenizer", self.work / "tokens.jsonl"]}.get(check)
        if mutant and check == "self":
            what.append("--fail-fast")
        # Two checks run at a time, so each takes one thread unless threads are what it is about.
        threads = () if "-t" in args else ("-t", "1")
        label = "-".join([mutant or "none", kind, check, steps, *map(str, args), *(env or {}),
                          (build or self.planted).parent.name])
        report = self.work / f"{label}.json"
        report.unlink(missing_ok=True)
        model = self.model(kind)
        if check in PACKED:
            model, what = self.packed(kind, check, self.work / f"{label}.packed", build or self.planted)
        run = subprocess.run([str((build or self.planted) / "llmcheck"), str(model), "-q", *map(str, what),
                              "--report", str(report), *map(str, args), *threads],
                             env=dict(os.environ, LLM_MUTANT=mutant, **(env or {})), capture_output=True, text=True,
                             timeout=TIMEOUT)
        named = names_in(json.loads(report.read_text())) if report.exists() else re.findall(r"error: .*", run.stderr)
        report.unlink(missing_ok=True)
        return Outcome(run.returncode, named, run.stdout + run.stderr)


    def packed(self, kind: str, check: str, folder: Path, build: Path) -> tuple[Path, list]:
        """A copy of the model with its packed cache, both as the check wants them, and the question that is asked then."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        model, cache = folder / "model.gguf", folder / "cache"
        shutil.copyfile(self.model(kind), model)
        subprocess.run([build / "llmcheck", model, "-q", "-t", "1", "-p", "a", "--dump", folder / "made.npz", "--packed-cache", cache],
                       env=dict(os.environ, LLM_MUTANT=PACKED[check]), check=True, timeout=TIMEOUT)
        if check == "packed-replaced":
            changed = bytearray(model.read_bytes())
            for at in range(len(changed) // 2, len(changed), 4099):
                changed[at] ^= 1
            (folder / "new").write_bytes(changed)
            (folder / "new").rename(model)
        if check == "packed-damaged":
            file, = cache.iterdir()
            damaged = bytearray(file.read_bytes())
            damaged[-len(damaged) // 4] ^= 1
            file.write_bytes(damaged)
        return model, ["--self", "--fail-fast", "-p", TEXT, "--packed-cache", cache]


def names_in(report: dict) -> list[str]:
    """Everything a report says is at fault, in order and without repetition."""
    names = [check["name"] for check in report["checks"] if check["verdict"] != "PASS"]
    for section in report["layer_diffs"]:
        located = section["locate"]
        names += [f"problem: {text}" for text in section["problems"]]
        names += [f"preflight: {text}" for text in located["preflight"]]
        names += [f"missing {row_name(row)}" for row in section["rows"] if row["verdict"] == "MISSING"]
        for finding in located["findings"]:
            names.append(f"{finding['tap']} [{finding['weight_type']}]".replace(" []", ""))
    return list(dict.fromkeys(names))


def row_name(row: dict) -> str:
    return f"G/{row['tap']}" if row["layer"] is None else f"L{row['layer']:03}/{row['tap']}"
