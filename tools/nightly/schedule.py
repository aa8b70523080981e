"""Runs independent tasks: in processes of this machine within a memory budget, or on a Ray cluster."""

import concurrent.futures
import os
from pathlib import Path
from typing import Callable

from .checks import CHECKS, perform
from .plan import build_of, machine_id
from .resolve import Place
from .results import ERROR, SKIP, Build, Result, Task

Done = Callable[[Task, Result], None]


def available_memory() -> int:
    """Bytes that programs may take without swapping."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def run_local(tasks: list[Task], place: Place, *, jobs: int, memory: int, threads: int, timeout: float,
              done: Done) -> None:
    """Calls `done` in this thread as each task ends. The estimates of tasks that run together never exceed `memory`; a task
    that needs more by itself is skipped by name. Checks that measure time run last, one at a time."""
    machine = machine_id()
    waiting = []
    for task in sorted(tasks, key=lambda t: CHECKS[t.check].alone):
        if task.memory > memory:
            done(task, Result(task.model, task.check, SKIP,
                              f"needs {task.memory >> 20} MiB, --memory allows {memory >> 20}"))
        else:
            waiting.append(task)
    running: dict[concurrent.futures.Future, Task] = {}
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        while waiting or running:
            for task in list(waiting):
                alone = CHECKS[task.check].alone
                free = memory - sum(t.memory for t in running.values())
                if len(running) >= jobs or (alone and running):
                    break
                if task.memory <= free and not any(CHECKS[t.check].alone for t in running.values()):
                    running[pool.submit(perform, task, place, threads, timeout, machine)] = task
                    waiting.remove(task)
            ended, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in ended:
                done(running.pop(future), future.result())


def _perform_on_node(task: Task, place: Place, build: Build, threads: int, timeout: float) -> Result:
    """What a Ray worker does: the same as a local process, once it is sure to have the same programs and files."""
    from . import files
    machine = machine_id()
    try:
        here = build_of(place)
        if here.tools != build.tools:
            raise OSError(f"{place.bin}: programs {here.tools}, need {build.tools}")
        for name, sha in task.inputs.values():
            if name and files.sha256(place.path(name)) != sha:
                raise OSError(f"{name}: not the file of SHA-256 {sha}")
    except OSError as error:
        return Result(task.model, task.check, ERROR, f"{os.uname().nodename}: {error}", machine=machine)
    return perform(task, place, threads, timeout, machine)


def run_ray(tasks: list[Task], place: Place, build: Build, *, address: str | None, threads: int, timeout: float,
            done: Done) -> None:
    """The same over a Ray cluster; `address` None starts one on this machine. A task whose machine dies runs again elsewhere."""
    import ray

    ray.init(address=address, log_to_driver=False, configure_logging=False,
             runtime_env={"env_vars": {"PYTHONPATH": str(Path(__file__).resolve().parents[1])}})
    try:
        largest = max(int(node["Resources"].get("memory", 0)) for node in ray.nodes() if node["Alive"])
        for task in [t for t in tasks if t.memory > largest]:  # Ray would wait for such a machine
            done(task, Result(task.model, task.check, SKIP,
                              f"needs {task.memory >> 20} MiB, the largest machine offers {largest >> 20}"))
        remote = ray.remote(num_cpus=1, max_retries=5, scheduling_strategy="SPREAD")(_perform_on_node)
        for group in (False, True):  # what measures time comes last
            some = [t for t in tasks if CHECKS[t.check].alone == group and t.memory <= largest]
            waiting = {remote.options(memory=t.memory).remote(t, place, build, threads, timeout): t for t in some}
            while waiting:
                for reference in ray.wait(list(waiting), num_returns=1)[0]:
                    task = waiting.pop(reference)
                    try:
                        result = ray.get(reference)
                    except ray.exceptions.RayError as error:
                        result = Result(task.model, task.check, ERROR, f"Ray: {str(error).splitlines()[0]}")
                    done(task, result)
    finally:
        ray.shutdown()
