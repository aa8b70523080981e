"""Blocks of weights (docs/formats.md) as whole numbers, and their products with activations (docs/numerics.md)."""

from dataclasses import dataclass

import numpy as np
from contract import quantize

from gguf_model import GgufModel
from hparams import UnsupportedModel

from .contract import F32, F64, fma

ROWS = 2048  # of a matrix at a time, for the sake of memory


@dataclass
class Matrix:
    """Row r, block b: weight k is d[r, b] q[r, b, k] + m[r, b] o[r, b, k], with whole q and o. Where o is None there is no second
    term. Of floats n is 1, q the weights as f32 and d None."""
    n: int
    q: np.ndarray
    d: np.ndarray | None = None
    o: np.ndarray | None = None
    m: np.ndarray | None = None

    def dequantized(self) -> np.ndarray:
        if self.d is None:
            return self.q
        x = self.d[..., None] * self.q.astype(F32)
        if self.o is not None:
            x = x + self.m[..., None] * self.o.astype(F32)
        return x.reshape(len(x), -1)

    def as_floats(self) -> "Matrix":
        return Matrix(1, self.dequantized())

    def product(self, x: np.ndarray) -> np.ndarray:
        """(T, K) to (T, rows)."""
        part, inputs = (self._float_product, (x,)) if self.d is None else (self._block_product, quantize(x, self.n))
        return np.concatenate([part(slice(r, r + ROWS), *inputs) for r in range(0, len(self.q), ROWS)], axis=1)

    def _float_product(self, rows: slice, x: np.ndarray) -> np.ndarray:
        weights = self.q[rows].T.astype(F64)
        acc = np.zeros((len(x), weights.shape[1]), F32)
        for k, column in enumerate(x.T.astype(F64)):
            acc = fma(column[:, None], weights[k], acc)
        return acc

    def _block_product(self, rows: slice, xq: np.ndarray, xd: np.ndarray) -> np.ndarray:
        kind = F32 if self.n == 32 else F64  # sums of whole numbers are exact in it, in any order
        d = self.d[rows]
        acc = np.zeros((len(xq), len(d)), F32)
        for b in range(d.shape[1]):
            x = xq[:, b].astype(kind)
            isum = (x @ self.q[rows, b].T.astype(kind)).astype(F32)
            acc = fma(isum, xd[:, b, None] * d[:, b], acc)
            if self.o is not None:
                msum = (x @ self.o[rows, b].T.astype(kind)).astype(F32)
                acc = fma(msum, xd[:, b, None] * self.m[rows, b], acc)
        return acc


def f16(bytes_: np.ndarray) -> np.ndarray:
    """The two bytes of the last axis as one f16, widened."""
    return np.ascontiguousarray(bytes_).view("<f2")[..., 0].astype(F32)


def nibbles(b: np.ndarray) -> np.ndarray:
    """(..., n) bytes as (..., 2 n) codes: all low halves, then all high ones."""
    return np.concatenate([b & 15, b >> 4], axis=-1)


def fifth_bits(b: np.ndarray) -> np.ndarray:
    return np.unpackbits(b, axis=-1, bitorder="little") << 4


def small(q: np.ndarray, offset: int = 0) -> np.ndarray:
    return q.astype(np.int8) - np.int8(offset)


def q4_0(b):
    return Matrix(32, small(nibbles(b[..., 2:]), 8), f16(b[..., :2]))


def q4_1(b):
    q = small(nibbles(b[..., 4:]))
    return Matrix(32, q, f16(b[..., :2]), np.broadcast_to(np.int8(1), q.shape), f16(b[..., 2:4]))


def q5_0(b):
    return Matrix(32, small(nibbles(b[..., 6:]) | fifth_bits(b[..., 2:6]), 16), f16(b[..., :2]))


def q5_1(b):
    q = small(nibbles(b[..., 8:]) | fifth_bits(b[..., 4:8]))
    return Matrix(32, q, f16(b[..., :2]), np.broadcast_to(np.int8(1), q.shape), f16(b[..., 2:4]))


def q8_0(b):
    return Matrix(32, b[..., 2:].view(np.int8), f16(b[..., :2]))


def packed_bits(b: np.ndarray, bits: int) -> Matrix:
    """Behind d 16 bytes of codes, as blocks of 32 with the same d."""
    codes = (b[..., 2:, None] >> np.arange(0, 8, bits, dtype=np.uint8) & (2 ** bits - 1)).astype(np.int8)
    q = (2 * codes - 1 if bits == 1 else codes - 1).reshape(len(b), -1, 32)
    return Matrix(32, q, np.repeat(f16(b[..., :2]), 4 // bits, axis=-1))


def q1_0(b):
    return packed_bits(b, 1)


def q2_0(b):
    return packed_bits(b, 2)


def scales_and_mins(b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """12 bytes to 8 scales and 8 mins of 6 bits."""
    low, high, top = b[..., :4], b[..., 4:8], b[..., 8:]
    scales = np.concatenate([low & 63, (top & 15) | (low >> 6) << 4], axis=-1)
    mins = np.concatenate([high & 63, (top >> 4) | (high >> 6) << 4], axis=-1)
    return scales, mins


def with_mins(b: np.ndarray, q: np.ndarray) -> Matrix:
    """q (..., 8, 32), unsigned, behind d, dmin and 12 bytes of scales."""
    shape = (*q.shape[:-2], 256)
    scales, mins = (np.repeat(x, 32, axis=-1).astype(np.int16) for x in scales_and_mins(b[..., 4:16]))
    return Matrix(256, q.reshape(shape) * scales, f16(b[..., :2]), mins, -f16(b[..., 2:4]))


def q4_k(b):
    return with_mins(b, nibbles(b[..., 16:].reshape(*b.shape[:-1], 4, 32)))


def q5_k(b):
    high = np.unpackbits(b[..., 16:48, None], axis=-1, bitorder="little").swapaxes(-1, -2) << 4
    return with_mins(b, nibbles(b[..., 48:].reshape(*b.shape[:-1], 4, 32)).reshape(high.shape) | high)


def q6_k(b):
    low = b[..., :128].reshape(*b.shape[:-1], 2, 64)
    high = b[..., 128:192].reshape(*b.shape[:-1], 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    q = nibbles(low) | high.reshape(*low.shape[:-1], 128) << 4
    scales = np.repeat(b[..., 192:208].view(np.int8), 16, axis=-1).astype(np.int16)
    return Matrix(256, (q.astype(np.int16) - 32).reshape(*b.shape[:-1], 256) * scales, f16(b[..., 208:]))


FLOATS = ("F32", "F16", "BF16")
# A type's bytes of a block, and the reader of (rows, blocks, bytes).
BLOCKS = {"Q1_0": (18, q1_0), "Q2_0": (18, q2_0), "Q4_0": (18, q4_0), "Q4_1": (20, q4_1), "Q5_0": (22, q5_0), "Q5_1": (24, q5_1),
          "Q8_0": (34, q8_0), "Q4_K": (144, q4_k), "Q5_K": (176, q5_k), "Q6_K": (210, q6_k)}


def read_matrix(model: GgufModel, name: str) -> Matrix:
    kind = model.type_name(name)
    if kind in FLOATS:
        return Matrix(1, np.atleast_2d(model.weight(name, F32)))
    if kind not in BLOCKS:
        raise UnsupportedModel(f"{name}: weights of type {kind}; there are {', '.join((*FLOATS, *BLOCKS))}")
    size, reader = BLOCKS[kind]
    rows = model.rows(name)
    return reader(rows.reshape(len(rows), -1, size))
