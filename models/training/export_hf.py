"""Writes a Hugging Face checkpoint directory with exactly the values of the GGUF, widened to f32.

python3 -m models.training.export_hf --gguf models/fable-3m-f16.gguf --out build/tiny_model/hf
"""

import argparse
import json
import shutil
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from models.training.gguf_file import read_model
from models.training.model import ModelConfig


def config_json(config: ModelConfig) -> dict:
    """Returns the configuration as transformers' LlamaConfig reads it."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": config.vocab_size,
        "hidden_size": config.dim,
        "intermediate_size": config.ff_dim,
        "num_hidden_layers": config.n_layers,
        "num_attention_heads": config.n_heads,
        "num_key_value_heads": config.n_kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": config.context,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": "float32",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gguf", type=Path, required=True)
    parser.add_argument(
        "--tokenizer", type=Path, help="a SentencePiece model to copy into the directory"
    )
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    model = read_model(args.gguf)
    args.out.mkdir(parents=True, exist_ok=True)
    config = json.dumps(config_json(model.config), indent=2) + "\n"
    (args.out / "config.json").write_text(config, encoding="utf-8")
    tensors = {name: np.ascontiguousarray(tensor) for name, tensor in model.tensors.items()}
    save_file(tensors, args.out / "model.safetensors", metadata={"format": "pt"})
    if args.tokenizer:
        shutil.copyfile(args.tokenizer, args.out / "tokenizer.model")
    print(f"{len(tensors)} tensors: {args.out}")


if __name__ == "__main__":
    main()
