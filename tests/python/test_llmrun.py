"""The package for Python against the tools: LLM_BIN is their folder. ./dev wheel runs it on an installed wheel."""

import gc
import hashlib
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import llmrun
import numpy
import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(os.environ["LLM_BIN"])
PATH = ROOT / "models/fable-3m-q4_k_m.gguf"
MESSAGES = [{"role": "system", "content": "You tell stories."}, {"role": "user", "content": "Tell me of a fox."}]
PROMPTS = ["Once upon a time", "The fox", "One day, a girl", "It was raining and"]


@pytest.fixture(scope="module")
def model():
    return llmrun.Model(PATH, chat_template="zephyr", threads=1)  # teams wait long for each other on a busy machine


def llmrun_tool(*words, path=PATH):
    """What llmrun prints and what it says."""
    run = subprocess.run([BIN / "llmrun", path, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=True)
    return run.stdout, run.stderr


def logits_sha256(said):
    return re.search(r"^logits-sha256: (\w+)", said, re.M)[1]


def test_a_model_says_what_it_is(model):
    assert "fable" in model.name.lower()
    assert model.sha256 == hashlib.sha256(PATH.read_bytes()).hexdigest()
    assert model.sha256[:12] in model.fingerprint
    assert (model.context, model.n_vocab, model.has_chat, model.warnings) == (512, 1536, True, [])
    assert not llmrun.Model(PATH).has_chat  # its file has no template


def test_generated_text_and_logits_are_those_of_llmrun(model):
    out, err = llmrun_tool("-p", PROMPTS[0], "-n", "40", "--temp", "0", "--logits-hash")
    text = model.generate(PROMPTS[0], max_tokens=40, temperature=0, logits_hash=True)
    pieces = list(text)
    answer = text.answer()
    assert "".join(pieces) == out == answer["choices"][0]["text"]
    assert len(pieces) > 20
    chunks = list(model.stream_complete(PROMPTS[0], max_tokens=40, temperature=0))
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == out and len(chunks) > 20
    assert answer["logits_sha256"] == [logits_sha256(err)]
    assert answer["usage"]["completion_tokens"] == 40
    out, _ = llmrun_tool("-p", PROMPTS[0], "-n", "40", "--temp", "0.9", "--seed", "7", "--top-k", "20", "--top-p", "1", "--min-p", "0",
                         "--repeat-penalty", "1")
    assert "".join(model.generate(PROMPTS[0], max_tokens=40, temperature=0.9, seed=7, top_k=20)) == out
    assert "".join(model.generate(model.tokenize(PROMPTS[0]), max_tokens=40, temperature=0.9, seed=7, top_k=20)) == out


def test_logits_are_an_array_of_the_engines_own_rows(model):
    ids = model.tokenize(PROMPTS[0])
    rows = model.logits(ids)
    assert rows.shape == (len(ids), model.n_vocab) and rows.dtype == numpy.float32
    assert not rows.flags.owndata and not rows.flags.writeable and rows.flags.c_contiguous
    answer = model.generate(ids, max_tokens=1, temperature=0).answer()
    token = model.tokenize(answer["choices"][0]["text"], add_special=False)
    assert numpy.array_equal(rows, model.logits(ids + token)[: len(ids)])
    assert model.detokenize([int(rows[-1].argmax())]).strip() == answer["choices"][0]["text"].strip()
    _, err = llmrun_tool("-p", PROMPTS[0], "-n", "0", "--temp", "0", "--logits-hash")
    assert hashlib.sha256(rows.tobytes()).hexdigest() == logits_sha256(err)
    other = llmrun.Model(PATH)
    rows = other.logits(ids)
    kept = rows.copy()
    other.close()
    gc.collect()
    assert numpy.array_equal(rows, kept)


@pytest.mark.parametrize("options", [{"threads": 2}, {"threads": 3}, {"isa": "scalar"}, {"isa": "avx2"}])
def test_logits_do_not_depend_on_threads_and_instruction_set(model, options):
    ids = model.tokenize("Once upon a time, there was a fox.")
    other = llmrun.Model(PATH, **options)
    for name, value in options.items():
        assert getattr(other, name) == value
    assert numpy.array_equal(other.logits(ids), model.logits(ids))


def test_chats_are_those_of_llmrun(model):
    out, _ = llmrun_tool("--chat-template", "zephyr", "--system", MESSAGES[0]["content"], "-p", MESSAGES[1]["content"], "-n", "24",
                         "--temp", "0")
    answer = model.chat(MESSAGES, max_tokens=24, temperature=0)
    assert answer["choices"][0]["message"]["content"] == out
    chunks = list(model.stream_chat(MESSAGES, max_tokens=24, temperature=0))
    assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks) == out
    assert len(chunks) > 10 and chunks[-1]["choices"][0]["finish_reason"] == answer["choices"][0]["finish_reason"]


