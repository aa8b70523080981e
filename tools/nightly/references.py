"""Makes the frozen references of a model and pins them in models.lock. Run where the model is, once; the checks hold later
builds against them."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from . import files
from .checks import perform
from .manifest import FROZEN, Manifest, Model
from .plan import machine_id, plan
from .fetch import File, Place, say
from .results import ERROR, FAIL

LAYER_TOKENS = 24
KINDS = ("manifest", "verify", "layer-diff", "quality", "equivalence", "figures")


class Failed(Exception):
    """A reference could not be made."""


def _call(command: list) -> None:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise Failed(f"{Path(command[0]).name} ... ended with {done.returncode}: {last}")


@dataclass(frozen=True)
class Wish:
    """How references are made. `steps`: of each prompt of verify, which the oracle takes minutes for on large models."""

    checkpoint: str | None = None  # of transformers, for layer-diff
    steps: int = 32
    reason: str = ""  # noted in baselines
    again: bool = False  # make anew what is there
    threads: int = 1


def _command(kind: str, model: Path, out: Path, place: Place, text: Path, wish: Wish) -> list:
    oracle = place.root / "tools/reference_f64"
    llmcheck = place.bin / "llmcheck"
    if kind == "manifest":
        return [place.bin / "llmgguf", "hash", model, "-o", out]
    if kind == "verify":
        return [place.python, oracle / "verify_reference.py", model, "--steps", wish.steps, "-o", out]
    if kind == "layer-diff" and wish.checkpoint:
        python = os.environ.get("LLM_HF_PYTHON", place.python)
        return [python, oracle / "from_hf.py", wish.checkpoint, "--ids-random", LAYER_TOKENS, "-o", out]
    if kind == "layer-diff":
        return [place.python, oracle / "from_gguf.py", model, "--ids-random", LAYER_TOKENS, "-o", out]
    if kind == "quality":
        return [llmcheck, model, "--quality", text, "--baseline", out, "--update-baseline", wish.reason]
    return [llmcheck, model, "--equivalence", out, "--update-equivalence", wish.reason]


SUFFIX = {"manifest": ".manifest", "verify": ".json", "layer-diff": ".npz", "quality": "", "equivalence": ".json"}


def _make(kind: str, model: Model, file: File, manifest: Manifest, place: Place, wish: Wish) -> None:
    """@throws Failed, OSError"""
    name = f"references/{file.sha256}/{kind}{SUFFIX[kind]}"
    out = place.path(name)
    unfinished = out.with_name(f"unfinished-{out.name}")
    out.parent.mkdir(parents=True, exist_ok=True)
    text = place.root / manifest.text
    _call(_command(kind, place.path(file.name), unfinished, place, text, wish))
    if out.is_dir():
        for old in out.iterdir():
            old.unlink()
        out.rmdir()
    unfinished.replace(out)
    model.references[kind] = {"path": name, "sha256": files.sha256(out)}


def _freeze_figures(model: Model, found: dict[str, File], manifest: Manifest, place: Place, threads: int) -> None:
    """@throws Failed"""
    for task in plan(manifest, found, place, [model], list(FROZEN)):
        if task.verdict:
            say(f"{task.name}: {task.message}")
            continue
        result = perform(task, place, threads, 24 * 3600.0, machine_id())
        if not result.figures or result.verdict == ERROR:
            raise Failed(f"{task.name}: {result.message}")
        if result.verdict == FAIL:
            say(f"{task.name}: {result.message}; frozen as it is now")
        model.figures[task.check] = result.figures


def make(manifest: Manifest, model: Model, found: dict[str, File], place: Place, kinds: list[str],
         wish: Wish) -> int:
    """Makes the kinds that are not there. The exit code: 2 when one could not be made."""
    file = found[model.name]
    if file.status != "ready":
        say(f"error: {model.name}: {file.reason}")
        return 2
    code = 0
    for kind in kinds:
        old = model.references.get(kind)
        present = bool(model.figures) if kind == "figures" else old is not None and place.path(old["path"]).exists()
        if present and not wish.again:
            say(f"{model.name}: {kind} is there (--again makes it again)")
            continue
        try:
            if kind == "figures":
                _freeze_figures(model, found, manifest, place, wish.threads)
            else:
                _make(kind, model, file, manifest, place, wish)
            say(f"{model.name}: {kind} made")
        except (Failed, OSError) as error:
            say(f"error: {model.name}: {kind}: {error}")
            code = 2
        manifest.save()
    return code
