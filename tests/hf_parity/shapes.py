"""The corpus as a plan: shapes of models, variations of their weights, and the cases made of them.

The plan is a pure function of this file: seeds follow from the names, nothing depends on time or the machine.
"""

import itertools
import zlib
from dataclasses import dataclass, field, replace

K_TYPES = ("Q4_K_M", "Q6_K", "Q2_K", "Q5_K_M", "Q3_K_M", "Q4_K_S", "Q5_K_S", "Q3_K_S", "Q3_K_L", "IQ4_XS")
TYPES_OF_32 = ("Q8_0", "Q4_0", "IQ4_NL", "Q5_1", "Q4_1", "Q5_0", "BF16")
MIXED_OF_32 = ("Q4_K_M", "Q6_K")  # llmquant falls back to types of 32 weights where rows are no multiples of 256
YARN = {"rope_type": "yarn"}
GPT_OSS_YARN = YARN | {"beta_fast": 32.0, "beta_slow": 1.0, "truncate": False}
MINISTRAL3_YARN = YARN | {"beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}
LONG_ROPE = {"rope_type": "longrope", "long_factor": [1 + i * i / 24 for i in range(32)],
             "short_factor": [1 + i / 50 for i in range(32)]}
GRANITE = {"embedding_multiplier": 12.0, "residual_multiplier": 0.22, "logits_scaling": 8.0}
WINDOW, FULL = "sliding_attention", "full_attention"
# As the 31B: few, wide KV heads in full layers, whose values are made of keys. As E2B: layers with inputs of their own, of which the
# last share keys and values and are twice as wide.
GEMMA4_31B = {"layer_types": [WINDOW] * 2 + [FULL] + [WINDOW] * 2 + [FULL], "attention_k_eq_v": True, "hidden_size_per_layer_input": 0}
GEMMA4_E2B = {"layer_types": [WINDOW, FULL] * 3, "num_kv_shared_layers": 3, "use_double_wide_mlp": True}
LLAMA3 = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}


@dataclass(frozen=True)
class Shape:
    """A LlamaConfig in short; `rope` holds what scales the positions, rope_theta apart."""

    name: str
    d_model: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    d_ff: int
    vocab: int
    tied: bool = False
    eps: float = 1e-5
    theta: float = 10000.0
    family: str = "llama"  # model_type of transformers; "llama-bpe": llama with a byte-level BPE vocabulary
    rope: dict = field(default_factory=lambda: {"rope_type": "default"})
    partial_rotary: float = 1.0  # of a head, what RoPE turns; of phi3, qwen3_5 and glm4
    delta: tuple[int, int, int, int] = (0, 0, 0, 0)  # key heads, value heads and their sizes, of qwen3_5; of granitehybrid heads, their width, state and groups
    window: int | None = None  # sliding, of mistral, gemma3, gpt-oss and phi3
    multipliers: dict = field(default_factory=dict)  # of granite's config
    gemma4: dict = field(default_factory=dict)  # what its config has beyond gemma3's; window layers have head_dim and n_kv_heads
    n_experts: int = 0  # each of d_ff; 0: the feed-forward is no mixture
    n_used: int = 0  # by a token
    n_dense: int = 0  # the first layers, without experts
    n_shared: int = 0  # experts that every token goes through
    adds_up: bool = True  # weights of experts are divided by their sum
    conv_width: int = 3  # of lfm2 and granitehybrid

    @property
    def context(self) -> int:
        """Positions it was made for; those that RoPE scaling stretches the original ones to, where it says."""
        return max(1024, int(self.rope.get("original_max_position_embeddings", 0) * self.rope.get("factor", 1)))

    @property
    def attention_scale(self) -> float:
        """What multiplies scores."""
        return 1.0 if self.gemma4 else self.multipliers.get("attention_multiplier", self.head_dim ** -0.5)

    @property
    def weights(self) -> int:
        """In the matrices of the layers."""
        attention = 2 * self.d_model * self.head_dim * (self.n_heads + self.n_kv_heads)
        return self.n_layers * (attention + 3 * self.d_model * self.d_ff * max(1, self.n_experts))

    @property
    def rows_of_256(self) -> bool:
        """Whether every matrix has rows of whole K-quant blocks."""
        return all(n % 256 == 0 for n in (self.d_model, self.d_ff, self.n_heads * self.head_dim))


