"""Writes a checkpoint of train.py as a Hugging Face directory, which tools/convert/hf_to_gguf.py makes the GGUF of.

    python3 -m models.training.export --checkpoint build/tiny_model/model.pt \\
        --tokenizer build/tiny_model/tokenizer.model --out build/tiny_model/hf
"""

import argparse
import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file

from models.training.model import ModelConfig


def config_json(config: ModelConfig) -> dict:
    """Returns the configuration as transformers' LlamaConfig reads it."""
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "torch_dtype": "float32",
        "vocab_size": config.vocab_size, "hidden_size": config.dim, "intermediate_size": config.ff_dim,
        "num_hidden_layers": config.n_layers, "num_attention_heads": config.n_heads,
        "num_key_value_heads": config.n_kv_heads, "head_dim": config.head_dim,
        "max_position_embeddings": config.context, "rms_norm_eps": config.norm_eps, "rope_theta": config.rope_theta,
        "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False, "bos_token_id": 1, "eos_token_id": 2,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    checkpoint = torch.load(args.checkpoint, weights_only=True)
    args.out.mkdir(parents=True, exist_ok=True)
    config = json.dumps(config_json(ModelConfig(**checkpoint["config"])), indent=2) + "\n"
    (args.out / "config.json").write_text(config, encoding="utf-8")
    save_file(checkpoint["state"], args.out / "model.safetensors", metadata={"format": "pt"})
    shutil.copyfile(args.tokenizer, args.out / "tokenizer.model")
    print(f"{checkpoint['figures']}: {args.out}")


if __name__ == "__main__":
    main()
