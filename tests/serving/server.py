"""llmserve as scripts of the tests start it and ask it, and llmrun as what it is compared with."""

import atexit
import contextlib
import http.client
import json
import os
import pathlib
import signal
import subprocess
import time
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "models" / "fable-3m-q4_k_m.gguf"


def cached_model() -> pathlib.Path | None:
    """SmolLM2-135M-Instruct, where `./dev models fetch` has put it."""
    return next(iter(ROOT.glob("build/nightly/cache/sha256/*/SmolLM2-135M-Instruct.Q4_1.gguf")), None)


class Url(str):
    """The address of a server, and its process."""

    pid: int

    def processor_seconds(self) -> float:
        """What all of its threads have used."""
        fields = pathlib.Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def serve(bin_dir: pathlib.Path, *options: str, model: pathlib.Path | None = MODEL, **popen):
    """Yields the URL of a server on a free port, which has drained when this ends. Without a model the options name some."""
    command = [bin_dir / "llmserve", *([model] if model else []), "--port", "0", "-q", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **popen) as process:
        try:
            url = Url(process.stdout.readline().strip())
            url.pid = process.pid
            assert url.startswith("http://"), "llmserve did not start"
            yield url
        finally:
            process.terminate()
        assert process.wait(timeout=60) == 0, f"llmserve ended with {process.returncode}"


def answer(url: str, path: str, body: dict | bytes | None = None, key: str = "", timeout: float = 600) -> tuple[int, str]:
    """Status and text, whatever they are."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    data = json.dumps(body) if isinstance(body, dict) else body
    with contextlib.closing(http.client.HTTPConnection(urllib.parse.urlparse(url).netloc, timeout=timeout)) as connection:
        connection.request("GET" if body is None else "POST", path, data, headers)
        reply = connection.getresponse()
        return reply.status, reply.read().decode()


class Server:
    """llmserve on a free port, whose end and words are looked at."""

    def __init__(self, bin_dir: pathlib.Path, model: pathlib.Path, *options: str, **popen):
        self.process = subprocess.Popen([bin_dir / "llmserve", model, "--port", "0", *options], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, **popen)
        atexit.register(self.process.kill)
        self.url = self.process.stdout.readline().strip()
        assert self.url, self.process.communicate()

    def ask(self, path: str, body: dict | None = None, key: str = "") -> str:
        status, text = answer(self.url, path, body, key)
        assert status == 200, text
        return text

    def metric(self, name: str) -> int:
        return int(metric(self.url, name))

    def comes_to(self, name: str, value: int) -> None:
        for _ in range(3000):
            if self.metric(name) == value:
                return
            time.sleep(0.01)
        raise AssertionError((name, value, self.metric(name)))

    def end(self, how: signal.Signals = signal.SIGTERM) -> str:
        """What it has said on stderr."""
        self.process.send_signal(how)
        errors = self.process.communicate(timeout=60)[1]
        assert self.process.returncode == (0 if how == signal.SIGTERM else -how), errors
        return errors


def post(url: str, path: str, body: dict):
    """The answer's headers and JSON."""
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        return answer.headers, json.load(answer)


def get(url: str, path: str) -> str:
    with urllib.request.urlopen(url + path, timeout=60) as answer:
        return answer.read().decode()


def metric(url: str, name: str, key: str = "") -> float:
    """A figure, of all models together."""
    request = urllib.request.Request(url + "/metrics", headers={"Authorization": f"Bearer {key}"} if key else {})
    with urllib.request.urlopen(request, timeout=60) as answer:
        lines = [line.rsplit(" ", 1) for line in answer.read().decode().splitlines()]
    values = [float(value) for start, value in lines if start.split("{")[0] == f"llmserve_{name}"]
    if not values:
        raise KeyError(name)
    return sum(values)


def run_alone(bin_dir: pathlib.Path, body: dict):
    """What llmrun makes of a request for a completion: its JSON and its logits hash."""
    command = [bin_dir / "llmrun", MODEL, "-t", "1", "--json", "--logits-hash", "-p", body["prompt"]]
    command += ["-n", str(body["max_tokens"]), "-s", str(body["seed"]), "--logprobs", str(body["logprobs"])]
    for option, field, absent in (
        ("--temp", "temperature", 1),
        ("--top-k", "top_k", 0),
        ("--top-p", "top_p", 1),
        ("--min-p", "min_p", 0),
    ):
        command += [option, str(body.get(field, absent))]
    for stop in body.get("stop", []):
        command += ["-r", stop]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(run.stdout), run.stderr.split("logits-sha256: ")[1][:64]
