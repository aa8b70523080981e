#!/usr/bin/env python3
"""LoRA adapters made by peft against peft: applied at run time, and merged.

    python tests/hf_parity/adapters.py FOLDER --bin build/release/bin [--only REGEX]

A checkpoint of each family (make.py) gets an adapter of random numbers for all of its linear layers, which llama.cpp's
convert_lora_to_gguf.py converts. llmrun continues a text with it in f32, also at half its strength and beside a second adapter, and so does the
model that llmgguf merge-lora makes. The log probabilities of the whole vocabulary, at each token, are compared with those of peft in f64.
Exit code 1 if any NMSE exceeds LIMIT, or if the adapter changes nothing. Needs the packages of tools/convert/requirements.txt.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(Path(__file__).resolve().parent), str(ROOT / "tools" / "convert")]

from make import FAMILY_SHAPES, PROMPT, convert, encode, make_checkpoint, whole  # noqa: E402  (first: it sets up torch)

import llama_cpp  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from peft import LoraConfig, PeftModel, get_peft_model  # noqa: E402
from peft.tuners.lora import LoraLayer  # noqa: E402

LIMIT = 1e-10
FAMILIES = ("llama-bpe", "mistral", "qwen2", "qwen3", "gemma3", "smollm3", "granite", "phi3")
TOKENS = 12
TOP = 1000  # log probabilities of a token: more than the vocabularies have


def make_adapter(checkpoint: Path, folder: Path, rank: int, alpha: int, seed: int) -> None:
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    config = LoraConfig(r=rank, lora_alpha=alpha, target_modules="all-linear", init_lora_weights=False)
    adapter = get_peft_model(model, config)
    for name, weight in adapter.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(weight, std=0.05)
    adapter.save_pretrained(folder)


def convert_adapter(checkpoint: Path, adapter: Path, output: Path) -> None:
    stated = os.environ.get("LLM_LLAMA_CPP")
    converter = (Path(stated) if stated else llama_cpp.fetch()) / "convert_lora_to_gguf.py"
    subprocess.run([sys.executable, converter, "--base", checkpoint, "--outtype", "f32", "--outfile", output, adapter], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def continued(tools: Path, model: Path, *options: object) -> tuple[list[int], torch.Tensor]:
    """The tokens that llmrun generates, and the log probabilities of the vocabulary for each."""
    run = subprocess.run([tools / "llmrun", model, "-p", PROMPT, "-n", str(TOKENS), "--temp", "0", "--ignore-eos", "--compute", "f32",
                          "--kv", "f32", "-t", "1", "-q", "--json", "--logprobs", str(TOP), *map(str, options)],
                         check=True, capture_output=True, text=True)
    out = json.loads(run.stdout)
    rows = [sorted((top["id"], top["logprob"]) for top in token["top"]) for token in out["logprobs"]]
    return out["ids"], torch.tensor([[logprob for _, logprob in row] for row in rows], dtype=torch.float64)


@torch.no_grad()
def expected(checkpoint: Path, prompt: list[int], ids: list[int], adapters: dict[Path, float]) -> torch.Tensor:
    """The log probabilities by peft, in f64."""
    model = transformers.AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float64, attn_implementation="eager")
    if adapters:
        names = [f"a{i}" for i in range(len(adapters))]
        first, *rest = adapters
        model = PeftModel.from_pretrained(model, first, adapter_name=names[0])
        for name, path in zip(names[1:], rest):
            model.load_adapter(path, adapter_name=name)
        model.base_model.set_adapter(names)
        model = model.double()
        for module in model.modules():
            for name, scale in zip(names, adapters.values()):
                if isinstance(module, LoraLayer) and name in module.scaling:
                    module.scaling[name] *= scale
    logits = model.eval()(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1:-1]
    return torch.log_softmax(logits.double(), -1)


def nmse(found: torch.Tensor, needed: torch.Tensor) -> float:
    """Of the logits without their means, which log probabilities tell."""
    found, needed = (rows - rows.mean(-1, keepdim=True) for rows in (found, needed))
    return float(((found - needed) ** 2).sum() / (needed**2).sum()) if found.shape == needed.shape else float("inf")


def check(shape, folder: Path, tools: Path) -> list[float]:
    checkpoint, f16, f32 = folder / shape.name, folder / f"{shape.name}-f16.gguf", folder / f"{shape.name}-f32.gguf"
    whole(checkpoint, lambda part: make_checkpoint(shape, "plain", part))
    whole(f16, lambda part: convert(checkpoint, part, "--type", "f16"))
    whole(f32, lambda part: subprocess.run([tools / "llmquant", f16, part, "F32", "--force", "-q"], check=True, stdout=subprocess.DEVNULL))
    peft, gguf = [], []
    for i, (rank, alpha) in enumerate(((8, 24), (5, 4))):
        peft.append(folder / f"{shape.name}-{i}")
        gguf.append(folder / f"{shape.name}-{i}.gguf")
        whole(peft[i], lambda part, i=i, rank=rank, alpha=alpha: make_adapter(checkpoint, part, rank, alpha, i))
        whole(gguf[i], lambda part, i=i: convert_adapter(checkpoint, peft[i], part))
    merged = folder / f"{shape.name}-merged.gguf"
    subprocess.run([tools / "llmgguf", "merge-lora", f32, f"{gguf[0]}:0.5", merged, "--force", "-q"], check=True, stdout=subprocess.DEVNULL)
    prompt = encode(shape, checkpoint, PROMPT)
    plain = expected(checkpoint, prompt, continued(tools, f32)[0], {})
    faults = []
    for what, model, options, adapters in (
            ("none", f32, (), {}),
            ("1", f32, ("--lora", gguf[0]), {peft[0]: 1}),
            ("0.5", f32, ("--lora", f"{gguf[0]}:0.5"), {peft[0]: 0.5}),
            ("two", f32, ("--lora", f"{gguf[0]}:0.5", "--lora", gguf[1]), {peft[0]: 0.5, peft[1]: 1}),
            ("merged", merged, (), {peft[0]: 0.5})):
        ids, found = continued(tools, model, *options)
        needed = expected(checkpoint, prompt, ids, adapters)
        error, effect = nmse(found, needed), nmse(needed, plain)
        good = error <= LIMIT and (effect > 1e-3) == bool(adapters)
        faults += [] if good else [f"{shape.name} {what}"]
        print(f"{shape.name:<22} {what:<7} NMSE {error:.2e}, effect {effect:.2e}  {'PASS' if good else 'FAIL'}", flush=True)
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--bin", type=Path, required=True, help="directory of llmrun, llmquant and llmgguf")
    parser.add_argument("--only", type=re.compile, metavar="REGEX", default="", help="shapes whose name has a match")
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    args.folder.mkdir(parents=True, exist_ok=True)
    faults = []
    for family in FAMILIES:
        shape = next(shape for shape in FAMILY_SHAPES if shape.family == family and not shape.name.endswith("long"))
        if not args.only or args.only.search(shape.name):
            faults += check(shape, args.folder, args.bin.resolve())
    print("FAIL: " + ", ".join(faults) if faults else "PASS")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
