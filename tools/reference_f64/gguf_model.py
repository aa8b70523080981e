"""Loads a GGUF of the Llama family for the numpy oracles: hyper-parameters (hparams.py), weights (dequantized by the `gguf`
package), hashes. Leftover tensors are refused.
"""

import hashlib
import mmap
import os
import struct
from pathlib import Path

import gguf
import numpy as np

from hparams import Family, Reader, UnsupportedModel, family_of, layer_shapes

UNSCALED = ("token_embd.weight", "ffn_gate_inp.weight", "ssm_conv1d.weight", "shortconv.conv.weight", "ssm_norm.weight")  # of more dims than one
BLOCK_BYTES = 16 << 20  # of f64, of the rows of a matrix that a product has in memory at once


def know_q2_0() -> None:
    """Adds the type to the gguf package, whose reader refuses ids that it does not know."""
    kinds = gguf.GGMLQuantizationType
    if 42 not in kinds._value2member_map_:
        kind = int.__new__(kinds, 42)
        kind._name_, kind._value_ = "Q2_0", 42
        kinds._member_map_["Q2_0"] = kinds._value2member_map_[42] = kind
        gguf.GGML_QUANT_SIZES[kind] = (64, 18)


know_q2_0()


def dequantize(data: np.ndarray, kind: gguf.GGMLQuantizationType) -> np.ndarray:
    """Rows of a tensor, as the reader gives them, exactly: in f32, where that holds them, or f64."""
    if kind == gguf.GGMLQuantizationType.Q8_K:  # the package has no code for it: f32 d, i8 q[256], i16 sums[16]
        blocks = data.reshape(*data.shape[:-1], -1, 292)
        scales = np.ascontiguousarray(blocks[..., :4]).view("<f4")
        return (scales.astype(np.float64) * blocks[..., 4:260].view(np.int8)).reshape(*data.shape[:-1], -1)
    if kind.name in ("Q1_0", "Q2_0"):  # nor for these: f16 d, codes of one or two bits in 16 bytes
        bits = int(kind.name[1])
        blocks = data.reshape(*data.shape[:-1], -1, 18)
        scales = np.ascontiguousarray(blocks[..., :2]).view("<f2").astype(np.float32)
        codes = blocks[..., 2:, None] >> np.arange(0, 8, bits, dtype=np.uint8) & (2 ** bits - 1)
        codes = codes.reshape(*blocks.shape[:-1], -1).astype(np.float32) * (2 if bits == 1 else 1) - 1
        return (scales * codes).reshape(*data.shape[:-1], -1)
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
        self.hparams = Reader(self.value).read()
        self._check_tensors()

    @property
    def name(self) -> str:
        return self.value("general.name", "")

    def value(self, key: str, default=None):
        """The metadata value of `key`, or `default`."""
        field = self._reader.get_field(key)
        return default if field is None else field.contents()

    def values(self, prefix: str) -> dict:
        """Those of the keys with that prefix, by what follows it."""
        return {key.removeprefix(prefix): field.contents() for key, field in self._reader.fields.items() if key.startswith(prefix)}

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
        scores = self.value("tokenizer.ggml.scores", [0.0] * n)
        types = self.value("tokenizer.ggml.token_type", [1] * n)
        digest = hashlib.sha256()
        for index, score, kind in zip(tokens.data, scores, types, strict=True):
            raw = bytes(tokens.parts[index])
            digest.update(struct.pack("<I", len(raw)) + raw + struct.pack("<fi", score, kind))
        return digest.hexdigest()

    def merges_hash(self) -> str:
        """SHA-256, hex, over the pre-tokenizer's name and every merge in the file's order, each as u32 byte length,
        little-endian, and the bytes. Empty string for vocabularies that are no byte-level BPE."""
        if self.value("tokenizer.ggml.model") != "gpt2":
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

    def rows(self, name: str) -> np.ndarray:
        """A quantized matrix as its bytes, [outputs, bytes]."""
        return self._tensors[name].data

    def weight(self, name: str, dtype: type = np.float64) -> np.ndarray:
        """The dequantized tensor, shape as numpy sees it: [outputs, inputs] for a matrix."""
        tensor = self._tensors[name]
        return dequantize(tensor.data, tensor.tensor_type).astype(dtype, copy=False)

    def release(self) -> None:
        """Gives back the memory of the file's pages read so far; they are read again where needed."""
        self._reader.data._mmap.madvise(mmap.MADV_DONTNEED)

    def product(self, x: np.ndarray, name: str, expert: int = 0) -> np.ndarray:
        """x @ weight(name).T of x [T, inputs] in f64, times the matrix's scale: [T, outputs], with one block of the matrix in memory at a time. Of a
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
        return out * self.scale(name, expert)

    def scale(self, name: str, expert: int = 0) -> float:
        """The factor of a matrix's products, from the tensor beside it; 1 where there is none."""
        beside = name.removesuffix("weight") + "scale"
        return float(self.weight(beside)[expert]) if self.has(beside) and not name.endswith(UNSCALED) else 1.0

    def _kept(self, name: str, expert: int, outputs: int, inputs: int) -> dict[int, np.ndarray] | None:
        """Blocks of a matrix by their first row, to be filled by its product; None where there is no room for it."""
        size = outputs * inputs * (8 if self.type_name(name) == "Q8_K" else 4)
        if (name, expert) not in self._cache and size <= self._cache_bytes:
            self._cache_bytes -= size
            self._cache[name, expert] = {}
        return self._cache.get((name, expert))

    def embedding_rows(self, ids: np.ndarray, name: str = "token_embd.weight") -> np.ndarray:
        """Rows `ids` of a matrix in f64, [len(ids), d_model]; dequantizes only those rows."""
        tensor = self._tensors[name]
        if ids.min() < 0 or ids.max() >= tensor.data.shape[0]:
            raise ValueError(f"token id outside [0, {tensor.data.shape[0]})")
        return dequantize(tensor.data[ids], tensor.tensor_type).astype(np.float64)

    @property
    def architecture(self) -> str:
        return self.value("general.architecture")

    @property
    def family(self) -> Family:
        return family_of(self.architecture, self.hparams.n_experts)

    def rope_divisors(self, context: int | None = None) -> np.ndarray | None:
        """What divides the frequency of each pair. LongRoPE has other divisors for a run of more than the original
        positions; `context` is how many the run is made for, by default the file's."""
        name = "rope_freqs"
        if self.has("rope_factors_long.weight"):
            is_long = (context or self.hparams.context_length) > self.hparams.original_context
            name = f"rope_factors_{'long' if is_long else 'short'}"
        return self.weight(f"{name}.weight") if self.has(f"{name}.weight") else None

    def _check_tensors(self) -> None:
        hp = self.hparams
        want = {f"blk.{i}.{name}": shape for i in range(hp.n_layers) for name, shape in layer_shapes(hp, self.family, i).items()}
        want[f"{self.family.final_norm}.weight"] = (hp.d_model,)
        vocab = self._tensors["token_embd.weight"].shape[1] if self.has("token_embd.weight") else 0
        want["token_embd.weight"] = (vocab, hp.d_model)
        pairs = (hp.rope.dims // 2,)
        if hp.d_input:
            inputs = hp.n_layers * hp.d_input
            want |= {"per_layer_token_embd.weight": (vocab, inputs), "per_layer_model_proj.weight": (inputs, hp.d_model),
                     "per_layer_proj_norm.weight": (hp.d_input,)}
        if self.family.may_lack_biases and not any(self.has(name) for name in want if name.endswith(".bias")):
            want = {name: shape for name, shape in want.items() if not name.endswith(".bias")}
        if self.family.softplus_gate:
            q = {i: f"blk.{i}.attn_gate.weight" for i in range(hp.n_layers)}
            want |= {name: want[f"blk.{i}.attn_q.weight"] for i, name in q.items() if self.has(name) and self._tensors[name].shape[1] > hp.heads[i]}
        if self.family.may_lack_head_norm and not any(self.has(name) for name in want if name.endswith("_norm.weight") and "attn_q" in name):
            want = {name: shape for name, shape in want.items() if not name.endswith(("attn_q_norm.weight", "attn_k_norm.weight"))}
        if self.family.value_norm:
            want = {name: shape for name, shape in want.items() if not name.endswith("attn_v.weight") or self.has(name)}
        optional = {"output.weight": (vocab, hp.d_model), "rope_freqs.weight": pairs}
        if self.family.expert_bias:
            optional |= {f"blk.{i}.exp_probs_b.bias": (hp.n_experts,) for i in range(hp.n_layers) if hp.has_experts(i)}
        if self.family.long_rope and (self.has("rope_factors_long.weight") or self.has("rope_factors_short.weight")):
            want |= {"rope_factors_long.weight": pairs, "rope_factors_short.weight": pairs}
            if not hp.original_context:
                raise UnsupportedModel(f"{self.architecture}.rope.scaling.original_context_length is missing")
        for name, shape in (want | optional).items():  # beside matrices that products are made with
            if name.endswith(".weight") and len(shape) > 1 and self.has(name) and not name.endswith(UNSCALED):
                optional |= {name.removesuffix("weight") + kind: shape[:-2] or (1,) for kind in ("scale", "input_scale")}
        for name, shape in (want | {k: v for k, v in optional.items() if self.has(k)}).items():
            if not self.has(name):
                raise UnsupportedModel(f"tensor {name} is missing")
            found = tuple(int(n) for n in reversed(self._tensors[name].shape))  # ne[] has inputs first
            if name.endswith(("ffn_gate_inp_shexp.weight", "exp_probs_b.bias")) and found[0] == 1:  # written with one row or as a vector
                found = found[1:]
            if name.endswith((".ssm_a", ".ssm_d")) and found == shape[:1]:  # written as a column or as a vector
                found = shape
            if found != shape:
                raise UnsupportedModel(f"tensor {name} has shape {found}, expected {shape}")
        behind = {name for name in self._tensors if name.startswith("blk.") and int(name.split(".")[1]) >= hp.n_layers}
        unread = {f"blk.{i}.{name}.weight" for i in range(hp.n_layers) if hp.kv_layer(i) != i for name in ("attn_k", "attn_v", "attn_k_norm")}
        extra = sorted(set(self._tensors) - set(want) - set(optional) - behind - unread)  # blocks behind the layers only guess
        if extra:
            raise UnsupportedModel(f"tensors that the oracle would ignore: {extra[:5]}")
