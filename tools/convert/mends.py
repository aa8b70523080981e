"""What llama.cpp's converter drops of a checkpoint, put into the GGUF before its header is written. docs/convert.md names each.

A mend is a function of the writer and the checkpoint; MENDS has them in turn.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path

import gguf

from errors import ConversionError


WINDOW_IN_ALL = ("mistral", "ministral3")  # classes whose layers all have the window


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint directory and its config.json, completed with transformers' defaults."""

    directory: Path
    config: dict

    def json(self, name: str) -> dict:
        path = self.directory / name
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}

    @property
    def rope(self) -> dict:
        """Of layers with full attention."""
        rope = self.config.get("rope_parameters") or self.config.get("rope_scaling") or {}
        rope = rope.get("full_attention") or rope
        return rope | {"rope_type": rope.get("rope_type") or rope.get("type") or "default"}

    @property
    def window(self) -> int | None:
        """That of some layer."""
        layers = self.config.get("layer_types")
        windowed = any("sliding" in kind for kind in layers) if layers else self.config.get("model_type") in WINDOW_IN_ALL
        return self.config.get("sliding_window") if windowed else None


def value_of(writer: gguf.GGUFWriter, key: str):
    """The value of a key as it stands; `{arch}` is the architecture."""
    found = writer.kv_data[0].get(key.format(arch=writer.arch))
    return None if found is None else found.value


def put(writer: gguf.GGUFWriter, key: str, value: bool | int | float) -> None:
    kind = {bool: gguf.GGUFValueType.BOOL, int: gguf.GGUFValueType.UINT32, float: gguf.GGUFValueType.FLOAT32}[type(value)]
    writer.kv_data[0][key.format(arch=writer.arch)] = gguf.GGUFValue(value, kind)


def window(writer: gguf.GGUFWriter, of: Checkpoint) -> None:
    """Mistral's window in all layers is dropped: texts longer than it would be other texts."""
    if of.config.get("model_type") in WINDOW_IN_ALL and of.window:
        put(writer, "{arch}.attention.sliding_window", of.window)


def head_dim(writer: gguf.GGUFWriter, of: Checkpoint) -> None:
    """A head dim that is not d_model / n_heads is dropped by Granite and Phi-3."""
    dim = of.config.get("head_dim")
    if dim and value_of(writer, "{arch}.attention.key_length") is None and of.config.get("model_type") in ("granite", "granitemoe", "granitemoeshared", "granitemoehybrid", "phi3"):
        put(writer, "{arch}.attention.key_length", dim)
        put(writer, "{arch}.attention.value_length", dim)
        put(writer, "{arch}.rope.dimension_count", int(dim * (of.rope.get("partial_rotary_factor") or 1.0)))


def old_layer_types(kinds: list[str]) -> list[str]:
    """Those of a Granite hybrid, by the names of older checkpoints."""
    return [{"full_attention": "attention", "linear_attention": "mamba"}.get(kind, kind) for kind in kinds]


def hybrid(writer: gguf.GGUFWriter, of: Checkpoint) -> None:
    """Of Granite's hybrids the converter writes a context of its own, and of those without experts another width."""
    if of.config.get("model_type") == "granitemoehybrid":
        put(writer, "{arch}.context_length", writer.context)
        if not of.config.get("num_local_experts"):
            put(writer, "{arch}.feed_forward_length", of.config["shared_intermediate_size"])


def experts(writer: gguf.GGUFWriter, of: Checkpoint) -> None:
    """Of ERNIE 4.5 the width of the shared expert is taken from another number, of dots.llm1 the kind of router may be missing."""
    kind = of.config.get("model_type")
    if kind == "ernie4_5_moe" and of.config["moe_num_shared_experts"]:
        put(writer, "{arch}.expert_shared_feed_forward_length", of.config["moe_num_shared_experts"] * of.config["moe_intermediate_size"])
    if kind in ("dots1", "minimax_m2") and value_of(writer, "{arch}.expert_gating_func") is None:
        put(writer, "{arch}.expert_gating_func", int(gguf.ExpertGatingFuncType.SIGMOID))


def windows(writer: gguf.GGUFWriter, of: Checkpoint) -> None:
    """Which layers of Laguna have the window is left to a rule that not every checkpoint follows."""
    if of.config.get("model_type") == "laguna" and value_of(writer, "{arch}.attention.sliding_window"):
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in of.config["layer_types"]])


def rope_theta(writer: gguf.GGUFWriter, of: Checkpoint) -> None:
    """RoPE's base is dropped by Gemma 2."""
    if of.config.get("model_type") == "gemma2" and value_of(writer, "{arch}.rope.freq_base") is None:
        put(writer, "{arch}.rope.freq_base", float(of.rope["rope_theta"]))


