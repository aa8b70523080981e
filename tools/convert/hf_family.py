"""What the converter must know of transformers' classes: names, and values of config.json that must not be others.

Facts: transformers' modeling_llama, modeling_mistral, modeling_qwen2, modeling_qwen3, modeling_qwen3_moe, modeling_gpt_oss,
modeling_smollm3, modeling_gemma3, modeling_granite and modeling_phi3; tensor names of the GGUF specification (ggml's docs/gguf.md).
"""

from dataclasses import dataclass, field

from hf_checkpoint import ConversionError

# Tensors of a layer by their names in a checkpoint.
BEFORE = {
    "input_layernorm.weight": "attn_norm.weight", "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight", "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight", "post_attention_layernorm.weight": "ffn_norm.weight"}
FFN = {"mlp.gate_proj.weight": "ffn_gate.weight", "mlp.up_proj.weight": "ffn_up.weight", "mlp.down_proj.weight": "ffn_down.weight"}
LAYER = BEFORE | FFN
BIASES = {f"self_attn.{x}_proj.bias": f"attn_{x}.bias" for x in "qkv"}
HEAD_NORMS = {f"self_attn.{x}_norm.weight": f"attn_{x}_norm.weight" for x in "qk"}
# Gemma's post_attention_layernorm is no norm before the feed-forward.
POST_NORMS = {"post_attention_layernorm.weight": "post_attention_norm.weight",
              "pre_feedforward_layernorm.weight": "ffn_norm.weight",
              "post_feedforward_layernorm.weight": "post_ffw_norm.weight"}
# That of gpt-oss is, under the name that other files give Gemma's.
GPT_OSS = BEFORE | {"post_attention_layernorm.weight": "post_attention_norm.weight"} | BIASES | {
    "self_attn.o_proj.bias": "attn_output.bias", "self_attn.sinks": "attn_sinks.weight",
    "mlp.router.weight": "ffn_gate_inp.weight", "mlp.router.bias": "ffn_gate_inp.bias"}
PHI3 = {"input_layernorm.weight": "attn_norm.weight", "self_attn.qkv_proj.weight": "attn_qkv.weight",
        "self_attn.o_proj.weight": "attn_output.weight", "post_attention_layernorm.weight": "ffn_norm.weight",
        "mlp.gate_up_proj.weight": "ffn_up.weight", "mlp.down_proj.weight": "ffn_down.weight"}


@dataclass(frozen=True)
class Family:
    """A class of transformers."""

    architecture: str  # of the GGUF
    pairs: bool = False  # rows of q and k go from HF's halves to GGUF's neighbours
    layer: dict[str, str] = field(default_factory=lambda: LAYER)
    activations: tuple[str, ...] = ("silu", "swish")  # of config.json, those that the architecture computes
    norm_offset: float = 0.0  # added to the weights of norms
    window_period: int = 1  # in config.json each layer but every so many has the window, 1: all; 0: none may
    tied: bool = False  # whether the embedding is the output where config.json does not say
    window_theta: float | None = None  # RoPE's in layers with a window, where the GGUF does not say it
    no_rope_period: int = 0  # of so many layers the last has no RoPE; 0: all have it
    partial_rope: bool = False  # of part of a head
    long_rope: bool = False  # of which a GGUF may have divisors for long and for short texts
    whole_yarn: bool = True  # config.json's `truncate`, which a GGUF does not say
    d_expert: str = ""  # config.json's name of an expert's width; empty: the feed-forward is no mixture
    scales: bool = False  # those of SCALES
    wide_layers: int = 0  # a model of so many layers scales scores by the root of d_model / n_heads, not of head_dim
    needed: dict[str, tuple] = field(default_factory=dict)  # as NEEDED, beyond it, also of what config.json lacks

    def name_of(self, tensor: str) -> str | None:
        """The checkpoint's name of a tensor of the GGUF's layers."""
        return next((source for source, name in self.layer.items() if name == tensor), None)


# Of config.json the values that the engine computes; others would change the result.
NEEDED = {"mlp_bias": (False, None), "pretraining_tp": (1, None), "attn_logit_softcapping": (None,),
          "final_logit_softcapping": (None,), "use_bidirectional_attention": (False, None)}
OF_QWEN3_MOE = {"norm_topk_prob": (True,), "decoder_sparse_step": (1, None), "mlp_only_layers": ([], None),
                "shared_expert_intermediate_size": (0, None), "attention_bias": (False, None)}
OF_GPT_OSS = {"attention_bias": (True, None), "swiglu_limit": (7.0, None), "swiglu_alpha": (1.702, None)}
# Multipliers of config.json by their keys of the GGUF, where 0 means that there is none.
SCALES = {"embedding_multiplier": "embedding_scale", "attention_multiplier": "attention.scale",
          "residual_multiplier": "residual_scale", "logits_scaling": "logit_scale"}

FAMILIES = {
    "LlamaForCausalLM": Family("llama", pairs=True),
    "MistralForCausalLM": Family("llama", pairs=True),
    "Qwen2ForCausalLM": Family("qwen2", layer=LAYER | BIASES),
    "Qwen3ForCausalLM": Family("qwen3", layer=LAYER | HEAD_NORMS),
    "Qwen3MoeForCausalLM": Family("qwen3moe", layer=BEFORE | HEAD_NORMS | {"mlp.gate.weight": "ffn_gate_inp.weight"},
                                  window_period=0, d_expert="moe_intermediate_size", needed=OF_QWEN3_MOE),
    "GptOssForCausalLM": Family("gpt-oss", layer=GPT_OSS, window_period=2, whole_yarn=False, d_expert="intermediate_size",
                                needed=OF_GPT_OSS),
    "SmolLM3ForCausalLM": Family("smollm3", pairs=True, tied=True, no_rope_period=4),
    "Gemma3ForCausalLM": Family("gemma3", layer=LAYER | HEAD_NORMS | POST_NORMS, activations=("gelu_pytorch_tanh",),
                                norm_offset=1.0, tied=True, window_period=6, window_theta=10000.0, wide_layers=62),
    "GraniteForCausalLM": Family("granite", pairs=True, scales=True),
    "Phi3ForCausalLM": Family("phi3", layer=PHI3, partial_rope=True, long_rope=True),
}


def family_of(config: dict) -> Family:
    names = config.get("architectures") or ["none"]
    if names[0] not in FAMILIES:
        raise ConversionError(f"config.json: architectures is {names[0]}; need one of {', '.join(FAMILIES)}")
    return FAMILIES[names[0]]
