"""Writes the embedded model as a GGUF file.

    python3 -m models.training.export_gguf --checkpoint build/tiny_model/model.pt \\
        --tokenizer build/tiny_model/tokenizer.model --out models/fable-3m-f16.gguf
"""

import argparse
from pathlib import Path

import sentencepiece as spm
import torch

from models.training.gguf_file import ModelFile, read_vocabulary, write_model
from models.training.model import ModelConfig

NAME = "Fable 3M"
DESCRIPTION = (
    "A tiny Llama that writes children's stories, trained on generated text. See models/README.md."
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    checkpoint = torch.load(args.checkpoint, weights_only=True)
    vocabulary = read_vocabulary(spm.SentencePieceProcessor(model_file=str(args.tokenizer)))
    tensors = {name: tensor.numpy() for name, tensor in checkpoint["state"].items()}
    model = ModelFile(ModelConfig(**checkpoint["config"]), vocabulary, tensors)
    write_model(args.out, NAME, DESCRIPTION, model)
    print(f"{args.out.stat().st_size} bytes, {checkpoint['figures']}: {args.out}")


if __name__ == "__main__":
    main()