def test_a_public_model_chats_as_with_llmrun():
    path = os.environ.get("LLM_CHAT_MODEL")
    if not path:
        pytest.skip("no public model")
    question = "Name three rivers of Europe."
    out, err = llmrun_tool("--chat", "-p", question, "-n", "40", "--temp", "0", "--logits-hash", path=path)
    with llmrun.Model(path) as chat:
        answer = chat.chat([{"role": "user", "content": question}], max_tokens=40, temperature=0, logits_hash=True)
    assert answer["choices"][0]["message"]["content"] == out and len(out) > 40
    assert answer["logits_sha256"] == [logits_sha256(err)]


def test_replies_have_the_form_that_is_asked_for(model):
    schema = {"type": "object", "properties": {"color": {"enum": ["red", "blue"]}}, "required": ["color"], "additionalProperties": False}
    answer = model.chat(MESSAGES, response_format={"type": "json_schema", "json_schema": {"schema": schema}}, temperature=0)
    assert json.loads(answer["choices"][0]["message"]["content"])["color"] in ("red", "blue")
    tool = {"type": "function", "function": {"name": "paint", "parameters": schema}}
    message = model.chat(MESSAGES, tools=[tool], tool_choice="required", temperature=0)["choices"][0]["message"]
    assert message["tool_calls"][0]["function"]["name"] == "paint"
    assert json.loads(message["tool_calls"][0]["function"]["arguments"])["color"] in ("red", "blue")
    assert re.fullmatch(r"[a-c]{3}", "".join(model.generate("x", regex="[a-c]{3}", seed=1)))


def test_several_texts_at_once(model):
    whole = model.complete(PROMPTS, n=2, max_tokens=12, seed=3)
    for i, prompt in enumerate(PROMPTS):
        alone = model.complete(prompt, n=2, max_tokens=12, seed=3)
        assert [c["text"] for c in alone["choices"]] == [c["text"] for c in whole["choices"][2 * i : 2 * i + 2]]


def test_text_and_ids(model):
    ids = model.tokenize("Once upon a time")
    run = subprocess.run([BIN / "llmtok", PATH, "-p", "Once upon a time", "--ids"], capture_output=True, text=True, check=True)
    assert ids == [int(word) for word in run.stdout.split()]
    assert model.detokenize(ids).strip() == "Once upon a time"
    array = numpy.array(ids)
    assert model.detokenize(array) == model.detokenize(ids) and numpy.array_equal(model.logits(array), model.logits(ids))
    texts = ["".join(model.generate(prompt, max_tokens=numpy.int64(5), temperature=0)) for prompt in (ids, array, list(array))]
    assert texts[0] == texts[1] == texts[2]
    assert model.tokenize("a", add_special=False) == model.tokenize("a")[1:]
    assert len(model.tokenize("</s>", parse_special=True)) < len(model.tokenize("</s>"))
    assert "\ufffd" in model.detokenize(model.tokenize("\u00e9\u4e16")[:-1])


def refused(code, field, call, found=""):
    """The error of a call, which names that field (None: any)."""
    with pytest.raises(llmrun.Error) as caught:
        call()
    error = caught.value
    assert error.code == code and field in (None, error.field)
    assert error.found.startswith(found) and error.message in str(error)
    return error


