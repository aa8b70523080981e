#!/usr/bin/env python3
"""The hash of a receipt's rows and an opening, made anew from a dump as docs/receipts.md says, by hashlib alone.

    python3 tests/tools/audit_format_test.py BIN_DIR MODEL.gguf

MODEL is a llama without experts and windows. Exit code 0, or an error that says what differs.
"""

import ast
import hashlib
import json
import struct
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

LAYER_TAPS = ("attn_norm q k v q_rope k_rope attn_ctx attn_out ffn_inp ffn_norm gate up ffn_act ffn_out l_out").split()
INPUTS = {"q": ["attn_norm"], "k": ["attn_norm"], "v": ["attn_norm"], "q_rope": ["q"], "k_rope": ["k"], "attn_ctx": ["q_rope", "k_rope", "v"],
          "attn_out": ["attn_ctx"], "ffn_norm": ["ffn_inp"], "gate": ["ffn_norm"], "up": ["ffn_norm"], "ffn_act": ["gate", "up"],
          "ffn_out": ["ffn_act"], "l_out": ["ffn_inp", "ffn_out"], "logits": ["G/result_norm"]}
CHALLENGE, N_ROWS, N_DRAWS = "a seed of the checker", 100, 5


def sha256(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


def npy_rows(data: bytes) -> list[bytes]:
    """The rows of a two-dimensional array of f4, as bytes."""
    begin = 10 + struct.unpack_from("<H", data, 8)[0]
    header = ast.literal_eval(data[10:begin].decode())
    assert header["descr"] == "<f4" and not header["fortran_order"], header
    n, features = header["shape"]
    return [data[begin + i * features * 4:begin + (i + 1) * features * 4] for i in range(n)]


def columns_of(dump: Path) -> dict[str, list[bytes]]:
    """Rows by position of each tap, in the order of the data flow."""
    with zipfile.ZipFile(dump) as file:
        rows = {name.removeprefix("s0000/").removesuffix(".npy"): npy_rows(file.read(name)) for name in file.namelist() if "/" in name}
    n_layers = len({name.split("/")[0] for name in rows}) - 1
    names = ["G/embd"] + [f"L{layer:03}/{tap}" for layer in range(n_layers) for tap in LAYER_TAPS] + ["G/result_norm", "G/logits"]
    assert set(names) == set(rows), set(names) ^ set(rows)
    return {name: rows[name] for name in names}


def inputs_of(name: str, columns: list[str]) -> list[str]:
    layer, tap = name.split("/")
    if tap == "embd":
        return []
    before = "G/embd" if layer == "L000" else f"L{int(layer[1:]) - 1:03}/l_out" if layer != "G" else columns[-3]
    if tap in ("attn_norm", "result_norm"):
        return [before]
    if tap == "ffn_inp":
        return [before, f"{layer}/attn_out"]
    return [other if "/" in other else f"{layer}/{other}" for other in INPUTS[tap]]


def chosen(kind: str, count: int, n: int, root: str) -> set[int]:
    out: set[int] = set()
    i = 0
    while len(out) < min(count, n):
        digest = sha256(root.encode(), kind.encode(), struct.pack("<Q", i), CHALLENGE.encode())
        out.add(struct.unpack_from("<Q", digest)[0] % n)
        i += 1
    return out


def tree(level: list[bytes], known: set[int]) -> tuple[bytes, list[bytes]]:
    """The root, and the nodes that are missing to those who know some leaves."""
    missing = []
    while len(level) > 1:
        missing += [level[i ^ 1] for i in sorted(known) if i ^ 1 not in known and i ^ 1 < len(level)]
        level = [sha256(b"\1", *level[i:i + 2]) if i + 1 < len(level) else level[i] for i in range(0, len(level), 2)]
        known = {i // 2 for i in known}
    return level[0], missing


def expected_opening(receipt: dict, columns: dict[str, list[bytes]]) -> bytes:
    names, n = list(columns), len(columns["G/embd"])
    rows = [row for column in columns.values() for row in column]
    first_drawn = len(receipt["prompt_ids"]) - 1
    n_draws = min(len(receipt["ids"]) + 1, n - first_drawn)
    root = receipt["rows_sha256"]
    draws = chosen("draw", N_DRAWS, n_draws, root) | {n_draws - 1}
    asked = chosen("rows", N_ROWS, len(rows), root) | set(range(n)) | {len(rows) - n + first_drawn + draw for draw in draws}
    inputs = set()
    for row in asked:
        name, position = names[row // n], row % n
        for i, other in enumerate(inputs_of(name, names)):
            first = 0 if name.endswith("/attn_ctx") and i > 0 else position
            inputs |= {names.index(other) * n + p for p in range(first, position + 1)}
    leaves = [sha256(b"\0", row) for row in rows]
    _, missing = tree(leaves, asked | inputs)
    head = f"format llm-opening/1\nroot {root}\nchallenge {sha256(CHALLENGE.encode()).hex()}\nrows {N_ROWS}\ndraws {N_DRAWS}\n"
    return b"".join([head.encode(), *(leaves[row] for row in sorted(asked | inputs)), *(rows[row] for row in sorted(inputs)), *missing])


def main() -> None:
    bin_dir, model = Path(sys.argv[1]), sys.argv[2]

    def tool(name: str, *arguments) -> None:
        subprocess.run([bin_dir / name, model, "-t", "1", "-q", *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)

    with tempfile.TemporaryDirectory() as folder:
        paths = {name: Path(folder, name) for name in ("receipt", "dump.npz", "opening", "text")}
        tool("llmrun", "-p", "Once upon a time", "-n", 25, "-s", 3, "--ignore-eos", "--receipt", paths["receipt"], "--receipt-rows")
        receipt = json.loads(paths["receipt"].read_text())
        # The same tokens, as a prompt.
        tool("llmcheck", "--dump", paths["dump.npz"], "-p", "Once upon a time" + receipt["text"], "--compute", "int8")
        columns = columns_of(paths["dump.npz"])
        assert len(columns["G/embd"]) == len(receipt["prompt_ids"] + receipt["ids"]), "the text has other tokens as a prompt: choose another seed"
        root, _ = tree([sha256(b"\0", row) for column in columns.values() for row in column], set())
        assert root.hex() == receipt["rows_sha256"], f"rows_sha256: found {receipt['rows_sha256']}, need {root.hex()}"
        tool("llmcheck", "--audit", paths["receipt"], "--challenge", CHALLENGE, "--make-opening", paths["opening"], "--audit-rows", N_ROWS,
             "--audit-draws", N_DRAWS)
        found, need = paths["opening"].read_bytes(), expected_opening(receipt, columns)
        assert found == need, f"opening: found {len(found)} bytes, need {len(need)}, which differ"
        print(f"PASS {sum(map(len, columns.values()))} rows, an opening of {len(found)} bytes")


if __name__ == "__main__":
    main()
