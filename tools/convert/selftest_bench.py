"""Small checkpoints for the converter's own checks (selftest.py)."""

import contextlib
import copy
import io
import json
import struct
from pathlib import Path

import gguf
import numpy as np

from hf_checkpoint import f32_to_bf16
from hf_family import family_of
from hf_to_gguf import main
from hf_tokenizer import SPLITTINGS

VOCAB, D, FF, HEADS, KV, HEAD_DIM = 12, 8, 16, 4, 2, 6
CONFIG = {"architectures": ["LlamaForCausalLM"], "hidden_size": D, "intermediate_size": FF, "num_hidden_layers": 1,
          "num_attention_heads": HEADS, "num_key_value_heads": KV, "head_dim": HEAD_DIM, "vocab_size": VOCAB,
          "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 5000.0, "hidden_act": "silu",
          "tie_word_embeddings": False, "eos_token_id": 9}
EXPERTS, EXPERT_FF = 12, 5  # ids of two digits, too
QWEN3_MOE = CONFIG | {"architectures": ["Qwen3MoeForCausalLM"], "num_experts": EXPERTS, "num_experts_per_tok": 3,
                      "moe_intermediate_size": EXPERT_FF, "norm_topk_prob": True, "decoder_sparse_step": 1,
                      "mlp_only_layers": [], "use_sliding_window": False, "sliding_window": 8}
