"""Whether a model has what its variation promises, measured in what transformers computed."""

import re

import numpy as np

from dump import ActivationDump
from shapes import Case


def _taps(dump: ActivationDump, case: Case, tap: str) -> np.ndarray:
    return np.stack([dump.get(0, f"L{layer:03d}/{tap}") for layer in range(case.shape.n_layers)])


def _top_weight(dump: ActivationDump, case: Case) -> float:
    """The largest attention weight of the last token of the first call, the mean over the heads of the first layer that has
    attention. Without RoPE keys of equal tokens are nearly equal and share a weight, so there it is that of all positions of a token."""
    shape = case.shape
    layer = "L002" if shape.family.startswith(("lfm2", "granitehybrid")) else "L003" if any(shape.delta) else "L000"
    query = dump.get(0, f"{layer}/q_rope")[-1].reshape(shape.n_kv_heads, -1, shape.head_dim)
    keys = dump.get(0, f"{layer}/k_rope").reshape(-1, shape.n_kv_heads, shape.head_dim)
    scores = np.einsum("hgd,khd->hgk", query, keys) * shape.attention_scale
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    if shape.family == "granitehybrid":
        tokens = dump.tokens(0)
        weights = np.stack([weights[..., tokens == token].sum(-1) for token in np.unique(tokens)], axis=-1)
    return float(weights.max(-1).mean())


def _outlier_ratio(dump: ActivationDump) -> float:
    """The largest channel of the embeddings by the median one."""
    channels = np.abs(dump.get(0, "G/embd")).max(0)
    return float(channels.max() / np.median(channels))


def check_properties(dump: ActivationDump, case: Case) -> None:
    """Raises ValueError if the model lacks what its variation is about."""
    for name in case.variation.split("-"):
        if match := re.fullmatch(r"outlier(\d+)", name):
            what, figure, least = "outlier ratio of the embeddings", _outlier_ratio(dump), float(match[1]) / 2
        elif name == "peaked":
            what, figure, least = "standard deviation of the logits", float(dump.get(0, "G/logits").std()), 3.0
        elif name == "sharp":
            what, figure, least = "largest attention weight", _top_weight(dump, case), 0.5
        elif name == "gates":
            what, figure, least = "largest gate", float(np.abs(_taps(dump, case, "gate")).max()), 80.0
        elif name == "tiny":
            largest = float(np.abs(_taps(dump, case, "ffn_norm")).max())
            what, figure, least = "inverse of the norms' largest output", 1.0 / largest, 1e3
        else:
            continue
        if not figure >= least:
            raise ValueError(f"{case.name}: {what} {figure:.3g}, need at least {least:.3g}")
