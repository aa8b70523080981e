"""The hyper-parameters of a GGUF as a config of transformers."""

from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, PretrainedConfig, PreTrainedModel

from gguf_model import GgufModel
from hparams import UnsupportedModel


PAIRED = ("ernie4_5", "ernie4_5-moe", "ernie4_5_moe", "glm4")  # classes whose pairs of a head's dims are neighbours, as in their files; of others they are halves


def class_of(config: PretrainedConfig) -> type:
    """Which of transformers' factories makes the model."""
    return AutoModelForCausalLM if type(config) in AutoModelForCausalLM._model_mapping else AutoModelForImageTextToText


def decoder_of(model: PreTrainedModel):
    """The module with the layers. A model that reads images has it beside what does."""
    return getattr(model.model, "language_model", model.model)


NESTED = {"qwen2vl": "qwen2_5_vl", "qwen3vl": "qwen3_vl", "qwen3vlmoe": "qwen3_vl_moe"}  # classes that read images; of qwen2vl the newer of two, whose text models are one


def made(kind: str, values: dict, vision: dict) -> PretrainedConfig:
    """The class's config. Of one that reads images `values` are those of its text model."""
    if "_vl" not in kind:
        return AutoConfig.for_model(kind, **values)
    return AutoConfig.for_model(kind, text_config=values, vision_config=vision, tie_word_embeddings=values["tie_word_embeddings"])


def rope_of(source: GgufModel) -> dict:
    """The GGUF's rope_parameters, of layers without a window."""
    hp, rope = source.hparams, source.hparams.rope
    if source.has("rope_factors_long.weight"):
        factors = {f"{x}_factor": source.weight(f"rope_factors_{x}.weight").tolist() for x in ("long", "short")}
        found = {"rope_type": "longrope", "attention_factor": rope.magnitude, **factors}
    elif rope.yarn:
        found = {"rope_type": "yarn", "factor": rope.scale, "attention_factor": rope.magnitude, "truncate": rope.yarn.whole,
                 "original_max_position_embeddings": rope.yarn.original, "beta_fast": rope.yarn.beta_fast,
                 "beta_slow": rope.yarn.beta_slow}
    elif rope.magnitude != 1.0 or source.has("rope_freqs.weight"):
        raise UnsupportedModel("rope_freqs.weight and a magnitude of RoPE have no counterpart here")
    else:
        found = {"rope_type": "linear", "factor": rope.scale} if rope.scale != 1.0 else {"rope_type": "default"}
    return found | {"rope_theta": rope.theta, "partial_rotary_factor": (rope.dims or hp.head_dim) / hp.head_dim}


WITH_EXPERTS = {"ernie4_5-moe": "ernie4_5_moe", "hunyuan-moe": "hunyuan_v1_moe", "qwen2moe": "qwen2_moe", "olmoe": "olmoe", "dots1": "dots1",
                "glm4moe": "glm4_moe", "minimax-m2": "minimax_m2"}  # classes


def mixture_of(source: GgufModel) -> tuple[str, dict]:
    """The class and what its config says of experts."""
    hp, kind = source.hparams, WITH_EXPERTS[source.architecture]
    n_shared = hp.d_shared // hp.d_ff
    if kind == "ernie4_5_moe":
        return kind, {"moe_num_experts": hp.n_experts, "moe_k": hp.n_experts_used, "moe_num_shared_experts": n_shared,
                      "moe_intermediate_size": hp.d_ff, "moe_layer_start_index": hp.n_dense}
    if kind == "hunyuan_v1_moe":
        return kind, {"num_experts": hp.n_experts, "moe_topk": hp.n_experts_used}
    more = {"num_experts_per_tok": hp.n_experts_used, "norm_topk_prob": hp.experts_add_up, "moe_intermediate_size": hp.d_ff,
            "routed_scaling_factor": hp.experts_scale, "first_k_dense_replace": hp.n_dense}
    if kind == "qwen2_moe":
        more["shared_expert_intermediate_size"] = hp.d_shared
    if kind == "glm4_moe":
        more |= {"attention_bias": source.has("blk.0.attn_q.bias"), "use_qk_norm": source.has("blk.0.attn_q_norm.weight")}
    count = {"dots1": "n_routed_experts", "glm4_moe": "n_routed_experts", "minimax_m2": "num_local_experts"}.get(kind, "num_experts")
    return kind, more | {count: hp.n_experts, "n_shared_experts": n_shared}