def test_errors_have_their_parts(model, tmp_path):
    code = llmrun.ErrorCode
    error = refused(code.IO, "", lambda: llmrun.Model(tmp_path / "none.gguf"))
    assert error.file == str(tmp_path / "none.gguf") and str(error).startswith(error.file)
    (tmp_path / "cut.gguf").write_bytes(PATH.read_bytes()[:1000])
    error = refused(code.MALFORMED, None, lambda: llmrun.Model(tmp_path / "cut.gguf"))
    assert error.file.endswith("cut.gguf")
    error = refused(code.USAGE, "isa", lambda: llmrun.Model(PATH, isa="mmx"), '"mmx"')
    assert "avx2" in error.need
    with pytest.raises(OSError):
        llmrun.Model(tmp_path / "none.gguf")
    refused(code.USAGE, "kv", lambda: llmrun.Model(PATH, kv="f64"), '"f64"')
    refused(code.USAGE, "threads", lambda: llmrun.Model(PATH, threads=-1), "-1")
    refused(code.USAGE, "temperature", lambda: model.generate("x", temperature=-1), "-1")
    refused(code.USAGE, "tempature", lambda: model.generate("x", tempature=1))
    refused(code.USAGE, "messages[0].role", lambda: model.chat([{"role": "king", "content": "x"}]))
    refused(code.RESOURCE, "prompt", lambda: model.generate("word " * 5000))
    refused(code.USAGE, "messages", lambda: llmrun.Model(PATH).chat(MESSAGES))
    refused(code.USAGE, "ids", lambda: model.detokenize([model.n_vocab]), str(model.n_vocab))
    refused(code.USAGE, None, lambda: model.logits([model.n_vocab]))
    refused(code.USAGE, "tokens", lambda: model.logits([]))
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.code, copy.field, str(copy)) == (error.code, error.field, str(error))
    with pytest.raises(TypeError):
        model.generate("x", tempature=1)
    with pytest.raises(ValueError):
        model.generate("x", temperature=-1)
    with pytest.raises(TypeError, match="found bytes"):
        model.generate(b"x")
    with pytest.raises(TypeError):
        model.generate("x", n=2)
    with pytest.raises(TypeError):
        model.tokenize(b"x")
    with pytest.raises(TypeError, match="found set"):
        model.generate("x", stop={"a"})
    with llmrun.Model(PATH) as closed:
        pass
    with pytest.raises(ValueError, match="closed"):
        closed.generate("x")


def test_a_text_without_a_limit_goes_on_to_its_end(model):
    answer = model.generate(PROMPTS[0], temperature=0).answer()
    whole = model.generate(PROMPTS[0], temperature=0, max_tokens=500).answer()
    assert answer["choices"] == whole["choices"] and answer["usage"]["completion_tokens"] > 16


def test_embeddings_are_those_of_llmserve(model):
    rows = model.embed(PROMPTS)
    assert rows.shape[0] == len(PROMPTS) and rows.dtype == numpy.float32
    assert numpy.allclose((rows**2).sum(axis=1), 1, atol=1e-6)
    assert numpy.array_equal(model.embed(PROMPTS[2]), rows[2]) and model.embed("x", dimensions=8).shape == (8,)
    assert not numpy.array_equal(rows[0], rows[1])


def test_loading_tells_its_progress():
    told = []
    llmrun.Model(PATH, progress=lambda *words: told.append(words)).close()
    assert told and all(isinstance(stage, str) and 0 <= done <= total for stage, done, total in told)
    with pytest.raises(ZeroDivisionError):
        llmrun.Model(PATH, progress=lambda *_: 1 / 0)
    assert llmrun.__version__ in subprocess.run([BIN / "llmrun", "--version"], capture_output=True, text=True, check=True).stdout


def test_models_of_the_hubs_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert llmrun.list_models() == []
    repo = tmp_path / "models--one--two-GGUF"
    names = ["two-Q4_K_M.gguf", "big/two-Q8_0-00001-of-00002.gguf", "big/two-Q8_0-00002-of-00002.gguf"]
    for name in [*names, "README.md"]:
        path = repo / "snapshots" / "abc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"GGUF")
    (repo / "refs").mkdir()
    (repo / "refs/main").write_text("abc")
    (tmp_path / "models--one--broken" / "snapshots").mkdir(parents=True)
    assert [(model.name, model.size) for model in llmrun.list_models()] == [(f"one/two-GGUF:{names[1]}", 8), (f"one/two-GGUF:{names[0]}", 4)]
    assert llmrun.list_models()[1].path == repo / "snapshots/abc" / names[0]


def test_a_text_that_is_given_up_makes_room(model):
    small = llmrun.Model(PATH, parallel=1, threads=1)
    first = small.generate("Once", temperature=0, max_tokens=400, ignore_eos=True)
    next(first)
    first.close()
    refused(llmrun.ErrorCode.USAGE, "text", lambda: next(first), "it closed")
    refused(llmrun.ErrorCode.USAGE, "text", first.answer)
    whole = small.generate("Once", temperature=0, max_tokens=4)
    while small.figures()["finished"] == 0:
        time.sleep(0.01)
    whole.close()  # made, but not taken
    refused(llmrun.ErrorCode.USAGE, "text", lambda: next(whole), "it closed")
    taken = small.generate("Once", temperature=0, max_tokens=4)
    pieces = "".join(taken)
    taken.close()
    assert taken.answer()["choices"][0]["text"] == pieces
    assert "".join(small.generate("Once", temperature=0, max_tokens=4))
    for _ in range(100):
        small.generate("Once", max_tokens=400, ignore_eos=True)  # no reference is kept
    assert "".join(small.generate("Once", temperature=0, max_tokens=4))
    figures = small.figures()
    assert figures["cancelled"] >= 90 and (figures["waiting"], figures["failed"]) == (0, 0)  # some may end by themselves
    assert figures["generated_tokens"] < 2000


