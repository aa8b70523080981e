"""Embeddings by clients' own packages, and the examples that use llmserve; called by agents.py."""

import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import types

import numpy as np
import ollama
import openai
import server
import tiktoken

EXAMPLES = server.ROOT / "examples"
TEXTS = ["An apple falls.", "The moon goes round the earth.", "Bread is made of flour, water and salt."]


def embeddings(client: openai.OpenAI, url: str, model: str) -> None:
    plain = client.embeddings.create(model=model, input=TEXTS, encoding_format="float")
    packed = client.embeddings.create(model=model, input=TEXTS)  # asks for base64
    rows = np.array([item.embedding for item in plain.data])
    assert [item.index for item in plain.data] == [0, 1, 2] and plain.usage.total_tokens == packed.usage.total_tokens > 10, plain
    assert np.array_equal(rows, [item.embedding for item in packed.data]), "base64 has other values"
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)
    ids = [client.post("/../tokenize", body={"prompt": text}, cast_to=object)["tokens"] for text in TEXTS]
    assert np.array_equal(rows, [item.embedding for item in client.embeddings.create(model=model, input=ids).data])
    short = np.array(client.embeddings.create(model=model, input=TEXTS[0], dimensions=32).data[0].embedding)
    assert np.allclose(short, rows[0][:32] / np.linalg.norm(rows[0][:32]), atol=1e-6) and len(short) == 32
    by_ollama = ollama.Client(url, headers={"Authorization": "Bearer secret"}).embed(model=model, input=TEXTS)
    assert np.array_equal(rows, by_ollama.embeddings), "Ollama's shape has other values"
    try:
        client.embeddings.create(model=model, input=[5] * 10000)
        raise AssertionError("a text above the context was taken")
    except openai.BadRequestError as error:
        assert error.code == "context_length_exceeded", error
    langchain(url, model, dict(zip(TEXTS, ids, strict=True)), rows)


def langchain(url: str, model: str, ids: dict[str, list[int]], rows: np.ndarray) -> None:
    """OpenAIEmbeddings sends texts, or token ids, here the model's own."""
    import langchain_openai

    settings = {"model": model, "base_url": url + "/v1", "api_key": "secret", "max_retries": 0}
    by_text = langchain_openai.OpenAIEmbeddings(**settings, check_embedding_ctx_length=False)
    assert np.array_equal(rows, by_text.embed_documents(TEXTS)) and np.array_equal(rows[1], by_text.embed_query(TEXTS[1]))
    known = tiktoken.encoding_for_model
    tiktoken.encoding_for_model = lambda _: types.SimpleNamespace(encode_ordinary=ids.__getitem__)
    try:
        by_ids = langchain_openai.OpenAIEmbeddings(**settings).embed_documents(TEXTS)
    finally:
        tiktoken.encoding_for_model = known
    assert np.allclose(rows, by_ids, atol=1e-6)  # it makes their length 1 itself


def example(name: str):
    """examples/NAME/NAME.py as a module."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / name / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def run_example(name: str, *arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, EXAMPLES / name / f"{name}.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=900, env=os.environ | {"LLM_API_KEY": "secret"})


def rag(client: openai.OpenAI, url: str) -> None:
    module = example("rag")
    files = [server.ROOT / "docs" / name for name in ("exit_codes.md", "receipts.md", "sampling.md")]
    paragraphs = [piece for file in files for piece in module.pieces_of(file, most=1)]
    for piece in paragraphs:
        lines = pathlib.Path(piece.file).read_text().splitlines()[piece.line - 1 :]
        assert "\n".join(lines).startswith(piece.text), piece
    library = module.Library(client, paragraphs)
    for own in paragraphs[::4]:
        found = library.nearest(own.text, 3)
        assert len(found) == 3 and found[0][1] == own and found[0][0] > 0.9999, (own, found)
        assert [cosine for cosine, _ in found] == sorted((cosine for cosine, _ in found), reverse=True)
    run = run_example("rag", *map(str, files), "-q", "What is exit code 7?", "--url", url + "/v1", "-k", "3")
    listed, _, answer = run.stdout.partition("\n\n")
    assert run.returncode == 0 and len(listed.splitlines()) == 3 and answer.strip(), run
    print(f"examples/rag answered from {len(paragraphs)} paragraphs")


def agent(client: openai.OpenAI, url: str, model: str) -> None:
    module = example("agent")
    with tempfile.TemporaryDirectory() as home:
        folder = pathlib.Path(home, "sample")
        shutil.copytree(EXAMPLES / "agent" / "sample", folder)
        test = f"{sys.executable} -B -m unittest"
        workshop = module.Workshop(folder, test)
        # The loop, with a model that cannot do it: it ends, and tells the truth.
        run = run_example("agent", str(folder), "--test", test, "--url", url + "/v1", "--turns", "2")
        assert run.returncode == (0 if workshop.test_result()[0] else 1) and not run.stderr, run
        assert run.stdout.rstrip().endswith(("the tests pass", "the tests do not pass")), run
        shutil.copytree(EXAMPLES / "agent" / "sample", folder, dirs_exist_ok=True)

        # A call that the model writes.
        named = {"type": "function", "function": {"name": "run_tests"}}
        messages = [{"role": "user", "content": "Run the tests."}]
        reply = client.chat.completions.create(model=model, messages=messages, tools=workshop.TOOLS, tool_choice=named, temperature=0)
        (call,) = reply.choices[0].message.tool_calls
        assert workshop.call(call.function.name, call.function.arguments).startswith("exit code 1\n")

        # The tools: what cannot be done is told.
        program = workshop.call("read_file", '{"path": "median.py"}')
        assert program == (folder / "median.py").read_text()
        for name, arguments in (
            ("read_file", '{"path": "../secret"}'),
            ("write_file", '{"path": "/tmp/x", "content": ""}'),
            ("read_file", '{"path": "none.py"}'),
            ("read_file", '{"file": "median.py"}'),
            ("read_file", "{"),
            ("remove", "{}"),
            ("inside", '{"path": "."}'),
        ):
            assert workshop.call(name, arguments).startswith("error: "), (name, arguments)
        workshop.write_file("median.py", program.replace("return ordered[middle]\n", "return sum(ordered[middle - 1 : middle + 1]) / 2\n", 1))
        assert workshop.call("run_tests", "{}").startswith("exit code 0\n")
        quick = module.Workshop(folder, "sleep 30")
        module.SECONDS = 1
        assert quick.test_result() == (False, "no end within 1 seconds")
    print("examples/agent ended in an orderly way")