def config_of(source: GgufModel) -> PretrainedConfig:
    """The GGUF's hyper-parameters."""
    hp = source.hparams
    if hp.value_dim != hp.head_dim or (hp.rope.dims not in (hp.head_dim, 0) and source.architecture not in (
            "phi3", "qwen35", "qwen35moe", "qwen3next", "glm4", "glm4moe", "minimax-m2", "laguna")):
        raise UnsupportedModel("partial RoPE or its own value width have no counterpart here")
    rope = rope_of(source)
    kind, more = {"internlm2": "llama", "minicpm": "granite"}.get(source.architecture, source.architecture), {}  # which compute the same
    layer_types = ["sliding_attention" if hp.window_of(i) else "full_attention" for i in range(hp.n_layers)]
    if source.architecture == "llama" and hp.window:
        kind, more = "mistral", {"sliding_window": hp.window}
    elif source.architecture == "smollm3":
        more = {"pad_token_id": None}
    elif source.architecture == "exaone4":
        more = {"sliding_window": hp.window or None, "layer_types": layer_types}
    elif source.architecture == "glm4":
        more = {"attention_bias": source.has("blk.0.attn_q.bias"), "pad_token_id": None}
    elif source.architecture in WITH_EXPERTS:
        kind, more = mixture_of(source)
    elif source.architecture == "laguna":
        kind, more = "laguna", {
            "num_experts": hp.n_experts, "num_experts_per_tok": hp.n_experts_used, "moe_intermediate_size": hp.d_ff,
            "shared_expert_intermediate_size": hp.d_shared, "moe_routed_scaling_factor": hp.experts_scale, "sliding_window": hp.window,
            "mlp_layer_types": ["dense"] * hp.n_dense + ["sparse"] * (hp.n_layers - hp.n_dense), "layer_types": layer_types,
            "num_attention_heads_per_layer": list(hp.heads),
            "gating": "per-head" if len(source.weight("blk.0.attn_gate.weight")) == hp.heads[0] else "per-element"}
        rope = {"full_attention": rope, "sliding_attention": {
            "rope_type": "default", "rope_theta": hp.window_rope.theta, "partial_rotary_factor": hp.window_rope.dims / hp.head_dim}}
    elif source.architecture == "hunyuan-dense":
        kind = "hunyuan_v1_dense"
    elif source.architecture == "olmo2":
        kind, more = ("olmo3", {"sliding_window": hp.window, "layer_types": layer_types}) if hp.window else ("olmo2", {})
        if hp.window:
            rope = {"full_attention": rope, "sliding_attention": {"rope_type": "default", "rope_theta": hp.window_rope.theta}}
    elif source.architecture == "mistral3":
        kind, more = "ministral3", {"sliding_window": hp.window or None}
        rope |= {"llama_4_scaling_beta": hp.rope.query_growth, "original_max_position_embeddings": hp.rope.query_period}
    elif source.architecture in ("lfm2", "lfm2moe"):
        kind, more = "lfm2", {"conv_L_cache": hp.conv_width, "norm_eps": hp.eps, "block_auto_adjust_ff_dim": False,
                              "layer_types": ["conv" if recurrent else "full_attention" for recurrent in hp.recurrent]}
        if hp.n_experts:
            kind, more = "lfm2_moe", more | {
                "moe_intermediate_size": hp.d_ff, "num_dense_layers": hp.n_dense, "num_experts": hp.n_experts,
                "num_experts_per_tok": hp.n_experts_used, "routed_scaling_factor": hp.experts_scale,
                "use_expert_bias": source.has(f"blk.{hp.n_dense}.exp_probs_b.bias")}
    elif source.architecture in NESTED or source.architecture == "qwen3moe":
        kind, more = NESTED.get(source.architecture, "qwen3_moe"), {
            "moe_intermediate_size": hp.d_ff, "num_experts": hp.n_experts, "num_experts_per_tok": hp.n_experts_used, "norm_topk_prob": True}
        if sections := source.value(f"{source.architecture}.rope.dimension_sections"):
            rope |= {"mrope_section": sections[:3]}
    elif source.architecture == "gpt-oss":
        kind, more = "gpt_oss", {"num_local_experts": hp.n_experts, "num_experts_per_tok": hp.n_experts_used,
                                 "sliding_window": hp.window or hp.context_length, "layer_types": layer_types}
    elif source.architecture == "phi3":
        more = {"sliding_window": hp.window or None, "pad_token_id": None,
                "original_max_position_embeddings": hp.original_context or hp.context_length}
    elif source.architecture == "gemma2":
        more = {"sliding_window": hp.window, "query_pre_attn_scalar": round(hp.attention_scale ** -2), "layer_types": layer_types,
                "attn_logit_softcapping": hp.score_cap, "final_logit_softcapping": hp.logit_cap}
    elif source.architecture == "gemma3":
        rope = {"full_attention": rope, "sliding_attention": {"rope_type": "default", "rope_theta": hp.window_rope.theta}}
        kind, more = "gemma3_text", {
            "sliding_window": hp.window, "query_pre_attn_scalar": round(hp.attention_scale ** -2), "layer_types": layer_types}
    elif source.architecture in ("qwen35", "qwen35moe", "qwen3next"):
        d = hp.delta
        layer_types = ["linear_attention" if recurrent else "full_attention" for recurrent in hp.recurrent]
        kind, more = "qwen3_5_text", {
            "linear_num_key_heads": d.k_heads, "linear_num_value_heads": d.v_heads, "linear_key_head_dim": d.k_dim,
            "linear_value_head_dim": d.v_dim, "linear_conv_kernel_dim": d.width, "layer_types": layer_types}
        if hp.n_experts:
            kind, more = "qwen3_next" if d.grouped else "qwen3_5_moe_text", more | {
                "moe_intermediate_size": hp.d_ff, "num_experts": hp.n_experts, "num_experts_per_tok": hp.n_experts_used,
                "shared_expert_intermediate_size": hp.d_shared}
    elif source.family.scales:
        more = {"embedding_multiplier": hp.embedding_scale, "attention_multiplier": hp.attention_scale,
                "residual_multiplier": hp.residual_scale, "logits_scaling": hp.logit_scale}
        if hp.n_experts:
            more |= {"num_local_experts": hp.n_experts, "num_experts_per_tok": hp.n_experts_used}
        if hp.d_shared:
            kind, more = "granitemoeshared", more | {"shared_intermediate_size": hp.d_shared}
        if source.family.mamba:
            kind, d = "granitemoehybrid", hp.delta
            more |= {"layer_types": ["linear_attention" if recurrent else "full_attention" for recurrent in hp.recurrent],
                     "mamba_n_heads": d.v_heads, "mamba_d_head": d.v_dim, "mamba_d_state": d.k_dim, "mamba_n_groups": d.k_heads,
                     "mamba_d_conv": d.width, "mamba_expand": d.v_width // hp.d_model, "num_local_experts": hp.n_experts,
                     "shared_intermediate_size": hp.d_shared or hp.d_ff, "position_embedding_type": "rope" if hp.rope.dims else "nope"}
    return made(kind, more | dict(
        vocab_size=source.vocab_size, hidden_size=hp.d_model, intermediate_size=hp.d_ffs[0],
        num_hidden_layers=hp.n_layers, num_attention_heads=hp.n_heads, num_key_value_heads=hp.n_kv_heads,
        head_dim=hp.head_dim, rms_norm_eps=hp.eps, max_position_embeddings=hp.context_length,
        rope_parameters=rope,
        tie_word_embeddings=not source.has("output.weight")), vision={"depth": 0})


def for_context(config: PretrainedConfig, context: int | None) -> PretrainedConfig:
    """With the divisors of LongRoPE that a run of `context` positions has; None: those that each text has by its length, as
    transformers decides."""
    rope = config.get_text_config().rope_parameters
    if context is not None and rope.get("rope_type") == "longrope":
        chosen = rope["long_factor" if context > rope["original_max_position_embeddings"] else "short_factor"]
        rope["long_factor"] = rope["short_factor"] = chosen
    return config


def theta_of(config: PretrainedConfig) -> float:
    """RoPE's base, which Hunyuan's alpha stretches."""
    rope, dims = config.rope_parameters.get("full_attention", config.rope_parameters), head_dim_of(config)
    return rope["rope_theta"] * (rope.get("alpha") or 1.0) ** (dims / (dims - 2))


def head_dim_of(config: PretrainedConfig) -> int:
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
