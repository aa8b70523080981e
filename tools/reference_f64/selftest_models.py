"""Small random Llamas for the oracles' own checks (selftest.py)."""

from pathlib import Path

import gguf
import numpy as np

from contract import Arithmetic
from dump import GLOBAL_TAPS, LAYER_TAPS, ActivationDump
from from_gguf import run
from gguf_model import GgufModel
from hparams import FAMILIES
from llama_f64 import LlamaF64

TOLERANCE = 1e-12
VOCAB = 61
EXPERTS, USED = 5, 2  # of mixtures
MIXTURES = ("qwen3moe", "gpt-oss")
IDS = [1, 17, 4, 60, 4, 33, 9, 25]


def relative_error(a: np.ndarray, b: np.ndarray) -> float:
    """Largest difference over the largest magnitude; inf for other shapes or non-finite values."""
    if a.shape != b.shape or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return np.inf
    return float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-300))


def nmse(a: np.ndarray, b: np.ndarray) -> float:
    """Squared differences over the squares of b; inf for non-finite values."""
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return np.inf
    return float(np.sum((a - b) ** 2) / np.sum(b ** 2))


def require_close(a: np.ndarray, b: np.ndarray, what: str) -> None:
    error = relative_error(a, b)
    assert error <= TOLERANCE, f"{what}: relative error {error:.3g}"


def random_weights(seed: int, *, layers=2, d=64, ff=96, heads=4, kv=2, head_dim=16,
                   tied=False, arch="llama") -> dict[str, np.ndarray]:
    """F32 tensors of a random model of `arch`, by GGUF name, shapes as numpy sees them."""
    rng = np.random.default_rng(seed)

    def matrix(rows: int, cols: int) -> np.ndarray:
        return (rng.normal(size=(rows, cols)) / np.sqrt(cols)).astype(np.float32)

    def norm(size: int = d) -> np.ndarray:
        return rng.uniform(0.5, 1.5, size).astype(np.float32)

    weights = {"token_embd.weight": matrix(VOCAB, d), "output_norm.weight": norm()}
    if not tied:
        weights["output.weight"] = matrix(VOCAB, d)
    for i in range(layers):
        block = {"attn_norm": norm(), "attn_q": 3 * matrix(heads * head_dim, d), "attn_k": matrix(kv * head_dim, d),
                 "attn_v": matrix(kv * head_dim, d), "attn_output": matrix(d, heads * head_dim),
                 FAMILIES[arch].ffn_norm: norm()}
        if arch in MIXTURES:
            block |= {"ffn_gate_inp": matrix(EXPERTS, d)}
            block |= {f"ffn_{name}_exps": np.stack([matrix(*shape) for _ in range(EXPERTS)])
                      for name, shape in (("gate", (ff, d)), ("up", (ff, d)), ("down", (d, ff)))}
        else:
            block |= {"ffn_gate": matrix(ff, d), "ffn_up": matrix(ff, d), "ffn_down": matrix(d, ff)}
        if arch in ("qwen3", "qwen3moe", "gemma3"):
            block |= {"attn_q_norm": norm(head_dim), "attn_k_norm": norm(head_dim)}
        if arch == "gemma3":
            block |= {"post_attention_norm": norm(), "post_ffw_norm": norm()}
        if arch == "gpt-oss":
            block |= {"attn_sinks": rng.normal(size=heads).astype(np.float32)}
        biases = {name: rng.normal(size=block[name].shape[:-1]).astype(np.float32) for name in FAMILIES[arch].biases}
        for name in ("ffn_gate_exps", "ffn_up_exps"):  # values beyond the limits of gpt-oss's activation
            if name in biases:
                biases[name] *= np.float32(6)
        for whole, parts in FAMILIES[arch].fused.items():
            block[whole] = np.concatenate([block.pop(part) for part in parts])
        weights |= {f"blk.{i}.{name}.weight": value for name, value in block.items()}
        weights |= {f"blk.{i}.{name}.bias": value for name, value in biases.items()}
    return weights


class Bench:
    """Writes models into one temporary folder and opens them."""

    def __init__(self, folder: str):
        self._folder = Path(folder)
        self._count = 0

    def model(self, weights: dict[str, np.ndarray], *, heads=4, kv=2, head_dim=16, rope_dim=None, eps=1e-5,
              arch="llama", quantize: gguf.GGMLQuantizationType | None = None, keys=None) -> GgufModel:
        """`keys`: values of the architecture beyond those that all models have; a mixture's are there."""
        self._count += 1
        path = self._folder / f"{self._count}.gguf"
        writer = gguf.GGUFWriter(path, arch)
        writer.add_block_count(sum(name.endswith("attn_output.weight") for name in weights))
        writer.add_context_length(64)
        writer.add_embedding_length(weights["token_embd.weight"].shape[1])
        if arch in MIXTURES:
            writer.add_feed_forward_length(7)  # of layers without experts
            writer.add_expert_feed_forward_length(weights["blk.0.ffn_up_exps.weight"].shape[1])
            writer.add_expert_count(len(weights["blk.0.ffn_up_exps.weight"]))
            writer.add_expert_used_count(USED)
        else:
            writer.add_feed_forward_length(weights["blk.0.ffn_down.weight"].shape[1])
        for key, value in (keys or {}).items():
            add = {float: writer.add_float32, bool: writer.add_bool, int: writer.add_uint32, str: writer.add_string}[type(value)]
            add(f"{arch}.{key}", value)
        writer.add_head_count(heads)
        writer.add_head_count_kv(kv)
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
        writer.add_rope_dimension_count(rope_dim or head_dim)
        writer.add_rope_freq_base(500.0)
        writer.add_layer_norm_rms_eps(eps)
        for name, value in weights.items():
            if quantize and value.ndim > 1 and "ffn_gate_inp" not in name and name.endswith("weight"):
                writer.add_tensor(name, gguf.quants.quantize(value, quantize), raw_dtype=quantize)
            else:
                writer.add_tensor(name, value)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return GgufModel(path)


def logits(model: GgufModel, ids=IDS, arithmetic: Arithmetic = Arithmetic()) -> np.ndarray:
    return LlamaF64(model, arithmetic).forward(ids)


def dumped(model: GgufModel, steps: list[int] | None = None, ids=IDS, **more) -> ActivationDump:
    return run(model, ids, steps or [len(ids)], 0, dtype=np.float64, **more)[0]


def tap_names(arch: str) -> tuple[str, ...]:
    """Of a layer."""
    more = ("router", "ffn_mix") if arch in MIXTURES else ("attn_post", "ffn_post") if arch == "gemma3" else ()
    return LAYER_TAPS + more


def taps_of(dump: ActivationDump, layer: int | None, arch: str = "llama") -> dict[str, np.ndarray]:
    """Of a layer, or outside of the layers, the rows of all steps."""
    names = tap_names(arch) if layer is not None else GLOBAL_TAPS
    place = "G" if layer is None else f"L{layer:03d}"
    return {name: np.concatenate([dump.get(step, f"{place}/{name}") for step in range(dump.n_steps)]) for name in names}