SHAPES = (
    Shape("gqa48", 192, 4, 4, 2, 48, 512, 515),
    Shape("mha64", 256, 2, 4, 4, 64, 768, 1000, eps=1e-6, theta=500000.0),
    Shape("tied64-llama3", 256, 8, 8, 2, 64, 256, 515, tied=True, theta=500000.0,
          rope=LLAMA3 | {"factor": 8.0, "original_max_position_embeddings": 256}),
    Shape("mqa128-linear", 256, 4, 4, 1, 128, 512, 600, rope={"rope_type": "linear", "factor": 4.0}),
    Shape("mha80", 320, 4, 4, 4, 80, 480, 777, eps=1e-6),
    Shape("tied96-llama3", 192, 4, 6, 3, 96, 800, 1000, tied=True, theta=500000.0,
          rope=LLAMA3 | {"factor": 32.0, "original_max_position_embeddings": 8192}),
    Shape("deep64", 256, 24, 4, 1, 64, 256, 515, tied=True),
    Shape("deep48-linear", 96, 24, 3, 1, 48, 160, 333, eps=1e-6, rope={"rope_type": "linear", "factor": 2.5}),
    Shape("tied128", 512, 2, 2, 2, 128, 512, 1000, tied=True, eps=1e-6, theta=1000000.0),
    Shape("gqa48-wide", 256, 2, 16, 4, 48, 512, 333, theta=100000.0),
    Shape("mqa80-llama3", 256, 2, 16, 1, 80, 768, 645, eps=1e-4, theta=500000.0,
          rope=LLAMA3 | {"factor": 4.0, "original_max_position_embeddings": 512}),
    Shape("gqa64-8-layers", 160, 8, 4, 2, 64, 416, 1000, eps=1e-6),
)
# Families of which `./dev convert` converts all, the tokenizer too. Theta and eps are those of their well-known models.
FAMILY_SHAPES = (
    Shape("llama-bpe-tied-gqa64", 256, 3, 8, 2, 64, 512, 700, tied=True, theta=500000.0, family="llama-bpe",
          rope=LLAMA3 | {"factor": 32.0, "original_max_position_embeddings": 8192}),
    Shape("llama-bpe-mqa80", 320, 2, 4, 1, 80, 480, 645, theta=500000.0, family="llama-bpe"),
    Shape("llama-bpe-mha46", 192, 2, 4, 4, 46, 288, 512, eps=1e-6, family="llama-bpe"),
    Shape("mistral-gqa64", 256, 3, 8, 2, 64, 768, 700, theta=1000000.0, family="mistral"),
    Shape("mistral-mqa48", 192, 2, 4, 1, 48, 512, 600, tied=True, family="mistral"),
    Shape("mistral-mha128", 512, 2, 4, 4, 128, 512, 515, theta=1000000.0, family="mistral"),
    Shape("mistral-window", 192, 3, 6, 2, 32, 512, 600, family="mistral", window=5),
    Shape("mistral-window33", 128, 2, 4, 1, 32, 256, 515, family="mistral", window=33),
    Shape("smollm3-gqa32", 128, 9, 4, 2, 32, 256, 600, tied=True, eps=1e-6, theta=5000000.0, family="smollm3"),
    Shape("smollm3-mqa48", 192, 4, 4, 1, 48, 512, 515, tied=True, eps=1e-6, theta=2000000.0, family="smollm3"),
    Shape("smollm3-mha64", 256, 5, 4, 4, 64, 512, 1000, eps=1e-6, theta=2000000.0, family="smollm3"),
    Shape("gemma3-7-layers", 128, 7, 4, 2, 32, 256, 600, tied=True, eps=1e-6, theta=1000000.0, family="gemma3", window=5),
    Shape("gemma3-mqa80", 160, 8, 4, 1, 80, 320, 515, tied=True, eps=1e-6, theta=1000000.0, family="gemma3", window=24,
          rope={"rope_type": "linear", "factor": 8.0}),
    Shape("gemma3-6-layers", 192, 6, 6, 6, 48, 512, 600, eps=1e-6, theta=1000000.0, family="gemma3", window=16),
    Shape("qwen2-tied-gqa64", 256, 3, 8, 2, 32, 768, 700, tied=True, eps=1e-6, theta=1000000.0, family="qwen2"),
    Shape("qwen2-mqa40", 160, 2, 4, 1, 40, 416, 645, eps=1e-6, theta=1000000.0, family="qwen2"),
    Shape("qwen2-mha128-linear", 512, 2, 4, 4, 128, 512, 1000, eps=1e-6, theta=1000000.0, family="qwen2",
          rope={"rope_type": "linear", "factor": 4.0}),
    Shape("qwen3-tied-gqa128", 256, 3, 4, 2, 128, 768, 700, tied=True, eps=1e-6, theta=1000000.0, family="qwen3"),
    Shape("qwen3-mqa46", 192, 2, 6, 1, 46, 416, 645, eps=1e-6, theta=1000000.0, family="qwen3"),
    Shape("qwen3-mha64", 256, 2, 4, 4, 64, 512, 1000, eps=1e-6, theta=5000000.0, family="qwen3"),
    Shape("qwen3moe-mqa48-6-of-10", 192, 3, 4, 1, 48, 96, 645, eps=1e-6, theta=1000000.0, family="qwen3_moe", n_experts=10,
          n_used=6),
    Shape("qwen3moe-tied-gqa64-2-of-8", 256, 3, 4, 2, 64, 256, 700, tied=True, eps=1e-6, theta=1000000.0, family="qwen3_moe",
          n_experts=8, n_used=2),
    Shape("qwen3moe-mha32-4-of-16", 128, 4, 4, 4, 32, 64, 1000, eps=1e-6, theta=5000000.0, family="qwen3_moe", n_experts=16,
          n_used=4),
    Shape("granite-tied-gqa64", 256, 3, 4, 2, 64, 768, 700, tied=True, theta=5000000.0, family="granite",
          multipliers=GRANITE | {"attention_multiplier": 1 / 64}),
    Shape("granite-mqa46", 192, 4, 4, 1, 46, 416, 645, family="granite",
          multipliers=GRANITE | {"attention_multiplier": 0.02, "logits_scaling": 10.0}),
    Shape("granite-mha128", 512, 2, 4, 4, 128, 512, 1000, theta=10000000.0, family="granite",
          multipliers=GRANITE | {"attention_multiplier": 1 / 128, "logits_scaling": 16.0}),
    Shape("gemma3-62-layers", 96, 62, 4, 2, 32, 160, 515, tied=True, eps=1e-6, theta=1000000.0, family="gemma3", window=8,
          rope={"rope_type": "linear", "factor": 8.0}),
    # Appended: variations follow from places.
    Shape("qwen3-yarn-gqa64", 256, 3, 4, 2, 64, 512, 700, eps=1e-6, theta=1000000.0, family="qwen3",
          rope=YARN | {"factor": 4.0, "original_max_position_embeddings": 256}),
    Shape("gpt-oss-tied-gqa64-2-of-8", 256, 3, 8, 2, 64, 256, 684, tied=True, theta=150000.0, family="gpt_oss", n_experts=8,
          n_used=2, window=24, rope=GPT_OSS_YARN | {"factor": 32.0, "original_max_position_embeddings": 64}),
    Shape("gpt-oss-mha32-4-of-16", 128, 4, 4, 4, 32, 64, 1000, theta=150000.0, family="gpt_oss", n_experts=16, n_used=4, window=16),
    Shape("gpt-oss-mqa48-6-of-10", 192, 4, 4, 1, 48, 96, 645, theta=150000.0, family="gpt_oss", n_experts=10, n_used=6, window=5,
          rope=GPT_OSS_YARN | {"factor": 8.0, "original_max_position_embeddings": 128}),
    Shape("phi3-gqa64-long", 256, 3, 4, 2, 64, 512, 700, family="phi3", rope=LONG_ROPE | {"original_max_position_embeddings": 64}),
    Shape("phi3-tied-mqa48-window", 192, 4, 4, 1, 48, 416, 645, tied=True, family="phi3", partial_rotary=0.75, window=5),
    Shape("phi3-mha128", 512, 2, 4, 4, 128, 512, 984, family="phi3"),
    Shape("qwen3.5-tied-gqa64-2-of-6", 256, 4, 4, 2, 64, 512, 700, tied=True, eps=1e-6, theta=1e7, family="qwen3_5",
          partial_rotary=0.25, delta=(2, 6, 32, 32)),
    Shape("qwen3.5-mqa48-unequal", 192, 5, 4, 1, 48, 416, 645, eps=1e-6, theta=1e7, family="qwen3_5", partial_rotary=0.5,
          delta=(3, 6, 40, 24)),
    Shape("qwen3.5-mha32-wide", 128, 8, 4, 4, 32, 256, 1000, eps=1e-5, theta=1e7, family="qwen3_5", partial_rotary=0.25,
          delta=(2, 2, 64, 128)),
    Shape("qwen3.5moe-tied-gqa64-2-of-8", 256, 4, 4, 2, 64, 256, 700, tied=True, eps=1e-6, theta=1e7, family="qwen3_5_moe",
          partial_rotary=0.25, delta=(2, 4, 32, 32), n_experts=8, n_used=2),
    Shape("qwen3.5moe-mqa48-unequal", 192, 5, 4, 1, 48, 96, 645, eps=1e-6, theta=1e7, family="qwen3_5_moe", partial_rotary=0.5,
          delta=(3, 6, 40, 24), n_experts=10, n_used=6),
    Shape("qwen3.5moe-mha32-4-of-16", 128, 4, 4, 4, 32, 64, 1000, eps=1e-6, theta=1e7, family="qwen3_5_moe", partial_rotary=0.25,
          delta=(2, 2, 64, 128), n_experts=16, n_used=4),
    Shape("qwen3next-tied-gqa64-2-of-8", 256, 4, 4, 2, 64, 256, 700, tied=True, eps=1e-6, theta=1e7, family="qwen3_next",
          partial_rotary=0.25, delta=(2, 6, 32, 32), n_experts=8, n_used=2),
    Shape("qwen3next-mqa48-unequal", 192, 5, 4, 1, 48, 96, 645, eps=1e-6, theta=1e7, family="qwen3_next", partial_rotary=0.5,
          delta=(3, 6, 40, 24), n_experts=10, n_used=6),
    Shape("qwen3next-mha32-4-of-16", 128, 4, 4, 4, 32, 64, 1000, eps=1e-6, theta=1e7, family="qwen3_next", partial_rotary=0.25,
          delta=(2, 2, 64, 128), n_experts=16, n_used=4),
    Shape("gemma4-31b-gqa32", 256, 6, 4, 2, 32, 512, 700, tied=True, eps=1e-6, theta=1e6, family="gemma4", window=24, partial_rotary=0.25,
          gemma4=GEMMA4_31B | {"global_head_dim": 64, "num_global_key_value_heads": 1}),
    Shape("gemma4-e2b-mqa48", 192, 6, 4, 1, 48, 416, 645, tied=True, eps=1e-6, theta=1e6, family="gemma4", window=5, partial_rotary=0.5,
          gemma4=GEMMA4_E2B | {"global_head_dim": 80, "hidden_size_per_layer_input": 32}),
    Shape("gemma4-mha32", 128, 5, 4, 4, 32, 256, 1000, eps=1e-6, theta=1e6, family="gemma4", window=16, partial_rotary=0.25,
          gemma4={"layer_types": [WINDOW] * 4 + [FULL], "hidden_size_per_layer_input": 0, "global_head_dim": 48}),
    Shape("granitemoe-tied-gqa64-2-of-8", 256, 3, 4, 2, 64, 256, 700, tied=True, theta=1500000.0, family="granitemoe", n_experts=8, n_used=2,
          multipliers=GRANITE | {"attention_multiplier": 1 / 64}),
    Shape("granitemoe-mqa48-6-of-10", 192, 4, 4, 1, 48, 96, 645, family="granitemoe", n_experts=10, n_used=6,
          multipliers=GRANITE | {"attention_multiplier": 0.02, "logits_scaling": 10.0}),
    Shape("gemma4-a4b-gqa32-2-of-8", 256, 6, 4, 2, 32, 512, 700, tied=True, eps=1e-6, theta=1e6, family="gemma4", window=24,
          partial_rotary=0.25, gemma4=GEMMA4_31B | {"global_head_dim": 64, "num_global_key_value_heads": 1, "enable_moe_block": True,
                                                    "num_experts": 8, "top_k_experts": 2, "moe_intermediate_size": 256}),
    Shape("gemma4-a4b-mqa48-6-of-10", 192, 6, 4, 1, 48, 416, 645, tied=True, eps=1e-6, theta=1e6, family="gemma4", window=5,
          partial_rotary=0.25, gemma4=GEMMA4_31B | {"global_head_dim": 80, "num_global_key_value_heads": 1, "enable_moe_block": True,
                                                    "num_experts": 10, "top_k_experts": 6, "moe_intermediate_size": 96}),
    Shape("ministral3-gqa64", 256, 3, 4, 2, 64, 512, 700, theta=1e6, family="ministral3",
          rope=MINISTRAL3_YARN | {"factor": 16.0, "original_max_position_embeddings": 64}),
    Shape("ministral3-tied-mqa48", 192, 4, 4, 1, 48, 416, 645, tied=True, theta=1e6, family="ministral3",
          rope=MINISTRAL3_YARN | {"factor": 8.0, "original_max_position_embeddings": 16, "llama_4_scaling_beta": 0.4}),
    Shape("ministral3-mha128-window", 512, 2, 4, 4, 128, 512, 1000, theta=1e5, family="ministral3", window=24,
          rope=MINISTRAL3_YARN | {"factor": 4.0, "original_max_position_embeddings": 5, "beta_fast": 4.0, "beta_slow": 0.5,
                                  "mscale": 0.707}),
    Shape("ernie4.5-tied-gqa64", 256, 3, 4, 2, 64, 512, 700, tied=True, theta=500000.0, family="ernie4_5"),
    Shape("ernie4.5-mqa48-linear", 192, 4, 4, 1, 48, 416, 645, theta=500000.0, family="ernie4_5", rope={"rope_type": "linear", "factor": 4.0}),
    Shape("olmo2-gqa64", 256, 3, 4, 2, 64, 512, 700, eps=1e-6, theta=500000.0, family="olmo2"),
    Shape("olmo2-tied-mqa48", 192, 4, 4, 1, 48, 416, 645, tied=True, eps=1e-6, theta=500000.0, family="olmo2"),
    Shape("olmo2-mha128-linear", 512, 2, 4, 4, 128, 512, 1000, eps=1e-6, theta=500000.0, family="olmo2",
          rope={"rope_type": "linear", "factor": 4.0}),
    Shape("olmo3-gqa64-yarn", 256, 5, 4, 2, 64, 512, 700, eps=1e-6, theta=500000.0, family="olmo3", window=24,
          rope=YARN | {"factor": 8.0, "original_max_position_embeddings": 128}),
    Shape("olmo3-tied-mqa48", 192, 4, 4, 1, 48, 416, 645, tied=True, eps=1e-6, theta=500000.0, family="olmo3", window=5),
    Shape("olmo3-mha32", 128, 8, 4, 4, 32, 256, 1000, eps=1e-6, theta=500000.0, family="olmo3", window=16),
    Shape("exaone4-gqa64-window", 256, 5, 4, 2, 64, 512, 700, theta=1e6, family="exaone4", window=24,
          rope=LLAMA3 | {"factor": 16.0, "original_max_position_embeddings": 128}),
    Shape("exaone4-tied-mqa48", 192, 4, 4, 1, 48, 416, 645, tied=True, theta=1e6, family="exaone4"),
    Shape("exaone4-tied-mha32-window", 128, 8, 4, 4, 32, 256, 1000, tied=True, theta=1e6, family="exaone4", window=5),
    Shape("seed-oss-gqa64", 256, 3, 4, 2, 64, 512, 700, eps=1e-6, theta=1e7, family="seed_oss"),
    Shape("seed-oss-tied-mqa48", 192, 4, 4, 1, 48, 416, 645, tied=True, eps=1e-6, theta=1e7, family="seed_oss"),
    Shape("seed-oss-mha128-yarn", 512, 2, 4, 4, 128, 512, 1000, eps=1e-6, theta=1e6, family="seed_oss",
          rope=YARN | {"factor": 4.0, "original_max_position_embeddings": 256, "beta_fast": 16.0, "beta_slow": 2.0}),
    Shape("hunyuan-gqa64-alpha", 256, 3, 4, 2, 64, 512, 700, theta=10000.0, family="hunyuan",
          rope={"rope_type": "dynamic", "alpha": 1000.0, "factor": 1.0, "original_max_position_embeddings": 32768}),
    Shape("hunyuan-tied-mqa48", 192, 4, 4, 1, 48, 416, 645, tied=True, theta=1e6, family="hunyuan"),
    Shape("hunyuan-mha128", 512, 2, 4, 4, 128, 512, 1000, tied=True, theta=1e6, family="hunyuan"),
    Shape("glm4-gqa64", 256, 3, 4, 2, 64, 512, 700, theta=10000.0, family="glm4", partial_rotary=0.5),
    Shape("glm4-tied-mqa48", 192, 4, 4, 1, 48, 416, 645, tied=True, theta=10000.0, family="glm4", partial_rotary=0.5),
    Shape("glm4-mha128-yarn", 512, 2, 4, 4, 128, 512, 984, theta=10000.0, family="glm4", partial_rotary=0.75,
          rope=YARN | {"factor": 4.0, "original_max_position_embeddings": 256}),
    Shape("ernie4.5-mha128", 512, 2, 4, 4, 128, 512, 1000, tied=True, theta=500000.0, family="ernie4_5"),
    Shape("gemma2-tied-gqa64", 256, 4, 4, 2, 64, 512, 700, tied=True, eps=1e-6, family="gemma2", window=24),
    Shape("gemma2-tied-mqa48", 192, 3, 4, 1, 48, 416, 645, tied=True, eps=1e-6, family="gemma2", window=5),
    Shape("gemma2-tied-mha32", 128, 6, 4, 4, 32, 256, 1000, tied=True, eps=1e-6, family="gemma2", window=16),
    Shape("granitemoe-mha32-4-of-16", 128, 4, 4, 4, 32, 64, 1000, theta=10000000.0, family="granitemoe", n_experts=16, n_used=4,
          multipliers=GRANITE | {"attention_multiplier": 1 / 32, "logits_scaling": 16.0}),
    Shape("lfm2-tied-gqa64", 256, 5, 4, 2, 64, 512, 700, tied=True, theta=1e6, family="lfm2"),
    Shape("lfm2-mqa48-wide", 192, 6, 4, 1, 48, 416, 645, eps=1e-6, theta=1e6, family="lfm2", conv_width=5),
    Shape("lfm2-tied-mha32", 128, 9, 4, 4, 32, 256, 1000, tied=True, theta=5e5, family="lfm2", conv_width=2),
    Shape("lfm2moe-tied-gqa64-2-of-8", 256, 5, 4, 2, 64, 256, 700, tied=True, theta=1e6, family="lfm2_moe", n_experts=8, n_used=2, n_dense=1),
    Shape("lfm2moe-mqa48-6-of-10", 192, 6, 4, 1, 48, 96, 645, tied=True, eps=1e-6, theta=1e6, family="lfm2_moe", n_experts=10, n_used=6, n_dense=2,
          conv_width=4),
    Shape("lfm2moe-tied-mha32-4-of-16", 128, 6, 4, 4, 32, 64, 1000, tied=True, theta=1e6, family="lfm2_moe", n_experts=16, n_used=4),
    Shape("granitehybrid-tied-gqa64", 256, 5, 4, 2, 64, 512, 696, tied=True, family="granitehybrid", delta=(8, 64, 32, 1), conv_width=4,
          multipliers=GRANITE | {"attention_multiplier": 1 / 64}),
    Shape("granitehybrid-mqa48-groups", 192, 6, 4, 1, 48, 416, 640, family="granitehybrid", delta=(16, 24, 40, 2), conv_width=3,
          multipliers=GRANITE | {"attention_multiplier": 0.02, "logits_scaling": 10.0}),
    Shape("granitehybrid-mha32-4-of-16", 128, 4, 4, 4, 32, 64, 1000, family="granitehybrid", delta=(4, 64, 128, 1), conv_width=4, n_experts=16,
          n_used=4, multipliers=GRANITE | {"attention_multiplier": 1 / 32, "logits_scaling": 16.0}),
    Shape("ernie4.5moe-tied-gqa64-2-of-8", 256, 3, 4, 2, 64, 256, 700, tied=True, theta=500000.0, family="ernie4_5_moe", n_experts=8, n_used=2,
          n_dense=1, n_shared=2),
    Shape("ernie4.5moe-mqa48-6-of-10", 192, 4, 4, 1, 48, 96, 645, theta=500000.0, family="ernie4_5_moe", n_experts=10, n_used=6, n_dense=2, n_shared=1),
    Shape("ernie4.5moe-mha32-4-of-16", 128, 4, 4, 4, 32, 64, 1000, theta=500000.0, family="ernie4_5_moe", n_experts=16, n_used=4),
    Shape("glm4moe-tied-gqa64-2-of-8", 256, 3, 4, 2, 64, 256, 700, tied=True, theta=1e6, family="glm4_moe", partial_rotary=0.5, n_experts=8,
          n_used=2, n_dense=1, n_shared=1),
    Shape("glm4moe-mqa48-6-of-10", 192, 4, 4, 1, 48, 96, 645, theta=1e6, family="glm4_moe", partial_rotary=0.5, n_experts=10, n_used=6, n_dense=2,
          n_shared=2),
    Shape("glm4moe-mha32-4-of-16", 128, 4, 4, 4, 32, 64, 1000, theta=1e6, family="glm4_moe", partial_rotary=0.5, n_experts=16, n_used=4, n_shared=1),
    Shape("dots1-tied-gqa64-2-of-8", 256, 3, 4, 2, 64, 256, 700, tied=True, eps=1e-6, theta=1e7, family="dots1", n_experts=8, n_used=2, n_dense=1,
          n_shared=2),
    Shape("dots1-mqa48-6-of-10", 192, 4, 4, 1, 48, 96, 645, eps=1e-6, theta=1e7, family="dots1", n_experts=10, n_used=6, n_dense=1, n_shared=1,
          adds_up=False),
    Shape("dots1-mha32-4-of-16", 128, 4, 4, 4, 32, 64, 1000, eps=1e-6, theta=1e7, family="dots1", n_experts=16, n_used=4, n_shared=1),
    Shape("hunyuanmoe-gqa64-2-of-8", 256, 3, 4, 2, 64, 256, 700, theta=1e6, family="hunyuan_moe", n_experts=8, n_used=2, n_shared=1),
    Shape("hunyuanmoe-tied-mqa48-6-of-10", 192, 4, 4, 1, 48, 96, 645, tied=True, theta=1e6, family="hunyuan_moe", n_experts=10, n_used=6, n_shared=1),
    Shape("hunyuanmoe-mha128-alpha-4-of-16", 512, 2, 4, 4, 128, 64, 1000, theta=10000.0, family="hunyuan_moe", n_experts=16, n_used=4, n_shared=1,
          rope={"rope_type": "dynamic", "alpha": 1000.0, "factor": 1.0, "original_max_position_embeddings": 32768}),
    Shape("minimax-m2-tied-gqa64-2-of-8", 256, 3, 4, 2, 64, 256, 700, tied=True, eps=1e-6, theta=5e6, family="minimax_m2", partial_rotary=0.5,
          n_experts=8, n_used=2),
    Shape("minimax-m2-mqa48-6-of-10", 192, 4, 4, 1, 48, 96, 645, eps=1e-6, theta=5e6, family="minimax_m2", partial_rotary=0.5, n_experts=10, n_used=6),
    Shape("minimax-m2-mha32-4-of-16", 128, 4, 4, 4, 32, 64, 1000, eps=1e-6, theta=5e6, family="minimax_m2", n_experts=16, n_used=4),
    Shape("qwen2moe-tied-gqa64-2-of-8", 256, 3, 4, 2, 64, 256, 700, tied=True, eps=1e-6, theta=1e6, family="qwen2_moe", n_experts=8, n_used=2,
          adds_up=False),
    Shape("qwen2moe-mqa48-6-of-10", 192, 4, 4, 1, 48, 96, 645, eps=1e-6, theta=1e6, family="qwen2_moe", n_experts=10, n_used=6, adds_up=False),
    Shape("qwen2moe-mha32-4-of-16", 128, 4, 4, 4, 32, 64, 1000, eps=1e-6, theta=1e6, family="qwen2_moe", n_experts=16, n_used=4, adds_up=False),
    Shape("olmoe-tied-gqa64-2-of-8", 256, 3, 4, 2, 64, 256, 700, tied=True, family="olmoe", n_experts=8, n_used=2, adds_up=False),
    Shape("olmoe-mqa48-6-of-10", 192, 4, 4, 1, 48, 96, 645, family="olmoe", n_experts=10, n_used=6, adds_up=False),
    Shape("olmoe-mha32-4-of-16", 128, 4, 4, 4, 32, 64, 1000, family="olmoe", n_experts=16, n_used=4, adds_up=False),
    Shape("laguna-gqa64-2-of-8", 256, 5, 4, 2, 64, 256, 700, eps=1e-6, theta=500000.0, family="laguna", partial_rotary=0.5, window=24, n_experts=8,
          n_used=2, n_dense=1, n_shared=1, rope=YARN | {"factor": 8.0, "original_max_position_embeddings": 128}),
    Shape("laguna-tied-mqa48-6-of-10", 192, 4, 4, 1, 48, 96, 645, tied=True, eps=1e-6, theta=500000.0, family="laguna", n_experts=10, n_used=6,
          n_dense=2, n_shared=2),
    Shape("laguna-mha32-4-of-16", 128, 6, 4, 4, 32, 64, 1000, eps=1e-6, theta=500000.0, family="laguna", partial_rotary=0.5, window=5, n_experts=16,
          n_used=4, n_dense=1, n_shared=1),
    Shape("granitemoe-gqa64-2-of-8-shared", 256, 3, 4, 2, 64, 256, 700, theta=1500000.0, family="granitemoe", n_experts=8, n_used=2, n_shared=2,
          multipliers=GRANITE | {"attention_multiplier": 1 / 64}),
    Shape("granitemoe-tied-mqa48-6-of-10-shared", 192, 4, 4, 1, 48, 96, 645, tied=True, family="granitemoe", n_experts=10, n_used=6, n_shared=1,
          multipliers=GRANITE | {"attention_multiplier": 0.02, "logits_scaling": 10.0}),
    *(replace(shape, name=f"{name}-{shape.name}", family=family) for name, family in (
        ("qwen2vl", "qwen2_vl"), ("qwen2.5vl", "qwen2_5_vl"), ("qwen3vl", "qwen3_vl")) for shape in (
            Shape("tied-gqa64", 256, 3, 4, 2, 64, 512, 700, tied=True, eps=1e-6, theta=1e6),
            Shape("mqa48", 192, 4, 4, 1, 48, 416, 645, eps=1e-6, theta=1e6), Shape("mha32", 128, 4, 4, 4, 32, 256, 1000, eps=1e-6, theta=5e6))),
    Shape("qwen3vlmoe-gqa64-2-of-8", 256, 3, 4, 2, 64, 256, 700, eps=1e-6, theta=5e6, family="qwen3_vl_moe", n_experts=8, n_used=2),
    Shape("qwen3vlmoe-tied-mqa48-6-of-10", 192, 4, 4, 1, 48, 96, 645, tied=True, eps=1e-6, theta=5e6, family="qwen3_vl_moe", n_experts=10, n_used=6),
    Shape("qwen3vlmoe-mha32-4-of-16", 128, 4, 4, 4, 32, 64, 1000, eps=1e-6, theta=5e6, family="qwen3_vl_moe", n_experts=16, n_used=4),
)
FAMILY_VARIATIONS = ("plain", "peaked", "sharp", "outlier100")
ALWAYS_TIED = ("gemma2", "lfm2_moe")
UNQUANTIZED = ("F32", "F16")  # types that hold the checkpoint's own weights
FAMILY_TYPES = ("F16", "Q8_0", "Q4_K_M", "F32")
VARIATIONS = ("plain", "peaked", "sharp", "outlier30", "outlier100", "outlier1000", "tiny", "gates", "sharp-outlier100")
TOKENS = (16, 40, 150, 300, 600)
MOST_WORK = 1.35e9  # tokens times weights: about half a minute of llmcheck
TOKEN_KINDS = ("random", "repeated", "mixed")
CHECKPOINTS_OF_SHAPE = 3
QUANTIZED_OF_CHECKPOINT = 2


