#!/usr/bin/env python3
"""Checks the oracles themselves, on small random models written to a temporary folder. Exit code 1 if a check fails.

    python tools/oracle/selftest.py
    python tools/oracle/selftest.py --model stories260K.gguf --greedy stories260K_greedy.json

The second form also compares greedy texts with recorded ones (needs sentencepiece).
"""

import argparse
import json
import sys
import tempfile
import warnings
from pathlib import Path

import gguf
import numpy as np

import selftest_contract
import selftest_experts
import selftest_gpt_oss
import selftest_phi3
import selftest_rope
import selftest_scales
from dump import LAYER_TAPS, ActivationDump
from from_gguf import metadata, run
from gguf_model import GgufModel
from hparams import UnsupportedModel
from llama_f64 import ACTIVATIONS, LlamaF64, Text, attention
from selftest_models import IDS, VOCAB, Bench, logits, random_weights, relative_error, require_close


def check_attention_by_loops(_bench: Bench) -> None:
    rng = np.random.default_rng(3)
    q, k, v = rng.normal(size=(3, 6, 8)), rng.normal(size=(5, 2, 8)), rng.normal(size=(5, 2, 4))
    context, probs = attention(q, k, v, np.array([2, 3, 4]))
    require_close(probs.sum(axis=-1), np.ones((6, 3)), "probabilities sum to one")
    for t in range(3):
        for head in range(6):
            seen = range(3 + t)
            e = [np.exp(sum(q[t, head, d] * k[j, head // 3, d] for d in range(8)) / 8 ** 0.5) for j in seen]
            want = np.array([sum(e[j] * v[j, head // 3, d] for j in seen) for d in range(4)]) / sum(e)
            require_close(context[t, head], want, f"attention of token {t}, head {head}")
            assert (probs[head, t, 3 + t:] == 0).all(), "a future key has weight"


def check_activations(_bench: Bench) -> None:
    x = np.linspace(-6, 6, 49)
    require_close(ACTIVATIONS["silu"](x, 1.0), x * (0.5 + 0.5 * np.tanh(x / 2)), "SiLU")
    inner = np.sqrt(2 / np.pi) * (x + 0.044715 * x * x * x)
    require_close(ACTIVATIONS["gelu_tanh"](x, 1.0), x / (1 + np.exp(-2 * inner)), "GELU by tanh")


def check_causal(bench: Bench) -> None:
    model = bench.model(random_weights(4))
    a, _ = run(model, IDS, [len(IDS)], 0, dtype=np.float64)
    b, _ = run(model, IDS[:-1] + [2], [len(IDS)], 0, dtype=np.float64)
    for layer in range(model.hparams.n_layers):
        for tap in LAYER_TAPS:
            x, y = (dump.get(0, f"L{layer:03d}/{tap}") for dump in (a, b))
            require_close(x[:-1], y[:-1], f"earlier rows of layer {layer} {tap}")
            assert (x[-1] != y[-1]).any(), f"the last row of layer {layer} {tap} does not see its token"


def check_taps_by_equations(bench: Bench) -> None:
    """Every tap from the taps before it and the file's own tensors, written a second time (RoPE as complex numbers);
    a large eps, an unusual theta and an output matrix unlike the embedding make each of them matter."""
    stored = random_weights(11)
    weights = {name: value.astype(np.float64) for name, value in stored.items()}
    dump, _ = run(bench.model(stored, eps=0.25), IDS, [len(IDS)], 0, dtype=np.float64)

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        return np.stack([row * (np.dot(row, row) / len(row) + 0.25) ** -0.5 for row in x]) * weights[f"{name}.weight"]

    def turn(x: np.ndarray) -> np.ndarray:
        angle = np.arange(len(IDS))[:, None] * np.array([500.0 ** (-2 * i / 16) for i in range(8)])
        pairs = x.reshape(len(IDS), -1, 8, 2)
        turned = (pairs[..., 0] + 1j * pairs[..., 1]) * np.exp(1j * angle)[:, None, :]
        return np.stack([turned.real, turned.imag], axis=-1).reshape(x.shape)

    x = dump.get(0, "G/embd")
    require_close(x, weights["token_embd.weight"][IDS], "embd")
    for i in range(2):
        tap = {name: dump.get(0, f"L{i:03d}/{name}") for name in LAYER_TAPS}
        sources = {"q": "attn_norm", "k": "attn_norm", "v": "attn_norm", "output": "attn_ctx",
                   "gate": "ffn_norm", "up": "ffn_norm", "down": "ffn_act"}
        products = {name: np.einsum("ti,oi->to", tap[source],
                                    weights[f"blk.{i}.{'attn' if name in 'q k v output' else 'ffn'}_{name}.weight"])
                    for name, source in sources.items()}
        products["attn_out"], products["ffn_out"] = products.pop("output"), products.pop("down")
        want = products | {
            "attn_norm": norm(x, f"blk.{i}.attn_norm"), "q_rope": turn(tap["q"]), "k_rope": turn(tap["k"]),
            "ffn_inp": x + tap["attn_out"], "ffn_norm": norm(tap["ffn_inp"], f"blk.{i}.ffn_norm"),
            "ffn_act": tap["up"] * tap["gate"] * (0.5 + 0.5 * np.tanh(tap["gate"] / 2)),
            "l_out": tap["ffn_inp"] + tap["ffn_out"]}
        assert set(want) == set(LAYER_TAPS) - {"attn_ctx"}  # attn_ctx: check_attention_by_loops
        for name, value in want.items():
            require_close(tap[name], value, f"layer {i} {name}")
        x = tap["l_out"]
    normed = norm(x, "output_norm")
    require_close(dump.get(0, "G/result_norm"), normed, "result_norm")
    require_close(dump.get(0, "G/logits"), np.einsum("ti,oi->to", normed, weights["output.weight"]), "logits")


def swapped(rows: np.ndarray, heads: int) -> np.ndarray:
    """The two halves of each head as neighbours: from the order of a qwen file to that of a llama file."""
    return rows.reshape(heads, 2, -1, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def check_halves(bench: Bench) -> None:
    """A qwen file without biases is the llama file with the rows of q and k in the other order."""
    weights = random_weights(12)
    plain = {name: value for name, value in weights.items()}
    for i in range(2):
        plain |= {f"blk.{i}.attn_{x}.bias": np.zeros(16 * n, dtype=np.float32) for x, n in (("q", 4), ("k", 2), ("v", 2))}
    halves = logits(bench.model(plain, arch="qwen2"))
    for name in list(weights):
        if "attn_q" in name or "attn_k" in name:
            weights[name] = swapped(weights[name], 4 if "attn_q" in name else 2)
    require_close(halves, logits(bench.model(weights)), "halves are neighbours in another order")
    assert relative_error(halves, logits(bench.model({k: v for k, v in plain.items() if "bias" not in k}))) > 1e-3


def check_biases_and_head_norms(bench: Bench) -> None:
    """q, k and v with their biases, and q_rope and k_rope with the norm of each head, by loops over heads."""
    for arch in ("qwen2", "qwen3"):
        stored = random_weights(13, arch=arch)
        weights = {name: value.astype(np.float64) for name, value in stored.items()}
        dump, _ = run(bench.model(stored, eps=0.25, arch=arch), IDS, [len(IDS)], 0, dtype=np.float64)
        for x, heads in (("q", 4), ("k", 2), ("v", 2)):
            tap = dump.get(0, f"L001/{x}")
            want = dump.get(0, "L001/attn_norm") @ weights[f"blk.1.attn_{x}.weight"].T
            if arch == "qwen2":
                want = want + weights[f"blk.1.attn_{x}.bias"]
            require_close(tap, want, f"{arch} {x}")
            if x == "v":
                continue
            turned = np.empty_like(tap)
            for t, head in np.ndindex(len(IDS), heads):
                row = tap[t, 16 * head:16 * head + 16]
                if arch == "qwen3":
                    row = row * (np.dot(row, row) / 16 + 0.25) ** -0.5 * weights[f"blk.1.attn_{x}_norm.weight"]
                pair = (row[:8] + 1j * row[8:]) * np.exp(1j * t * 500.0 ** (-np.arange(8) / 8))
                turned[t, 16 * head:16 * head + 16] = np.concatenate([pair.real, pair.imag])
            require_close(dump.get(0, f"L001/{x}_rope"), turned, f"{arch} {x}_rope")


def check_decode_equals_prefill(bench: Bench) -> None:
    model = bench.model(random_weights(5))
    whole, greedy = run(model, IDS, [len(IDS)], 0, probs=True, dtype=np.float64)
    for steps in ([1] * 8, [3, 4, 1], [7, 1]):
        split, last = run(model, IDS, steps, 0, probs=True, dtype=np.float64)
        assert last[-1] == greedy[-1]
        names = [f"L{i:03d}/{tap}" for i in range(2) for tap in LAYER_TAPS] + ["G/logits", "G/embd", "G/result_norm"]
        for name in names:
            parts = np.concatenate([split.get(s, name) for s in range(len(steps))])
            require_close(parts, whole.get(0, name), f"{name} in steps {steps}")


def check_texts_together(bench: Bench) -> None:
    weights = random_weights(9)
    model, nothing_kept = bench.model(weights), bench.model(weights)
    nothing_kept._cache_bytes = 0
    prompts = [IDS, IDS[:1], IDS[3:]]
    for one in (model, nothing_kept):
        llama, texts = LlamaF64(one), [Text(one.hparams) for _ in prompts]
        first = llama.forward_all(list(zip(texts, prompts)), last_only=True)
        second = llama.forward_all([(text, [7]) for text in texts])
        for prompt, row, next_row in zip(prompts, first, second, strict=True):
            alone = LlamaF64(model)
            require_close(row, alone.forward(prompt)[-1], "the last row of a prompt among others")
            require_close(next_row, alone.forward([7])[-1], "a token after a prompt among others")


def check_equivalent_models(bench: Bench) -> None:
    tied = random_weights(6, tied=True)
    untied = tied | {"output.weight": tied["token_embd.weight"]}
    require_close(logits(bench.model(tied)), logits(bench.model(untied)), "tied embeddings")
    repeated = dict(tied)  # one KV head per query head, each a copy of its group's
    for name, value in tied.items():
        if "attn_k" in name or "attn_v" in name:
            repeated[name] = np.repeat(value.reshape(2, 16, -1), 2, axis=0).reshape(64, -1)
    require_close(logits(bench.model(repeated, kv=4)), logits(bench.model(tied)), "GQA equals repeated KV heads")
    narrow = random_weights(7, head_dim=24)
    assert np.isfinite(logits(bench.model(narrow, head_dim=24))).all(), "heads * head_dim != d_model"


def check_quantized(bench: Bench) -> None:
    weights = random_weights(8)
    for kind in (gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.Q4_0, gguf.GGMLQuantizationType.BF16):
        back = {name: gguf.quants.dequantize(gguf.quants.quantize(value, kind), kind) if value.ndim == 2 else value
                for name, value in weights.items()}
        packed = bench.model(weights, quantize=kind)
        require_close(logits(packed), logits(bench.model(back)), f"{kind.name} equals its dequantized weights")
        uncached = GgufModel(packed.path, cache_bytes=0)
        assert (logits(uncached) == logits(packed)).all(), "the weight cache changes logits"


def check_refusals(bench: Bench) -> None:
    weights = random_weights(9)
    bias = {"blk.0.attn_q.bias": np.zeros(64, dtype=np.float32)}
    missing = {k: v for k, v in random_weights(9, arch="qwen2").items() if k != "blk.1.attn_k.bias"}
    try:
        bench.model(missing, arch="qwen2")
        raise AssertionError("a qwen2 without a bias was accepted")
    except UnsupportedModel:
        pass
    cases = {"a bias": weights | bias, "a missing tensor": {k: v for k, v in weights.items() if "1.ffn_up" not in k},
             "a wrong shape": weights | {"output_norm.weight": np.ones(32, dtype=np.float32)}}
    for what, tensors in cases.items():
        try:
            bench.model(tensors)
        except UnsupportedModel:
            continue
        raise AssertionError(f"{what} was accepted")


def check_dump(bench: Bench) -> None:
    model = bench.model(random_weights(10))
    dump, greedy = run(model, IDS, [len(IDS)], 2, probs=True)
    path = model.path.with_suffix(".npz")
    dump.write(path, metadata(model, greedy), n_layers=2)
    with np.load(path) as file:
        assert file["tokens"].tolist() == IDS + greedy[:2] and file["positions"].tolist() == list(range(10))
        assert file["step_ptr"].tolist() == [0, 8, 9, 10] and file["tokens"].dtype == "<i4"
        meta = json.loads(file["__meta__"].tobytes())
        assert meta["model_sha256"] == model.sha256() and meta["oracle"] == "R0"
        assert file["s0002/L001/probs"].shape == (4, 1, 10) and file["s0000/G/logits"].shape == (8, VOCAB)
        assert file["s0001/L000/q"].dtype == np.float32
        assert int(np.argmax(file["s0000/G/logits"][-1])) == greedy[0]
    partial = ActivationDump()
    partial.begin_step([1], [0])
    try:
        partial.write(path, metadata(model, []), n_layers=2)
    except ValueError:
        return
    raise AssertionError("a dump with missing taps was written")


def check_greedy(model_path: str, greedy_path: str) -> None:
    """Greedy texts (BOS added) against a list of {"prompt", "greedy_N"}, N the number of generated tokens."""
    from spm_proto import load_processor  # sentencepiece is needed by this check alone

    model, spm = GgufModel(model_path), load_processor(model_path)
    bos = model.value("tokenizer.ggml.bos_token_id", 1)
    for case in json.loads(Path(greedy_path).read_text(encoding="utf-8")):
        key = next(k for k in case if k.startswith("greedy_"))
        ids = [bos, *spm.encode(case["prompt"])]
        _, greedy = run(model, ids, [len(ids)], int(key.removeprefix("greedy_")) - 1)
        text = spm.decode(ids + greedy)[len(spm.decode(ids)):]
        assert text == case[key], f"{case['prompt']!r}: {text!r}, recorded {case[key]!r}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="GGUF whose greedy texts are compared, with --greedy")
    parser.add_argument("--greedy", help="JSON list of {prompt, greedy_N}")
    args = parser.parse_args()
    if bool(args.model) != bool(args.greedy):
        parser.error("--model and --greedy belong together")
    of_subjects = (selftest_contract, selftest_experts, selftest_gpt_oss, selftest_phi3, selftest_rope, selftest_scales)
    found = globals() | {name: value for subject in of_subjects for name, value in vars(subject).items()}
    checks = [value for name, value in sorted(found.items())
              if name.startswith("check_") and name != "check_greedy"]
    failed = 0
    warnings.simplefilter("error")  # of numpy: an operation that was not expected to overflow
    with tempfile.TemporaryDirectory() as folder:
        jobs = [(check.__name__, lambda check=check: check(Bench(tempfile.mkdtemp(dir=folder)))) for check in checks]
        if args.model:
            jobs.append(("check_greedy", lambda: check_greedy(args.model, args.greedy)))
        for name, job in jobs:
            try:
                job()
                print(f"ok    {name}")
            except (AssertionError, RuntimeWarning) as error:
                failed += 1
                print(f"FAIL  {name}: {error}")
    print(f"{len(jobs) - failed}/{len(jobs)} checks passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
