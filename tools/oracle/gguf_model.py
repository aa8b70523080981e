"""Loads a GGUF of the Llama family for the numpy oracles: hyper-parameters, weights (dequantized by the `gguf` package),
hashes.

Anything the oracle does not model (shared experts, other RoPE scalings, leftover tensors) is refused, so that an agreement with
the oracle can never rest on both sides ignoring the same part of a file.
"""

import hashlib
import math
import mmap
import os
import struct
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np


class UnsupportedModel(Exception):
    """The file is readable, but needs something this oracle does not compute."""


@dataclass(frozen=True)
class Family:
    """In what an architecture differs from the others, by transformers' modeling_llama, modeling_qwen2, modeling_qwen3,
    modeling_qwen3_moe, modeling_smollm3, modeling_gemma3, modeling_granite."""

    qk_layout: str  # dims of a head that RoPE pairs: neighbours ("interleaved") or halves of the head ("half")
    qkv_bias: bool = False
    head_norm: bool = False  # RMSNorm of each head of q and k before RoPE
    post_norms: bool = False  # RMSNorm of what attention and feed-forward add
    activation: str = "silu"  # of llama_f64.ACTIVATIONS
    scaled_embedding: bool = False  # by the root of d_model
    window_period: int = 0  # each layer but every so many has the sliding window; 1: all; 0: there is none
    window_theta: float | None = None  # RoPE's in layers with a window
    no_rope_period: int = 0  # of so many layers the last has no RoPE; 0: all have it
    experts: bool = False  # the feed-forward is a mixture of some of many
    scales: bool = False  # the file has those of the embedding, scores, residuals and logits
    wide_layers: int = 0  # a model of so many layers scales scores by the root of d_model / n_heads, not of head_dim


FAMILIES = {"llama": Family("interleaved", window_period=1), "smollm3": Family("interleaved", no_rope_period=4),
            "qwen2": Family("half", qkv_bias=True), "qwen3": Family("half", head_norm=True),
            "qwen3moe": Family("half", head_norm=True, experts=True),
            "gemma3": Family("half", head_norm=True, post_norms=True, activation="gelu_tanh", scaled_embedding=True, window_period=6,
                             window_theta=10000.0, wide_layers=62),
            "granite": Family("interleaved", scales=True)}


@dataclass(frozen=True)
class HParams:
    """Hyper-parameters of a decoder, as the file states them (f32 values widened to f64)."""

    n_layers: int
    d_model: int
    d_ff: int  # of one expert, where there are any
    n_heads: int
    n_kv_heads: int
    head_dim: int  # width of one query or key head
    value_dim: int  # width of one value head
    rope_dim: int  # leading dims of each head that are rotated, even, <= head_dim
    rope_theta: float
    rope_scale: float  # positions are divided by it (linear scaling), 1 = none
    window: int  # positions that a token attends to, its own the last; 0 = all
    eps: float
    context_length: int
    window_period: int
    window_theta: float | None
    no_rope_period: int
    n_experts: int  # 0: the feed-forward is no mixture
    n_experts_used: int  # by a token
    attention_scale: float  # scores are multiplied by it
    embedding_scale: float  # and a row of the embedding by this
    residual_scale: float  # and what attention and feed-forward add
    logit_scale: float  # logits are divided by it

    def window_of(self, layer: int) -> int:
        """Of that layer, or 0."""
        return self.window if self.window_period == 1 or (layer + 1) % self.window_period else 0

    def rope_of(self, layer: int) -> tuple[float, float]:
        """Theta and scale of that layer; the scale is infinite where nothing rotates."""
        if self.no_rope_period and (layer + 1) % self.no_rope_period == 0:
            return self.rope_theta, math.inf
        if self.window_theta is not None and self.window_of(layer):
            return self.window_theta, 1.0
        return self.rope_theta, self.rope_scale


_REFUSED_KEYS = ("attention.clamp_kqv", "rope.scaling.attn_factor", "rope.scale_linear", "attn_logit_softcapping",
                 "final_logit_softcapping", "rope.dimension_sections")
_SCALE_KEYS = ("logit_scale", "residual_scale", "embedding_scale", "attention.scale")  # of families with scales
# Of mixtures: the values that change nothing.
_EXPERT_KEYS = {"expert_shared_count": (0,), "expert_shared_feed_forward_length": (0,), "leading_dense_block_count": (0,),
                "expert_weights_scale": (0.0, 1.0), "expert_weights_norm": (True,), "expert_gating_func": (1,),
                "expert_group_count": (0, 1), "interleave_moe_layer_step": (0, 1)}


BLOCK_BYTES = 16 << 20  # of f64, of the rows of a matrix that a product has in memory at once


