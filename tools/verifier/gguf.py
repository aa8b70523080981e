"""A GGUF: its metadata, and the bytes of its tensors (docs/gguf.md)."""

import mmap
import struct
from pathlib import Path

import numpy as np

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9


class Unsupported(Exception):
    """A file or a receipt that this verifier cannot judge."""


class GGUF:
    """`keys`: name to value, arrays as numpy arrays or lists of bytes. `tensors`: name to (dims, type, offset of its data)."""

    def __init__(self, path: str | Path):
        with open(path, "rb") as file:
            self.bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.at = 0
        if self.bytes[:4] != b"GGUF" or self._scalar("I", 4) not in (2, 3):
            raise Unsupported(f"{path}: no GGUF of version 2 or 3")
        tensors, keys = self._scalar("Q"), self._scalar("Q")
        self.keys = {self._string().decode(): self._value(self._scalar("I")) for _ in range(keys)}
        self.tensors = {}
        for _ in range(tensors):
            name = self._string().decode()
            dims = [self._scalar("Q") for _ in range(self._scalar("I"))]
            self.tensors[name] = (dims, self._scalar("I"), self._scalar("Q"))
        alignment = self.keys.get("general.alignment", 32)
        self.data = -(-self.at // alignment) * alignment

    def raw(self, name: str) -> np.ndarray:
        """The bytes of a tensor and of all that follows it."""
        return np.frombuffer(self.bytes, np.uint8, offset=self.data + self.tensors[name][2])

    def model_key(self, name: str, default=None):
        """A key of the architecture's own; an error where it is needed and absent."""
        value = self.keys.get(f"{self.keys['general.architecture'].decode()}.{name}", default)
        if value is None:
            raise Unsupported(f"the model has no key {name}")
        return value

    def _scalar(self, kind: str, at: int | None = None):
        self.at = self.at if at is None else at
        value = struct.unpack_from("<" + kind, self.bytes, self.at)[0]
        self.at += struct.calcsize(kind)
        return value

    def _string(self) -> bytes:
        size = self._scalar("Q")
        self.at += size
        return self.bytes[self.at - size:self.at]

    def _value(self, kind: int):
        if kind == STRING:
            return self._string()
        if kind != ARRAY:
            return self._scalar(SCALARS[kind])
        of, count = self._scalar("I"), self._scalar("Q")
        if of == STRING:
            return [self._string() for _ in range(count)]
        values = np.frombuffer(self.bytes, "<" + SCALARS[of], count, self.at)
        self.at += values.nbytes
        return values
