"""Every tap of dump.py from a model of transformers, by hooks on its modules."""

import functools
import sys
from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from dump import ActivationDump
from hf_config import decoder_of

# Names of a layer's norms by their taps: of classes with this attribute, else of the last. A layer may lack some.
NORMS = {"operator_norm": {"attn_norm": "operator_norm", "ffn_norm": "ffn_norm"},
         "post_mlp_layernorm": {"attn_norm": "input_layernorm", "attn_post": "post_self_attn_layernorm",
                                "ffn_norm": "post_attention_layernorm", "ffn_post": "post_mlp_layernorm"},
         "post_feedforward_layernorm": {"attn_norm": "input_layernorm", "attn_post": "post_attention_layernorm",
                                        "ffn_norm": "pre_feedforward_layernorm", "ffn_post": "post_feedforward_layernorm"},
         "post_attention_layernorm": {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}}
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


def norms_of(block) -> dict:
    names = next(names for attribute, names in NORMS.items() if hasattr(block, attribute))
    return {tap: getattr(block, name) for tap, name in names.items() if hasattr(block, name)}


class Hooks:
    """Sends every tap of a model to a dump. What is no module's output is seen by wrapping functions of the model's source: q and k
    as attention reads them, and of Qwen3.5 contexts before their gate, convolutions and states. These are computed token by token in prefill, too."""

    def __init__(self, model: PreTrainedModel, dump: ActivationDump, probs: bool):
        self._dump, decoder = dump, decoder_of(model)
        self._layer = 0  # the layer whose attention runs now
        self._nets = {}  # of Gated DeltaNets
        self._mambas = set()  # layers
        decoder.layers[0].register_forward_pre_hook(lambda _m, args: dump.globals_("embd", args[0][0].numpy()))
        norm = decoder.norm if hasattr(decoder, "norm") else decoder.embedding_norm
        norm.register_forward_hook(lambda _m, _i, out: dump.globals_("result_norm", out[0].numpy()))
        for index, block in enumerate(decoder.layers):
            self._hook_layer(index, block, probs)
        self._modeling = sys.modules[type(model).__module__]
        self._originals = {}
        self._is_gemma4 = hasattr(decoder.layers[0], "layer_scalar")
        self._turned = 0  # calls of the rotation in the layer
        self._has_deltas = hasattr(self._modeling, "torch_recurrent_gated_delta_rule")
        self._gated = self._has_deltas or any(  # contexts are, after attention
            hasattr(getattr(block, "self_attn", None), "g_proj") for block in decoder.layers)
        if self._is_gemma4:
            self._wrap("apply_rotary_pos_emb", self._rotate_one_and_tap)
        else:
            self._wrap("eager_attention_forward", self._attend_and_tap)
        if getattr(decoder, "hidden_size_per_layer_input", 0):
            self._hook_layer_inputs(decoder)
        has_mamba = any(getattr(block, "mamba", None) is not None for block in decoder.layers)
        if has_mamba:
            self._wrap("mamba2_chunk_scan", self._scan_and_tap)
            self._wrap("mamba2_selective_state_update", self._update_and_tap)
        if self._has_deltas or has_mamba or any(hasattr(block, "conv") for block in decoder.layers):
            for name in ("causal_conv1d_fn", "causal_conv1d_update"):
                self._wrap(name, self._convolve_and_tap)
        if self._has_deltas:
            recurrence = self._modeling.torch_recurrent_gated_delta_rule
            for name in ("torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule"):
                self._wrap(name, lambda _original, *args, **more: self._recur_and_tap(recurrence, *args, **more))

    def _wrap(self, name: str, wrapper) -> None:
        """Calls of a function of the model's source become wrapper(the function, arguments)."""
        original = self._originals[name] = getattr(self._modeling, name)
        setattr(self._modeling, name, functools.partial(wrapper, original))

    def _hook_layer(self, index: int, block, probs: bool) -> None:
        if hasattr(block, "linear_attn"):
            return self._hook_delta_net(index, block)
        if getattr(block, "mamba", None) is not None:
            return self._hook_mamba(index, block)
        if hasattr(block, "conv"):
            return self._hook_short_conv(index, block)
        attention = block.self_attn
        o_proj = attention.o_proj if hasattr(attention, "o_proj") else attention.out_proj
        attention.register_forward_pre_hook(lambda *_: self.__dict__.update(_layer=index, _turned=0))
        norms = norms_of(block)
        outputs = [(o_proj, "attn_out"), *((norm, tap) for tap, norm in norms.items())]
        gated = attention.q_proj.out_features > o_proj.in_features if hasattr(attention, "q_proj") else False
        own_gate = hasattr(attention, "g_proj")
        if own_gate:
            outputs.append((attention.g_proj, "attn_gate"))
        inputs = [(o_proj, "attn_gated" if gated or own_gate else "attn_ctx"), (norms["ffn_norm"] if "ffn_norm" in norms else block.mlp, "ffn_inp")]
        if hasattr(attention, "qkv_proj"):
            kv = attention.num_key_value_heads * attention.head_dim
            self._hook_parts(index, attention.qkv_proj, "qkv", (o_proj.in_features, kv, kv))
        else:
            keys = [] if getattr(attention, "is_kv_shared_layer", False) else [
                (attention.k_proj, "k"), (attention.v_proj or attention.k_proj, "v")]
            outputs += keys + ([] if gated else [(attention.q_proj, "q")])
            if hasattr(attention, "v_norm"):
                attention.v_norm.register_forward_hook(lambda _m, _i, out: self._put(index, "v_norm", out.flatten(2)))
            if gated:
                attention.q_proj.register_forward_hook(lambda _m, _i, out: self._put_halves(index, out, attention.head_dim))
        self._hook_rest(index, block, outputs, inputs)
        self._hook_all(index, block, outputs, inputs)
        if probs:
            attention.register_forward_hook(
                lambda _m, _i, out: self._dump.layer(index, "probs", out[1][0].numpy()))

    def _hook_delta_net(self, index: int, block) -> None:
        net = block.linear_attn
        net.register_forward_pre_hook(lambda *_: setattr(self, "_layer", index))
        self._nets[index] = net
        outputs = [(block.input_layernorm, "attn_norm"), (net.out_proj, "attn_out"), (block.post_attention_layernorm, "ffn_norm")]
        inputs = [(block.post_attention_layernorm, "ffn_inp")]
        if hasattr(net, "in_proj_ba"):  # of Qwen3-Next: products of several values
            split = net.fix_query_key_value_ordering
            net.fix_query_key_value_ordering = lambda *mixed: self._split_and_tap(index, split, *mixed)
        else:
            for module, tap in ((net.in_proj_qkv, "qkv"), (net.in_proj_z, "z"), (net.in_proj_b, "beta"), (net.in_proj_a, "alpha")):
                module.register_forward_hook(lambda _m, _i, out, tap=tap: self._put_heads(index, tap, out))
        net.out_proj.register_forward_pre_hook(lambda _m, args: self._put_heads(index, "delta_norm", args[0]))
        self._hook_rest(index, block, outputs, inputs)
        self._hook_all(index, block, outputs, inputs)

    def _hook_mamba(self, index: int, block) -> None:
        mamba = block.mamba
        mamba.register_forward_pre_hook(lambda *_: setattr(self, "_layer", index))
        self._mambas.add(index)
        self._hook_parts(index, mamba.in_proj, ("z", "qkv", "alpha"), (mamba.intermediate_size, mamba.conv_dim, mamba.num_heads))
        outputs = [(mamba.out_proj, "attn_out"), *((norm, tap) for tap, norm in norms_of(block).items())]
        inputs = [(mamba.out_proj, "delta_norm"), (block.post_attention_layernorm, "ffn_inp")]
        self._hook_rest(index, block, outputs, inputs)
        self._hook_all(index, block, outputs, inputs)

    def _hook_shared_mlp(self, index: int, block, outputs: list, inputs: list) -> None:
        """Of Granite's hybrids: a feed-forward, beside which there may be experts."""
        mlp, moe = block.shared_mlp, block.block_sparse_moe
        names = ("gate", "up", "ffn_act", "ffn_out") if moe is None else ("shared_gate", "shared_up", "shared_act", "shared_out")
        self._hook_parts(index, mlp.input_linear, names[:2], (mlp.hidden_size,) * 2)
        inputs.append((mlp.output_linear, names[2]))
        outputs.append((mlp.output_linear, names[3]))
        if moe is None:
            return
        outputs.append((moe, "ffn_mix"))
        moe.router.register_forward_hook(lambda _m, _i, out: self._dump.layer(index, "router", out[0].numpy()))
        moe.experts.register_forward_hook(lambda experts, args, _out: self._tap_experts(index, experts, *args))

        def put_sum(_m, _i, out) -> None:
            self._dump.layer(index, "ffn_sum", self._dump.get(self._dump.n_steps - 1, f"L{index:03d}/ffn_mix") + out[0].numpy())

        mlp.register_forward_hook(put_sum)

    def _hook_short_conv(self, index: int, block) -> None:
        conv = block.conv
        conv.register_forward_pre_hook(lambda *_: setattr(self, "_layer", index))
        self._hook_parts(index, conv.in_proj, ("conv_b", "conv_c", "conv_x"), (conv.in_proj.in_features,) * 3)
        outputs = [(conv.out_proj, "attn_out"), *((norm, tap) for tap, norm in norms_of(block).items())]
        inputs = [(conv.out_proj, "conv_gated"), (block.ffn_norm, "ffn_inp")]
        self._hook_rest(index, block, outputs, inputs)
        self._hook_all(index, block, outputs, inputs)

    def _hook_rest(self, index: int, block, outputs: list, inputs: list) -> None:
        """Of the feed-forward."""
        if getattr(block, "shared_mlp", None) is not None:
            return self._hook_shared_mlp(index, block, outputs, inputs)
        mlp = next(getattr(block, name) for name in ("mlp", "block_sparse_moe", "feed_forward") if hasattr(block, name))
        if hasattr(block, "router"):
            return self._hook_beside(index, block, outputs, inputs)
        if hasattr(mlp, "experts"):
            shared = next((getattr(mlp, name) for name in ("shared_expert", "shared_experts", "shared_mlp") if hasattr(mlp, name)), None)
            if shared is not None:
                factor = getattr(mlp, "routed_scaling_factor", 1.0)  # of a class whose router leaves it out
                mlp.experts.register_forward_hook(
                    lambda _m, _i, out: self._dump.layer(index, "ffn_mix", (out * factor).flatten(0, -2).numpy()))
                parts = [(shared.gate_proj, "shared_gate"), (shared.up_proj, "shared_up"), (shared.down_proj, "shared_out")]
                if hasattr(mlp, "shared_expert_gate"):
                    parts.append((mlp.shared_expert_gate, "shared_weight"))
                for module, tap in parts:
                    module.register_forward_hook(lambda _m, _i, out, tap=tap: self._dump.layer(index, tap, out.flatten(0, -2).numpy()))
                shared.down_proj.register_forward_pre_hook(
                    lambda _m, args: self._dump.layer(index, "shared_act", args[0].flatten(0, -2).numpy()))
            outputs.append((mlp, "ffn_mix" if shared is None else "ffn_sum"))
            router = mlp.router if hasattr(mlp, "router") else mlp.gate
            router.register_forward_hook(lambda _m, _i, out: self._dump.layer(index, "router", out[0].numpy()))
            mlp.experts.register_forward_hook(lambda experts, args, _out: self._tap_experts(index, experts, *args))
        else:
            down = mlp.down_proj if hasattr(mlp, "down_proj") else mlp.w2
            outputs.append((down, "ffn_out"))
            inputs.append((down, "ffn_act"))
            if hasattr(mlp, "w1"):
                outputs += [(mlp.w1, "gate"), (mlp.w3, "up")]
            elif hasattr(mlp, "gate_up_proj"):
                self._hook_parts(index, mlp.gate_up_proj, ("gate", "up"), (mlp.down_proj.in_features,) * 2)
            else:
                outputs += [(mlp.gate_proj, "gate"), (mlp.up_proj, "up")]

    def _hook_beside(self, index: int, block, outputs: list, inputs: list) -> None:
        """Of a Gemma 4 with experts, which get no batch dimension."""
        mlp, router = block.mlp, block.router
        outputs += [(mlp.gate_proj, "shared_gate"), (mlp.up_proj, "shared_up"), (mlp.down_proj, "shared_out"),
                    (block.post_feedforward_layernorm_1, "shared_norm"), (block.post_feedforward_layernorm_2, "mix_norm")]
        inputs += [(mlp.down_proj, "shared_act"), (block.post_feedforward_layernorm_2, "ffn_mix"),
                   (block.post_feedforward_layernorm, "ffn_sum")]
        for module, tap in ((router.norm, "router_norm"), (router.proj, "router"), (block.pre_feedforward_layernorm_2, "experts_norm")):
            scale = router.scale.detach() if tap == "router_norm" else 1
            module.register_forward_hook(
                lambda _m, _i, out, tap=tap, scale=scale: self._dump.layer(index, tap, (out * scale).numpy()))
        block.experts.register_forward_hook(
            lambda experts, args, _out: self._tap_experts(index, experts, *args, scale=router.per_expert_scale))

    def _hook_all(self, index: int, block, outputs: list, inputs: list) -> None:
        for module, tap in outputs:
            module.register_forward_hook(lambda _m, _i, out, tap=tap: self._put(index, tap, out))
        for module, tap in inputs:
            module.register_forward_pre_hook(lambda _m, args, tap=tap: self._put(index, tap, args[0]))
        if hasattr(block, "layer_scalar"):
            return self._hook_end(index, block)
        block.register_forward_hook(lambda _m, _i, out: self._put(index, "l_out", out))

    def _hook_end(self, index: int, block) -> None:
        """Of a Gemma 4. The sums are no module's, so they are made again."""
        has_inputs = hasattr(block, "per_layer_input_gate")
        if has_inputs:
            for module, tap in ((block.per_layer_input_gate, "pl_gate"), (block.per_layer_projection, "pl_out"),
                                (block.post_per_layer_input_norm, "pl_post")):
                module.register_forward_hook(lambda _m, _i, out, tap=tap: self._put(index, tap, out))
            block.per_layer_projection.register_forward_pre_hook(lambda _m, args: self._put(index, "pl_act", args[0]))

        def put_end(_m, _i, out) -> None:
            for tap, first, second in (("l_out", "ffn_inp", "ffn_post"), ("pl_sum", "l_out", "pl_post"))[:1 + has_inputs]:
                first, second = (self._dump.get(self._dump.n_steps - 1, f"L{index:03d}/{name}") for name in (first, second))
                self._dump.layer(index, tap, first + second)
            self._put(index, "l_scaled", out)

        block.register_forward_hook(put_end)

    def _hook_layer_inputs(self, model) -> None:
        for module, tap in ((model.embed_tokens_per_layer, "pl_embd"), (model.per_layer_model_projection, "pl_proj")):
            module.register_forward_hook(lambda _m, _i, out, tap=tap: self._dump.globals_(tap, out[0].numpy()))
        original = model.project_per_layer_inputs

        def project(*args, **kwargs):
            out = original(*args, **kwargs)
            self._dump.globals_("pl_inputs", out[0].flatten(1).numpy())
            return out

        model.project_per_layer_inputs = project

    def _hook_parts(self, index: int, module, taps: Sequence[str], widths: Sequence[int]) -> None:
        """Of a product that gives several values, one after the other."""
        module.register_forward_hook(lambda _m, _i, out: [
            self._put(index, tap, value) for tap, value in zip(taps, out.split(widths, dim=-1), strict=True)] and None)

    def _put(self, layer: int, tap: str, value: torch.Tensor | tuple[torch.Tensor, ...]) -> None:
        self._dump.layer(layer, tap, (value[0] if isinstance(value, tuple) else value)[0].numpy())

    def _tap_experts(self, layer: int, experts, hidden: torch.Tensor, chosen: torch.Tensor, _weights: torch.Tensor,
                     scale: torch.Tensor | None = None) -> None:
        """What the experts that the router chose compute, again: the class keeps none of it."""
        chosen = chosen.sort(dim=-1).values
        compute = gpt_oss_expert if hasattr(experts, "down_proj_bias") else qwen3_expert
        found = {tap: [] for tap in EXPERT_TAPS}
        for row, ids in zip(hidden, chosen, strict=True):
            for tap, value in zip(EXPERT_TAPS, zip(*(compute(experts, expert, row) for expert in ids)), strict=True):
                found[tap].append(torch.cat(value))
        for tap, rows in found.items():
            if tap == "ffn_out" and scale is not None:
                rows = [(row.unflatten(0, (len(ids), -1)) * scale[ids, None]).flatten() for row, ids in zip(rows, chosen, strict=True)]
            self._dump.layer(layer, tap, torch.stack(rows).numpy())

    def _put_halves(self, layer: int, out: torch.Tensor, head_dim: int) -> None:
        """q and the gate of each head, in turn."""
        q, gate = out[0].unflatten(-1, (-1, 2 * head_dim)).split(head_dim, dim=-1)
        self._dump.layer(layer, "q", q.flatten(1).numpy())
        self._dump.layer(layer, "attn_gate", gate.flatten(1).numpy())

    def _put_heads(self, layer: int, tap: str, value: torch.Tensor) -> None:
        """[1, T, features], of which the last are value heads: those of a key head lie side by side, in a GGUF of Qwen3.5 as far apart as
        there are key heads."""
        net, rows = self._nets[layer], value[0]
        if hasattr(net, "in_proj_ba"):
            return self._dump.layer(layer, tap, rows.numpy())
        before = 2 * net.key_dim if tap.startswith("qkv") else 0
        heads = rows[:, before:].unflatten(-1, (net.num_k_heads, net.num_v_heads // net.num_k_heads, -1)).transpose(1, 2)
        self._dump.layer(layer, tap, torch.cat([rows[:, :before], heads.flatten(1)], dim=-1).numpy())

    def _split_and_tap(self, layer: int, split, *mixed):
        q, k, v, *others = parts = split(*mixed)
        self._put_heads(layer, "qkv", torch.cat([x.flatten(2) for x in (q, k, v)], dim=-1))
        for tap, value in zip(("z", "beta", "alpha"), others, strict=True):
            self._put_heads(layer, tap, value.flatten(2))
        return parts

    def _attend_and_tap(self, original, module, q, k, *args, **kwargs):
        """Queries and keys as they are compared, whatever the class does after it turned them; [1, heads, tokens, head_dim], keys of
        earlier tokens too."""
        for tap, value in (("q_rope", q), ("k_rope", k[:, :, -self._dump.step_size:])):
            self._dump.layer(self._layer, tap, value[0].transpose(0, 1).flatten(1).numpy())
        out = original(module, q, k, *args, **kwargs)
        if self._gated:
            self._dump.layer(self._layer, "attn_ctx", out[0][0].flatten(1).numpy())
        return out

    def _convolve_and_tap(self, original, *args, **kwargs):
        out = original(*args, **kwargs)  # [1, channels, tokens], of earlier ones too
        if self._layer in self._mambas:
            self._dump.layer(self._layer, "qkv_conv", out[0, :, -self._dump.step_size:].T.numpy())
            return out
        if self._layer not in self._nets:
            for tap, value in (("conv_bx", args[0]), ("conv", out)):
                self._dump.layer(self._layer, tap, value[0, :, -self._dump.step_size:].T.numpy())
            return out
        self._put_heads(self._layer, "qkv_conv", out[:, :, -self._dump.step_size:].transpose(1, 2))
        return out

    def _recur_and_tap(self, recurrence, *args, **kwargs):
        out = recurrence(*args, **kwargs)
        self._put_heads(self._layer, "delta", out[0].flatten(2))
        return out

    def _scan_and_tap(self, _original, x, dt, a, b, c, *, D, dt_bias, initial_states=None, return_final_states=False, **_more):
        """Token by token, as decode does. x [1, T, heads, width]; dt [1, T, heads]; b and c [1, T, groups, state]."""
        each = x.shape[2] // b.shape[2]
        b, c = (part[0].repeat_interleave(each, dim=1) for part in (b, c))
        steps = torch.nn.functional.softplus(dt[0] + dt_bias)
        state = torch.zeros(*x.shape[2:], b.shape[2]) if initial_states is None else initial_states[0]
        out = torch.empty_like(x)
        for t in range(x.shape[1]):
            state = state * torch.exp(steps[t] * a)[:, None, None] + (x[0, t] * steps[t, :, None])[..., None] * b[t, :, None]
            out[0, t] = (state * c[t, :, None]).sum(-1) + D[:, None] * x[0, t]
        self._dump.layer(self._layer, "delta", out[0].flatten(1).numpy())
        return (out, state[None]) if return_final_states else out

    def _update_and_tap(self, original, *args, **kwargs):
        out = original(*args, **kwargs)  # [1, heads, width]
        self._dump.layer(self._layer, "delta", out.reshape(1, -1).numpy())
        return out

    def _rotate_one_and_tap(self, original, x, *args, **kwargs):
        """q of a layer, then k."""
        x = original(x, *args, **kwargs)  # [1, tokens, heads, head_dim]
        self._dump.layer(self._layer, ("q_rope", "k_rope")[self._turned], x[0].flatten(1).numpy())
        self._turned += 1
        return x

    def remove(self) -> None:
        for name, original in self._originals.items():
            setattr(self._modeling, name, original)
