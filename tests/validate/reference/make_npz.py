#!/usr/bin/env python3
"""Writes the NPZ files of tests/validate/reference/npz, as NumPy and Python's zipfile make them. Needs numpy.

    python tests/validate/reference/make_npz.py

Values follow a rule that npz_test.cpp repeats: element i (C order) of every numeric array is i * 0.5 - 2, cast to its
type (u1 and integers: i). Everything else about the files is NumPy's and zipfile's own.
"""

import io
import warnings
import zipfile
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

OUT = Path(__file__).parent / "npz"


def floats(shape, dtype) -> np.ndarray:
    return (np.arange(np.prod(shape, dtype=int)) * 0.5 - 2).reshape(shape).astype(dtype)


def integers(shape, dtype) -> np.ndarray:
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)


def encoded(array: np.ndarray, version=None, pickle: bool = False) -> bytes:
    out = io.BytesIO()
    npy.write_array(out, array, version=version, allow_pickle=pickle)
    return out.getvalue()


def zipped(name: str, members: list[tuple[str, bytes]], method: int = zipfile.ZIP_STORED) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # duplicate names are the point of one file
        with zipfile.ZipFile(OUT / name, "w", method) as archive:
            for member, data in members:
                archive.writestr(zipfile.ZipInfo(member), data, compress_type=method)


class Unseekable(io.RawIOBase):
    """A pipe: zipfile then writes sizes and CRC after the data (data descriptors)."""

    def __init__(self, path: Path):
        self._file = open(path, "wb")

    def writable(self) -> bool:
        return True

    def write(self, data) -> int:
        return self._file.write(data)

    def close(self) -> None:
        self._file.close()
        super().close()


def main() -> None:
    OUT.mkdir(exist_ok=True)
    arrays = {"f4": floats((3, 4), "<f4"), "f8": floats(5, "<f8"), "f2": floats((2, 3), "<f2"),
              "i4": integers((2, 2, 2), "<i4"), "i8": integers((), "<i8"), "u1": integers(7, "u1"),
              "empty": floats((0, 4), "<f4"), "s0000/L001/q": floats((2, 8), "<f4")}
    np.savez(OUT / "savez.npz", **arrays)
    np.savez_compressed(OUT / "savez_compressed.npz", **arrays)
    np.savez(OUT / "fortran.npz", matrix=np.asfortranarray(floats((3, 4), "<f4")),
             cube=np.asfortranarray(floats((2, 3, 4), "<f8")))
    np.savez(OUT / "big_endian.npz", f4=floats((3, 4), ">f4"), i8=integers(5, ">i8"))
    np.savez(OUT / "object.npz", thing=np.array([{"a": 1}], dtype=object))
    np.savez(OUT / "complex.npz", c=floats(3, "<c8"))
    np.savez(OUT / "structured.npz", s=np.zeros(2, dtype=[("a", "<f4"), ("b", "<i4")]))
    zipped("versions.npz", [("v1.npy", encoded(floats(6, "<f4"), (1, 0))),
                            ("v2.npy", encoded(floats(6, "<f4"), (2, 0))),
                            ("v3.npy", encoded(floats(6, "<f4"), (3, 0)))])
    zipped("bzip2.npz", [("a.npy", encoded(floats(6, "<f4")))], zipfile.ZIP_BZIP2)
    zipped("lzma.npz", [("a.npy", encoded(floats(6, "<f4")))], zipfile.ZIP_LZMA)
    zipped("duplicate.npz", [("a.npy", encoded(floats(6, "<f4"))), ("a.npy", encoded(floats(7, "<f4")))])
    zipped("traversal.npz", [("../../x.npy", encoded(floats(6, "<f4"))), ("/tmp/y.npy", encoded(floats(6, "<f4"))),
                             ("notes.txt", b"no array")])
    zipped("bomb.npz", [("a.npy", encoded(np.zeros(6 << 20, "<f4")))], zipfile.ZIP_DEFLATED)
    zipped("empty.npz", [])
    with Unseekable(OUT / "unseekable.npz") as pipe, zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", encoded(floats(6, "<f4")))
        archive.writestr("b.npy", encoded(integers(3, "<i4")))


if __name__ == "__main__":
    main()