def seed_of(name: str) -> int:
    return zlib.crc32(name.encode())


@dataclass(frozen=True)
class Case:
    """One run of llmcheck: a model file and a reference."""

    shape: Shape
    variation: str
    type: str
    n_tokens: int
    kind: str  # of TOKEN_KINDS
    single: int  # the last tokens that are fed one at a time
    quick: bool

    @property
    def checkpoint(self) -> str:
        return f"{self.shape.name}-{self.variation}"

    @property
    def name(self) -> str:
        return f"{self.checkpoint}-{self.type.lower()}"

    @property
    def steps(self) -> list[int]:
        return [self.n_tokens - self.single, *([1] * self.single)]


def cases() -> list[Case]:
    """All cases; those of the quick corpus, one a shape with every variation among them, come first.

    Checkpoints go round the shapes, each with the next variation; each is run in F16 and two quantized types that
    come in turn, so that every type and variation meets several shapes. Lengths, kinds of tokens and single steps
    come in turn, too.
    """
    types = {True: itertools.cycle(K_TYPES + TYPES_OF_32), False: itertools.cycle(TYPES_OF_32 + MIXED_OF_32)}
    turn = itertools.count()
    plan = []
    for round_, (index, shape) in itertools.product(range(CHECKPOINTS_OF_SHAPE), enumerate(SHAPES)):
        variation = VARIATIONS[(index + 3 * round_ + index // len(VARIATIONS)) % len(VARIATIONS)]
        of_shape = types[shape.rows_of_256]
        chosen = ["F16"] + [next(of_shape) for _ in range(QUANTIZED_OF_CHECKPOINT)]
        for place, type_ in enumerate(chosen):
            n = next(turn)
            lengths = [t for t in TOKENS if t * shape.weights <= MOST_WORK]
            plan.append(Case(shape, variation, type_, n_tokens=lengths[n % len(lengths)],
                             kind=TOKEN_KINDS[(n // 2) % len(TOKEN_KINDS)], single=(0, 3, 0, 9)[n % 4],
                             quick=round_ == 0 and place == index % len(chosen)))
    return sorted(plan, key=lambda case: not case.quick) + family_cases()


def family_cases() -> list[Case]:
    """Every shape of the families with one variation, in F32, F16 and two quantized types."""
    plan = []
    for index, shape in enumerate(FAMILY_SHAPES):
        variation = FAMILY_VARIATIONS[(index + index // len(FAMILY_VARIATIONS)) % len(FAMILY_VARIATIONS)]
        for place, type_ in enumerate(FAMILY_TYPES):
            plan.append(Case(shape, variation, type_, n_tokens=(40, 150, 16)[(index + place) % 3],
                             kind=TOKEN_KINDS[(index + place) % len(TOKEN_KINDS)], single=(0, 3)[(index + place) % 2],
                             quick=place == index % len(FAMILY_TYPES)))
    return plan


def check_plan(plan: list[Case]) -> None:
    """Raises AssertionError unless the plan covers what docs/testing.md promises."""
    for of, values in (("variation", VARIATIONS), ("type", ("F16",) + K_TYPES + TYPES_OF_32), ("n_tokens", TOKENS)):
        for value in values:
            shapes = {case.shape.name for case in plan if getattr(case, of) == value}
            assert len(shapes) >= 2, f"{of} {value} is met by {len(shapes)} shape"
    assert len({case.name for case in plan}) == len(plan), "two cases share a name"
    assert {case.shape.name for case in plan if case.quick} == {shape.name for shape in SHAPES + FAMILY_SHAPES}
    for family in sorted({shape.family for shape in FAMILY_SHAPES}):
        shapes = [shape for shape in FAMILY_SHAPES if shape.family == family]
        ties = 1 if family in ALWAYS_TIED else 2
        assert len(shapes) >= 3 and len({shape.tied for shape in shapes}) == ties, f"{family} has too few shapes"
        sharing = {(shape.n_kv_heads == 1, shape.n_kv_heads == shape.n_heads) for shape in shapes}
        assert len(sharing) == 3, f"{family} lacks MHA, GQA or MQA"
