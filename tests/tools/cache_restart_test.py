"""A server's cache on disk: found again after SIGTERM and after SIGKILL, by a second server beside it, by no other key; a full
disk costs time alone. Prints how long first tokens take.

    cache_restart_test.py BIN_DIR MODEL [--tokens N]
"""

import argparse
import http.client
import json
import pathlib
import random
import re
import resource
import signal
import subprocess
import tempfile
import time


class Server:
    def __init__(self, binary: pathlib.Path, model: str, *options: str, **process):
        self.process = subprocess.Popen([binary, model, "--port", "0", *options], stdout=subprocess.PIPE, text=True,
                                        stderr=subprocess.PIPE, **process)
        self.host = self.process.stdout.readline().strip().removeprefix("http://")
        assert self.host, self.process.communicate()

    def get(self, method: str, path: str, body: dict | None = None, key: str = "") -> str:
        connection = http.client.HTTPConnection(self.host, timeout=600)
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        connection.request(method, path, body and json.dumps(body), headers)
        reply = connection.getresponse()
        text = reply.read().decode()
        assert reply.status == 200, text
        return text

    def ask(self, prompt: list[int], key: str = "") -> tuple[list, int, float]:
        """The text with its log probabilities, what was cached, and seconds."""
        started = time.monotonic()
        body = {"prompt": prompt, "max_tokens": 4, "temperature": 0, "logprobs": 2}
        answer = json.loads(self.get("POST", "/v1/completions", body, key))
        seconds = time.monotonic() - started
        choice = answer["choices"][0]
        return [choice["text"], choice["logprobs"]], answer["usage"]["prompt_tokens_details"]["cached_tokens"], seconds

    def metric(self, name: str) -> int:
        return int(re.search(rf"^llmserve_{name}\{{.*\}} (\d+)$", self.get("GET", "/metrics"), re.MULTILINE)[1])

    def end(self, how: signal.Signals = signal.SIGTERM) -> str:
        self.process.send_signal(how)
        return self.process.communicate(timeout=60)[1]


def small_files() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))


def wait_for_files(directory: pathlib.Path) -> None:
    """Until the thread that writes has nothing to do."""
    before = -1
    while before != (now := len(list(directory.glob("*.kv")))):
        before = now
        time.sleep(0.3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin_dir", type=pathlib.Path)
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--threads", default="2")
    a = parser.parse_args()
    draw = random.Random(5)
    prompt = [draw.randrange(5, 200) for _ in range(a.tokens)]
    with tempfile.TemporaryDirectory() as folder:
        cache = pathlib.Path(folder, "cache")
        options = ("-t", a.threads)

        def start(*more: str) -> Server:
            return Server(a.bin_dir / "llmserve", a.model, *options, "--cache-dir", str(cache), *more)

        server = Server(a.bin_dir / "llmserve", a.model, *options)
        expected, cached, plain = server.ask(prompt)
        assert cached == 0
        server.end()
        server = start()
        first, cached, computing = server.ask(prompt)
        assert first == expected and cached == 0, (first, cached)
        second = start()  # beside it
        wait_for_files(cache)
        found, cached, _ = second.ask(prompt)
        assert found == expected and cached == a.tokens - 1, cached
        assert second.metric("loaded_tokens_total") == a.tokens - 1
        second.end()
        server.end()
        times = []
        for how in (signal.SIGTERM, signal.SIGKILL, signal.SIGKILL):
            server = start()
            found, cached, seconds = server.ask(prompt)
            assert found == expected and cached == a.tokens - 1, (how, cached)
            times.append(seconds)
            server.ask([*prompt, 7, 8, 9])  # what is under way when it is killed
            server.end(how)
        size = sum(file.stat().st_size for file in cache.glob("*.kv"))
        print(f"{a.tokens} tokens, {size / 1e6:.1f} MB: {plain:.3f} s without a cache, {computing:.3f} s while it is written; "
              f"after a restart {', '.join(f'{seconds:.3f}' for seconds in times)} s ({max(times) / plain:.1%})")
        server = start("--cache-scope", "key")
        answers = [server.ask(prompt, key) for key in ("a", "b", "a")]
        assert all(text == expected for text, _, _ in answers)
        assert [cached for _, cached, _ in answers] == [0, 0, a.tokens - 1], answers
        server.end()
    with tempfile.TemporaryDirectory() as folder:
        # No file of a page can be written, as on a full disk.
        server = Server(a.bin_dir / "llmserve", a.model, "-t", a.threads, "--cache-dir", folder, preexec_fn=small_files)
        answers = [server.ask(prompt) for _ in range(2)]
        assert [text for text, _, _ in answers] == [expected, expected]
        log = server.end()
        assert log.count("--cache-dir: ") == 1, log
        assert not list(pathlib.Path(folder).iterdir())


if __name__ == "__main__":
    main()
