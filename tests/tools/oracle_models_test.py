#!/usr/bin/env python3
"""The f64 oracle (tools/reference_f64) against transformers and against the engine, which share no code with it.

    python tests/tools/oracle_models_test.py BIN_DIR

Every frozen family: all activations are transformers'. Every setting that a file may have beyond those: the engine's, by
`llmcheck --layer-diff`. What is not modelled is refused. Exit code 1 if a check fails.
"""

import json
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import gguf
import numpy as np

ROOT = Path(__file__).resolve().parents[2]
GOLDENS = ROOT / "tests" / "golden" / "architectures"
sys.path.insert(0, str(ROOT / "tools" / "reference_f64"))

from contract import Contract  # noqa: E402
from decoder import Text  # noqa: E402
from dump import ActivationDump  # noqa: E402
from from_gguf import choose_arithmetic, metadata, random_ids, run  # noqa: E402
from gguf_model import GgufModel  # noqa: E402
from hparams import UnsupportedModel  # noqa: E402
from llama_f64 import LlamaF64  # noqa: E402

IDS = [1, 17, 4, 60, 4, 33, 9, 25]
F32_NOISE = 1e-9  # NMSE
KINDS = {float: gguf.GGUFValueType.FLOAT32, bool: gguf.GGUFValueType.BOOL, int: gguf.GGUFValueType.UINT32,
         str: gguf.GGUFValueType.STRING}
ABSENT = object()


