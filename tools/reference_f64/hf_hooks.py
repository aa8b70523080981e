"""Every tap of dump.py from a model of transformers, by hooks on its modules."""

import sys
from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from dump import ActivationDump

EXPERT_TAPS = ("gate", "up", "ffn_act", "ffn_out")


def qwen3_expert(experts, expert: int, hidden: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """EXPERT_TAPS of one expert."""
    gate, up = (experts.gate_up_proj[expert] @ hidden).chunk(2)
    act = experts.act_fn(gate) * up
    return gate, up, act, experts.down_proj[expert] @ act


def gpt_oss_expert(experts, expert: int, hidden: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """EXPERT_TAPS of one expert, whose matrices are inputs by outputs, gate and up in turn."""
    both = hidden @ experts.gate_up_proj[expert] + experts.gate_up_proj_bias[expert]
    act = experts._apply_gate(both)
    return both[::2], both[1::2], act, act @ experts.down_proj[expert] + experts.down_proj_bias[expert]


class Hooks:
    """Sends every tap of a model to a dump. Rotated q and k are seen by wrapping its module's apply_rotary_pos_emb."""

    def __init__(self, model: PreTrainedModel, dump: ActivationDump, probs: bool):
        self._dump = dump
        self._layer = 0  # the layer whose attention runs now
        model.model.layers[0].register_forward_pre_hook(lambda _m, args: dump.globals_("embd", args[0][0].numpy()))
        model.model.norm.register_forward_hook(lambda _m, _i, out: dump.globals_("result_norm", out[0].numpy()))
        for index, block in enumerate(model.model.layers):
            self._hook_layer(index, block, probs)
        self._modeling = sys.modules[type(model).__module__]
        self._rotate = self._modeling.apply_rotary_pos_emb
        self._modeling.apply_rotary_pos_emb = self._rotate_and_tap

    def _hook_layer(self, index: int, block, probs: bool) -> None:
        attention, mlp = block.self_attn, block.mlp
        attention.register_forward_pre_hook(lambda *_: setattr(self, "_layer", index))
        post_norms = hasattr(block, "pre_feedforward_layernorm")
        ffn_norm = block.pre_feedforward_layernorm if post_norms else block.post_attention_layernorm
        outputs = [(block.input_layernorm, "attn_norm"), (attention.o_proj, "attn_out"), (ffn_norm, "ffn_norm")]
        inputs = [(attention.o_proj, "attn_ctx"), (ffn_norm, "ffn_inp")]
        if hasattr(attention, "qkv_proj"):
            kv = attention.num_key_value_heads * attention.head_dim
            self._hook_parts(index, attention.qkv_proj, "qkv", (attention.o_proj.in_features, kv, kv))
        else:
            outputs += [(attention.q_proj, "q"), (attention.k_proj, "k"), (attention.v_proj, "v")]
        if hasattr(mlp, "experts"):
            outputs.append((mlp, "ffn_mix"))
            router = mlp.router if hasattr(mlp, "router") else mlp.gate
            router.register_forward_hook(lambda _m, _i, out: self._dump.layer(index, "router", out[0].numpy()))
            mlp.experts.register_forward_hook(lambda experts, args, _out: self._tap_experts(index, experts, *args))
        else:
            outputs.append((mlp.down_proj, "ffn_out"))
            inputs.append((mlp.down_proj, "ffn_act"))
            if hasattr(mlp, "gate_up_proj"):
                self._hook_parts(index, mlp.gate_up_proj, ("gate", "up"), (mlp.down_proj.in_features,) * 2)
            else:
                outputs += [(mlp.gate_proj, "gate"), (mlp.up_proj, "up")]
        if post_norms:
            outputs += [(block.post_attention_layernorm, "attn_post"), (block.post_feedforward_layernorm, "ffn_post")]
        if not getattr(attention, "use_rope", True):  # nothing rotates
            outputs += [(attention.q_proj, "q_rope"), (attention.k_proj, "k_rope")]
        for module, tap in outputs:
            module.register_forward_hook(lambda _m, _i, out, tap=tap: self._put(index, tap, out))
        for module, tap in inputs:
            module.register_forward_pre_hook(lambda _m, args, tap=tap: self._put(index, tap, args[0]))
        block.register_forward_hook(lambda _m, _i, out: self._put(index, "l_out", out))
        if probs:
            attention.register_forward_hook(
                lambda _m, _i, out: self._dump.layer(index, "probs", out[1][0].numpy()))

    def _hook_parts(self, index: int, module, taps: Sequence[str], widths: Sequence[int]) -> None:
        """Of a product that gives several values, one after the other."""
        module.register_forward_hook(lambda _m, _i, out: [
            self._put(index, tap, value) for tap, value in zip(taps, out.split(widths, dim=-1), strict=True)] and None)

    def _put(self, layer: int, tap: str, value: torch.Tensor | tuple[torch.Tensor, ...]) -> None:
        self._dump.layer(layer, tap, (value[0] if isinstance(value, tuple) else value)[0].numpy())

    def _tap_experts(self, layer: int, experts, hidden: torch.Tensor, chosen: torch.Tensor, _weights: torch.Tensor) -> None:
        """What the experts that the router chose compute, again: the class keeps none of it."""
        chosen = chosen.sort(dim=-1).values
        compute = gpt_oss_expert if hasattr(experts, "down_proj_bias") else qwen3_expert
        found = {tap: [] for tap in EXPERT_TAPS}
        for row, ids in zip(hidden, chosen, strict=True):
            for tap, value in zip(EXPERT_TAPS, zip(*(compute(experts, expert, row) for expert in ids)), strict=True):
                found[tap].append(torch.cat(value))
        for tap, rows in found.items():
            self._dump.layer(layer, tap, torch.stack(rows).numpy())

    def _rotate_and_tap(self, q, k, *args, **kwargs):
        q, k = self._rotate(q, k, *args, **kwargs)  # [1, heads, tokens, head_dim]
        self._dump.layer(self._layer, "q_rope", q[0].transpose(0, 1).flatten(1).numpy())
        self._dump.layer(self._layer, "k_rope", k[0].transpose(0, 1).flatten(1).numpy())
        return q, k

    def remove(self) -> None:
        self._modeling.apply_rotary_pos_emb = self._rotate
