#!/usr/bin/env python3
"""What of the sources that read what others wrote is reached by the fuzzers' corpora: branches, by llvm-cov.

    coverage.py BIN_DIR OUT [--tests PROGRAM...]    BIN_DIR: of the preset `coverage`

Prints the table of docs/fuzzing.md. Programs of BIN_DIR that are named run as well.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import run
import seeds

ROOT = run.ROOT
AREAS = {
    "GGUF reader": ["engine/gguf/gguf_file.cpp", "engine/gguf/gguf_parser.cpp", "engine/gguf/gguf_tensors.cpp", "engine/gguf/gguf_value.cpp",
                    "engine/gguf/gguf_foreign.cpp", "base/byte_reader.cpp"],
    "model checks": ["engine/model/model_file.cpp", "engine/model/hyper_parameters.cpp", "engine/model/model_tensors.cpp",
                     "engine/model/rope.cpp"],
    "manifests": ["engine/gguf/gguf_tree_text.cpp"],
    "vocabulary": ["engine/model/vocab_from_gguf.cpp", "engine/model/special_tokens.cpp", "tokenizer/vocab_check.cpp"],
    "tokenizer": ["tokenizer/tokenizer.cpp", "tokenizer/prefix_matcher.cpp", "tokenizer/stream_decoder.cpp", "tokenizer/byte_bpe/",
                  "tokenizer/sentencepiece/", "base/utf8.cpp"],
    "Jinja": ["engine/chat/jinja/", "engine/chat/chat_template.cpp"],
    "grammars": ["engine/grammar/grammar_source.cpp", "engine/grammar/number_rules.cpp", "engine/grammar/object_rules.cpp",
                 "engine/grammar/pattern_rules.cpp", "engine/grammar/rules.cpp", "engine/grammar/schema_"],
    "requests": ["tools/llmserve/api/answer_request.cpp", "tools/llmserve/conversations/call_grammar.cpp", "tools/llmserve/conversations/conversation",
                 "tools/llmserve/api/embeddings.cpp", "tools/llmserve/api/compat_fields", "tools/llmserve/conversations/json_fields.cpp",
                 "tools/llmserve/api/prompts.cpp", "tools/llmserve/api/request_", "tools/llmserve/api/structure_fields.cpp", "base/json.cpp"],
    "replies": ["engine/chat/reply_parser.cpp", "engine/chat/call_reader.cpp", "engine/chat/reply_format.cpp"],
    "NPZ and dumps": ["validate/reference/npz/", "validate/reference/dump/dump.cpp", "validate/reference/dump/dump_meta.cpp"],
    "state file": ["engine/state/state_file.cpp"],
    "session": ["tools/llmrun/session_file.cpp"],
    "receipts": ["validate/provenance/read_receipt.cpp", "validate/provenance/receipt_log.cpp", "base/json_members.cpp"],
    "HTTP head": ["tools/llmserve/http/http_head.cpp", "tools/llmserve/http/http_reader.cpp", "tools/llmserve/access_control.cpp"],
}


def profile(command: list, raw: Path) -> None:
    environment = os.environ | {"LLVM_PROFILE_FILE": str(raw), "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if result.returncode != 0:
        print(f"coverage: {command[0]} ended with {result.returncode}: {result.stderr[-500:]}", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tests", nargs="*", default=[])
    parser.add_argument("--files", action="store_true", help="a line for each file, too")
    args = parser.parse_args()
    seeds.write(args.out / "seeds")
    raw = args.out / "coverage"
    raw.mkdir(parents=True, exist_ok=True)
    programs = [path for path in sorted(args.bin.glob("fuzz_*")) if path.name != "fuzz_render"]
    for path in programs:
        fuzzer = run.Fuzzer(path, args.out)
        profile([path, "-runs=0", f"-max_len={run.MOST_BYTES.get(fuzzer.name, 4096)}", *fuzzer.corpora()], raw / f"{path.name}.profraw")
    for name in args.tests:
        programs.append(args.bin / name)
        profile([args.bin / name], raw / f"{name}.profraw")
    merged = raw / "all.profdata"
    subprocess.run(["llvm-profdata-19", "merge", "-sparse", "-o", merged, *raw.glob("*.profraw")], check=True)
    objects = [word for path in programs[1:] for word in ("-object", path)]
    exported = subprocess.run(["llvm-cov-19", "export", "-summary-only", f"-instr-profile={merged}", programs[0], *objects],
                              check=True, capture_output=True, text=True)
    files = {os.path.relpath(file["filename"], ROOT): file["summary"]["branches"]
             for file in json.loads(exported.stdout)["data"][0]["files"]}
    print("| what is read | branches | reached | |\n|---|---|---|---|")
    for area, prefixes in AREAS.items():
        own = {name: branches for name, branches in files.items() if any(name.startswith(prefix) for prefix in prefixes)}
        count, covered = (sum(branches[key] for branches in own.values()) for key in ("count", "covered"))
        print(f"| {area} | {count} | {covered} | {100 * covered / max(count, 1):.1f} % |")
        if args.files:
            for name, branches in own.items():
                print(f"|   {name} | {branches['count']} | {branches['covered']} | {branches['percent']:.1f} % |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
