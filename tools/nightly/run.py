"""One nightly run: models, matrix, tasks, report. Killed at any point and started again, it gives the same report."""

import dataclasses
import hashlib
import json
import time
from dataclasses import dataclass
from pathlib import Path

from . import download, files, history, junit, page, schedule
from .manifest import Manifest, Model
from .output import say
from .plan import build_of, machine_id, plan
from .resolve import Place, resolve
from .results import Build, Result, Store, Task


@dataclass(frozen=True)
class Options:
    models: list[Model]
    checks: list[str]
    hub: str
    client: download.Client | None  # None: offline
    jobs: int
    memory: int  # bytes
    threads: int
    timeout: float  # seconds
    again: bool = False
    strict: bool = False
    ray: bool = False
    ray_address: str | None = None


def _utc() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _begin(place: Place, build: Build, machine: str, options: Options, manifest: Manifest) -> dict:
    """The unfinished run of the same plan, else a new one: {"id", "started", "not_before", "plan"}."""
    cells = [[m.name, c] for m in options.models for c in options.checks]
    locks = [files.sha256(path) for path in (manifest.path, manifest.local) if path and path.exists()]
    parts = [cells, build.commit, build.tools, machine, locks, options.strict, options.again]
    fingerprint = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    path = place.state / "current.json"
    try:
        current = json.loads(path.read_text())
        if current["plan"] == fingerprint:
            say(f"continuing the run of {current['started']}")
            return current
    except (OSError, ValueError, KeyError):
        pass
    started = _utc()
    identity = f"{started.replace(':', '')}-{build.commit[:8] or 'nogit'}"
    taken = {r.id for r in history.load(place.state / "history.jsonl")}
    number = next(n for n in range(1, 10000) if (f"{identity}-{n}" if n > 1 else identity) not in taken)
    current = {"id": f"{identity}-{number}" if number > 1 else identity, "started": started,
               "not_before": started if options.again else "", "plan": fingerprint}
    files.write_json(path, current)
    return current


def _work(tasks: list[Task], place: Place, build: Build, machine: str, options: Options,
          not_before: str) -> dict[str, Result]:
    """Every task's result: decided, kept from before, or made now."""
    store = Store(place.state / "results")
    results: dict[str, Result] = {}
    waiting = []
    for task in tasks:
        if task.verdict:
            results[task.name] = Result(task.model, task.check, task.verdict, task.message)
        elif kept := store.get(task.key(build, machine), not_before):
            results[task.name] = kept
        else:
            waiting.append(task)

    def done(task: Task, result: Result) -> None:
        store.put(task.key(build, machine), result)
        results[task.name] = result
        say(f"[{len(results)}/{len(tasks)}] {result.verdict:5} {task.name}  {result.seconds:.1f} s  {result.message}")

    say(f"{len(tasks)} checks: {sum(bool(t.verdict) for t in tasks)} cannot run, "
        f"{len(tasks) - len(waiting) - sum(bool(t.verdict) for t in tasks)} were done, {len(waiting)} to do")
    if options.ray and waiting:
        schedule.run_ray(waiting, place, build, address=options.ray_address, threads=options.threads,
                         timeout=options.timeout, done=done)
    elif waiting:
        schedule.run_local(waiting, place, jobs=options.jobs, memory=options.memory, threads=options.threads,
                           timeout=options.timeout, done=done)
    return results


def write_reports(place: Place, record: history.RunRecord) -> Path:
    """report.html, junit.xml and result.json of the run, and last its line in history.jsonl. Writing twice changes nothing."""
    folder = place.state / "runs" / record.id
    past = history.before(history.load(place.state / "history.jsonl"), record)
    files.write_atomically(folder / "report.html", page.render(record, past, place.root))
    files.write_atomically(folder / "junit.xml", junit.render(record))
    files.write_json(folder / "result.json", {**history.asdict(record), "verdict": record.verdict})
    for name in ("report.html", "junit.xml", "result.json"):
        files.write_atomically(place.state / name, (folder / name).read_bytes())
    history.add(place.state / "history.jsonl", record)
    return folder / "report.html"


def run(manifest: Manifest, place: Place, options: Options) -> int:
    """The exit code: 0 green, 1 red, 2 when it could not run."""
    with files.locked(place.state / "run.lock", wait=False):
        build, machine = build_of(place), machine_id()
        current = _begin(place, build, machine, options, manifest)
        needed = options.models + [manifest.model(manifest.families[m.family]) for m in options.models
                                   if "kld" in options.checks and m.family in manifest.families]
        some = dataclasses.replace(manifest, models=list({m.name: m for m in needed}.values()))
        found = resolve(some, place, options.client, options.hub)
        tasks = plan(some, found, place, options.models, options.checks)
        results = _work(tasks, place, build, machine, options, current["not_before"])
        record = history.RunRecord(current["id"], current["started"], build.commit, build.tools, machine,
                                   options.strict, [results[t.name] for t in tasks])
        report = write_reports(place, record)
        (place.state / "current.json").unlink(missing_ok=True)
    for reason, groups in history.skipped(record):
        say(f"SKIP  {reason}\n      " + "\n      ".join(groups))
    print(f"{record.verdict}: {record.summary}\nreport: {report}")
    return history.EXIT[record.verdict]
