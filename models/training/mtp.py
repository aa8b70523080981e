"""Trains a small Qwen3.5 with a block that predicts further tokens (MTP) on stories, and writes a Hugging Face directory.

    python3 -m models.training.mtp --stories train.txt --out DIR [--steps N] [--layers N]

Measures --speculate mtp (docs/speculation.md): a trained block whose guesses are accepted. Four layers and the block are trained
together, the block on guesses of one and of two tokens. Then the trunk is made deeper: `--layers` blocks, of which those after the
fourth are copies whose outputs are multiplied by 0.01, so that the trunk costs as much as one of that depth and the block fits it
still. Needs the packages of tools/convert/requirements.txt.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor, nn
from torch.nn import functional
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5DecoderLayer, Qwen3_5RMSNorm

from models.training.stories import read_stories

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools" / "reference_f64"))
from byte_bpe import RULES  # noqa: E402

SEED, BATCH, LENGTH, TRAINED = 1, 8, 192, 4
PEAK_RATE, WARM_UP_STEPS = 2e-3, 30
KEPT = 0.01  # of the outputs of the layers that deepen the trunk
VOCABULARY, END = 1536, "<|im_end|>"


def make_tokenizer(stories: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(RULES["qwen35"])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(stories, trainers.BpeTrainer(
        vocab_size=VOCABULARY - 3, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in ("<|endoftext|>", "<|im_start|>", END)])
    return tokenizer


def config_of(n_layers: int) -> Qwen3_5TextConfig:
    return Qwen3_5TextConfig(
        vocab_size=VOCABULARY, hidden_size=384, intermediate_size=1152, num_hidden_layers=n_layers, num_attention_heads=6,
        num_key_value_heads=2, head_dim=64, linear_num_key_heads=6, linear_num_value_heads=6, linear_key_head_dim=64,
        linear_value_head_dim=64, max_position_embeddings=8192, rms_norm_eps=1e-6, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
        attn_implementation="sdpa")


class Mtp(nn.Module):
    """The block: hidden rows of the trunk and the tokens after them to hidden rows for one token further. Names as published."""

    def __init__(self, config: Qwen3_5TextConfig):
        super().__init__()
        n, eps = config.hidden_size, config.rms_norm_eps
        self.pre_fc_norm_embedding, self.pre_fc_norm_hidden, self.norm = (Qwen3_5RMSNorm(n, eps=eps) for _ in range(3))
        self.fc = nn.Linear(2 * n, n, bias=False)
        self.layers = nn.ModuleList([Qwen3_5DecoderLayer(config, TRAINED - 1)])  # a layer with attention

    def forward(self, embedded: Tensor, hidden: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
        x = self.fc(torch.cat([self.pre_fc_norm_embedding(embedded), self.pre_fc_norm_hidden(hidden)], -1))
        return self.norm(self.layers[0](x, position_embeddings=rope, attention_mask=None))


def loss_of(model: Qwen3_5ForCausalLM, mtp: Mtp, tokens: Tensor) -> list[Tensor]:
    """Nats per token of the trunk, of the block's guess, and of its guess after its own row."""
    def nats(hidden: Tensor, ahead: int) -> Tensor:
        logits = model.lm_head(hidden[:, : tokens.shape[1] - ahead])
        return functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, ahead:].flatten())

    hidden = model.model(tokens).last_hidden_state
    losses = [nats(hidden, 1)]
    for depth in (1, 2):
        n = tokens.shape[1] - depth  # row t has seen the tokens up to t + depth
        embedded = model.model.embed_tokens(tokens[:, depth:])
        positions = torch.arange(n)[None, None].expand(3, tokens.shape[0], n)
        hidden = mtp(embedded, hidden[:, :n], model.model.rotary_emb(embedded, positions))
        losses.append(nats(hidden, depth + 1))
    return losses


def train(model: Qwen3_5ForCausalLM, mtp: Mtp, ids: np.ndarray, steps: int) -> None:
    parameters = [*model.parameters(), *mtp.parameters()]
    optimizer = torch.optim.AdamW(parameters, betas=(0.9, 0.95), weight_decay=0.01, fused=True)
    rng, start = np.random.default_rng(SEED), time.monotonic()
    for step in range(steps):
        rate = PEAK_RATE * min((step + 1) / WARM_UP_STEPS, 0.02 + 0.98 * (1 - step / steps))
        for group in optimizer.param_groups:
            group["lr"] = rate
        first = rng.integers(0, len(ids) - LENGTH, BATCH)
        tokens = torch.from_numpy(np.stack([ids[i:i + LENGTH] for i in first]))
        with torch.autocast("cpu", torch.bfloat16):
            losses = loss_of(model, mtp, tokens)
        optimizer.zero_grad()
        (losses[0] + losses[1] + 0.5 * losses[2]).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        if (step + 1) % 10 == 0:
            print(f"step {step + 1} losses {[round(x.item(), 3) for x in losses]} seconds {time.monotonic() - start:.0f}", flush=True)


def deepened(state: dict[str, Tensor], n_layers: int) -> dict[str, Tensor]:
    out = {}
    for name, value in state.items():
        if not name.startswith("model.layers."):
            out[name] = value
            continue
        _, _, layer, part = name.split(".", 3)
        for copy in range(int(layer), n_layers, TRAINED):
            factor = KEPT if copy >= TRAINED and part.endswith(("out_proj.weight", "o_proj.weight", "down_proj.weight")) else 1.0
            out[f"model.layers.{copy}.{part}"] = value * factor
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stories", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--layers", type=int, default=24, help="of the trunk, a multiple of 4")
    args = parser.parse_args()
    torch.manual_seed(SEED)
    stories = read_stories(args.stories)
    tokenizer = make_tokenizer(stories)
    ids = np.array([i for story in tokenizer.encode_batch(stories) for i in [*story.ids, tokenizer.token_to_id(END)]], np.int64)
    model, mtp = Qwen3_5ForCausalLM(config_of(TRAINED)), Mtp(config_of(TRAINED))
    mtp.load_state_dict({f"layers.0.{name}": value for name, value in model.model.layers[-1].state_dict().items()}, strict=False)
    train(model, mtp, ids, args.steps)

    args.out.mkdir(parents=True, exist_ok=True)
    config = config_of(args.layers)
    config.architectures = ["Qwen3_5ForCausalLM"]
    config.save_pretrained(args.out)
    facts = json.loads((args.out / "config.json").read_text(encoding="utf-8")) | {"mtp_num_hidden_layers": 1}
    (args.out / "config.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    state = deepened({name: value for name, value in model.state_dict().items() if name != "lm_head.weight"}, args.layers)
    state |= {f"mtp.{name}": value for name, value in mtp.state_dict().items()}
    save_file({name: value.detach().clone().contiguous() for name, value in state.items()}, args.out / "model.safetensors",
              metadata={"format": "pt"})
    tokenizer.save(str(args.out / "tokenizer.json"))
    (args.out / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END}), encoding="utf-8")
    (args.out / "generation_config.json").write_text(json.dumps({"eos_token_id": [tokenizer.token_to_id(END)]}), encoding="utf-8")


if __name__ == "__main__":
    main()
