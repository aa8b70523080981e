"""`./dev nightly`: the command line. docs/nightly.md is its manual."""

import argparse
import dataclasses
import fnmatch
import os
import re
import shlex
import signal
import sys
from pathlib import Path

from . import bisect, download, history, lock, references, run, schedule
from .checks import CHECKS, perform
from .manifest import Manifest, ManifestError, Model, load
from .output import say
from .plan import build_of, git, machine_id, plan
from .resolve import Place, hub_of, resolve
from .results import FAIL, INFO, PASS, Result, Store


SKIPPED = 77  # exit code of `fetch` when a file cannot be had here, as Automake's and CTest's tests say it


class Usage(Exception):
    """A bad command line: exit code 2."""


def size(text: str) -> int:
    """Bytes of 512M, 6G or 1000000."""
    match = re.fullmatch(r"(\d+)([KMGT]?)", text)
    if not match:
        raise argparse.ArgumentTypeError(f"found {text!r}, need a number with K, M, G or T (powers of 1024)")
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}[match[2]]


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


def common_options() -> argparse.ArgumentParser:
    root = Path(__file__).resolve().parents[2]
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--lock", type=Path, default=root / "models/models.lock", help="which models there are")
    common.add_argument("--root", type=Path, default=root, help="the source tree")
    common.add_argument("--bin", type=Path, help="the tools (default: build/release/bin of the tree)")
    common.add_argument("--state", type=Path, help="cache, results, history (default: build/nightly of the tree)")
    common.add_argument("--hub", help="address of the hub (default: HF_ENDPOINT, else https://huggingface.co)")
    common.add_argument("--offline", action="store_true", help="ask no network; what is not cached is skipped")
    common.add_argument("--models", help="names or patterns, separated by commas (default: all)")
    common.add_argument("--threads", type=positive, help="of each program (default: CPUs / jobs)")
    common.add_argument("--timeout", type=positive, default=6 * 3600, help="seconds for each program")
    common.add_argument("--tries", type=positive, default=6, help="of a download without progress")
    common.add_argument("--backoff", type=float, default=1.0, help="seconds before the second try; doubled each time")
    return common


def parser() -> argparse.ArgumentParser:
    after = common_options()  # after a verb they replace what stands before it, and only when they are given
    for action in after._actions:
        action.default = argparse.SUPPRESS
    top = argparse.ArgumentParser(prog="./dev nightly", parents=[common_options()], description="The nightly regression job.")
    top.add_argument("--checks", help=f"of {', '.join(CHECKS)} (default: all)")
    top.add_argument("--jobs", type=positive, default=1, help="tasks at once")
    top.add_argument("--memory", type=size, help="for all tasks together, such as 6G (default: 80%% of what is free)")
    top.add_argument("--again", action="store_true", help="use no result of an earlier run")
    top.add_argument("--strict", action="store_true", help="a skipped check is one that could not run: exit code 2")
    top.add_argument("--ray", nargs="?", const="", metavar="ADDRESS", help="over a Ray cluster; without ADDRESS, a local one")
    verbs = top.add_subparsers(dest="verb", metavar="VERB", title="instead of a run")

    def verb(name: str, text: str, *more: argparse.ArgumentParser) -> argparse.ArgumentParser:
        return verbs.add_parser(name, parents=[after, *more], help=text, description=text)

    one = verb("lock", "fill models.lock: commits, sizes, hashes")
    one.add_argument("--update", action="store_true", default=False, help="replace what is pinned")
    one.add_argument("--no-fetch", action="store_true", default=False, help="believe the hub's hashes, download nothing")
    verb("fetch", "download the models into the cache; prints their paths")
    making = argparse.ArgumentParser(add_help=False)
    making.add_argument("--hf", metavar="DIR", help="a transformers checkpoint, the reference of layer-diff")
    making.add_argument("--only", help=f"of {', '.join(references.KINDS)}")
    making.add_argument("--again", action="store_true", help="make anew what is there")
    making.add_argument("--steps", type=positive, default=32, help="of each prompt of verify (default: 32)")
    making.add_argument("--reason", default="first references", help="noted in baselines")
    verb("references", "make and pin the frozen references of a model", making).add_argument("model")
    one = verb("add", "enter a file of one's own, and make its references; also --add", making)
    one.add_argument("file", type=Path)
    one.add_argument("--update", action="store_true", help="the file has changed: pin what it is now")
    one = verb("bisect", "find the commit that turned a check red")
    one.add_argument("good")
    one.add_argument("bad")
    one.add_argument("--build", default=bisect.BUILD, help="shell command that builds a commit")
    one.add_argument("--bin-of-build", default="build/release/bin", help="where it leaves the tools (default: %(default)s)")
    for each in (one, verb("step", "what bisect does with each commit: one check of the programs of --bin; 0, 1, or 125")):
        each.add_argument("--check", required=True, choices=list(CHECKS))
        each.add_argument("--model", required=True)
    verb("report", "write the last run's report anew from the history")
    return top


