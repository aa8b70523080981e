"""Writer of activation dumps in the format `llmcheck-act/1`, shared by every producer in this folder.

Schema
------
A dump is an NPZ file (little-endian, C order). Arrays:

``s{step:04d}/L{layer:03d}/{tap}``  [tokens, features]  one row per token of that step, f32 (f64 on request)
``s{step:04d}/L{layer:03d}/probs``  [head, token, key]  optional; key = absolute position, 0 where masked
``s{step:04d}/G/{tap}``             [tokens, features]  taps outside the layers
``tokens``     i32 [n]         every token fed, all steps concatenated
``positions``  i32 [n]         absolute position of each of them
``step_ptr``   i64 [steps + 1] tokens of step s are tokens[step_ptr[s] : step_ptr[s + 1]]
``__meta__``   u8  [bytes]     UTF-8 JSON, see below

Step 0 is the prefill; each further forward call is a step of its own.

Taps of a layer, in the order of the data flow (`LAYER_TAPS`): attn_norm (after the norm weight), q, k, v (projections
with their biases), q_rope, k_rope (after the norm of each head, if any, and RoPE), attn_ctx (before Wo), attn_out (after Wo), ffn_inp (residual after attention), ffn_norm, gate, up,
ffn_act (activation(gate) * up), ffn_out (after Wdown), l_out (the layer's output); of models with norms after both halves
also attn_post and ffn_post (what is added to the residual). In a mixture of experts, gate, up, ffn_act and ffn_out hold the
chosen experts' values one after the other, by ascending id; router (the logits of all experts) comes before, ffn_mix (the
weighted sum) after them. A layer with a
Gated DeltaNet has `DELTA_TAPS` in place of q to attn_ctx: qkv, z, beta, alpha (products), qkv_conv (after the convolution and its
silu), delta (what queries find in the states), delta_norm (its heads normed, times silu(z)); value heads are in the GGUF's order. With an output gate
there are attn_gate (its product) and attn_gated (attn_ctx times its sigmoid). With an expert that every token
goes through there are `SHARED_TAPS`: its gate, up, ffn_act and ffn_out, the logit of its weight, and its sum with ffn_mix. Global taps (`GLOBAL_TAPS`): embd,
result_norm, logits (one row per token, not only the last). Of models with scales: embd and logits are after theirs, attn_out
and ffn_out before that of the residual.

``__meta__`` keys: format, producer, producer_version, model_sha256, model_name, tokenizer_hash, oracle (R0, R1, R2,
engine, hf, llamacpp), compute, kv, eps, rope_theta, qk_layout (interleaved | half), taps_absent ({tap: reason}), and
optionally merges_hash, hparams and greedy (arg-max token after each step's last row).
"""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

FORMAT = "llmcheck-act/1"
LAYER_TAPS = ("attn_norm", "q", "k", "v", "q_rope", "k_rope", "attn_ctx", "attn_out", "ffn_inp",
              "ffn_norm", "gate", "up", "ffn_act", "ffn_out", "l_out")
DELTA_TAPS = ("qkv", "z", "beta", "alpha", "qkv_conv", "delta", "delta_norm")
DELTA_LAYER_TAPS = (LAYER_TAPS[0], *DELTA_TAPS, *LAYER_TAPS[7:])
SHARED_TAPS = ("shared_gate", "shared_up", "shared_act", "shared_out", "shared_weight", "ffn_sum")  # of an expert of every token
OPTIONAL_LAYER_TAPS = (*SHARED_TAPS, "attn_gate", "attn_gated", "probs", "attn_post", "ffn_post", "router", "ffn_mix")
GLOBAL_TAPS = ("embd", "result_norm", "logits")
REQUIRED_META = ("producer", "producer_version", "model_sha256", "model_name", "tokenizer_hash",
                 "oracle", "compute", "kv", "eps", "rope_theta", "qk_layout")


