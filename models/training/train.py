"""Trains the embedded model on the CPU from the weights of its first run, and writes a Hugging Face directory.

Seeded; AdamW, warm-up and cosine. Equal thread counts, torch versions and CPUs give equal weights. models/README.md has the
command, and what makes the GGUF of the directory.
"""

import argparse
import itertools
import json
import math
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import sentencepiece as spm
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

from models.training.model import Llama, ModelConfig
from models.training.stories import read_stories

BOS, EOS = 1, 2
SEED, THREADS, BATCH, LENGTH = 1, 2, 8, 512
PEAK_RATE, WEIGHT_DECAY = 6e-4, 0.1
WARM_UP_STEPS = 60
FINAL_RATE_FRACTION = 0.05
EVALUATED_STORIES = 60
LOG_EVERY = 20


def batches_of(stories: list[np.ndarray]) -> Iterator[np.ndarray]:
    """Rows of tokens (BATCH, LENGTH + 1) for ever, in a new order each epoch, made of whole stories, the last of a row being cut.

    Every row starts with BOS: position 0 is trained as it will be used.
    """
    rng = np.random.default_rng(SEED)
    rows: list[np.ndarray] = []
    while True:
        row: list[np.ndarray] = []
        for index in rng.permutation(len(stories)):
            row.append(stories[index])
            if sum(map(len, row)) > LENGTH:
                rows.append(np.concatenate(row)[:LENGTH + 1])
                row = []
            if len(rows) == BATCH:
                yield np.stack(rows)
                rows = []


def learning_rate(step: int, steps: int) -> float:
    """Linear warm-up, then a cosine down to a twentieth of the peak."""
    if step < WARM_UP_STEPS:
        return PEAK_RATE * (step + 1) / WARM_UP_STEPS
    progress = (step - WARM_UP_STEPS) / max(1, steps - WARM_UP_STEPS)
    cosine = 0.5 * (1 + math.cos(math.pi * progress))
    return PEAK_RATE * (FINAL_RATE_FRACTION + (1 - FINAL_RATE_FRACTION) * cosine)


def loss_of(forward, rows: np.ndarray) -> Tensor:
    """Mean cross-entropy, in nats per token, of rows (B, T + 1)."""
    tokens = torch.from_numpy(rows)
    logits = forward(tokens[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


@torch.inference_mode()
def evaluate(model: Llama, stories: list[np.ndarray]) -> float:
    """Mean nats per token over whole stories, each from its own BOS to its EOS."""
    total, count = 0.0, 0
    for story in stories:
        row = story[None, : model.config.context + 1]
        total += loss_of(model, row).item() * (row.shape[1] - 1)
        count += row.shape[1] - 1
    return total / count


def make_optimizer(model: Llama) -> torch.optim.AdamW:
    """AdamW that decays matrices and leaves norms alone."""
    matrices = [p for p in model.parameters() if p.dim() == 2]
    norms = [p for p in model.parameters() if p.dim() != 2]
    groups = [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": norms, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, betas=(0.9, 0.95), fused=True)


def train(model: Llama, stories: list[np.ndarray], steps: int) -> None:
    optimizer = make_optimizer(model)
    forward = torch.compile(model, dynamic=False)  # 1.4 times as fast
    start = time.monotonic()
    for step, rows in enumerate(itertools.islice(batches_of(stories), steps)):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps)
        # Products in BF16 are twice as fast where the CPU has AVX-512 BF16; weights stay f32.
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(forward, rows)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if (step + 1) % LOG_EVERY == 0:
            print(f"step {step + 1} loss {loss.item():.4f} seconds {time.monotonic() - start:.0f}", flush=True)


def save(model: Llama, tokenizer: Path, out: Path) -> None:
    """The directory that `./dev convert` reads; config.json as transformers' LlamaConfig has it."""
    config = model.config
    facts = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "torch_dtype": "float32",
        "vocab_size": config.vocab_size, "hidden_size": config.dim, "intermediate_size": config.ff_dim,
        "num_hidden_layers": config.n_layers, "num_attention_heads": config.n_heads,
        "num_key_value_heads": config.n_kv_heads, "head_dim": config.head_dim,
        "max_position_embeddings": config.context, "rms_norm_eps": config.norm_eps, "rope_theta": config.rope_theta,
        "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False, "bos_token_id": BOS, "eos_token_id": EOS,
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    save_file(model.state_dict(), out / "model.safetensors", metadata={"format": "pt"})
    shutil.copyfile(tokenizer, out / "tokenizer.model")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, text in (("stories", "to learn"), ("heldout", "to evaluate with"), ("tokenizer", "SentencePiece model"),
                       ("start", "checkpoint of the first run"), ("out", "directory to write")):
        parser.add_argument(f"--{name}", type=Path, required=True, help=text)
    parser.add_argument("--steps", type=int, default=1200)
    args = parser.parse_args()
    torch.manual_seed(SEED)
    torch.set_num_threads(THREADS)
    torch.use_deterministic_algorithms(True)
    tokenizer = spm.SentencePieceProcessor(model_file=str(args.tokenizer))

    def encoded(path: Path) -> list[np.ndarray]:
        return [np.array([BOS, *ids, EOS], dtype=np.int64) for ids in tokenizer.encode(read_stories(path))]

    model = Llama(ModelConfig(vocab_size=tokenizer.vocab_size()))
    model.load_state_dict(torch.load(args.start)["state"])
    train(model, encoded(args.stories), args.steps)
    nats = evaluate(model, encoded(args.heldout)[:EVALUATED_STORIES])
    save(model, args.tokenizer, args.out)
    print(f"held-out loss {nats:.4f} perplexity {math.exp(nats):.3f}: {args.out}")


if __name__ == "__main__":
    main()
