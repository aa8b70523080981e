"""What makes random weights hard: each function changes a model's state in place.

Trained Llamas have peaked logits, sharp attention, a few channels a thousand times above the rest (massive
activations: Sun et al. 2024, arXiv 2402.17762), and some have norms and embeddings near zero. HF's initialisation has
none of it. A variation may be several, joined by `-`.
"""

import re

import torch

from shapes import Shape

State = dict[str, torch.Tensor]
CHANNELS = 3
HEAD_NORMS = "[qk]_(layer)?norm|(query|key)_layernorm"
BOS = 1  # the token that every sequence begins with


def _matching(state: State, pattern: str) -> list[torch.Tensor]:
    return [value for name, value in state.items() if re.search(pattern, name)]


def _matrices(state: State, pattern: str) -> list[torch.Tensor]:
    """Those with a name that matches, as outputs by inputs; gpt-oss has its experts' the other way round."""
    turned = any(name.endswith("sinks") for name in state)
    return [value.swapaxes(-1, -2) if turned and value.dim() == 3 else value for value in _matching(state, pattern)]


def _some(size: int, rng: torch.Generator) -> torch.Tensor:
    return torch.randperm(size, generator=rng)[:CHANNELS]


def biases(state: State, rng: torch.Generator) -> None:
    """Biases of q and k far above the projections, as Qwen2's are, and of others of their size; HF's initialisation has 0. Of
    gpt-oss, those of gates and ups reach beyond the limits of its activation, and sinks beyond scores."""
    sizes = {r"[qk]_proj\.bias$": 4.0, r"[vo]_proj\.bias$|router\.bias|down_proj_bias": 0.5, "gate_up_proj_bias": 3.0, "sinks": 2.0,
             "expert_bias|e_score_correction_bias": 0.2}
    for name, value in state.items():
        for pattern, size in sizes.items():
            if re.search(pattern, name):
                value.copy_(size * torch.randn(value.shape, generator=rng))
    for value in _matching(state, r"layer_scalar|router\.scale|per_expert_scale"):
        value.copy_(torch.exp(0.3 * torch.randn(value.shape, generator=rng)))
    if _matching(state, "layer_scalar"):  # Gemma 4 does not divide scores by the root of the head dim
        for value in _matching(state, "q_norm"):
            value.mul_(value.shape[0] ** -0.5)


def plain(state: State, rng: torch.Generator) -> None:
    """HF's initialisation as it is, but for what it leaves 0."""
    biases(state, rng)


def trained(state: State, rng: torch.Generator) -> None:
    """Matrices that keep the size of what they map, and norms whose weights differ."""
    # Experts, in one tensor each, have no .weight.
    for value in _matrices(state, r"layers.*proj(_qkvz?|_z|_b?a|_b)?(\.weight)?$|mlp\.(gate|gate\.wg|router)\.weight|per_layer_[a-z_]*(gate|projection)\.weight"):
        value.mul_(value.shape[-1] ** -0.5 / value.std())
    for value in _matching(state, "norm"):
        value.mul_(torch.exp(0.3 * torch.randn(value.shape, generator=rng)))
    if _matching(state, "conv1d"):  # Qwen3.5 and Qwen3-Next compute with 1 + the weights of norms that are 0 so far
        for value in _matching(state, "norm"):
            value.add_(0.0 if value.any() else 0.3 * torch.randn(value.shape, generator=rng))
    for value in _matching(state, "conv1d"):
        value.copy_(0.5 * torch.randn(value.shape, generator=rng))
    biases(state, rng)


def peaked(state: State, rng: torch.Generator) -> None:
    """Logits with a standard deviation near 4."""
    trained(state, rng)
    for value in _matching(state, "embed_tokens|lm_head"):
        value.mul_(4.0 * value.shape[1] ** -0.5 / value.std())


def sharp(state: State, rng: torch.Generator) -> None:
    """Scores of attention 16 times as far apart: a row sees few keys."""
    trained(state, rng)
    # Scores of normed heads are as large as the norm's weights, whatever the projections are.
    is_gemma3 = _matching(state, "pre_feedforward_layernorm") and not _matching(state, "layer_scalar")
    added = 1.0 if is_gemma3 or _matching(state, "conv1d") else 0.0  # Gemma 3 and Qwen3.5 compute with 1 + weight
    apart = 6.0 if _matching(state, "conv1d") else 4.0  # Qwen3.5 rotates a quarter of a head, so positions alone tell less
    for value in _matching(state, HEAD_NORMS):
        value.add_(added).mul_(apart).sub_(added)
    if not _matching(state, HEAD_NORMS):
        for value in _matching(state, "[qk]_proj.weight"):
            value.mul_(4.0)
        for value, out in zip(_matching(state, "qkv_proj"), _matching(state, "o_proj")):
            value[:(value.shape[0] + out.shape[1]) // 2].mul_(4.0)  # q and k; v has as many rows as k


def gates(state: State, rng: torch.Generator) -> None:
    """Gates of a standard deviation near 40: silu and exp meet arguments beyond +-80."""
    trained(state, rng)
    for value in _matching(state, "gate_proj"):
        value.mul_(40.0)


def outlier(state: State, rng: torch.Generator, factor: float) -> None:
    """Times `factor`: two channels of all embeddings, one of BOS alone, a few rows and columns of down projections, a
    few weights of norms."""
    embedding = state["model.embed_tokens.weight"]
    channels = _some(embedding.shape[1], rng)
    embedding[:, channels[:2]] *= factor
    embedding[BOS, channels[2]] *= factor
    for layer, value in enumerate(_matrices(state, r"down_proj(\.weight)?$")):
        if layer % 2 == 0:
            value[..., channels[:1], :] *= factor
        elif layer % 4 == 1:
            value[..., _some(value.shape[-1], rng)[:1]] *= factor
    for norm, value in enumerate(_matching(state, "norm")):
        if norm % 3 == 2:
            value[_some(value.shape[0], rng)[:1]] *= factor


def tiny(state: State, rng: torch.Generator) -> None:
    """Embeddings of 1e-4, so that eps decides the first norms, and norm weights of 1e-3."""
    embedding = state["model.embed_tokens.weight"]
    embedding.mul_(1e-4 / embedding.std())
    for value in _matching(state, "norm"):
        value.mul_(1e-3)


def balance(state: State, shape: Shape) -> None:
    """Weights whose values granite's multipliers take to the size that other models have. Without it the logits would be those
    of the embedding, with hardly any part of the layers."""
    by = shape.multipliers
    state["model.embed_tokens.weight"].div_(by["embedding_multiplier"])
    for value in _matching(state, "o_proj|down_proj|out_proj|output_linear"):
        value.div_(by["residual_multiplier"])
    for value in _matching(state, "q_proj"):
        value.div_(by["attention_multiplier"] * shape.head_dim**0.5)
    state["model.norm.weight"].mul_(by["logits_scaling"] * (by["embedding_multiplier"] if shape.tied else 1.0))


def vary(state: State, variation: str, rng: torch.Generator) -> None:
    for name in variation.split("-"):
        if match := re.fullmatch(r"outlier(\d+)", name):
            outlier(state, rng, float(match[1]))
        else:
            {"plain": plain, "peaked": peaked, "sharp": sharp, "tiny": tiny, "gates": gates}[name](state, rng)
