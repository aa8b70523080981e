"""Writer of activation dumps in the format `llmcheck-act/1`, shared by every producer in this folder.

docs/dump_format.md describes the arrays, the taps in the order of the data flow, and the metadata.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

FORMAT = "llmcheck-act/1"
LAYER_TAPS = ("attn_norm", "q", "k", "v", "q_rope", "k_rope", "attn_ctx", "attn_out", "ffn_inp",
              "ffn_norm", "gate", "up", "ffn_act", "ffn_out", "l_out")
DELTA_TAPS = ("qkv", "z", "beta", "alpha", "qkv_conv", "delta", "delta_norm")
MAMBA_TAPS = ("z", "qkv", "alpha", "qkv_conv", "delta", "delta_norm")  # which has no beta
CONV_TAPS = ("conv_b", "conv_c", "conv_x", "conv_bx", "conv", "conv_gated")
INPUT_TAPS = ("pl_gate", "pl_act", "pl_out", "pl_post", "pl_sum")  # of layers with inputs of their own
SHARED_TAPS = ("shared_gate", "shared_up", "shared_act", "shared_out", "shared_weight", "ffn_sum")  # of an expert of every token
BESIDE_TAPS = ("router_norm", "experts_norm", "mix_norm", "shared_norm")  # of experts beside a feed-forward
OPTIONAL_LAYER_TAPS = (*SHARED_TAPS, *BESIDE_TAPS, *INPUT_TAPS, "v_norm", "l_scaled", "attn_gate", "attn_gated", "probs", "attn_post", "ffn_post", "router", "ffn_mix")
GLOBAL_TAPS = ("embd", "result_norm", "logits")
OPTIONAL_GLOBAL_TAPS = ("pl_embd", "pl_proj", "pl_inputs")
KEY_TAPS = ("k", "v", "k_rope")  # that a layer with an earlier one's keys lacks
PRE_NORM_TAPS = ("attn_norm", "ffn_norm")  # that a layer with norms behind its products may lack
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
        if tap not in LAYER_TAPS + DELTA_TAPS + CONV_TAPS + OPTIONAL_LAYER_TAPS:
            raise ValueError(f"unknown layer tap {tap!r}")
        self._put(f"L{layer:03d}/{tap}", value, ndim=3 if tap == "probs" else 2,
                  token_axis=1 if tap == "probs" else 0)

    def globals_(self, tap: str, value: np.ndarray) -> None:
        """Records a tap outside the layers in the current step."""
        if tap not in GLOBAL_TAPS + OPTIONAL_GLOBAL_TAPS:
            raise ValueError(f"unknown global tap {tap!r}")
        self._put(f"G/{tap}", value, ndim=2, token_axis=0)

    def tokens(self, step: int) -> np.ndarray:
        """The tokens that a step fed."""
        return np.asarray(self._tokens[self._step_ptr[step]:self._step_ptr[step + 1]])

    def get(self, step: int, name: str) -> np.ndarray:
        """The stored array, e.g. get(0, 'L001/q') or get(0, 'G/logits')."""
        return self._arrays[f"s{step:04d}/{name}"]

    def _mixer_taps(self, step: int, layer: int) -> tuple[str, ...]:
        """The taps that a layer must have, by its mixer."""
        for mixer, first in ((DELTA_TAPS, "beta"), (MAMBA_TAPS, "qkv"), (CONV_TAPS, "conv_b")):
            if f"s{step:04d}/L{layer:03d}/{first}" in self._arrays:
                return LAYER_TAPS[0], *mixer, *LAYER_TAPS[7:]
        return LAYER_TAPS

    def write(self, path: str | Path, meta: Mapping, *, n_layers: int, probs: bool = False, compress: bool = False) -> None:
        """Writes the NPZ. Refuses a dump with a tap that is missing in any step or layer, and metadata without one of
        `REQUIRED_META`. `probs`: they were requested."""
        missing = [key for key in REQUIRED_META if key not in meta]
        if missing:
            raise ValueError(f"metadata lacks {missing}")
        for step in range(self.n_steps):
            shared = {layer for layer in range(n_layers) if all(
                f"s{step:04d}/L{layer:03d}/{tap}" not in self._arrays for tap in KEY_TAPS)}
            post = {layer for layer in range(n_layers) if f"s{step:04d}/L{layer:03d}/attn_post" in self._arrays}
            names = [f"L{layer:03d}/{tap}" for layer in range(n_layers)
                     for tap in self._mixer_taps(step, layer)
                     if not (tap in KEY_TAPS and layer in shared or tap in PRE_NORM_TAPS and layer in post)]
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
