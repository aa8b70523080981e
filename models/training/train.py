"""Trains the embedded model on the CPU: seeded, AdamW, warm-up and cosine, three lessons.

Equal seeds, thread counts, torch versions and CPUs give equal weights. Checkpoints are written on
the way.

    python3 -m models.training.train --stories build/tiny_model/train.txt \\
        --heldout models/heldout.txt --tokenizer build/tiny_model/tokenizer.model \\
        --out build/tiny_model/model.pt
"""

import argparse
import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import sentencepiece as spm
import torch
from torch import Tensor
from torch.nn import functional

from models.training import data, practice
from models.training.model import Llama, ModelConfig
from models.training.stories import read_stories

WARM_UP_STEPS = 60
FINAL_RATE_FRACTION = 0.05
PRACTICE_TEXTS = 4000
EVALUATED_STORIES = 60
LOG_EVERY = 20

Forward = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Lesson:
    """A part of the training: `steps` batches of rows of `length` predictions each."""

    name: str
    texts: list[np.ndarray]
    length: int
    batch: int
    steps: int


def batches_of(lessons: list[Lesson], seed: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the name of the lesson and rows (batch, length + 1) for every step in turn."""
    for lesson in lessons:
        batches = data.epochs(lesson.texts, lesson.length + 1, lesson.batch, seed)
        for rows in itertools.islice(batches, lesson.steps):
            yield lesson.name, rows


def learning_rate(step: int, steps: int, peak: float) -> float:
    """Linear warm-up, then a cosine down to a twentieth of the peak."""
    if step < WARM_UP_STEPS:
        return peak * (step + 1) / WARM_UP_STEPS
    progress = (step - WARM_UP_STEPS) / max(1, steps - WARM_UP_STEPS)
    cosine = 0.5 * (1 + math.cos(math.pi * progress))
    return peak * (FINAL_RATE_FRACTION + (1 - FINAL_RATE_FRACTION) * cosine)


def loss_of(forward: Forward, rows: np.ndarray) -> Tensor:
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


def make_lessons(
    tokenizer: spm.SentencePieceProcessor, stories: list[str], steps: int, seed: int, continued: bool
) -> list[Lesson]:
    """Practice lines, then beginnings of stories, then whole stories over the full context.

    A continued training has the last lesson alone.
    """
    if continued:
        tokens = data.encode_stories(tokenizer, stories)
        return [Lesson("stories", tokens, length=512, batch=8, steps=steps)]
    texts = list(practice.generate(seed, PRACTICE_TEXTS))
    practice_tokens = data.encode_stories(tokenizer, texts)
    story_tokens = data.encode_stories(tokenizer, stories)
    return [
        Lesson("practice", practice_tokens, length=64, batch=8, steps=400),
        Lesson("beginnings", story_tokens, length=128, batch=8, steps=400),
        Lesson("stories", story_tokens, length=512, batch=8, steps=steps),
    ]


def train_step(model: Llama, forward: Forward, optimizer: torch.optim.Optimizer, rows: np.ndarray) -> float:
    """One update; returns the loss before it."""
    # Products in BF16 are twice as fast where the CPU has AVX-512 BF16; weights stay f32.
    with torch.autocast("cpu", torch.bfloat16):
        loss = loss_of(forward, rows)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.item()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stories", type=Path, required=True)
    parser.add_argument("--heldout", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--start", type=Path, help="continue with the weights of this checkpoint")
    parser.add_argument("--steps", type=int, default=4000, help="of the last lesson, whole stories")
    parser.add_argument("--peak-rate", type=float, default=2e-3)
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--save-every", type=int, default=500)
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    torch.use_deterministic_algorithms(True)
    tokenizer = spm.SentencePieceProcessor(model_file=str(args.tokenizer))
    lessons = make_lessons(
        tokenizer, read_stories(args.stories), args.steps, args.seed, args.start is not None
    )
    heldout = data.encode_stories(tokenizer, read_stories(args.heldout))[:EVALUATED_STORIES]
    model = Llama(ModelConfig(vocab_size=tokenizer.vocab_size()))
    if args.start is not None:
        model.load_state_dict(torch.load(args.start)["state"])
    optimizer = make_optimizer(model, args.weight_decay)
    forward = torch.compile(model, dynamic=False)  # once per lesson; 1.4 times as fast
    print(f"{sum(p.numel() for p in model.parameters())} parameters", flush=True)

    start = time.monotonic()
    last = sum(lesson.steps for lesson in lessons)
    for step, (name, rows) in enumerate(batches_of(lessons, args.seed), start=1):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step - 1, last, args.peak_rate)
        loss = train_step(model, forward, optimizer, rows)
        seconds = time.monotonic() - start
        if step % LOG_EVERY == 0:
            print(f"step {step} {name} loss {loss:.4f} seconds {seconds:.0f}", flush=True)
        if step % args.save_every == 0 or step == last:
            nats = evaluate(model, heldout)
            save(model, args.out, {"step": step, "heldout_nats": nats, "seconds": seconds})
            print(
                f"step {step} held-out loss {nats:.4f} perplexity {math.exp(nats):.3f}", flush=True
            )


if __name__ == "__main__":
    main()
