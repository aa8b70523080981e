"""One nightly run: pytest runs a test for each model and check, and reports it; the run's line goes into the history."""

import dataclasses
import os
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from . import files, history
from .checks import perform
from .fetch import Place, Source, resolve, say
from .manifest import Manifest, Model
from .plan import build_of, machine_id, plan
from .results import ERROR, FAIL, SKIP, Result, Store, Task


@dataclass(frozen=True)
class Options:
    models: list[Model]
    checks: list[str]
    source: Source
    threads: int
    timeout: float  # seconds for each program
    again: bool = False
    strict: bool = False


class Job:
    """pytest's plugin: it makes the tests of suite.py, keeps their results and says in the end what changed."""

    def __init__(self, place: Place, tasks: list[Task], options: Options):
        self.place, self.tasks, self.options = place, tasks, options
        self.build, self.machine, self.store = build_of(place), machine_id(), Store(place.state / "results")
        self.started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self.results: dict[str, Result] = {}

    def result(self, task: Task) -> Result:
        """Decided, kept from an earlier run of the same programs and files, or made now."""
        key = task.key(self.build, self.machine)
        kept = None if self.options.again else self.store.get(key)
        if task.verdict:
            kept = Result(task.model, task.check, task.verdict, task.message)
        found = kept or perform(task, self.place, self.options.threads, self.options.timeout, self.machine)
        self.store.put(key, found)
        self.results[task.name] = found
        return found

    def record(self) -> history.RunRecord:
        identity = f"{self.started.replace(':', '')}-{self.build.commit[:8] or 'nogit'}"
        return history.RunRecord(identity, self.started, self.build.commit, self.build.tools, self.machine, self.options.strict,
                                 list(self.results.values()))

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        metafunc.parametrize("task", self.tasks, ids=[task.name.replace(" ", ":") for task in self.tasks])

    @pytest.fixture
    def result_of(self, task: Task, record_property) -> Result:
        """An error of the fixture is pytest's word for a test that could not run."""
        found = self.result(task)
        for name, value in found.figures.items():
            record_property(name, value)
        if found.verdict == ERROR:
            pytest.fail(f"{found.message}\n{found.details}", pytrace=False)
        return found

    def pytest_terminal_summary(self, terminalreporter) -> None:
        past = history.load(self.place.state / "history.jsonl")
        for reason, names in history.skipped(self.record()).items():
            terminalreporter.write_line(f"SKIP  {reason}\n      {', '.join(names)}")
        for line in history.since_green(past, self.record(), self.place.root):
            terminalreporter.write_line(line)


def judge(result: Result) -> None:
    """A result as pytest knows it."""
    if result.verdict == SKIP:
        pytest.skip(result.message)
    if result.verdict == FAIL:
        pytest.fail(f"{result.message}\n{result.details}", pytrace=False)


def run(manifest: Manifest, place: Place, options: Options) -> int:
    """The exit code: 0 green, 1 red, 2 when it could not run."""
    with files.locked(place.state / "run.lock", wait=False):
        needed = options.models + [manifest.model(manifest.families[m.family]) for m in options.models
                                   if "kld" in options.checks and m.family in manifest.families]
        some = dataclasses.replace(manifest, models=list({m.name: m for m in needed}.values()))
        job = Job(place, plan(some, resolve(some, place, options.source), place, options.models, options.checks), options)
        report = place.state / "junit.xml"
        pytest.main([str(Path(__file__).with_name("suite.py")), "-v", "-c", os.devnull, "-p", "no:cacheprovider",
                     f"--rootdir={place.state}",
                     f"--junitxml={report}", "-o", "junit_family=xunit1", "-o", "junit_logging=no"], plugins=[job])
        record = job.record()
        if len(job.results) != len(job.tasks):
            say("nightly: error: interrupted; what is done is kept")
            return 2
        files.write_json(place.state / "result.json", {**dataclasses.asdict(record), "verdict": record.verdict})
        history.add(place.state / "history.jsonl", record)
    print(f"{record.verdict}: {record.summary}\nreport: {report}")
    return history.EXIT[record.verdict]
