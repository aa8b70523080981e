#!/usr/bin/env python3
"""Plants the ten faults of published GGUFs (docs/doctor.md) into real files, and scores what `llmgguf doctor` says.

    python3 tests/public_models/doctor.py BIN_DIR MODEL.gguf... [--vocabulary VOCAB.gguf] [--only NUMBER]

Needs the package `gguf`. --vocabulary adds a model of Qwen2.5-0.5B's shape: seeded weights of llmsynth under the vocabulary of VOCAB.gguf.

Each model must be clean: nothing above a note. A line for each fault and model: PASS where every planting of it was named, by a
finding above a note of the right check, with a remedy; then what --fix writes is examined again. The last line is the table.
Exit code 0, 1 when a clean file was blamed or a model has fewer than nine of ten named, 2 where a model cannot be read.
"""

import argparse
import copy
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import gguf

U32, I32, F32, BOOL, STRING, ARRAY, U64, F64 = 4, 5, 6, 7, 8, 9, 10, 12
SCALE_AT = {1: 0, 2: 0, 3: 0, 6: 0, 7: 0, 8: 0, 10: 80, 11: 108, 12: 0, 13: 0, 14: 208}  # of an f16 in a block, by weight type
LLAMA3 = ("{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content }}<|eot_id|>{% endfor %}"
          "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}")
GEMMA = ("{{ bos_token }}{% for m in messages %}<start_of_turn>{{ m.role }}\n{{ m.content }}<end_of_turn>\n{% endfor %}"
         "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}")


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


