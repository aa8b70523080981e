"""Trains the embedded model on the CPU: seeded, AdamW, warm-up and cosine, packed stories.

Equal seeds, thread counts, torch versions and CPUs give equal weights. Checkpoints are written on
the way.

    python3 -m tools.tiny_model.train --stories build/tiny_model/train.txt \\
        --heldout models/heldout.txt --tokenizer build/tiny_model/tokenizer.model \\
        --out build/tiny_model/model.pt
"""

import argparse
import math
import time
from pathlib import Path

import numpy as np
import sentencepiece as spm
import torch
from torch import Tensor
from torch.nn import functional

from tools.tiny_model import data
from tools.tiny_model.model import Llama, ModelConfig
from tools.tiny_model.stories import read_stories

WARM_UP_STEPS = 60
FINAL_RATE_FRACTION = 0.05


def learning_rate(step: int, steps: int, peak: float) -> float:
    """Linear warm-up, then a cosine down to a twentieth of the peak."""
    if step < WARM_UP_STEPS:
        return peak * (step + 1) / WARM_UP_STEPS
    progress = (step - WARM_UP_STEPS) / max(1, steps - WARM_UP_STEPS)
    cosine = 0.5 * (1 + math.cos(math.pi * progress))
    return peak * (FINAL_RATE_FRACTION + (1 - FINAL_RATE_FRACTION) * cosine)


def loss_of(model: Llama, rows: np.ndarray) -> Tensor:
    """Mean cross-entropy, in nats per token, of rows (B, T + 1)."""
    tokens = torch.from_numpy(rows)
    logits = model(tokens[:, :-1])
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


def make_optimizer(model: Llama, weight_decay: float) -> torch.optim.AdamW:
    """AdamW that decays matrices and leaves norms alone."""
    matrices = [p for p in model.parameters() if p.dim() == 2]
    norms = [p for p in model.parameters() if p.dim() != 2]
    groups = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": norms, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, betas=(0.9, 0.95), fused=True)


def save(model: Llama, path: Path, figures: dict) -> None:
    """Writes the weights, the configuration and the figures of the run so far."""
    torch.save(
        {"config": model.config.as_dict(), "state": model.state_dict(), "figures": figures}, path
    )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stories", type=Path, required=True)
    parser.add_argument("--heldout", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--peak-rate", type=float, default=2e-3)
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--save-every", type=int, default=200)
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    torch.use_deterministic_algorithms(True)
    tokenizer = spm.SentencePieceProcessor(model_file=str(args.tokenizer))
    train_stories = data.encode_stories(tokenizer, read_stories(args.stories))
    heldout_stories = data.encode_stories(tokenizer, read_stories(args.heldout))
    model = Llama(ModelConfig(vocab_size=tokenizer.vocab_size()))
    optimizer = make_optimizer(model, args.weight_decay)
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{parameters} parameters, {sum(map(len, train_stories))} training tokens", flush=True)

    start = time.monotonic()
    batches = data.epochs(train_stories, args.length + 1, args.batch, args.seed)
    for step in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, args.steps, args.peak_rate)
        # Products in BF16 are twice as fast where the CPU has AVX-512 BF16; weights stay f32.
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(model, next(batches))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        done = step + 1
        if done % 20 == 0:
            print(
                f"step {done} loss {loss.item():.4f} seconds {time.monotonic() - start:.0f}",
                flush=True,
            )
        if done % args.save_every == 0 or done == args.steps:
            nats = evaluate(model, heldout_stories[:60])
            figures = {"step": done, "heldout_nats": nats, "seconds": time.monotonic() - start}
            save(model, args.out, figures)
            quality = f"held-out loss {nats:.4f} perplexity {math.exp(nats):.3f}"
            print(f"step {done} {quality}: {args.out}", flush=True)


if __name__ == "__main__":
    main()
