"""A Llama in plain torch with the meaning of Hugging Face's LlamaForCausalLM.

Names and layouts of the parameters are Hugging Face's (half-split rotary embedding), so that a
state dict is a checkpoint.
Shapes: B sequences of T tokens, D = dim, Hq query heads and Hkv key/value heads of size Dh.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class ModelConfig:
    """The hyper-parameters of the embedded model."""

    vocab_size: int = 1536
    dim: int = 256
    n_layers: int = 4
    n_heads: int = 8
    n_kv_heads: int = 4
    ff_dim: int = 512
    context: int = 512
    rope_theta: float = 10000.0
    norm_eps: float = 1e-5

    @property
    def head_dim(self) -> int:
        return self.dim // self.n_heads


def rotary_tables(config: ModelConfig) -> tuple[Tensor, Tensor]:
    """Returns cos and sin, each (context, Dh); the second half of the columns repeats the first."""
    half = torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim
    angles = torch.outer(
        torch.arange(config.context, dtype=torch.float64), config.rope_theta**-half
    )
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos().float(), angles.sin().float()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Applies the rotary embedding to (B, H, T, Dh); element i pairs with i + Dh / 2."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class RmsNorm(nn.Module):
    """x / rms(x) * weight over the last axis."""

    def __init__(self, dim: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class Attention(nn.Module):
    """Causal grouped-query attention."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        kv_dim = config.n_kv_heads * config.head_dim
        self.q_proj = nn.Linear(config.dim, config.dim, bias=False)
        self.k_proj = nn.Linear(config.dim, kv_dim, bias=False)
        self.v_proj = nn.Linear(config.dim, kv_dim, bias=False)
        self.o_proj = nn.Linear(config.dim, config.dim, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, dim = x.shape

        def heads(y: Tensor) -> Tensor:
            return y.view(batch, length, -1, self.config.head_dim).transpose(1, 2)  # (B, H, T, Dh)

        q = rotate(heads(self.q_proj(x)), cos, sin)
        k = rotate(heads(self.k_proj(x)), cos, sin)
        v = heads(self.v_proj(x))
        group = self.config.n_heads // self.config.n_kv_heads
        k, v = (y.repeat_interleave(group, dim=1) for y in (k, v))
        context = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(context.transpose(1, 2).reshape(batch, length, dim))


class FeedForward(nn.Module):
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.gate_proj = nn.Linear(config.dim, config.ff_dim, bias=False)
        self.up_proj = nn.Linear(config.dim, config.ff_dim, bias=False)
        self.down_proj = nn.Linear(config.ff_dim, config.dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    """One decoder layer."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.input_layernorm = RmsNorm(config.dim, config.norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RmsNorm(config.dim, config.norm_eps)
        self.mlp = FeedForward(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    """Embedding, layers and final norm."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.dim)
        self.layers = nn.ModuleList(Block(config) for _ in range(config.n_layers))
        self.norm = RmsNorm(config.dim, config.norm_eps)


class Llama(nn.Module):
    """Tokens (B, T) -> logits (B, T, vocab)."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        self.model = Decoder(config)
        self.lm_head = nn.Linear(config.dim, config.vocab_size, bias=False)
        cos, sin = rotary_tables(config)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        cos, sin = self.cos[:length], self.sin[:length]
        x = self.model.embed_tokens(tokens)
        for layer in self.model.layers:
            x = layer(x, cos, sin)
        return self.lm_head(self.model.norm(x))
