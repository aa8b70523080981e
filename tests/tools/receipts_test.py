#!/usr/bin/env python3
"""Many receipts verified at once, and logs of receipts, both falsified one thing at a time.

    python3 tests/tools/receipts_test.py BIN_DIR MODEL.gguf

Lines of logs are checked by openssl and hashlib, too, as docs/receipts.md says. Exit code 0, or an assertion.
"""

import base64
import copy
import hashlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "serving"))
from server import Server  # noqa: E402

BIN, MODEL = Path(sys.argv[1]), Path(sys.argv[2]).resolve()
SETTINGS = [["--temp", "0"], [], ["--temp", "0.9", "--top-k", "30", "--top-p", "0.9"], ["--temp", "1.5", "--top-k", "0", "--min-p", "0.02"],
            ["--repeat-penalty", "1.3", "--repeat-last-n", "9", "--sampler-order", "llamacpp"], ["--kv", "q8"], ["--kv", "f32", "--compute", "f32"],
            ["-r", "the", "-r", "."], ["-c", "24", "--ignore-eos"], ["--chat-template", "zephyr", "--system", "Be kind"]]
PROMPTS = ["Once upon a time", "The dog", "", "Nora said: \"Come here", "One day, a little girl went to the sea and saw a boat."]


def llmcheck(*arguments, code: int) -> dict:
    """The report of a run that ends with that code; its checks by their names."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        run = subprocess.run([BIN / "llmcheck", *arguments, "-t", "2", "--report", report], capture_output=True, text=True)
        assert run.returncode == code, (code, run.returncode, run.stdout, run.stderr)
        found = json.loads(report.read_text())
    return {check["name"]: check for check in found["checks"]} | {"facts": found["facts"]}


def faults(report: dict) -> dict:
    """What does not pass, but for the check of all."""
    return {name: check["detail"] for name, check in report.items()
            if name != "facts" and check["verdict"] != "PASS" and not name.startswith("receipts:")}


def test_batch(folder: Path) -> None:
    made = folder / "made"
    made.mkdir()
    for i in range(64):
        setting = SETTINGS[i % len(SETTINGS)]
        n = "1" if i % 13 == 0 else str(10 + i)
        subprocess.run([BIN / "llmrun", MODEL, "-q", "-t", "1", "-p", PROMPTS[i % len(PROMPTS)], "-n", n, "-s", str(i), *setting, "--receipt",
                        made / f"r{i:02}.json"], check=True, stdout=subprocess.DEVNULL)
    receipts = {path.name: json.loads(path.read_text()) for path in sorted(made.iterdir())}
    report = llmcheck(MODEL, "--replay", made, code=0)
    assert report["receipts: the model produces their outputs"]["detail"] == "64 of 64", report
    assert len(report) == 2, report
    # Fewer passes than texts: they are evaluated together.
    assert int(report["facts"]["replayed"].split(", ")[1].split()[0]) < 32, report["facts"]

    changed = copy.deepcopy(receipts)
    changed["r10.json"]["ids"][5] ^= 1
    changed["r12.json"]["options"]["seed"] = 99
    changed["r20.json"]["drawn_logits_sha256"] = "a" * 64
    changed["r23.json"]["options"]["top_k"] = 1
    changed["r25.json"]["options"]["kv"] = "f16"
    changed["r31.json"]["text"] += "!"
    changed["r33.json"]["contract_version"] = 99
    changed["r34.json"]["model"]["sha256"] = "b" * 64
    changed["r40.json"]["prompt_ids"][-1] = 10 ** 6
    changed["r41.json"]["format"] = "other"
    named = {name for name in receipts if changed[name] != receipts[name]}
    for name in named:
        (made / name).write_text(json.dumps(changed[name]))
    report = llmcheck("--replay", made, MODEL, code=1)
    assert report["receipts: the model produces their outputs"]["detail"] == "54 of 64", report
    found = faults(report)
    assert {name.split(":")[0] for name in found} == named, found
    assert "seed 12 would give its tokens" in found["r12.json: tokens"], found
    for name in named:  # the same as alone
        alone = subprocess.run([BIN / "llmcheck", MODEL, "--replay", made / name, "-t", "1"], capture_output=True, text=True)
        if f"{name}: can be checked" in found:
            assert alone.returncode in (3, 6, 8) and report[f"{name}: can be checked"]["verdict"] == "UNDECIDED", (name, alone)
            assert found[f"{name}: can be checked"].split(": ", 1)[1][:40] in alone.stderr, (found, alone.stderr)
        else:
            of_one = faults(llmcheck(MODEL, "--replay", made / name, code=1))
            of_all = {key: detail for key, detail in found.items() if key.startswith(name)}
            assert {f"{name}: {key.removeprefix('receipt: ')}": detail for key, detail in of_one.items()} == of_all, (of_one, of_all)
    for name in named - {"r33.json", "r41.json"}:
        (made / name).write_text(json.dumps(receipts[name]))
    report = llmcheck("--replay", made, MODEL, code=9)  # nothing failed, and not all could be checked
    assert len(faults(report)) == 2, report


def serve(*arguments, limit: int = resource.RLIM_INFINITY) -> Server:
    # Python ignores SIGXFSZ, and so does what it starts: a write beyond the limit is refused as on a full disk.
    return Server(BIN, MODEL, "-t", "1", "--chat-template", "zephyr", *arguments, restore_signals=False,
                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY)))


def serve_some(server: Server) -> None:
    """Ten texts of all APIs, two with a page of equal tokens, which is evaluated once; an embedding has no receipt."""
    message = {"messages": [{"role": "user", "content": "Tell me of a \"boat\""}]}
    server.ask("/v1/completions", {"prompt": ["The dog", "A cat"], "n": 2, "max_tokens": 9, "seed": 4})
    server.ask("/v1/chat/completions", {**message, "max_tokens": 12, "stream": True, "temperature": 0})
    server.ask("/v1/responses", {"input": "hello", "max_output_tokens": 16})
    server.ask("/v1/messages", {**message, "max_tokens": 8})
    server.ask("/api/generate", {"prompt": "The hat", "stream": False, "options": {"num_predict": 7}})
    for text in ("A dog", "A cat"):
        server.ask("/v1/completions", {"prompt": "She went to the sea and saw a little boat. " * 28 + text, "max_tokens": 6})
    assert server.metric("kv_pages_shared_total") >= 1
    server.ask("/v1/embeddings", {"input": "a text"})


def key_pair(folder: Path, name: str) -> tuple[Path, Path]:
    secret, public = folder / f"{name}.pem", folder / f"{name}.pub"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", secret], check=True)
    subprocess.run(["openssl", "pkey", "-in", secret, "-pubout", "-out", public], check=True)
    return secret, public


def check_by_openssl(folder: Path, lines: list[bytes], public: Path) -> None:
    previous = "0" * 64
    for number, line in enumerate(lines, 1):
        parsed = json.loads(line)
        assert (parsed["format"], parsed["number"], parsed["previous"]) == ("llm-receipt-log/1", number, previous)
        message, _, signature = line.rpartition(b',"signature":"')
        (folder / "message").write_bytes(message)
        (folder / "signature").write_bytes(base64.b64decode(signature.removesuffix(b'"}\n'), validate=True))
        subprocess.run(["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", public, "-rawin", "-in", folder / "message", "-sigfile",
                        folder / "signature"], check=True, stdout=subprocess.DEVNULL)
        previous = hashlib.sha256(line).hexdigest()


def signed_anew(folder: Path, line: bytes, secret: Path) -> bytes:
    message = line.rpartition(b',"signature":"')[0]
    (folder / "message").write_bytes(message)
    signature = subprocess.run(["openssl", "pkeyutl", "-sign", "-inkey", secret, "-rawin", "-in", folder / "message"], check=True,
                               stdout=subprocess.PIPE).stdout
    return message + b',"signature":"' + base64.b64encode(signature) + b'"}\n'


def test_log(folder: Path) -> None:
    secret, public = key_pair(folder, "key")
    other, _ = key_pair(folder, "other")
    log = folder / "logs" / "receipts.jsonl"
    options = ["--receipts", log.parent, "--receipt-key", secret]
    server = serve(*options)
    serve_some(server)
    second = subprocess.run([BIN / "llmserve", MODEL, "--port", "0", *options], capture_output=True, text=True, timeout=60)
    assert second.returncode == 4 and "another process" in second.stderr, second
    server.end()
    first_head = hashlib.sha256(log.read_bytes().splitlines(True)[-1]).hexdigest()
    with log.open("ab") as file:
        file.write(b'{"format":"llm-rece')  # as a crash leaves it
    server = serve(*options)
    serve_some(server)
    errors = server.end()
    assert "line 11: found 19 bytes without a line break after a crash; removed" in errors, errors
    lines = log.read_bytes().splitlines(True)
    assert len(lines) == 20, lines
    head = hashlib.sha256(lines[-1]).hexdigest()
    check_by_openssl(folder, lines, public)
    log.chmod(0o400)
    report = llmcheck("--receipt-log", log.parent, "--public-key", public, "--log-head", first_head, code=0)
    assert f"20 lines, head {head}" in report["receipt log: chain"]["detail"], report
    report = llmcheck(MODEL, "--replay", log, code=0)
    assert report["receipts: the model produces their outputs"]["detail"] == "20 of 20", report

    def must_fail(changed: list[bytes], *need: str, known: str = head) -> None:
        copied = folder / "copy.jsonl"
        copied.write_bytes(b"".join(changed))
        found = faults(llmcheck("--receipt-log", copied, "--public-key", public, "--log-head", known, code=1))
        assert all(any(word in f"{name}: {detail}" for name, detail in found.items()) for word in need), (need, found)

    altered = lines[6].replace(b'"seed":', b'"seed":1', 1)
    must_fail(lines[:4] + lines[5:], "chain: line 5: number: found 6, need 5")
    must_fail(lines[:4] + [lines[5], lines[4]] + lines[6:], "chain: line 5: number: found 6, need 5", "line 6: number: found 5, need 7")
    must_fail(lines[:6] + [altered] + lines[7:], "signatures: line 7: signature: it is not this key's", "chain: line 8: previous: found ", "of line 7")
    must_fail(lines[:4] + [lines[3]] + lines[4:], "chain: line 5: number: found 4, need 5")
    must_fail(lines[:6] + [signed_anew(folder, altered, other)] + lines[7:], "signatures: line 7: signature: it is not this key's")
    must_fail(lines[:6] + [altered[:altered.rindex(b',"signature"')] + b"}\n"] + lines[7:], "signatures: line 7: signature: found none")
    must_fail(lines[:-2], f"known head: found no line of SHA-256 {head}")
    must_fail(lines[:-1] + [lines[-1][:-5]], "chain: line 20: ", "without a line break")
    must_fail([b"no json\n"] + lines[1:], "chain: line 1: ")
    # Without a key the chain shows a change of what is not the last line.
    (folder / "copy.jsonl").write_bytes(b"".join(lines[:6] + [altered] + lines[7:]))
    assert "line 8: previous" in faults(llmcheck("--receipt-log", folder / "copy.jsonl", code=1))["receipt log: chain"]
    # A text that was changed and signed with the server's own key is still no text of the model.
    (folder / "copy.jsonl").write_bytes(b"".join(lines[:6] + [signed_anew(folder, altered, secret)] + lines[7:]))
    assert {name.split(":")[1] for name in faults(llmcheck(MODEL, "--replay", folder / "copy.jsonl", code=1))} == {"7"}


def test_full_disk(folder: Path) -> None:
    """The server goes on, and so does its log when there is room again; without a key it is a chain alone."""
    log = folder / "full" / "receipts.jsonl"
    server = serve("--receipts", log.parent, limit=3000)
    for i in range(6):
        server.ask("/v1/completions", {"prompt": "The dog", "max_tokens": 5, "seed": i})
    for _ in range(3000):
        logged, lost = server.metric("receipts_logged_total"), server.metric("receipts_lost_total")
        if logged + lost == 6:
            break
        time.sleep(0.01)
    assert 0 < logged < 6 and logged + lost == 6, (logged, lost)
    assert len(log.read_bytes().splitlines()) == logged and log.read_bytes().endswith(b"\n")
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    server.ask("/v1/completions", {"prompt": "The dog", "max_tokens": 5})
    server.comes_to("receipts_logged_total", logged + 1)
    errors = server.end()
    assert errors.count("receipts are lost from here on") == 1 and "File too large" in errors and "receipts are written again" in errors, errors
    report = llmcheck("--receipt-log", log.parent, code=0)
    assert f"{logged + 1} lines" in report["receipt log: chain"]["detail"], report


def test_lost_folder(folder: Path) -> None:
    """What is written to a removed or replaced file counts as lost; the log goes on when it is back."""
    log, away = folder / "lost" / "receipts.jsonl", folder / "away"
    server = serve("--receipts", log.parent)

    def ask_one(name: str, value: int) -> None:
        server.ask("/v1/completions", {"prompt": "The dog", "max_tokens": 2})
        server.comes_to(name, value)

    ask_one("receipts_logged_total", 1)
    log.parent.rename(away)
    ask_one("receipts_lost_total", 1)
    log.parent.mkdir()
    log.touch()
    ask_one("receipts_lost_total", 2)
    assert log.read_bytes() == b""
    log.unlink()
    log.parent.rmdir()
    away.rename(log.parent)
    ask_one("receipts_logged_total", 2)
    errors = server.end()
    assert errors.count("receipts are lost from here on") == 1 and "No such file" in errors and "receipts are written again" in errors, errors
    assert "2 lines" in llmcheck("--receipt-log", log, code=0)["receipt log: chain"]["detail"]


def test_refusals(folder: Path) -> None:
    secret, public = key_pair(folder, "more")
    log = folder / "bad"
    log.mkdir()
    (log / "receipts.jsonl").write_text('{"format": "llm-receipt-log/1"}\n')
    for arguments, code, words in [
            (["llmserve", MODEL, "--receipt-key", secret], 2, "--receipt-key: found without --receipts"),
            (["llmserve", MODEL, "--receipts", log], 3, "receipts.jsonl: number: found none"),
            (["llmserve", MODEL, "--receipts", folder / "new", "--receipt-key", public], 3, "more.pub: key: found none, need what `openssl genpkey"),
            (["llmcheck", "--receipt-log", log, "--public-key", secret], 3, "more.pem: key: found none, need what `openssl pkey"),
            (["llmcheck", MODEL, "--log-head", "0" * 64], 2, "--receipt-log: found none"),
            (["llmcheck", "--receipt-log", folder / "lost", "--log-head", "00"], 2, "--log-head: found 00, need the 64 digits"),
            (["llmcheck", "--receipt-log", folder / "lost", "--dump", folder / "x.npz"], 2, "MODEL: found no model"),
            (["llmcheck", "--replay", folder / "empty"], 2, "found no .json and no .jsonl, need a receipt"),
            (["llmcheck", "--receipt-log", folder / "empty"], 4, "receipts.jsonl: ")]:
        (folder / "empty").mkdir(exist_ok=True)
        run = subprocess.run([BIN / arguments[0], *arguments[1:]], capture_output=True, text=True, timeout=60)
        assert run.returncode == code and words in run.stderr, (arguments, run)
    empty = folder / "none.jsonl"
    empty.touch()
    assert llmcheck("--receipt-log", empty, code=9)["receipt log: chain"]["detail"] == "found no line, need one"


with tempfile.TemporaryDirectory() as scratch:
    for test in (test_batch, test_log, test_full_disk, test_lost_folder, test_refusals):
        test(Path(scratch))
        print(f"PASS {test.__name__}", flush=True)