INTERRUPTED = """
import sys, llmrun
model = llmrun.Model(sys.argv[1], threads=1)
text = model.generate("Once", max_tokens=500, ignore_eos=True, seed=1)
print(next(text), flush=True)
try:
    {wait}
except KeyboardInterrupt:
    print("interrupted", flush=True)
print("again:", "".join(model.generate("Once", max_tokens=4, temperature=0)), flush=True)
"""


@pytest.mark.parametrize("wait", ["[model.generate('Once', max_tokens=500, ignore_eos=True).answer() for _ in range(1000)]",
                                  "while True: list(model.generate('Once', max_tokens=500, ignore_eos=True))"])
def test_ctrl_c_ends_a_wait(wait, tmp_path):
    process = subprocess.Popen([sys.executable, "-c", INTERRUPTED.format(wait=wait), PATH], stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    process.stdout.readline()
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0 and out.startswith("interrupted\nagain: ")


def test_threads_on_one_model_get_what_each_gets_alone(model):
    def work(i):
        prompt = PROMPTS[i % len(PROMPTS)]
        text = "".join(model.generate(prompt, max_tokens=48, seed=i))
        rows = hashlib.sha256(model.logits(model.tokenize(text)).tobytes()).hexdigest()
        return text, rows, model.chat(MESSAGES, max_tokens=8, seed=i)["choices"][0]["message"]["content"]

    alone = [work(i) for i in range(12)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(12))) == alone


def test_python_goes_on_while_a_text_is_computed(model):
    counts = []
    text = model.generate("Once", max_tokens=300, ignore_eos=True)
    thread = threading.Thread(target=lambda: counts.append(len(text.answer()["choices"][0]["text"])))
    thread.start()
    beats = 0
    while thread.is_alive():
        beats += 1
        time.sleep(0.001)
    assert counts[0] > 0 and beats > 10


def rss():
    return int(re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())[1])


def test_models_leave_nothing_behind():
    def use():
        with llmrun.Model(PATH, threads=2) as one:
            next(one.generate("Once", max_tokens=8))
            one.logits(one.tokenize("Once"))
        del one
        gc.collect()

    for _ in range(20):
        use()
    before = rss()
    for _ in range(1000):
        use()
    assert rss() - before < 8 << 10  # KiB; a model's weights alone are 2 MB
    assert len(os.listdir("/proc/self/task")) < 40
    assert len(os.listdir("/proc/self/fd")) < 60


def test_the_tools_come_with_the_package(model):
    tool = Path(sys.executable).parent / "llmrun"
    if not tool.exists():
        pytest.skip("not an installed wheel")
    runs = [subprocess.run([folder / "llmrun", PATH, "-p", "Once", "-n", "8", "--temp", "0", "--logits-hash"], capture_output=True, text=True,
                           check=True) for folder in (tool.parent, BIN)]
    assert runs[0].stdout == runs[1].stdout
    assert logits_sha256(runs[0].stderr) == logits_sha256(runs[1].stderr)


def test_layer_diff_is_that_of_llmcheck(model, tmp_path):
    dump, report = tmp_path / "dump.npz", tmp_path / "report.json"
    llmrun_tool("-p", "Once", "-n", "1", "--dump-layers", dump)
    subprocess.run([BIN / "llmcheck", PATH, "--layer-diff", dump, "--report", report], check=True, capture_output=True)
    found = model.layer_diff(dump)
    assert found["verdict"] == "PASS"
    facts = [[(section["name"], section["verdict"], len(section["rows"])) for section in sections]
             for sections in (found["layer_diffs"], json.loads(report.read_text())["layer_diffs"])]
    assert facts[0] == facts[1] and len(facts[0]) > 2
    dump.write_bytes(dump.read_bytes()[:1000])
    error = refused(llmrun.ErrorCode.MALFORMED, None, lambda: model.layer_diff(dump))
    assert error.file == str(dump)


def test_a_reference_comes_with_the_package(model, tmp_path):
    dump = tmp_path / "ref.npz"
    made = subprocess.run([sys.executable, "-m", "llmrun.reference", PATH, "--ids-random", "4", "-o", dump], capture_output=True, text=True)
    if made.returncode == 2:  # without the package gguf
        assert made.stderr == "llmrun.reference: error: Python has no package gguf, need it: pip install 'llmrun[reference]'\n"
        pytest.skip("no package gguf")
    assert model.layer_diff(dump)["verdict"] == "PASS", made.stderr


def test_self_check(model):
    report = model.self_check()
    assert report["verdict"] == "PASS" and len(report["checks"]) > 20
