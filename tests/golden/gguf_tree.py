#!/usr/bin/env python3
"""An independent verifier of docs/manifest.md: shares no code with engine/gguf.

    gguf_tree.py MANIFEST FILE...      (of a split model all parts, in order)

Prints the root of the files' bytes, cut at the places that the manifest names; exit code 1 when it is not the
manifest's, or when the files have bytes that the manifest does not cover.
"""

import hashlib
import sys

CHUNK = 1 << 20


def sha256(prefix: int, *data: bytes) -> bytes:
    return hashlib.sha256(bytes([prefix]) + b"".join(data)).digest()


def tree(leaves: list[bytes]) -> bytes:
    """As RFC 6962 has it: the left subtree is the largest power of two below the number of leaves."""
    if len(leaves) == 1:
        return leaves[0]
    left = 1 << ((len(leaves) - 1).bit_length() - 1)
    return sha256(1, tree(leaves[:left]), tree(leaves[left:]))


def main() -> int:
    manifest, *files = sys.argv[1:]
    with open(manifest, encoding="ascii", newline="\n") as text:
        lines = text.read().split("\n")
    assert lines[0] == "gguf-tree 1" and lines[1].startswith("root ") and lines[-1] == "", "another format"
    segments = [line for line in lines[2:-1] if " " in line]
    streams = [open(path, "rb") for path in files]
    leaves = []
    part = -1
    for line in segments:
        words = line.split(" ")
        part += words[0] == "metadata"
        size = int(words[1])
        data = streams[part].read(size)
        chunks = [sha256(0, data[at : at + CHUNK]) for at in range(0, size, CHUNK)]
        leaves.append(sha256(2, tree(chunks), line.encode("ascii")))
    root = tree(leaves).hex()
    print(root)
    all_read = part + 1 == len(files) and not any(stream.read(1) for stream in streams)
    return 0 if all_read and "root " + root == lines[1] else 1


if __name__ == "__main__":
    sys.exit(main())
