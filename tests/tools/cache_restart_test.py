"""A server's cache on disk: found again after SIGTERM and after SIGKILL, by a second server beside it, by no other key; a full
disk costs time alone. Prints how long first tokens take.

    cache_restart_test.py BIN_DIR MODEL [--tokens N]
"""

import argparse
import json
import pathlib
import random
import resource
import signal
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "serving"))
from server import Server  # noqa: E402


def ask(server: Server, prompt: list[int], key: str = "") -> tuple[list, int, float]:
    """The text with its log probabilities, what was cached, and seconds."""
    started = time.monotonic()
    reply = json.loads(server.ask("/v1/completions", {"prompt": prompt, "max_tokens": 4, "temperature": 0, "logprobs": 2}, key))
    choice = reply["choices"][0]
    return [choice["text"], choice["logprobs"]], reply["usage"]["prompt_tokens_details"]["cached_tokens"], time.monotonic() - started


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
            return Server(a.bin_dir, a.model, *options, "--cache-dir", str(cache), *more)

        server = Server(a.bin_dir, a.model, *options)
        expected, cached, plain = ask(server, prompt)
        assert cached == 0
        server.end()
        server = start()
        first, cached, computing = ask(server, prompt)
        assert first == expected and cached == 0, (first, cached)
        second = start()  # beside it
        wait_for_files(cache)
        found, cached, _ = ask(second, prompt)
        assert found == expected and cached == a.tokens - 1, cached
        assert second.metric("loaded_tokens_total") == a.tokens - 1
        second.end()
        server.end()
        times = []
        for how in (signal.SIGTERM, signal.SIGKILL, signal.SIGKILL):
            server = start()
            found, cached, seconds = ask(server, prompt)
            assert found == expected and cached == a.tokens - 1, (how, cached)
            times.append(seconds)
            ask(server, [*prompt, 7, 8, 9])  # what is under way when it is killed
            server.end(how)
        size = sum(file.stat().st_size for file in cache.glob("*.kv"))
        print(f"{a.tokens} tokens, {size / 1e6:.1f} MB: {plain:.3f} s without a cache, {computing:.3f} s while it is written; "
              f"after a restart {', '.join(f'{seconds:.3f}' for seconds in times)} s ({max(times) / plain:.1%})")
        server = start("--cache-scope", "key")
        answers = [ask(server, prompt, key) for key in ("a", "b", "a")]
        assert all(text == expected for text, _, _ in answers)
        assert [cached for _, cached, _ in answers] == [0, 0, a.tokens - 1], answers
        server.end()
    with tempfile.TemporaryDirectory() as folder:
        # No file of a page can be written, as on a full disk.
        server = Server(a.bin_dir, a.model, "-t", a.threads, "--cache-dir", folder, preexec_fn=small_files)
        answers = [ask(server, prompt) for _ in range(2)]
        assert [text for text, _, _ in answers] == [expected, expected]
        log = server.end()
        assert log.count("--cache-dir: ") == 1, log
        assert not list(pathlib.Path(folder).iterdir())


if __name__ == "__main__":
    main()