def rope_magnitude(writer: gguf.GGUFWriter, of: Checkpoint) -> None:
    """What multiplies scores under YaRN and LongRoPE. A GGUF of YaRN without attn_factor means 0.1 ln(factor) + 1, divided by
    0.1 m ln(factor) + 1 where it has yarn_log_multiplier m, and with it so many times that; the converter writes yarn_attn_factor instead, from attention_factor alone. Of LongRoPE it drops attention_factor."""
    rope, kind = of.rope, of.rope["rope_type"]
    stated = rope.get("attention_factor")
    if kind == "yarn":
        def size(mscale: float) -> float:
            return 0.1 * mscale * math.log(rope["factor"]) + 1.0 if rope["factor"] > 1 else 1.0

        if stated is None and rope.get("mscale") and rope.get("mscale_all_dim"):
            stated = size(rope["mscale"]) / size(rope["mscale_all_dim"])
        writer.kv_data[0].pop(f"{writer.arch}.rope.scaling.yarn_attn_factor", None)
        meant = size(1.0) / size(value_of(writer, "{arch}.rope.scaling.yarn_log_multiplier") or 0.0)
        if stated is not None and stated != meant:
            put(writer, "{arch}.rope.scaling.attn_factor", stated / meant)
    elif kind in ("longrope", "su") and value_of(writer, "{arch}.rope.scaling.attn_factor") is not None:
        original = rope["original_max_position_embeddings"]
        factor = rope.get("factor") or of.config["max_position_embeddings"] / original
        default = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
        put(writer, "{arch}.rope.scaling.attn_factor", float(stated or default))


def ends(writer: gguf.GGUFWriter, of: Checkpoint) -> None:
    """Of several tokens that end a reply all but the first are dropped."""
    first = value_of(writer, "tokenizer.ggml.eos_token_id")
    stated = of.json("generation_config.json").get("eos_token_id", of.config.get("eos_token_id"))
    stated = stated if isinstance(stated, list) else [stated]
    rest = [token for token in dict.fromkeys(stated) if token is not None and token != first]
    if first is None and rest:
        put(writer, "tokenizer.ggml.eos_token_id", rest.pop(0))
    stated = {key: value_of(writer, f"tokenizer.ggml.{key}_token_id") for key in ("eot", "eom")}
    free = [key for key, token in stated.items() if token is None]
    for token, key in zip((token for token in rest if token not in stated.values()), free):
        put(writer, f"tokenizer.ggml.{key}_token_id", token)


def added_around(writer: gguf.GGUFWriter, of: Checkpoint) -> None:
    """Whether a text gets a BOS before it and an EOS after it, which a byte-level BPE often does not state: as the tokenizer does."""
    path = of.directory / "tokenizer.json"
    if value_of(writer, "tokenizer.ggml.model") == "llama" or not path.is_file():
        return
    from tokenizers import Tokenizer

    ids = Tokenizer.from_file(str(path)).encode("a").ids or [None]
    for name, token in (("bos", ids[0]), ("eos", ids[-1])):
        if value_of(writer, f"tokenizer.ggml.add_{name}_token") is None:
            special = value_of(writer, f"tokenizer.ggml.{name}_token_id")
            put(writer, f"tokenizer.ggml.add_{name}_token", special is not None and token == special and len(ids) > 1)


def sentencepiece(writer: gguf.GGUFWriter, of: Checkpoint) -> None:
    """Of tokenizer.model the space before a text and the unknown token, and of tokenizer.json the added tokens, are dropped."""
    path = of.directory / "tokenizer.model"
    if value_of(writer, "tokenizer.ggml.model") != "llama" or not path.is_file():
        return
    from sentencepiece import sentencepiece_model_pb2 as pb

    proto = pb.ModelProto.FromString(path.read_bytes())
    if value_of(writer, "tokenizer.ggml.add_space_prefix") is None:
        put(writer, "tokenizer.ggml.add_space_prefix", bool(proto.normalizer_spec.add_dummy_prefix))
    if value_of(writer, "tokenizer.ggml.unknown_token_id") is None and proto.trainer_spec.unk_id >= 0:
        put(writer, "tokenizer.ggml.unknown_token_id", proto.trainer_spec.unk_id)
    texts, kinds = value_of(writer, "tokenizer.ggml.tokens"), value_of(writer, "tokenizer.ggml.token_type")
    for token in of.json("tokenizer.json").get("added_tokens") or ():
        if token["id"] >= len(texts):
            raise ConversionError(f"tokenizer.json: added token {token['content']!r} has id {token['id']}, need one below {len(texts)}")
        if kinds[token["id"]] in (gguf.TokenType.UNUSED, gguf.TokenType.NORMAL):
            texts[token["id"]] = token["content"].encode()
            kinds[token["id"]] = gguf.TokenType.CONTROL if token.get("special") else gguf.TokenType.USER_DEFINED


MENDS = (window, windows, head_dim, hybrid, experts, rope_theta, rope_magnitude, ends, added_around, sentencepiece)
