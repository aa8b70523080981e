"""`./dev nightly`: the command line. docs/nightly.md is its manual."""

import argparse
import dataclasses
import fnmatch
import os
import re
import signal
import sys
from pathlib import Path

from . import lock, references, run
from .checks import CHECKS
from .fetch import HUB, Place, Source, resolve, say
from .manifest import Manifest, ManifestError, Model, load


SKIPPED = 77  # exit code of `fetch` when a file cannot be had here, as Automake's and CTest's tests say it


class Usage(Exception):
    """A bad command line: exit code 2."""


def positive(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"found {text!r}, need a number from 1 on")
    return int(text)


def chosen(names: list[str], patterns: str | None, what: str) -> list[str]:
    """The names that one of the comma-separated patterns matches, in their own order."""
    if patterns is None:
        return names
    parts = patterns.split(",")
    for part in parts:
        if not fnmatch.filter(names, part):
            raise Usage(f"--{what}: found {part!r}, need one of {', '.join(names)}, or a pattern of them")
    return [n for n in names if any(fnmatch.fnmatchcase(n, p) for p in parts)]


def parser() -> argparse.ArgumentParser:
    root = Path(__file__).resolve().parents[2]
    top = argparse.ArgumentParser(prog="./dev nightly", description="The nightly regression job.")
    top.add_argument("verb", nargs="?", default="run", choices=("run", "lock", "fetch", "references", "add"), help="lock: fill "
                     "models.lock; fetch: download the models, print their paths; references MODEL: make and pin its frozen references; "
                     "add FILE: enter a file of one's own, and make its references; also --add")
    top.add_argument("target", nargs="?", help="of references: a model; of add: a file")
    top.add_argument("--lock", type=Path, default=root / "models/models.lock", help="which models there are")
    top.add_argument("--root", type=Path, default=root, help="the source tree")
    top.add_argument("--bin", type=Path, help="the tools (default: build/release/bin of the tree)")
    top.add_argument("--state", type=Path, help="cache, results, history (default: build/nightly of the tree)")
    top.add_argument("--hub", help="address of the hub (default: HF_ENDPOINT, else https://huggingface.co)")
    top.add_argument("--offline", action="store_true", help="ask no network; what is not cached is skipped")
    top.add_argument("--models", help="names or patterns, separated by commas (default: all)")
    top.add_argument("--threads", type=positive, help="of each program (default: CPUs)")
    top.add_argument("--timeout", type=positive, default=6 * 3600, help="seconds for each program")
    top.add_argument("--tries", type=positive, default=6, help="of a package's file, each a second or more after the one before")
    top.add_argument("--checks", help=f"of {', '.join(CHECKS)} (default: all)")
    top.add_argument("--again", action="store_true", help="use no result of an earlier run; of references: make all")
    top.add_argument("--strict", action="store_true", help="a skipped check is one that could not run: exit code 2")
    top.add_argument("--update", action="store_true", help="of lock and add: replace what is pinned")
    top.add_argument("--no-fetch", action="store_true", help="of lock: trust the hub's hashes, download nothing")
    top.add_argument("--hf", metavar="DIR", help="of references and add: a transformers checkpoint, the reference of layer-diff")
    top.add_argument("--only", help=f"of references and add: of {', '.join(references.KINDS)}")
    top.add_argument("--steps", type=positive, default=32, help="of references and add: of each prompt of verify (default: 32)")
    top.add_argument("--reason", default="first references", help="of references and add: noted in baselines")
    return top


def place_of(args: argparse.Namespace) -> Place:
    root = args.root.resolve()
    return Place(root, (args.bin or root / "build/release/bin").resolve(), (args.state or root / "build/nightly").resolve(),
                 os.environ.get("LLM_PYTHON", sys.executable))


def source_of(args: argparse.Namespace) -> Source:
    return Source((args.hub or os.environ.get("HF_ENDPOINT") or HUB).rstrip("/"), args.offline, args.tries)


def threads_of(args: argparse.Namespace) -> int:
    return args.threads or len(os.sched_getaffinity(0))


def with_family(manifest: Manifest, model: Model) -> Manifest:
    """The manifest of this model and the one it is compared with."""
    names = {model.name, manifest.families.get(model.family, model.name)}
    return dataclasses.replace(manifest, models=[m for m in manifest.models if m.name in names])


def do_add(args: argparse.Namespace, manifest: Manifest, place: Place) -> int:
    """Enters a file of one's own into the local list, and makes its references."""
    path = Path(args.target).resolve()
    name = re.sub(r"[^\w.-]+", "-", path.stem)
    model = next((m for m in manifest.models if m.path == str(path)), None)
    if model is None:
        if any(m.name == name for m in manifest.models):
            raise Usage(f"--add: found {path}, need a file whose name no other model has: {name}")
        model = Model(name, name, path=str(path))
        manifest.models.append(model)
    before = model.sha256
    lock.Locker(place, source_of(args), args.update).lock(model, False)
    if before and before != model.sha256:  # what was frozen is another file's
        model.references, model.figures = {}, {}
    if model.refused:
        raise Usage(f"--add: {path} is refused: llmgguf verify says why")
    manifest.save()
    return make_references(args, manifest, model, place)


def make_references(args: argparse.Namespace, manifest: Manifest, model: Model, place: Place) -> int:
    kinds = chosen(list(references.KINDS), args.only, "only")
    found = resolve(with_family(manifest, model), place, source_of(args))
    wish = references.Wish(args.hf, args.steps, args.reason, args.again, threads_of(args))
    return references.make(manifest, model, found, place, kinds, wish)


def do_run(args: argparse.Namespace, manifest: Manifest, place: Place, models: list[Model]) -> int:
    return run.run(manifest, place, run.Options(models, chosen(list(CHECKS), args.checks, "checks"), source_of(args), threads_of(args),
                                                args.timeout, args.again, args.strict))


def dispatch(args: argparse.Namespace) -> int:
    place = place_of(args)
    manifest = load(args.lock, place.local)
    if (args.target is not None) != (args.verb in ("references", "add")):
        raise Usage(f"{args.verb}: found {args.target}, need {'none' if args.target else 'a model or a file'}")
    if args.verb == "add":
        return do_add(args, manifest, place)
    names = chosen([m.name for m in manifest.models], args.models, "models")
    models = [m for m in manifest.models if m.name in names]
    if args.verb == "lock":
        if args.offline:
            raise Usage("lock asks the hub: not with --offline")
        return lock.lock(manifest, models, lock.Locker(place, source_of(args), args.update), not args.no_fetch)
    if args.verb == "fetch":
        some = dataclasses.replace(manifest, models=models)
        found = resolve(some, place, source_of(args))
        for name, file in found.items():
            if file.status == "ready":
                print(place.path(file.name))
            else:
                say(f"error: {name}: {file.reason}")
        states = {file.status for file in found.values()} - {"ready"}
        return 1 if "wrong" in states else 2 if "error" in states else SKIPPED if states else 0
    if args.verb == "references":
        return make_references(args, manifest, manifest.model(args.target), place)
    return do_run(args, manifest, place, models)


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    args = parser().parse_intermixed_args(["add" if argument == "--add" else argument for argument in sys.argv[1:]])
    try:
        return dispatch(args)
    except BlockingIOError:
        print("nightly: error: another run is at work in the same --state folder", file=sys.stderr)
    except (ManifestError, Usage, lock.Conflict, OSError) as error:
        print(f"nightly: error: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        return 130
    return 2


if __name__ == "__main__":
    sys.exit(main())
