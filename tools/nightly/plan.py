"""The matrix: one independent task for each model and check, or the reason why there is none."""

import hashlib
import platform
import re
import subprocess
from pathlib import Path

from . import files
from .checks import CHECKS
from .manifest import Manifest, Model
from .fetch import File, Place
from .results import ERROR, FAIL, SKIP, Build, Task

TOOLS = ("llmcheck", "llmgguf", "llmbench", "llmrun", "llmtok")


def _undecided(model: Model, check: str, file: File) -> Task:
    """The task of a model that is not there as pinned."""
    if file.status == "error":
        return Task(model.name, check, verdict=ERROR, message=file.reason)
    if file.status == "wrong" and (check == "integrity" or CHECKS[check].folder):
        return Task(model.name, check, verdict=FAIL, message=file.reason)
    reason = "not the pinned file (see integrity)" if file.status == "wrong" else file.reason
    return Task(model.name, check, verdict=SKIP, message=reason)


def _task(model: Model, check: str, manifest: Manifest, found: dict[str, File], place: Place) -> Task:
    file = found[model.name]
    if file.status != "ready":
        return _undecided(model, check, file)
    inputs = {"model": [file.name, file.sha256]}
    if check == "integrity" and model.root:
        inputs["root"] = ["", model.root]
    if check in ("ppl", "kld", "quality"):
        text = f"root/{manifest.text}"
        inputs["text"] = [text, files.sha256(place.path(text))]
    if check == "kld":
        other = manifest.families[model.family]
        if found[other].status != "ready":
            return Task(model.name, check, verdict=SKIP, message=f"{other}: {found[other].reason}")
        inputs["family"] = [found[other].name, found[other].sha256]
    manifest_here = "manifest" in model.references and place.path(model.references["manifest"]["path"]).exists()
    optional = ("manifest",) if check == "integrity" and manifest_here else ()
    for kind in (*CHECKS[check].needs, *optional):
        reference = model.references.get(kind)
        if reference is None or not (path := place.path(reference["path"])).exists():
            what = f"no {kind} reference" if reference is None else f"{reference['path']} is not here"
            return Task(model.name, check, verdict=SKIP, message=f"{what}: ./dev nightly references {model.name}")
        actual = files.sha256(path)
        if (need := reference.get("sha256", actual)) != actual:
            reason = f"{reference['path']}: SHA-256: found {actual}, need {need} (models.lock)"
            return Task(model.name, check, verdict=ERROR, message=reason)
        inputs[kind] = [reference["path"], actual]
    if script := CHECKS[check].script:
        if not (path := place.path(script)).exists():
            return Task(model.name, check, verdict=SKIP, message=f"{script} is not here")
        inputs["script"] = [script, files.sha256(path)]
    return Task(model.name, check, inputs, model.figures.get(check, {}), model.refused)


def _applies(check: str, model: Model, manifest: Manifest) -> bool:
    """Folders have the checks of folders. The model with which its family is compared has no `kld`; `real` is for those that have
    its reference."""
    if CHECKS[check].folder or model.folder:
        return CHECKS[check].folder and model.folder is not None
    if check == "kld":
        return manifest.families.get(model.family, model.name) != model.name
    return check != "real" or check in model.references


def plan(manifest: Manifest, found: dict[str, File], place: Place, models: list[Model], checks: list[str]) -> list[Task]:
    """The tasks of these models and checks, model by model."""
    return [_task(model, check, manifest, found, place) for model in models for check in checks if _applies(check, model, manifest)]


def git(root: Path, *arguments: str) -> str:
    """@throws subprocess.CalledProcessError"""
    return subprocess.run(["git", "-C", str(root), *arguments], check=True, capture_output=True, text=True,
                          errors="replace").stdout


def build_of(place: Place) -> Build:
    """@throws OSError when a tool is missing"""
    digest = hashlib.sha256()
    for tool in TOOLS:
        digest.update(files.sha256(place.bin / tool).encode())
    try:
        commit = git(place.root, "rev-parse", "HEAD").strip()
        changes = git(place.root, "diff", "HEAD")
    except (OSError, subprocess.CalledProcessError):
        return Build("", digest.hexdigest()[:16])
    dirty = f"+{hashlib.sha256(changes.encode()).hexdigest()[:8]}" if changes else ""
    return Build(commit + dirty, digest.hexdigest()[:16])


def machine_id() -> str:
    """CPU model, and a hash of what it can do: two machines of one id run the same code."""
    try:
        info = Path("/proc/cpuinfo").read_text()
    except OSError:
        info = ""
    name = re.search(r"^model name\s*:\s*(.*)$", info, re.M)
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", info, re.M)
    features = hashlib.sha256((flags.group(1) if flags else "").encode()).hexdigest()[:8]
    return f"{name.group(1).strip() if name else platform.machine()} ({features})"
