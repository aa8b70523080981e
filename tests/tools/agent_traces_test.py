"""Every request of tests/serving/agent_traces.py, and of tests/clients/traces, is answered with its status and in its client's
protocol, by models whose templates differ in what they take; docs/clients.md tells of each client.

    agent_traces_test.py BIN_DIR MODEL
"""

import pathlib
import sys
import tempfile

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "serving"), str(TESTS / "clients")]
import jobs  # noqa: E402
import protocol  # noqa: E402
import traces  # noqa: E402
from agent_traces import AGENTS  # noqa: E402
from server import answer, serve  # noqa: E402

# A template that writes whatever it is given; one that refuses a system message which is not the first, as Qwen3.5's; one
# that has no system role and takes turns, as Gemma 2's.
TEMPLATES = {
    "plain": "{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}",
    "first": "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('first') }}{% endif %}"
             "[{{ m.role }}:{{ m.content }}]{% endfor %}",
    "turns": "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('none') }}{% endif %}"
             "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('turns') }}{% endif %}"
             "[{{ m.role }}:{{ m.content }}]{% endfor %}",
}


def all_requests() -> dict[str, list[tuple[str, dict, int]]]:
    """For each client path, body and status of its requests."""
    requests = {agent: [(path, body, 200) for path, body in shapes()] for agent, shapes in AGENTS.items()}
    assert all(len(shapes) == 60 for shapes in requests.values())
    for client, (_, recorded) in traces.load().items():
        requests[client] = [(one["path"], one["body"], one["status"]) for one in recorded]
    return requests


def failure_of(url: str, path: str, body: dict, status: int) -> str | None:
    found, text = answer(url, f"{path}?beta=true", {key: value for key, value in body.items() if key != "model"})
    if found != status:
        return f"{found}, need {status}: {text[:300]}"
    try:
        return protocol.check(path, body, status, text)
    except (AssertionError, LookupError, TypeError, ValueError) as error:
        return f"{error!r}, line {error.__traceback__.tb_next.tb_lineno}: {text[:1000]}"


def wrong_pages() -> list[str]:
    """What docs/clients.md does not say as the traces have it, and clients whose trace is of another version than is installed."""
    recorded, page = traces.load(), traces.PAGE.read_text().splitlines()
    wrong = [f"no trace of {client}: run.py --record" for client in jobs.JOBS if client not in recorded]
    for client, (head, requests) in recorded.items():
        job = jobs.JOBS[client]
        if traces.row(head) not in page or head["requests"] != len(requests) or head["what"] != job.what:
            wrong.append(f"docs/clients.md, {client}: need {traces.row(head)}")
        if head["version"] != job.pinned_version():
            wrong.append(f"{client}: {job.pinned_version()} is installed, the trace is of {head['version']}: run.py --record")
    return wrong


def main() -> int:
    bin_dir, model = map(pathlib.Path, sys.argv[1:3])
    failures = wrong_pages()
    requests = all_requests()
    for name, jinja in TEMPLATES.items():
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as template:
            template.write(jinja)
            template.flush()
            options = ["-t", "1", "-c", "8192", "--max-tokens", "12", "--chat-template", template.name]
            with serve(bin_dir, *options, model=model) as url:
                for client, shapes in requests.items():
                    for i, request in enumerate(shapes):
                        if failure := failure_of(url, *request):
                            failures.append(f"{name}: {client} {i}: {failure}")
    print("\n".join(failures) or "all answered")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