class ActivationDump:
    """Collects the taps of consecutive forward calls and writes them as one NPZ.

    Call `begin_step` before each forward call, `layer` / `globals_` for every tap, then `write` once.
    """

    def __init__(self, dtype: type = np.float32):
        self._dtype = np.dtype(dtype).newbyteorder("<")
        self._arrays: dict[str, np.ndarray] = {}
        self._tokens: list[int] = []
        self._positions: list[int] = []
        self._step_ptr = [0]

    @property
    def n_steps(self) -> int:
        return len(self._step_ptr) - 1

    @property
    def step_size(self) -> int:
        """Tokens of the current step."""
        return self._step_ptr[-1] - self._step_ptr[-2]

    def begin_step(self, tokens, positions) -> None:
        """Opens the next step, which feeds `tokens` at absolute `positions`."""
        if len(tokens) != len(positions) or len(tokens) == 0:
            raise ValueError("a step needs one position per token and at least one token")
        self._tokens.extend(int(t) for t in tokens)
        self._positions.extend(int(p) for p in positions)
        self._step_ptr.append(len(self._tokens))

    def layer(self, layer: int, tap: str, value: np.ndarray) -> None:
        """Records a tap of one layer in the current step."""
        if tap not in LAYER_TAPS + DELTA_TAPS + OPTIONAL_LAYER_TAPS:
            raise ValueError(f"unknown layer tap {tap!r}")
        self._put(f"L{layer:03d}/{tap}", value, ndim=3 if tap == "probs" else 2,
                  token_axis=1 if tap == "probs" else 0)

    def globals_(self, tap: str, value: np.ndarray) -> None:
        """Records a tap outside the layers in the current step."""
        if tap not in GLOBAL_TAPS:
            raise ValueError(f"unknown global tap {tap!r}")
        self._put(f"G/{tap}", value, ndim=2, token_axis=0)

    def get(self, step: int, name: str) -> np.ndarray:
        """The stored array, e.g. get(0, 'L001/q') or get(0, 'G/logits')."""
        return self._arrays[f"s{step:04d}/{name}"]

    def write(self, path: str | Path, meta: Mapping, *, n_layers: int, probs: bool = False, compress: bool = False) -> None:
        """Writes the NPZ. Refuses a dump with a tap that is missing in any step or layer, and metadata without one of
        `REQUIRED_META`. `probs`: they were requested."""
        missing = [key for key in REQUIRED_META if key not in meta]
        if missing:
            raise ValueError(f"metadata lacks {missing}")
        for step in range(self.n_steps):
            names = [f"L{layer:03d}/{tap}" for layer in range(n_layers)
                     for tap in (DELTA_LAYER_TAPS if f"s{step:04d}/L{layer:03d}/qkv" in self._arrays else LAYER_TAPS)]
            names += [f"G/{tap}" for tap in GLOBAL_TAPS]
            lost = [name for name in names if f"s{step:04d}/{name}" not in self._arrays]
            if lost:
                raise ValueError(f"step {step} lacks taps {lost[:5]}")
        full_meta = {"format": FORMAT, **meta, "taps_absent": {} if probs else {"probs": "not requested (--probs)"}}
        arrays = dict(self._arrays)
        arrays["tokens"] = np.asarray(self._tokens, dtype="<i4")
        arrays["positions"] = np.asarray(self._positions, dtype="<i4")
        arrays["step_ptr"] = np.asarray(self._step_ptr, dtype="<i8")
        arrays["__meta__"] = np.frombuffer(json.dumps(full_meta, sort_keys=True).encode(), dtype=np.uint8)
        with open(path, "wb") as out:  # a file object keeps numpy from appending ".npz"
            (np.savez_compressed if compress else np.savez)(out, **arrays)

    def _put(self, name: str, value: np.ndarray, *, ndim: int, token_axis: int) -> None:
        if self.n_steps == 0:
            raise ValueError("begin_step has not been called")
        tokens = self.step_size
        if value.ndim != ndim or value.shape[token_axis] != tokens:
            raise ValueError(f"{name}: shape {value.shape} does not fit {tokens} tokens")
        key = f"s{self.n_steps - 1:04d}/{name}"
        if key in self._arrays:
            raise ValueError(f"{key} recorded twice")
        self._arrays[key] = np.array(value, dtype=self._dtype, order="C")  # a copy: values never alias
