"""A Hugging Face checkpoint directory: its JSON files and its tensors, read as they are needed."""

import json
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np

# safetensors' names of the element types that weights, and codes of weights, have, and how numpy holds their bytes. BF16 is u16.
DTYPES = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2"), "U8": np.dtype("u1")}
HEADER_LIMIT = 100 << 20  # the format's own


class ConversionError(Exception):
    """What a checkpoint holds and why it is not converted, for the user."""


def bf16_to_f32(bits: np.ndarray) -> np.ndarray:
    """BF16, as u16, is the upper half of an f32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def f32_to_bf16(x: np.ndarray) -> np.ndarray:
    """To nearest, ties to even, as u16. NaN stays NaN."""
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(x), np.uint16(0x7FC0), rounded)


class Tensor:
    """One tensor of a checkpoint; its bytes stay in the file until they are asked for."""

    def __init__(self, path: Path, name: str, dtype: str, shape: list[int], begin: int, end: int):
        self.name, self.dtype, self.shape = name, dtype, tuple(shape)
        self._path, self._begin = path, begin
        if dtype not in DTYPES:
            raise ConversionError(f"{path.name}: {name} has elements of type {dtype}; need F32, F16 or BF16")
        if end - begin != int(np.prod(self.shape, dtype=np.int64)) * DTYPES[dtype].itemsize:
            raise ConversionError(f"{path.name}: {name} has {end - begin} bytes, which are not {shape} of {dtype}")
        if begin < 0 or end > path.stat().st_size:
            raise ConversionError(f"{path.name}: {name} reaches beyond the end of the file: it is cut short")

    def raw(self) -> np.ndarray:
        """The elements as they are stored; BF16 as u16."""
        if 0 in self.shape:
            return np.empty(self.shape, DTYPES[self.dtype])
        return np.memmap(self._path, DTYPES[self.dtype], "r", self._begin, self.shape)

    def f32(self) -> np.ndarray:
        raw = self.raw()
        return bf16_to_f32(raw) if self.dtype == "BF16" else raw.astype(np.float32)


class Stack(Tensor):
    """Tensors of one type and shape as one, each a slice of it."""

    def __init__(self, name: str, slices: list[Tensor]):
        kinds = sorted({f"{tensor.dtype} {list(tensor.shape)}" for tensor in slices})
        if len(kinds) > 1:
            raise ConversionError(f"{name}: experts differ in type or shape: {', '.join(kinds)}")
        self.name, self.dtype, self.shape = name, slices[0].dtype, (len(slices), *slices[0].shape)
        self._slices = slices

    def raw(self) -> np.ndarray:
        return np.stack([tensor.raw() for tensor in self._slices])


class Part(Tensor):
    """Some elements of a tensor, or in another order: those of a view that `pick` gives."""

    def __init__(self, whole: Tensor, pick: Callable[[np.ndarray], np.ndarray]):
        self.name, self.dtype = whole.name, whole.dtype
        self.shape = pick(np.broadcast_to(np.zeros((), np.uint8), whole.shape)).shape  # takes no memory
        self._whole, self._pick = whole, pick

    def raw(self) -> np.ndarray:
        return self._pick(self._whole.raw())


class Mxfp4(Tensor):
    """Every `step`-th row from `first` on of matrices in MXFP4: blocks of 32 weights, 16 bytes of codes, weight 2 k in the
    low half of byte k, and an exponent. `raw()` are GGUF's blocks: the exponent, then bytes with weight k low and 16 + k high."""

    VALUES = np.array([0, 1, 2, 3, 4, 6, 8, 12, -0.0, -1, -2, -3, -4, -6, -8, -12], np.float32)  # times 2^(exponent - 128)

    def __init__(self, codes: Tensor, exponents: Tensor, first: int, step: int):
        self.name, self.dtype = codes.name, "MXFP4"
        self._codes, self._exponents, self._rows = codes, exponents, slice(first, None, step)
        n, rows, blocks, _ = codes.shape
        self.shape = (n, len(range(rows)[self._rows]), 32 * blocks)

    def _weights(self) -> tuple[np.ndarray, np.ndarray]:
        """Codes [matrix, row, block, 32] in the order of weights, exponents [matrix, row, block, 1]."""
        bytes_ = self._codes.raw()[:, self._rows]
        codes = np.stack([bytes_ & 15, bytes_ >> 4], axis=-1).reshape(*bytes_.shape[:-1], 32)
        return codes, self._exponents.raw()[:, self._rows, :, None]

    def raw(self) -> np.ndarray:
        codes, exponents = self._weights()
        blocks = np.concatenate([exponents, codes[..., :16] | codes[..., 16:] << 4], axis=-1)
        return blocks.reshape(*self.shape[:2], -1)

    def f32(self) -> np.ndarray:
        codes, exponents = self._weights()
        with np.errstate(over="ignore"):
            return np.ldexp(self.VALUES[codes], exponents.astype(np.int32) - 128).reshape(self.shape)


def read_json(path: Path) -> dict:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ConversionError(f"{path.name} is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise ConversionError(f"{path.name} is no JSON object")
    return value


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """The tensors of one file. Source: the format's description in safetensors' README."""
    with open(path, "rb") as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        header = file.read(length) if 0 < length <= HEADER_LIMIT else b""
    try:
        described = json.loads(header)
        entries = {name: Tensor(path, name, entry["dtype"], entry["shape"],
                                *(8 + length + at for at in entry["data_offsets"]))
                   for name, entry in described.items() if name != "__metadata__"}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConversionError(f"{path.name} is no safetensors file, or is cut short ({error})") from error
    return entries


class Checkpoint:
    """A checkpoint directory. `config` is its config.json; other JSON files are {} where there are none."""

    def __init__(self, directory: Path):
        self.directory = directory
        if not directory.is_dir():
            raise ConversionError("no such directory; need that of a checkpoint, with config.json and *.safetensors")
        if not self.has("config.json"):
            raise ConversionError("no config.json; need the directory of a Hugging Face checkpoint")
        self.config = read_json(directory / "config.json")
        self.tensors = self._read_tensors()

    def has(self, name: str) -> bool:
        return (self.directory / name).is_file()

    def json(self, name: str) -> dict:
        return read_json(self.directory / name) if self.has(name) else {}

    def _read_tensors(self) -> dict[str, Tensor]:
        if self.has("model.safetensors.index.json"):
            index = self.json("model.safetensors.index.json").get("weight_map")
            if not isinstance(index, dict):
                raise ConversionError("model.safetensors.index.json has no weight_map")
            files = sorted(set(index.values()))
        elif self.has("model.safetensors"):
            index, files = None, ["model.safetensors"]
        else:
            pickled = sorted(p.name for p in self.directory.glob("pytorch_model*.bin"))
            hint = (f"{pickled[0]} is a pickle, which can run code and is not read; save the model as safetensors "
                    "(save_pretrained of transformers does)" if pickled else "need model.safetensors, or its parts and "
                    "model.safetensors.index.json")
            raise ConversionError(f"no safetensors: {hint}")
        tensors: dict[str, Tensor] = {}
        for name in files:
            if "/" in name or not self.has(name):
                raise ConversionError(f"{name} is missing, which model.safetensors.index.json names")
            tensors |= read_safetensors(self.directory / name)
        lost = [name for name in index or () if name not in tensors]
        if lost:
            raise ConversionError(f"{lost[0]} is not in {index[lost[0]]}, where model.safetensors.index.json has it")
        return tensors
