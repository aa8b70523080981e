"""Every request of tests/serving/agent_traces.py is answered, by models whose templates differ in what they take.

    agent_traces_test.py BIN_DIR MODEL
"""

import http.client
import json
import pathlib
import subprocess
import sys
import tempfile
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "serving"))
from agent_traces import AGENTS  # noqa: E402

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


def answer(host: str, path: str, body: dict) -> tuple[int, str]:
    connection = http.client.HTTPConnection(host, timeout=120)
    connection.request("POST", f"{path}?beta=true", json.dumps(body), {"Content-Type": "application/json"})
    reply = connection.getresponse()
    return reply.status, reply.read().decode()


def failures_of(host: str, agent: str) -> list[str]:
    failures = []
    requests = AGENTS[agent]()
    assert len(requests) == 60, f"{agent}: {len(requests)} requests"
    for i, (path, body) in enumerate(requests):
        body = {key: value for key, value in body.items() if key != "model"}
        status, text = answer(host, path, body)
        if status != 200 or '"type":"error"' in text:
            failures.append(f"{agent} {i}: {status} {text[:300]}")
    return failures


def main() -> int:
    bin_dir, model = map(pathlib.Path, sys.argv[1:3])
    failures = []
    for name, jinja in TEMPLATES.items():
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as template:
            template.write(jinja)
            template.flush()
            command = [bin_dir / "llmserve", model, "--port", "0", "-q", "-t", "1", "-c", "8192", "--max-tokens", "2",
                       "--chat-template", template.name]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
                host = urllib.parse.urlparse(process.stdout.readline().strip()).netloc
                assert host, process.stderr.read()
                for agent in AGENTS:
                    failures += [f"{name}: {failure}" for failure in failures_of(host, agent)]
                process.terminate()
                process.communicate(timeout=60)
                assert process.returncode == 0, f"llmserve ended with {process.returncode}"
    print("\n".join(failures) or "all answered")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