GPT_OSS = CONFIG | {"architectures": ["GptOssForCausalLM"], "num_local_experts": EXPERTS, "num_experts_per_tok": 3,
                    "intermediate_size": 32, "hidden_size": 64, "sliding_window": 5, "swiglu_limit": 7.0,
                    "layer_types": ["sliding_attention", "full_attention"], "rope_scaling": {
                        "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                        "original_max_position_embeddings": 2}}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 40}
PHI3 = CONFIG | {"architectures": ["Phi3ForCausalLM"], "head_dim": 8, "original_max_position_embeddings": 16}
LONG_ROPE = {"type": "longrope", "long_factor": [1.0, 7.5, 40.0], "short_factor": [1, 1.25, 2]}
LLAMA3 = next(row for row in SPLITTINGS if row.name == "llama-bpe")


def split(*regexes: str) -> dict:
    parts = [{"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False} for regex in regexes]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
    return {"type": "Sequence", "pretokenizers": [*parts, byte_level]}


TOKENIZER = {
    "model": {"type": "BPE", "vocab": {c: i for i, c in enumerate("abcdef")} | {"ab": 6, "abc": 7},
              "merges": ["a b", ["ab", "c"]], "ignore_merges": True},
    "pre_tokenizer": split(*LLAMA3.steps), "normalizer": None,
    "added_tokens": [{"id": 8, "content": "<s>", "special": True}, {"id": 9, "content": "</s>", "special": True},
                     {"id": 10, "content": "<tool>", "special": False}],
    "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                                                                {"Sequence": {"id": "A", "type_id": 0}}]}}


def weights(config: dict) -> dict[str, np.ndarray]:
    """F32 tensors of a checkpoint, each element unlike the others, as the names of its family want them."""
    hidden, q, kv, ff = config["hidden_size"], HEADS * config["head_dim"], KV * config["head_dim"], config["intermediate_size"]
    sizes = {"q_proj": (q, hidden), "k_proj": (kv, hidden), "v_proj": (kv, hidden), "o_proj": (hidden, q), "sinks": (HEADS,),
             "gate_proj": (ff, hidden), "up_proj": (ff, hidden), "down_proj": (hidden, ff), "q_norm": (config["head_dim"],),
             "k_norm": (config["head_dim"],), "qkv_proj": (q + 2 * kv, hidden), "gate_up_proj": (2 * ff, hidden),
             "router": (EXPERTS, hidden), "gate": (EXPERTS, hidden)}
    shapes = {}
    for name in family_of(config).layer:
        shape = sizes.get(name.removesuffix(".weight").removesuffix(".bias").rpartition(".")[2], (hidden,))
        shapes[name] = shape[:1] if name.endswith("bias") else shape
    if config["architectures"] == ["GptOssForCausalLM"]:
        shapes |= {"mlp.experts.gate_up_proj": (EXPERTS, hidden, 2 * ff), "mlp.experts.gate_up_proj_bias": (EXPERTS, 2 * ff),
                   "mlp.experts.down_proj": (EXPERTS, ff, hidden), "mlp.experts.down_proj_bias": (EXPERTS, hidden)}
    if config["architectures"] == ["Qwen3MoeForCausalLM"]:
        shapes |= {f"mlp.experts.{e}.{part}_proj.weight": (hidden, EXPERT_FF) if part == "down" else (EXPERT_FF, hidden)
                   for e in range(EXPERTS) for part in ("gate", "up", "down")}
    named = {f"model.layers.0.{name}": shape for name, shape in shapes.items()}
    named |= {"model.embed_tokens.weight": (VOCAB, hidden), "lm_head.weight": (VOCAB, hidden), "model.norm.weight": (hidden,)}
    rng = np.random.default_rng(1)
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in named.items()}


def save(path: Path, tensors: dict[str, np.ndarray], dtype: str = "F32") -> None:
    header, blob = {}, b""
    for name, value in tensors.items():
        kind = "U8" if value.dtype == np.uint8 else dtype
        raw = {"F32": lambda v: v, "F16": lambda v: v.astype(np.float16), "BF16": f32_to_bf16,
               "I64": lambda v: v.astype(np.int64), "U8": lambda v: v}[kind](value).tobytes()
        header[name] = {"dtype": kind, "shape": list(value.shape), "data_offsets": [len(blob), len(blob) + len(raw)]}
        blob += raw
    text = json.dumps({"__metadata__": {"format": "pt"}} | header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + blob)


class Bench:
    """A valid checkpoint of its own for each check, and what the converter makes of it."""

    def __init__(self, folder: str):
        self.dir = Path(folder) / "checkpoint"
        self.dir.mkdir()
        self.out = Path(folder) / "model.gguf"
        self.config, self.tokenizer, self.tensors = dict(CONFIG), copy.deepcopy(TOKENIZER), None
        self.dtype = "F32"
        self.own_files = False  # the check writes the tensors' files itself

    def write(self) -> None:
        (self.dir / "config.json").write_text(json.dumps(self.config))
        if self.tokenizer is not None:
            (self.dir / "tokenizer.json").write_text(json.dumps(self.tokenizer))
        if not self.own_files:
            self.tensors = weights(self.config) if self.tensors is None else self.tensors
            save(self.dir / "model.safetensors", self.tensors, self.dtype)

    def run(self, options: tuple[str, ...]) -> tuple[int, str]:
        self.write()
        self.out.unlink(missing_ok=True)
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            return main([str(self.dir), "-o", str(self.out), *options]), said.getvalue()

    def convert(self, *options: str, config: dict | None = None, tensors: dict[str, np.ndarray] | None = None) -> gguf.GGUFReader:
        """What becomes of the checkpoint, or of another one in its place."""
        if config is not None:
            self.config, self.tensors = config, tensors
        code, said = self.run(options)
        assert code == 0, said
        return gguf.GGUFReader(self.out)

    def refused(self, *words: str, options: tuple[str, ...] = ()) -> None:
        """The converter says no in these words, and leaves nothing behind."""
        code, said = self.run(options)
        assert code == 2, f"accepted, instead of naming {words}"
        for word in words:
            assert word in said, f"{said!r} does not name {word!r}"
        assert not list(self.out.parent.glob("model.gguf*")), "a refused checkpoint left a file"


def value(reader: gguf.GGUFReader, key: str):
    field = reader.get_field(key)
    return None if field is None else field.contents()


def tensor(reader: gguf.GGUFReader, name: str) -> np.ndarray:
    found = next(t for t in reader.tensors if t.name == name)
    return gguf.quants.dequantize(found.data, found.tensor_type)
