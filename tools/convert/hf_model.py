"""Which tensor of a checkpoint becomes which of the GGUF, and in what order of rows."""

from dataclasses import dataclass

import numpy as np

from hf_checkpoint import Checkpoint, ConversionError, Mxfp4, Part, Stack, Tensor
from hf_family import Family
from hf_hparams import HParams


def halves_to_pairs(rows: np.ndarray, n_heads: int) -> np.ndarray:
    """Rows of q or k from HF's order, where RoPE turns the halves of a head against each other, to that of llama GGUFs,
    where it turns neighbours: gguf[2 i + j] = hf[j * head_dim / 2 + i]."""
    return rows.reshape(n_heads, 2, -1, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


@dataclass(frozen=True)
class Planned:
    """A tensor of the GGUF and where it comes from."""

    name: str
    source: Tensor
    pair_heads: int = 0  # heads whose rows halves_to_pairs reorders; 0: none
    offset: float = 0.0  # added to each element


def shapes_of(hp: HParams) -> dict[str, tuple[int, ...]]:
    """Of a layer's tensors, those of experts apart."""
    q, kv, vector = hp.n_heads * hp.head_dim, hp.n_kv_heads * hp.head_dim, (hp.d_model,)
    return {"attn_norm.weight": vector, "ffn_norm.weight": vector, "attn_q.weight": (q, hp.d_model),
            "attn_k.weight": (kv, hp.d_model), "attn_v.weight": (kv, hp.d_model), "attn_output.weight": (hp.d_model, q),
            "ffn_gate.weight": (hp.d_ff, hp.d_model), "ffn_up.weight": (hp.d_ff, hp.d_model),
            "ffn_down.weight": (hp.d_model, hp.d_ff), "attn_q.bias": (q,), "attn_k.bias": (kv,), "attn_v.bias": (kv,),
            "attn_q_norm.weight": (hp.head_dim,), "attn_k_norm.weight": (hp.head_dim,),
            "post_attention_norm.weight": vector, "post_ffw_norm.weight": vector,
            "ffn_gate_inp.weight": (hp.n_experts, hp.d_model), "ffn_gate_inp.bias": (hp.n_experts,),
            "attn_output.bias": vector, "attn_sinks.weight": (hp.n_heads,), "attn_qkv.weight": (q + 2 * kv, hp.d_model)}


class Planner:
    """Takes the tensors of a checkpoint. What is left in the end would be lost."""

    def __init__(self, checkpoint: Checkpoint, family: Family, hp: HParams):
        self.left = dict(checkpoint.tensors)
        self._family, self._hp = family, hp
        self._shapes = shapes_of(hp)
        if family.name_of("attn_qkv.weight"):
            self._shapes["ffn_up.weight"] = (2 * hp.d_ff, hp.d_model)
        self._heads = {"attn_q.weight": hp.n_heads, "attn_k.weight": hp.n_kv_heads} if family.pairs else {}

    def tensor(self, source: str, shape: tuple[int, ...], *, codes: bool = False) -> Tensor:
        if source not in self.left:
            raise ConversionError(f"the checkpoint has no tensor {source}")
        tensor = self.left.pop(source)
        if tensor.shape != shape:
            raise ConversionError(f"{source} has shape {list(tensor.shape)}; config.json needs {list(shape)}")
        if (tensor.dtype == "U8") != codes:
            raise ConversionError(f"{source} has elements of type {tensor.dtype}; need {'U8' if codes else 'F32, F16 or BF16'}")
        return tensor

    def plan(self, source: str, name: str, shape: tuple[int, ...], pair_heads: int = 0) -> Planned:
        return Planned(name, self.tensor(source, shape), pair_heads,
                       self._family.norm_offset if name.endswith("norm.weight") else 0.0)

    def layer(self, i: int) -> list[Planned]:
        plan = [self.plan(f"model.layers.{i}.{source}", f"blk.{i}.{name}", self._shapes[name], self._heads.get(name, 0))
                for source, name in self._family.layer.items()]
        if not self._family.d_expert:
            return plan
        of_experts = self._gpt_oss_experts if self._family.architecture == "gpt-oss" else self._experts
        return plan + [Planned(f"blk.{i}.ffn_{part}", tensor)
                       for part, tensor in of_experts(f"model.layers.{i}.mlp.experts").items()]

    def _experts(self, source: str) -> dict[str, Tensor]:
        """As the class has them, gate and up in one tensor, the rows of gate first, or a tensor for each expert."""
        n, ff, d = self._hp.n_experts, self._hp.d_expert, self._hp.d_model
        if f"{source}.gate_up_proj" in self.left:
            both = self.tensor(f"{source}.gate_up_proj", (n, 2 * ff, d))
            found = {"gate": Part(both, lambda x: x[:, :ff]), "up": Part(both, lambda x: x[:, ff:]),
                     "down": self.tensor(f"{source}.down_proj", (n, d, ff))}
        else:
            found = {part: Stack(f"{source}.{part}_proj",
                                 [self.tensor(f"{source}.{e}.{part}_proj.weight", shape) for e in range(n)])
                     for part, shape in (("gate", (ff, d)), ("up", (ff, d)), ("down", (d, ff)))}
        return {f"{part}_exps.weight": tensor for part, tensor in found.items()}

    def _gpt_oss_experts(self, source: str) -> dict[str, Tensor]:
        """Gate and up are every other column of a tensor, or every other row of one in MXFP4; each matrix has a bias."""
        n, ff, d = self._hp.n_experts, self._hp.d_expert, self._hp.d_model
        found = {}
        for name, rows, cols, parts in (("gate_up", 2 * ff, d, ("gate", "up")), ("down", d, ff, ("down",))):
            step = len(parts)
            bias = self.tensor(f"{source}.{name}_proj_bias", (n, rows))
            packed = f"{source}.{name}_proj_blocks" in self.left
            if packed:
                if cols % 32:
                    raise ConversionError(f"{source}.{name}_proj_blocks: rows of {cols} elements are no whole blocks of 32")
                codes = self.tensor(f"{source}.{name}_proj_blocks", (n, rows, cols // 32, 16), codes=True)
                scales = self.tensor(f"{source}.{name}_proj_scales", (n, rows, cols // 32), codes=True)
            else:
                matrix = self.tensor(f"{source}.{name}_proj", (n, cols, rows))
            for first, part in enumerate(parts):
                found[f"{part}_exps.weight"] = Mxfp4(codes, scales, first, step) if packed else Part(
                    matrix, lambda x, first=first, step=step: x[..., first::step].swapaxes(1, 2))
                found[f"{part}_exps.bias"] = Part(bias, lambda x, first=first, step=step: x[:, first::step])
        return found


def plan_tensors(checkpoint: Checkpoint, family: Family, hp: HParams) -> list[Planned]:
    """Every tensor in the order of the data flow. Raises ConversionError for those that lack, are left over or have
    another shape."""
    planner, table = Planner(checkpoint, family, hp), (hp.n_vocab, hp.d_model)
    plan = [planner.plan("model.embed_tokens.weight", "token_embd.weight", table)]
    for i in range(hp.n_layers):
        plan += planner.layer(i)
    plan.append(planner.plan("model.norm.weight", "output_norm.weight", (hp.d_model,)))
    if not hp.tied:
        plan.append(planner.plan("lm_head.weight", "output.weight", table))
    planner.left.pop("lm_head.weight", None)  # tied: transformers takes the embedding, whatever stands here
    unknown = [name for name in planner.left if not name.endswith("rotary_emb.inv_freq")]  # of older files; follows from theta
    if unknown:
        raise ConversionError(f"the checkpoint has tensors that would be lost: {', '.join(unknown[:3])}"
                              + (f" and {len(unknown) - 3} more" if len(unknown) > 3 else ""))
    return plan