def place_of(args: argparse.Namespace) -> Place:
    root = args.root.resolve()
    return Place(root, (args.bin or root / "build/release/bin").resolve(), (args.state or root / "build/nightly").resolve(),
                 os.environ.get("LLM_PYTHON", sys.executable))


def client_of(args: argparse.Namespace) -> download.Client | None:
    return None if args.offline else download.Client(download.Patience(tries=args.tries, backoff=args.backoff))


def threads_of(args: argparse.Namespace) -> int:
    return args.threads or max(1, len(os.sched_getaffinity(0)) // getattr(args, "jobs", 1))


def with_family(manifest: Manifest, model: Model) -> Manifest:
    """The manifest of this model and the one it is held against."""
    names = {model.name, manifest.families.get(model.family, model.name)}
    return dataclasses.replace(manifest, models=[m for m in manifest.models if m.name in names])


def do_add(args: argparse.Namespace, manifest: Manifest, place: Place) -> int:
    """Enters a file of one's own into the local list, and makes its references."""
    path = args.file.resolve()
    name = re.sub(r"[^\w.-]+", "-", path.stem)
    model = next((m for m in manifest.models if m.path == str(path)), None)
    if model is None:
        if any(m.name == name for m in manifest.models):
            raise Usage(f"--add: found {path}, need a file whose name no other model has: {name}")
        model = Model(name, name, path=str(path))
        manifest.models.append(model)
    before = model.sha256
    lock.Locker(place, None, "", args.update).lock(model, False)
    if before and before != model.sha256:  # what was frozen is another file's
        model.references, model.figures = {}, {}
    if model.refused:
        raise Usage(f"--add: {path} is refused: llmgguf verify says why")
    manifest.save()
    return make_references(args, manifest, model, place)


def make_references(args: argparse.Namespace, manifest: Manifest, model: Model, place: Place) -> int:
    kinds = chosen(list(references.KINDS), args.only, "only")
    found = resolve(with_family(manifest, model), place, client_of(args), hub_of(args.hub))
    wish = references.Wish(args.hf, args.steps, args.reason, args.again, threads_of(args))
    return references.make(manifest, model, found, place, kinds, wish)


def do_bisect(args: argparse.Namespace, manifest: Manifest, place: Place) -> int:
    """Lock, model and references are those of this tree; only the programs are each commit's, which `step` tries."""
    manifest.model(args.model)
    tree = place.state / "bisect" / "tree"
    options = ["--root", place.root, "--lock", args.lock.resolve(), "--state", place.state, "--bin", tree / args.bin_of_build,
               "--timeout", args.timeout, "--threads", threads_of(args), *(["--offline"] if args.offline else []),
               *(["--hub", args.hub] if args.hub else [])]
    step = [sys.executable, "-B", "-m", "nightly", "step", "--check", args.check, "--model", args.model, *options]
    environment = f"PYTHONPATH={shlex.quote(str(Path(__file__).resolve().parents[1]))}"
    command = f"({args.build}) >/dev/null || exit {bisect.UNTESTABLE}; {environment} {shlex.join(map(str, step))}"
    return bisect.find(place.root, tree, command, args.good, args.bad)


def do_step(args: argparse.Namespace, manifest: Manifest, place: Place) -> int:
    """Of one commit's programs: 0 where the check is green, 1 where it is red. The result is kept, so that a bisection that was
    interrupted is quick when it is started again."""
    model = manifest.model(args.model)
    few = with_family(manifest, model)
    task = plan(few, resolve(few, place, client_of(args), hub_of(args.hub)), place, [model], [args.check])[0]
    try:
        build = dataclasses.replace(build_of(place), commit=git(place.bin, "rev-parse", "HEAD").strip())
    except OSError as error:
        say(f"no programs: {error}")
        return bisect.UNTESTABLE
    store, machine = Store(place.state / "results"), machine_id()
    key = task.key(build, machine)
    kept = Result(task.model, task.check, task.verdict, task.message) if task.verdict else store.get(key)
    result = kept or perform(task, place, threads_of(args), args.timeout, machine)
    store.put(key, result)
    say(f"{result.verdict}  {result.message}")
    return {PASS: 0, INFO: 0, FAIL: 1}.get(result.verdict, bisect.UNTESTABLE)


def do_run(args: argparse.Namespace, manifest: Manifest, place: Place, models: list[Model]) -> int:
    memory = args.memory or int(0.8 * schedule.available_memory())
    options = run.Options(models, chosen(list(CHECKS), args.checks, "checks"), hub_of(args.hub), client_of(args), args.jobs,
                          memory, threads_of(args), args.timeout, args.again, args.strict, args.ray is not None,
                          args.ray or None)
    return run.run(manifest, place, options)


def dispatch(args: argparse.Namespace) -> int:
    place = place_of(args)
    manifest = load(args.lock, place.local)
    if args.verb == "add":
        return do_add(args, manifest, place)
    names = chosen([m.name for m in manifest.models], args.models, "models")
    models = [m for m in manifest.models if m.name in names]
    if args.verb == "lock":
        client = client_of(args)
        if client is None:
            raise Usage("lock asks the hub: not with --offline")
        return lock.lock(manifest, models, lock.Locker(place, client, hub_of(args.hub), args.update), not args.no_fetch)
    if args.verb == "fetch":
        some = dataclasses.replace(manifest, models=models)
        found = resolve(some, place, client_of(args), hub_of(args.hub))
        for name, file in found.items():
            if file.status == "ready":
                print(place.path(file.name))
            else:
                say(f"error: {name}: {file.reason}")
        states = {file.status for file in found.values()} - {"ready"}
        return 1 if "wrong" in states else 2 if "error" in states else SKIPPED if states else 0
    if args.verb == "references":
        return make_references(args, manifest, manifest.model(args.model), place)
    if args.verb == "bisect":
        return do_bisect(args, manifest, place)
    if args.verb == "step":
        return do_step(args, manifest, place)
    if args.verb == "report":
        runs = history.load(place.state / "history.jsonl")
        if not runs:
            raise Usage(f"{place.state / 'history.jsonl'}: no run to report")
        print(run.write_reports(place, runs[-1]))
        return history.EXIT[runs[-1].verdict]
    return do_run(args, manifest, place, models)


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    args = parser().parse_args(["add" if argument == "--add" else argument for argument in sys.argv[1:]])
    try:
        return dispatch(args)
    except BlockingIOError:
        print("nightly: error: another run is at work in the same --state folder", file=sys.stderr)
    except (ManifestError, Usage, bisect.BisectError, lock.Conflict, OSError) as error:
        print(f"nightly: error: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        return 130
    return 2


if __name__ == "__main__":
    sys.exit(main())