class Gguf:
    """A GGUF as raw values, to be changed and written again."""

    def __init__(self, path: Path):
        reader = gguf.GGUFReader(path)
        self.entries = {name: (int(field.types[0]), b"".join(part.tobytes() for part in field.parts[3:]))
                        for name, field in reader.fields.items() if not name.startswith("GGUF.")}
        self.tensors = {one.name: [one.shape.tolist(), one.tensor_type.value, one.data.tobytes()] for one in reader.tensors}
        self.tail = b""
        self.gap = 0  # bytes between tensors, in place of padding; 0: padding

    def copy(self) -> "Gguf":
        other = copy.copy(self)
        other.entries, other.tensors = dict(self.entries), dict(self.tensors)
        return other

    def write(self, path: Path) -> None:
        header, infos, offset = bytearray(), bytearray(), 0
        for key, (kind, raw) in self.entries.items():
            header += text(key) + struct.pack("<I", kind) + raw
        for name, (dims, kind, data) in self.tensors.items():
            infos += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)
            offset += len(data) + self.gap if self.gap else -(-len(data) // 32) * 32
        header += infos
        with open(path, "wb") as file:
            file.write(b"GGUF" + struct.pack("<IQQ", 3, len(self.tensors), len(self.entries)) + header)
            file.write(bytes(-file.tell() % 32))
            for _, _, data in self.tensors.values():
                file.write(data)
                file.write(bytes(self.gap or -len(data) % 32))
            file.write(self.tail)

    # What plantings are made of.

    def u32(self, key: str, value: int) -> None:
        self.entries[key] = (U32, struct.pack("<I", value))

    def f32(self, key: str, value: float) -> None:
        self.entries[key] = (F32, struct.pack("<f", value))

    def typed(self, key: str, kind: int, form: str) -> None:
        """The same value in another type."""
        self.entries[key] = (kind, struct.pack(form, self.number(key)))

    def flag(self, key: str, value: bool) -> None:
        self.entries[key] = (BOOL, bytes([value]))

    def string(self, key: str, value: str) -> None:
        self.entries[key] = (STRING, text(value))

    def drop(self, key: str) -> None:
        del self.entries[key]

    def number(self, key: str) -> int:
        return struct.unpack("<I", self.entries[key][1])[0]

    def word(self, key: str) -> str:
        return self.entries[key][1][8:].decode() if key in self.entries else ""

    @property
    def architecture(self) -> str:
        return self.word("general.architecture")

    def strings(self, key: str) -> list[bytes]:
        raw, values, at = self.entries[key][1], [], 12
        for _ in range(struct.unpack_from("<Q", raw, 4)[0]):
            size, = struct.unpack_from("<Q", raw, at)
            values.append(raw[at + 8:at + 8 + size])
            at += 8 + size
        return values

    def set_strings(self, key: str, values: list[bytes]) -> None:
        self.entries[key] = (ARRAY, struct.pack("<IQ", STRING, len(values)) + b"".join(map(text, values)))

    def scale(self, name: str, bits: int) -> None:
        """The scale of a block in the middle of a tensor."""
        dims, kind, data = self.tensors[name]
        size, changed = gguf.GGML_QUANT_SIZES[kind][1], bytearray(data)
        struct.pack_into("<H", changed, len(changed) // size // 2 * size + SCALE_AT[kind], bits)
        self.tensors[name] = [dims, kind, changed]

    def hole(self, name: str) -> None:
        """The second half of a tensor was never written."""
        dims, kind, data = self.tensors[name]
        self.tensors[name] = [dims, kind, bytes(data[:len(data) // 2]) + bytes(len(data) - len(data) // 2)]

    def poor(self, name: str) -> None:
        """A tensor in Q2_K, of small random weights."""
        dims, q2_k = self.tensors[name][0], gguf.GGMLQuantizationType.Q2_K
        block = bytearray(os.urandom(gguf.GGML_QUANT_SIZES[q2_k][1] - 4)) + struct.pack("<HH", 0x1000, 0x1000)
        self.tensors[name] = [dims, q2_k.value, block * (dims[0] * dims[1] // 256)]


def key(g: Gguf, name: str) -> str:
    return f"{g.architecture}.{name}"


def duplicate(g: Gguf) -> None:
    tokens = g.strings("tokenizer.ggml.tokens")
    tokens[len(tokens) // 2] = tokens[len(tokens) // 2 + 1]
    g.set_strings("tokenizer.ggml.tokens", tokens)


def equal_scores(g: Gguf) -> None:
    kind, raw = g.entries["tokenizer.ggml.scores"]
    g.entries["tokenizer.ggml.scores"] = (kind, raw[:12] + bytes(len(raw) - 12))


def reversed_scores(g: Gguf) -> None:
    kind, raw = g.entries["tokenizer.ggml.scores"]
    n = len(raw) // 4 - 3
    scores = struct.unpack(f"<{n}f", raw[12:])
    g.entries["tokenizer.ggml.scores"] = (kind, raw[:12] + struct.pack(f"<{n}f", *(-s for s in scores)))


def is_bpe(g: Gguf) -> bool:
    return g.word("tokenizer.ggml.model") == "gpt2"


def plantings(g: Gguf) -> list[tuple[int, str, str, object]]:
    """Number of the fault, the planting, the checks that may name it, and what makes it of a file."""
    down = "blk.1.ffn_down.weight"
    rows = [
        (3, "template that does not parse", "chat", lambda f: f.string("tokenizer.chat_template", "{% for m in messages %}x")),
        (3, "template of Llama 3", "chat", lambda f: f.string("tokenizer.chat_template", LLAMA3)),
        (5, "NaN scale", "blocks", lambda f: f.scale(down, 0x7E00)),
        (5, "infinite scale", "blocks", lambda f: f.scale(down, 0x7C00)),
        (5, "absurd scale", "blocks", lambda f: f.scale(down, 0x7B00)),
        (5, "half a tensor of zeros", "blocks", lambda f: f.hole(down)),
        (6, "base of 1", "rope", lambda f: f.f32(key(f, "rope.freq_base"), 1)),
        (6, "base of 10000 for 131072 positions", "rope", lambda f: (f.f32(key(f, "rope.freq_base"), 10000),
                                                                    f.u32(key(f, "context_length"), 131072))),
        (7, "ffn_down in Q2_K", "types", lambda f: f.poor(down)),
        (8, "one block too few", "shapes", lambda f: f.u32(key(f, "block_count"), f.number(key(f, "block_count")) - 1)),
        (8, "a wrong count of KV heads", "shapes",
         lambda f: f.u32(key(f, "attention.head_count_kv"), f.number(key(f, "attention.head_count_kv")) + 1)),
        (8, "a wrong vocab_size", "shapes", lambda f: f.u32(key(f, "vocab_size"), 1000)),
        (8, "a wrong width", "shapes", lambda f: f.u32(key(f, "embedding_length"), 4096)),
        (8, "context_length as INT32", "values", lambda f: f.typed(key(f, "context_length"), I32, "<i")),
        (8, "block_count as FLOAT64", "values", lambda f: f.typed(key(f, "block_count"), F64, "<d")),
        (9, "EOS as UINT64", "values", lambda f: f.typed("tokenizer.ggml.eos_token_id", U64, "<Q")),
        (9, "a token twice", "vocabulary", duplicate),
        (9, "BOS out of range", "special-ids", lambda f: f.u32("tokenizer.ggml.bos_token_id", 999999)),
        (9, "EOS is a word", "special-ids", lambda f: f.u32("tokenizer.ggml.eos_token_id", 5000)),
        (10, "trailing bytes", "file", lambda f: setattr(f, "tail", bytes(100))),
        (10, "tensors without alignment", "file", lambda f: setattr(f, "gap", 5)),
        (10, "cut", "file", "cut"),
        (10, "a part missing", "file", "part"),
    ]
    if is_bpe(g):
        wrong = [rule for rule in ("gpt-2", "default", "llama-bpe", "tekken")]
        rows += [(1, f"pre-tokenizer {rule}", "pre-tokenizer", lambda f, rule=rule: f.string("tokenizer.ggml.pre", rule))
                 for rule in wrong]
        rows += [(1, "no pre-tokenizer", "pre-tokenizer", lambda f: f.drop("tokenizer.ggml.pre")),
                 (2, "add_bos_token", "bos", lambda f: f.flag("tokenizer.ggml.add_bos_token", True)),
                 (3, "no template", "chat", lambda f: f.drop("tokenizer.chat_template")),
                 (4, "EOS is <|endoftext|>", "chat",
                  lambda f: f.u32("tokenizer.ggml.eos_token_id", f.strings("tokenizer.ggml.tokens").index(b"<|endoftext|>"))),
                 (6, "base absent", "rope", lambda f: f.drop(key(f, "rope.freq_base")))]
    else:
        rows += [(1, "equal scores", "vocabulary", equal_scores), (1, "reversed scores", "merges", reversed_scores),
                 (2, "no BOS", "bos", lambda f: f.flag("tokenizer.ggml.add_bos_token", False)),
                 (2, "BOS twice", "bos",
                  lambda f: f.string("tokenizer.chat_template", GEMMA.replace("{{ bos_token }}", "<bos>"))),
                 (4, "template whose <end_of_turn> no id names", "chat", lambda f: f.string("tokenizer.chat_template", GEMMA)),
                 (6, "no window", "rope", lambda f: f.drop(key(f, "attention.sliding_window")))]
    return sorted(rows, key=lambda row: row[0])


class Doctor:
    def __init__(self, binary: Path, folder: Path):
        self.binary, self.folder = binary / "llmgguf", folder

    def run(self, path: Path, *options: str) -> tuple[int, list[dict], float]:
        started = time.monotonic()
        done = subprocess.run([str(self.binary), "doctor", str(path), "--json", "-q", *options], capture_output=True, text=True)
        found = json.loads(done.stdout)["findings"] if done.returncode in (0, 1) else []
        if done.returncode not in (0, 1):
            print(f"  exit code {done.returncode}: {done.stderr.strip()}")
        return done.returncode, found, time.monotonic() - started

    def plant(self, model: Path, content: Gguf, make: object) -> Path:
        path = self.folder / "planted.gguf"
        for old in self.folder.glob("planted*"):
            old.unlink()
        if make == "cut":
            path.write_bytes(model.read_bytes()[:-100_000])
        elif make == "part":
            subprocess.run([str(self.binary), "split", str(model), str(self.folder / "planted"), "--parts", "2", "--force", "-q"], check=True,
                           capture_output=True)
            (self.folder / "planted-00002-of-00002.gguf").unlink()
            path = self.folder / "planted-00001-of-00002.gguf"
        else:
            changed = content.copy()
            make(changed)
            changed.write(path)
        return path


def qwen_shaped(binary: Path, vocabulary: Path, folder: Path) -> Path:
    """Ends a turn as Qwen2.5-Instruct's files say it; the vocabulary's own file is a base model's."""
    weights, path = folder / "weights.gguf", folder / "qwen-shaped.gguf"
    subprocess.run([str(binary / "llmsynth"), "--shape", "qwen2.5-0.5b", "--type", "Q4_K_M", str(weights), "-q"], check=True)
    made, words = Gguf(weights), Gguf(vocabulary)
    for name in [name for name in made.entries if name.startswith("tokenizer.")]:
        made.drop(name)
    made.entries |= {name: entry for name, entry in words.entries.items() if name.startswith("tokenizer.")}
    made.write(path.with_stem("qwen-shaped-base"))
    made.string("general.name", "Qwen2.5 0.5B Instruct, in shape")
    made.u32("tokenizer.ggml.eos_token_id", words.strings("tokenizer.ggml.tokens").index(b"<|im_end|>"))
    made.write(path)
    weights.unlink()
    return path


def is_named(findings: list[dict], check: str) -> bool:
    return any(f["severity"] != "note" and f["check"] == check and f["remedy"] for f in findings)


def score(doctor: Doctor, model: Path, only: int | None) -> tuple[bool, str]:
    code, found, seconds = doctor.run(model)
    false_alarms = [f["what"] for f in found if f["severity"] != "note"]
    print(f"{'FAIL' if code else 'PASS'} {model.name} clean  ({seconds:.2f} s) {'; '.join(false_alarms)}", flush=True)
    named: dict[int, list[bool]] = {}
    mended, slowest = [], seconds
    content = Gguf(model)
    for number, what, check, make in plantings(content):
        if only not in (None, number):
            continue
        path = doctor.plant(model, content, make)
        _, findings, seconds = doctor.run(path)
        slowest = max(slowest, seconds)
        good = is_named(findings, check)
        named.setdefault(number, []).append(good)
        wrong = "" if good else "  found: " + ("; ".join(f"[{f['check']}] {f['what']}" for f in findings) or "nothing")
        mend = ""
        if good and all(f["mend"] for f in findings if f["severity"] != "note"):
            out = doctor.folder / "mended.gguf"
            doctor.run(path, "--fix", str(out))
            again, left, _ = doctor.run(out)
            mended.append(again == 0)
            mend = ", mended" if again == 0 else f", NOT mended: {[f['what'] for f in left if f['severity'] != 'note']}"
        print(f"{'PASS' if good else 'FAIL'} {model.name} {number} {what}{mend}{wrong}", flush=True)
    faults = sum(all(goods) for goods in named.values())
    table = (f"{model.name}: clean: {len(false_alarms)} false alarms; faults named {faults} of {len(named)}, plantings "
             f"{sum(map(sum, named.values()))} of {sum(map(len, named.values()))}; mended {sum(mended)} of {len(mended)}; "
             f"slowest {slowest:.2f} s")
    return not false_alarms and faults * 10 >= len(named) * 9 and all(mended), table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("bin", type=Path)
    parser.add_argument("models", type=Path, nargs="*")
    parser.add_argument("--vocabulary", type=Path)
    parser.add_argument("--only", type=int)
    args = parser.parse_args()
    tables, passed = [], True
    with tempfile.TemporaryDirectory() as folder:
        doctor = Doctor(args.bin, Path(folder))
        if args.vocabulary:
            args.models.append(qwen_shaped(args.bin, args.vocabulary, Path(folder)))
        for model in args.models:
            try:
                good, table = score(doctor, model, args.only)
            except (OSError, KeyError, struct.error) as error:
                print(f"doctor.py: error: {model}: {error!r}", file=sys.stderr)
                return 2
            tables.append(table)
            passed &= good
    print("\n".join(tables))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