def changed(folder: Path, name: str, keys: dict, tensors: dict | None = None, layers: int = 0, renamed: str = "") -> Path:
    """A copy of a golden with other values of its architecture's keys and other tensors; ABSENT: none, "Q8_0": the golden's, quantized.
    `layers`: as many, the golden's
    repeated. `renamed`: the architecture that it is said to have."""
    source = gguf.GGUFReader(GOLDENS / f"{name}.gguf")
    arch, path = source.get_field("general.architecture").contents(), folder / "changed.gguf"
    keys = {f"{arch}.{key}": value for key, value in keys.items()} | ({f"{arch}.block_count": layers} if layers else {})
    writer = gguf.GGUFWriter(path, renamed or arch)
    for key, field in source.fields.items():
        if key not in keys and not key.startswith("GGUF.") and key != "general.architecture":
            key = key.replace(f"{arch}.", f"{renamed or arch}.", 1)
            writer.add_key_value(key, field.contents(), field.types[0], sub_type=field.types[-1] if len(field.types) > 1 else None)
    for key, value in keys.items():
        if value is not ABSENT:
            writer.add_key_value(key, value, KINDS[type(value)])
    found = {tensor.name: (tensor.data, tensor.tensor_type) for tensor in source.tensors}
    n_layers = 1 + max(int(name.split(".")[1]) for name in found if name.startswith("blk."))
    for layer in range(n_layers, layers):
        before = f"blk.{layer % n_layers}."
        found |= {name.replace(before, f"blk.{layer}."): value for name, value in found.items() if name.startswith(before)}
    for tensor, value in (tensors or {}).items():
        if isinstance(value, str):
            kind = gguf.GGMLQuantizationType[value]
            found[tensor] = (gguf.quants.quantize(found[tensor][0].astype(np.float32), kind), kind)
            continue
        found[tensor] = (value, gguf.GGMLQuantizationType.F64 if getattr(value, "dtype", None) == np.float64 else gguf.GGMLQuantizationType.F32)
    for tensor, (value, kind) in found.items():
        if value is not ABSENT:
            writer.add_tensor(tensor, value, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def nmse(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.sum((a - b) ** 2) / max(np.sum(b**2), 1e-300)) if a.shape == b.shape else np.inf


def in_layout(value: np.ndarray, model: GgufModel, layout: str) -> np.ndarray:
    """Rows of q or k as transformers has them."""
    if model.family.qk_layout == layout:
        return value
    heads = value.reshape(len(value), -1, model.hparams.head_dim).copy()
    dims = model.hparams.rope.dims or model.hparams.head_dim  # files have pairs where nothing rotates, too
    heads[..., :dims] = heads[..., :dims].reshape(*heads.shape[:2], -1, 2).swapaxes(2, 3).reshape(*heads.shape[:2], dims)
    return heads.reshape(value.shape)


def check_family(name: str) -> None:
    model = GgufModel(GOLDENS / f"{name}.gguf")
    with np.load(GOLDENS / f"{name}.npz") as golden:
        sizes, ids = np.diff(golden["step_ptr"]).tolist(), golden["tokens"].tolist()
        dump, _ = run(model, ids, sizes, 0, dtype=np.float64)
        layout = json.loads(golden["__meta__"].tobytes())["qk_layout"]
        taps = [tap for tap in golden.files if tap.startswith("s0")]
        assert taps, "no activations"
        for tap in taps:
            step, _, rest = tap.partition("/")
            found = dump.get(int(step[1:]), rest)
            if rest.rpartition("/")[2] in ("q", "k", "q_rope", "k_rope"):
                found = in_layout(found, model, layout)
            error = nmse(found, golden[tap].astype(np.float64))
            assert error < F32_NOISE, f"{tap}: NMSE {error:.3g}"


YARN = {"rope.scaling.type": "yarn", "rope.scaling.factor": 8.0, "rope.scaling.original_context_length": 640}
LINEAR = {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}
SCALES = {"embedding_scale": 12.0, "attention.scale": 0.1, "residual_scale": 0.22, "logit_scale": 7.0}
# A golden and the keys that are changed; what no family of the goldens has.
SETTINGS = [
    ("mistral", LINEAR), ("mistral", {"rope.scaling.factor": 4.0}), ("mistral", {"rope.scale_linear": 4.0}), ("mistral", {"rope.dimension_count": 6}), ("granite", dict.fromkeys(SCALES, 0.0)), ("granite", SCALES),
    ("qwen3moe", {"expert_weights_norm": False}), ("dots1", {"expert_weights_norm": True}), ("ernie4.5moe", {"expert_weights_scale": 2.5}),
    *((name, YARN | more) for name in ("mistral", "qwen2", "gpt-oss", "smollm3", "gemma3")
      for more in ({}, {"rope.scaling.attn_factor": 0.5}, {"rope.scaling.factor": 0.5})),
    ("mistral", YARN | {"rope.scaling.original_context_length": 3}),  # all pairs but the first are slowed down
    ("mistral", YARN | {"rope.scaling.yarn_beta_fast": 20.0, "rope.scaling.yarn_beta_slow": 2.0}),
    ("ministral3", {"attention.temperature_scale": 0.7}), ("ministral3", {"rope.scaling.yarn_log_multiplier": 0.5}),
    ("ministral3", {"attention.temperature_scale": 0.0}), ("ministral3", {"attention.sliding_window": 4}),
    ("glm4", {}, dict.fromkeys((f"blk.{layer}.attn_{name}.bias" for layer in range(2) for name in "qkv"), ABSENT)), ("glm4", {"rope.dimension_count": 4}),
    ("gemma2", {"attn_logit_softcapping": 1.5}), ("gemma2", {"attn_logit_softcapping": 0.0}), ("gemma2", {"final_logit_softcapping": 3.0}),
    ("gemma2", {"attention.sliding_window": 2}), ("gemma2", {"block_count": 46}),
    ("exaone4", {"attention.sliding_window": 0}), ("exaone4", {"attention.sliding_window": 3}), ("exaone4", YARN),
    ("olmo3", {"rope.freq_base_swa": 3000.0}), ("olmo3", {"attention.sliding_window": 0}), ("olmo2", LINEAR),
    ("olmo3", {"rope.scaling.attn_factor": 0.5}), ("olmo3", {"attention.sliding_window_pattern": 2}),
    ("gpt-oss", {"attention.sliding_window_pattern": 3}), ("gpt-oss", {"attention.sliding_window": 0}),
    ("gpt-oss", {"rope.freq_base": ABSENT}), ("gemma3", {"rope.freq_base": ABSENT}), ("gemma3", {"rope.freq_base_swa": ABSENT}),
    ("phi3", {"rope.scaling.attn_factor": 1.25}),
    ("gemma4", {"final_logit_softcapping": 2.0}), ("gemma4", {"attention.sliding_window": 7}),
    ("gemma4-shared", {"attention.sliding_window": 2000}),
    ("gemma4moe", {"attention.layer_norm_rms_epsilon": 0.01}),
    ("qwen3moe", {"expert_weights_scale": 2.5}),
    ("lfm2moe", {"expert_weights_scale": 0.5}, {"blk.2.exp_probs_b.bias": np.linspace(-0.5, 0.5, 10, dtype=np.float32)}),
    ("lfm2moe", {}, {"blk.1.exp_probs_b.bias": ABSENT}),
    ("gemma3", {"block_count": 62}),  # scores of the largest Gemma 3 have a scale of their own
    # Beside matrices.
    ("qwen2", {}, {f"{name}.scale": np.float32([1.5]) for name in ("blk.0.attn_q", "blk.0.ffn_up", "blk.1.attn_output", "blk.1.ffn_down")}),
    ("phi3", {}, {f"blk.0.{name}.scale": np.float32([0.7]) for name in ("attn_qkv", "ffn_up")}),
    ("gemma4moe", {}, {"blk.1.ffn_gate_up_exps.weight": "Q8_0", "blk.1.ffn_gate_up_exps.scale": np.linspace(0.5, 2, 10, dtype=np.float32),
                       "blk.0.ffn_gate.weight": "Q8_0", "blk.0.ffn_gate.scale": np.float32([1.6])}),
    ("qwen3.5moe", {}, {f"blk.1.ffn_{name}_exps.scale": np.linspace(0.5, 2, 10, dtype=np.float32) for name in ("gate", "up", "down")}
     | {f"blk.0.{name}.scale": np.float32([1.3]) for name in ("attn_qkv", "attn_gate", "ssm_beta", "ssm_alpha", "ssm_out", "ffn_down_shexp")}),
    # Architectures without a class in transformers, by those that compute the same.
    ("mistral", {}, {}, "internlm2"), ("granite", {}, {}, "minicpm"),
]


def check_setting(bin_dir: Path, folder: Path, name: str, keys: dict, tensors: dict | None = None, renamed: str = "") -> None:
    path = changed(folder, name, keys, tensors, layers=keys.get("block_count", 0), renamed=renamed)
    plain, model = GgufModel(GOLDENS / f"{name}.gguf"), GgufModel(path)
    arithmetic = Contract("f32", "f32")
    dump, greedy = run(model, IDS, [len(IDS)], 0, arithmetic=arithmetic)
    dump.write(folder / "changed.npz", metadata(model, greedy, arithmetic), n_layers=model.hparams.n_layers)
    changes = (LlamaF64(plain).forward(IDS) != LlamaF64(model).forward(IDS)).any()
    assert changes != (ABSENT in keys.values() or bool(renamed)), "the key changes nothing" if not changes else "the default is another"
    found = subprocess.run([bin_dir / "llmcheck", path, "--layer-diff", folder / "changed.npz", "-q", "-t", "1"], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr


UP, NOT_MODELLED = np.ones((40, 24), np.float32), "is not modelled"
FACTORS = {f"rope_factors_{which}.weight": np.ones(5, np.float32) for which in ("long", "short")}
REFUSED = [
    ("mistral", {}, {"blk.0.attn_q.bias": np.zeros(40, np.float32)}, "would ignore"),
    ("mistral", {}, {"blk.1.ffn_up.weight": ABSENT}, "blk.1.ffn_up.weight is missing"),
    ("mistral", {}, {"output_norm.weight": np.ones(32, np.float32)}, "has shape"),
    ("mistral", {}, FACTORS, "would ignore"),
    ("qwen2", {}, {"blk.1.attn_k.bias": ABSENT}, "blk.1.attn_k.bias is missing"),
    ("qwen3", {"expert_count": 5}, {}, NOT_MODELLED),
    *(("qwen3moe", {key: value}, {}, NOT_MODELLED) for key, value in (
        ("expert_shared_count", 1), ("expert_shared_feed_forward_length", 16), ("leading_dense_block_count", 1),
        ("expert_gating_func", 2), ("attention.sliding_window", 8))),
    ("lfm2moe", {"expert_gating_func": 1}, {}, NOT_MODELLED),
    ("lfm2moe", {}, {"blk.0.shortconv.conv.weight": ABSENT}, "blk.0.shortconv.conv.weight is missing"),
    ("qwen3moe", {}, {"blk.1.ffn_gate_inp.weight": ABSENT}, "is missing"),
    ("qwen3moe", {}, {"blk.0.ffn_up_shexp.weight": UP}, "would ignore"),
    ("qwen3moe", {}, {"blk.1.ffn_up_exps.weight": np.ones((4, 16, 32), np.float32)}, "has shape"),
    *(("gpt-oss", {}, {f"blk.1.{name}": ABSENT}, f"blk.1.{name} is missing") for name in (
        "attn_sinks.weight", "attn_output.bias", "ffn_gate_inp.bias", "ffn_down_exps.bias", "post_attention_norm.weight")),
    ("phi3", {"rope.dimension_count": 8}, {}, "has shape"),
    ("phi3", {"rope.scaling.original_context_length": ABSENT}, {}, "original_context_length is missing"),
    ("phi3", {}, {"rope_factors_short.weight": ABSENT}, "is missing"),
    *(("mistral", keys, {}, words) for keys, words in (
        (YARN | {"rope.scaling.original_context_length": ABSENT}, "original_context_length is missing"),
        *((YARN | {f"rope.scaling.yarn_{key}": value}, NOT_MODELLED) for key, value in (
            ("ext_factor", 0.5), ("log_multiplier", 0.1), ("attn_factor", 1.2))),
        ({"rope.scaling.type": "longrope"}, NOT_MODELLED), ({"rope.scaling.type": "dynamic"}, NOT_MODELLED))),
    *(("mistral", {key: value}, {}, NOT_MODELLED) for key, value in SCALES.items()),
    ("mistral", {"attention.temperature_scale": 0.1}, {}, NOT_MODELLED), ("glm4", {}, {"blk.1.attn_q.bias": ABSENT}, "is missing"),
    ("granite", {"rope.scaling.finetuned": False}, {}, NOT_MODELLED),
    ("granite", {"attn_logit_softcapping": 30.0}, {}, NOT_MODELLED),
    ("granite", {"expert_count": 2}, {}, NOT_MODELLED),
    ("gemma3", {"attention.scale": 0.1}, {}, NOT_MODELLED),
    # Keys that change nothing.
    ("qwen3moe", {"expert_shared_count": 0, "leading_dense_block_count": 0, "expert_weights_scale": 1.0, "expert_gating_func": 1}, {}, ""),
    ("mistral", YARN | {"rope.scaling.yarn_ext_factor": 1.0, "rope.scaling.yarn_attn_factor": 1.0}, {}, ""),
    ("mistral", YARN | {"rope.scaling.yarn_attn_factor": 1.2079442}, {}, ""), ("mistral", {"rope.scaling.yarn_attn_factor": 1.2}, {}, NOT_MODELLED),
    ("granite", {"rope.scaling.finetuned": True, "expert_count": 0}, {}, ""), ("mistral", {"rope.scaling.finetuned": False}, {}, ""),
]


def check_refusal(folder: Path, name: str, keys: dict, tensors: dict, words: str) -> None:
    try:
        GgufModel(changed(folder, name, keys, tensors))
    except UnsupportedModel as error:
        assert words and words in str(error), f"{error}, need {words!r}"
        return
    assert not words, "was accepted"


def check_arithmetic(folder: Path) -> None:
    plain = GgufModel(GOLDENS / "qwen2.gguf")
    assert choose_arithmetic(plain, "int8", None).kv == "f16"
    wide = changed(folder, "qwen2", {}, {"blk.0.ffn_up.weight": np.ones(plain.weight("blk.0.ffn_up.weight").shape)})  # type F64
    assert choose_arithmetic(GgufModel(wide), "f64", None).name == "R0"
    for model, compute, kv in ((GgufModel(wide), "int8", "f16"), (plain, "f64", "f16")):
        try:
            choose_arithmetic(model, compute, kv)
        except (UnsupportedModel, ValueError):
            continue
        raise AssertionError(f"--compute {compute} --kv {kv} was accepted")
    phi3 = GgufModel(GOLDENS / "phi3.gguf")  # 16 positions have the short divisors
    for context, which in ((None, "long"), (17, "long"), (16, "short")):
        assert (phi3.rope_divisors(context) == phi3.weight(f"rope_factors_{which}.weight")).all(), f"{context} positions"
    ids = random_ids(600, 7, 61)
    assert ids == random_ids(600, 7, 61) != random_ids(600, 8, 61) and set(ids) == set(range(61))


def check_ways_to_run(name: str) -> None:
    """Decode is prefill, prompts at once are those alone, and weights that are not kept are the same."""
    model, prompts = GgufModel(GOLDENS / f"{name}.gguf"), [IDS, IDS[:1], IDS[3:]]
    llama, texts = LlamaF64(GgufModel(model.path, cache_bytes=0)), [Text(model.hparams) for _ in prompts]
    first = llama.forward_all(list(zip(texts, prompts)), last_only=True)
    second = llama.forward_all([(text, [7]) for text in texts])
    for prompt, *rows in zip(prompts, first, second, strict=True):
        alone = LlamaF64(model)
        for row, ids in zip(rows, (prompt, [7])):
            for i in ids:
                last = alone.forward([i])[-1]
            assert nmse(row, last) < 1e-24, f"{prompt}, then 7"


def check_dump(folder: Path) -> None:
    model, path = GgufModel(GOLDENS / "qwen2.gguf"), folder / "dump.npz"
    dump, greedy = run(model, IDS, [len(IDS)], 2, probs=True)
    dump.write(path, metadata(model, greedy), n_layers=2, probs=True)
    with np.load(path) as file:
        assert file["tokens"].tolist() == IDS + greedy[:2] and file["positions"].tolist() == list(range(10))
        assert file["step_ptr"].tolist() == [0, 8, 9, 10] and file["tokens"].dtype == "<i4"
        meta = json.loads(file["__meta__"].tobytes())
        assert meta["model_sha256"] == model.sha256() and meta["oracle"] == "R0" and meta["taps_absent"] == {}
        probs = file["s0000/L001/probs"]
        assert np.allclose(probs.sum(axis=-1), 1) and (np.triu(probs, 1) == 0).all() and file["s0002/L001/probs"].shape == (4, 1, 10)
        assert int(np.argmax(file["s0000/G/logits"][-1])) == greedy[0] and file["s0001/L000/q"].dtype == np.float32
    partial = ActivationDump()
    partial.begin_step([1], [0])
    try:
        partial.write(path, metadata(model, []), n_layers=2)
    except ValueError:
        return
    raise AssertionError("a dump with missing taps was written")


def main() -> int:
    bin_dir, failed = Path(sys.argv[1]), 0
    warnings.simplefilter("error")  # of numpy: an operation that was not expected to overflow
    names = sorted(path.stem for path in GOLDENS.glob("*.gguf"))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        checks = [(f"transformers: {name}", check_family, (name,)) for name in names]
        checks += [(f"engine: {row[0]} {row[1] or sorted(row[2]) or row[3]}", check_setting, (bin_dir, folder, *row)) for row in SETTINGS]
        checks += [(f"refused: {row[0]} {row[1] or sorted(row[2])}", check_refusal, (folder, *row)) for row in REFUSED]
        checks += [(f"ways to run {name}", check_ways_to_run, (name,)) for name in ("gpt-oss", "qwen3.5moe", "gemma4-shared", "gemma4moe")]
        checks += [("arithmetic", check_arithmetic, (folder,)), ("dump", check_dump, (folder,))]
        for name, check, arguments in checks:
            try:
                check(*arguments)
            except (AssertionError, RuntimeWarning) as error:
                failed += 1
                print(f"FAIL  {name}: {error}")
    print(f"{len(checks) - failed}/{len(checks)} checks passed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
