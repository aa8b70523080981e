"""What the converter refuses of config.json, as rows: a config, what is changed in it, words of the refusal; run by selftest.py."""

import functools

from selftest_bench import CONFIG, EXPERTS, GPT_OSS, HEAD_DIM, LONG_ROPE, PHI3, QWEN3_MOE, VOCAB, YARN, Bench, weights


def family(name: str, **more) -> dict:
    return {"architectures": [f"{name}ForCausalLM"]} | more


PART = {"partial_rotary_factor": 0.75}
ROWS = [
    (CONFIG, [
        (family("Gemma"), "GemmaForCausalLM; need one of LlamaForCausalLM"), ({"hidden_act": "gelu"}, "hidden_act"),
        ({"mlp_bias": True}, "mlp_bias"), ({"attention_bias": True}, "attention_bias"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config"),
        ({"quantization_config": {"quant_method": "mxfp4"}}, "quantization_config"),
        ({"rope_scaling": {"type": "dynamic", "factor": 4.0}}, "'dynamic'"),
        ({"rope_parameters": {"rope_type": "llama3", "factor": 8.0}}, "low_freq_factor"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"), ({"vocab_size": VOCAB + 1}, "embed_tokens.weight has shape"),
        ({"sliding_window": 32, "max_window_layers": 1}, "--context 32"), ({"sliding_window": "x"}, "sliding_window is 'x'"),
        ({"no_rope_layers": [0]}, "no_rope_layers is [0]"), ({"rms_norm_eps": None}, "rms_norm_eps"),
        (family("SmolLM3", no_rope_layers=[1, 0]), "no_rope_layers is [1, 0]"),
        (family("SmolLM3", no_rope_layer_interval=1), "no_rope_layers is [0]"),
        (family("Granite", attention_bias=True), "attention_bias"), (family("Granite", mlp_bias=True), "mlp_bias"),
        ({"query_pre_attn_scalar": HEAD_DIM + 1}, "query_pre_attn_scalar is 7"),
        ({"rope_scaling": LONG_ROPE}, "'longrope' is not computed"),
        *((family("Granite", **{key: bad}), f"{key} is {bad!r}") for bad in (0, -1.0, None, "2", float("nan")) for key in (
            "embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling")),
        *(({"rope_scaling": YARN | more}, words) for more, words in (
            ({"truncate": False}, "truncate of YaRN is False"), ({"factor": None}, "'yarn' needs a number factor"),
            ({"attention_factor": -1.0}, "attention_factor"), ({"beta_fast": "x"}, "beta_fast")))]),
    (QWEN3_MOE, [
        ({"norm_topk_prob": False}, "norm_topk_prob is False"), ({"norm_topk_prob": None}, "norm_topk_prob is None"),
        ({"decoder_sparse_step": 2}, "decoder_sparse_step is 2"), ({"mlp_only_layers": [0]}, "mlp_only_layers is [0]"),
        ({"shared_expert_intermediate_size": 16}, "shared_expert_intermediate_size is 16"),
        ({"attention_bias": True}, "attention_bias is True"), ({"use_sliding_window": True}, "sliding_window is 8"),
        ({"num_experts": 0}, "num_experts is 0"), ({"num_experts_per_tok": 13}, "13 of 12 experts"),
        ({"num_experts": EXPERTS - 1}, "mlp.gate.weight has shape [12, 8]"),
        ({"moe_intermediate_size": 6}, "experts.0.gate_proj.weight has shape [5, 8]")]),
    (GPT_OSS, [
        ({"swiglu_limit": 10.0}, "swiglu_limit is 10.0"), ({"swiglu_alpha": 1.0}, "swiglu_alpha is 1.0"),
        ({"attention_bias": False}, "attention_bias is False"), ({"hidden_act": "gelu"}, "hidden_act"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "some layers only"),
        ({"rope_scaling": GPT_OSS["rope_scaling"] | {"truncate": True}}, "truncate of YaRN is True"),
        ({"num_experts_per_tok": 13}, "13 of 12 experts"), ({"quantization_config": {"quant_method": "fp8"}}, "quantization_config"),
        ({"intermediate_size": 16}, "gate_up_proj_bias has shape [12, 64]")]),
    (PHI3, [
        ({"rope_scaling": LONG_ROPE}, "long_factor of RoPE is no list of 4"),
        (PART | {"rope_scaling": LONG_ROPE | {"short_factor": None}}, "short_factor"),
        (PART | {"rope_scaling": LONG_ROPE | {"short_factor": [1, 0, 1]}}, "short_factor"),
        *(({"partial_rotary_factor": bad}, f"partial_rotary_factor is {bad}") for bad in (0.4, 1.5)),
        ({"rope_scaling": LONG_ROPE, "original_max_position_embeddings": None}, "'longrope' needs a number original_max")]),
]


def check_refused(bench: Bench, base: dict, change: dict, words: str) -> None:
    bench.config, bench.tensors = base | change, weights(base)
    bench.refused(words)


CHECKS = [(f"refused: {words}", functools.partial(check_refused, base=base, change=change, words=words))
          for base, rows in ROWS for change, words in rows]