def dequantize(data: np.ndarray, kind: gguf.GGMLQuantizationType) -> np.ndarray:
    """Rows of a tensor, as the reader gives them, exactly: in f32, where that holds them, or f64."""
    if kind == gguf.GGMLQuantizationType.Q8_K:  # the package has no code for it: f32 d, i8 q[256], i16 sums[16]
        blocks = data.reshape(*data.shape[:-1], -1, 292)
        scales = np.ascontiguousarray(blocks[..., :4]).view("<f4")
        return (scales.astype(np.float64) * blocks[..., 4:260].view(np.int8)).reshape(*data.shape[:-1], -1)
    try:
        return gguf.quants.dequantize(data, kind)
    except NotImplementedError as error:
        raise UnsupportedModel(f"weights of type {kind.name}: {error}") from error


def machine_bytes() -> int:
    """The memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class GgufModel:
    """A GGUF opened for reading (mapped, never copied). Weights are handed out in f64.

    A product dequantizes its matrix some rows at a time. What it dequantized is kept, in the 4 bytes a weight that hold it,
    while the total stays below `cache_bytes` (default: a quarter of the machine's memory); the rest is dequantized anew by
    each product. So a model of any size runs.
    """

    def __init__(self, path: str | Path, cache_bytes: int | None = None):
        self.path = Path(path)
        self._reader = gguf.GGUFReader(self.path)
        self._tensors = {t.name: t for t in self._reader.tensors}
        self._cache: dict[tuple[str, int], dict[int, np.ndarray]] = {}
        self._cache_bytes = machine_bytes() // 4 if cache_bytes is None else cache_bytes
        self.hparams = self._read_hparams()
        self._check_tensors()

    @property
    def name(self) -> str:
        return self._value("general.name", "")

    def value(self, key: str, default=None):
        """The metadata value of `key`, or `default`."""
        return self._value(key, default)

    def sha256(self) -> str:
        """SHA-256 of the whole file, hex."""
        with open(self.path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def tokenizer_hash(self) -> str:
        """SHA-256, hex, over every vocabulary entry in id order: u32 byte length, the bytes, f32 score, i32 type, all
        little-endian (score 0 and type 1 where the file has none). Empty string without a vocabulary."""
        tokens = self._reader.get_field("tokenizer.ggml.tokens")
        if tokens is None:
            return ""
        n = len(tokens.data)
        scores = self._value("tokenizer.ggml.scores", [0.0] * n)
        types = self._value("tokenizer.ggml.token_type", [1] * n)
        digest = hashlib.sha256()
        for index, score, kind in zip(tokens.data, scores, types, strict=True):
            raw = bytes(tokens.parts[index])
            digest.update(struct.pack("<I", len(raw)) + raw + struct.pack("<fi", score, kind))
        return digest.hexdigest()

    def merges_hash(self) -> str:
        """SHA-256, hex, over the pre-tokenizer's name and every merge in the file's order, each as u32 byte length,
        little-endian, and the bytes. Empty string for vocabularies that are no byte-level BPE."""
        if self._value("tokenizer.ggml.model") != "gpt2":
            return ""
        digest = hashlib.sha256()
        merges = self._reader.get_field("tokenizer.ggml.merges")
        pre = self._reader.get_field("tokenizer.ggml.pre")
        texts = [bytes(pre.parts[pre.data[0]]), *(bytes(merges.parts[index]) for index in merges.data)]
        for text in texts:
            digest.update(struct.pack("<I", len(text)) + text)
        return digest.hexdigest()

    def has(self, name: str) -> bool:
        return name in self._tensors

    def tensor_names(self) -> list[str]:
        return list(self._tensors)

    @property
    def vocab_size(self) -> int:
        return self._tensors["token_embd.weight"].data.shape[0]

    def type_name(self, name: str) -> str:
        """The tensor's type: "F16", "Q4_K", ..."""
        return self._tensors[name].tensor_type.name

    def weight(self, name: str, dtype: type = np.float64) -> np.ndarray:
        """The dequantized tensor, shape as numpy sees it: [outputs, inputs] for a matrix."""
        tensor = self._tensors[name]
        return dequantize(tensor.data, tensor.tensor_type).astype(dtype, copy=False)

    def release(self) -> None:
        """Gives back the memory of the file's pages read so far; they are read again where needed."""
        self._reader.data._mmap.madvise(mmap.MADV_DONTNEED)

    def product(self, x: np.ndarray, name: str, expert: int = 0) -> np.ndarray:
        """x @ weight(name).T of x [T, inputs] in f64: [T, outputs], with one block of the matrix in memory at a time. Of a
        tensor that has a matrix for each expert, by that expert's."""
        tensor = self._tensors[name]
        inputs, outputs = (int(n) for n in tensor.shape[:2])
        data = tensor.data[expert] if len(tensor.shape) == 3 else tensor.data
        rows = max(1, BLOCK_BYTES // (8 * inputs))
        kept = self._kept(name, expert, outputs, inputs)
        out = np.empty((len(x), outputs))
        for begin in range(0, outputs, rows):
            block = slice(begin, min(begin + rows, outputs))
            if kept is None:
                weights = dequantize(data[block], tensor.tensor_type)
            elif begin in kept:
                weights = kept[begin]
            else:
                weights = kept[begin] = dequantize(data[block], tensor.tensor_type)
            out[:, block] = x @ weights.astype(np.float64).T
        return out

    def _kept(self, name: str, expert: int, outputs: int, inputs: int) -> dict[int, np.ndarray] | None:
        """Blocks of a matrix by their first row, to be filled by its product; None where there is no room for it."""
        size = outputs * inputs * (8 if self.type_name(name) == "Q8_K" else 4)
        if (name, expert) not in self._cache and size <= self._cache_bytes:
            self._cache_bytes -= size
            self._cache[name, expert] = {}
        return self._cache.get((name, expert))

    def embedding_rows(self, ids: np.ndarray) -> np.ndarray:
        """Rows `ids` of token_embd in f64, [len(ids), d_model]; dequantizes only those rows."""
        tensor = self._tensors["token_embd.weight"]
        if ids.min() < 0 or ids.max() >= tensor.data.shape[0]:
            raise ValueError(f"token id outside [0, {tensor.data.shape[0]})")
        return dequantize(tensor.data[ids], tensor.tensor_type).astype(np.float64)

    def _value(self, key: str, default=None):
        field = self._reader.get_field(key)
        return default if field is None else field.contents()

    def _scalar(self, key: str, default=None):
        """A metadata number of the architecture; a per-layer array is accepted if all its entries agree."""
        value = self._value(f"{self.architecture}.{key}", default)
        if isinstance(value, list):
            if len(set(value)) != 1:
                raise UnsupportedModel(f"{self.architecture}.{key} differs between layers")
            value = value[0]
        if value is None:
            raise UnsupportedModel(f"{self.architecture}.{key} is missing")
        return value

    @property
    def architecture(self) -> str:
        return self._value("general.architecture")

    @property
    def family(self) -> Family:
        return FAMILIES[self.architecture]

    def _read_hparams(self) -> HParams:
        arch = self.architecture
        if arch not in FAMILIES:
            raise UnsupportedModel(f"architecture {arch!r}, only {', '.join(FAMILIES)} are modelled")
        for key in _REFUSED_KEYS + (() if self.family.scales else _SCALE_KEYS):
            if self._value(f"{arch}.{key}") is not None:
                raise UnsupportedModel(f"{arch}.{key} is not modelled")
        if self.family.scales and not self._value(f"{arch}.rope.scaling.finetuned", True):
            raise UnsupportedModel(f"{arch}.rope.scaling.finetuned is false: a model without RoPE is not modelled")
        experts = self.family.experts
        if experts:
            for key, allowed in _EXPERT_KEYS.items():
                if self._value(f"{arch}.{key}", allowed[0]) not in allowed:
                    raise UnsupportedModel(f"{arch}.{key} is not modelled")
        elif self._value(f"{arch}.expert_count", 0):
            raise UnsupportedModel("mixture of experts is not modelled")
        if not FAMILIES[arch].window_period:
            if 0 < self._value(f"{arch}.attention.sliding_window", 0) < self._scalar("context_length"):
                raise UnsupportedModel("a sliding window is not modelled")
        d_model = self._scalar("embedding_length")
        n_heads = self._scalar("attention.head_count")
        head_dim = self._scalar("attention.key_length", d_model // n_heads)
        n_layers = self._scalar("block_count")
        root = float(np.float32(np.sqrt(d_model)))
        wide = n_layers == self.family.wide_layers
        hp = HParams(
            n_layers=n_layers,
            d_model=d_model,
            d_ff=self._scalar("expert_feed_forward_length" if experts else "feed_forward_length"),
            n_heads=n_heads,
            n_kv_heads=self._scalar("attention.head_count_kv", n_heads),
            head_dim=head_dim,
            value_dim=self._scalar("attention.value_length", d_model // n_heads),
            rope_dim=self._scalar("rope.dimension_count", head_dim),
            rope_theta=float(self._scalar("rope.freq_base", 10000.0)),
            rope_scale=self._rope_scale(),
            window=self._scalar("attention.sliding_window", 0) if self.family.window_period else 0,
            window_period=self._scalar("attention.sliding_window_pattern", self.family.window_period) or 1,
            window_theta=self.family.window_theta and float(self._scalar("rope.freq_base_swa", self.family.window_theta)),
            no_rope_period=self.family.no_rope_period,
            n_experts=self._scalar("expert_count") if experts else 0,
            n_experts_used=self._scalar("expert_used_count") if experts else 0,
            attention_scale=self._scale("attention.scale", (d_model / n_heads if wide else head_dim) ** -0.5),
            embedding_scale=self._scale("embedding_scale", root if self.family.scaled_embedding else 1.0),
            residual_scale=self._scale("residual_scale", 1.0),
            logit_scale=self._scale("logit_scale", 1.0),
            eps=float(self._scalar("attention.layer_norm_rms_epsilon")),
            context_length=self._scalar("context_length"),
        )
        if experts and not 0 < hp.n_experts_used <= hp.n_experts:
            raise UnsupportedModel(f"{hp.n_experts_used} of {hp.n_experts} experts")
        if hp.n_heads % hp.n_kv_heads:
            raise UnsupportedModel(f"{hp.n_heads} heads cannot share {hp.n_kv_heads} KV heads")
        if hp.rope_dim % 2 or not 0 < hp.rope_dim <= hp.head_dim:
            raise UnsupportedModel(f"rope.dimension_count {hp.rope_dim} with head_dim {hp.head_dim}")
        return hp

    def _scale(self, key: str, absent: float) -> float:
        """A number of families with scales, or `absent`; 0 means "not set" in files written by llama.cpp."""
        return float(self._scalar(key, 0.0) if self.family.scales else 0.0) or absent

    def _rope_scale(self) -> float:
        kind = self._value(f"{self.architecture}.rope.scaling.type", "none")
        if kind == "none":
            return 1.0
        if kind != "linear":
            raise UnsupportedModel(f"rope scaling {kind!r}, only 'linear' is modelled")
        factor = float(self._scalar("rope.scaling.factor"))
        return factor if factor != 0.0 else 1.0  # 0 means "not set" in files written by llama.cpp

    def _check_tensors(self) -> None:
        hp = self.hparams
        q_width, kv_width, v_width = hp.n_heads * hp.head_dim, hp.n_kv_heads * hp.head_dim, hp.n_kv_heads * hp.value_dim
        layer = {"attn_norm": (hp.d_model,), "attn_q": (q_width, hp.d_model), "attn_k": (kv_width, hp.d_model),
                 "attn_v": (v_width, hp.d_model), "attn_output": (hp.d_model, hp.n_heads * hp.value_dim),
                 "ffn_norm": (hp.d_model,)}
        ffn = {"ffn_gate": (hp.d_ff, hp.d_model), "ffn_up": (hp.d_ff, hp.d_model), "ffn_down": (hp.d_model, hp.d_ff)}
        if self.family.experts:
            ffn = {f"{name}_exps": (hp.n_experts, *shape) for name, shape in ffn.items()}
            ffn["ffn_gate_inp"] = (hp.n_experts, hp.d_model)
        vectors = {f"attn_{x}.bias": (width,) for x, width in zip("qkv", (q_width, kv_width, v_width))
                   } if self.family.qkv_bias else {}
        if self.family.head_norm:
            vectors |= {"attn_q_norm.weight": (hp.head_dim,), "attn_k_norm.weight": (hp.head_dim,)}
        if self.family.post_norms:
            vectors |= {"post_attention_norm.weight": (hp.d_model,), "post_ffw_norm.weight": (hp.d_model,)}
        of_layer = {f"{name}.weight": shape for name, shape in (layer | ffn).items()} | vectors
        want = {f"blk.{i}.{name}": shape for i in range(hp.n_layers) for name, shape in of_layer.items()}
        want["output_norm.weight"] = (hp.d_model,)
        vocab = self._tensors["token_embd.weight"].shape[1] if self.has("token_embd.weight") else 0
        want["token_embd.weight"] = (vocab, hp.d_model)
        optional = {"output.weight": (vocab, hp.d_model), "rope_freqs.weight": (hp.rope_dim // 2,)}
        for name, shape in (want | {k: v for k, v in optional.items() if self.has(k)}).items():
            if not self.has(name):
                raise UnsupportedModel(f"tensor {name} is missing")
            found = tuple(int(n) for n in reversed(self._tensors[name].shape))  # ne[] has inputs first
            if found != shape:
                raise UnsupportedModel(f"tensor {name} has shape {found}, expected {shape}")
        extra = sorted(set(self._tensors) - set(want) - set(optional))
        if extra:
            raise UnsupportedModel(f"tensors that the oracle would ignore: {extra[:5]}")
