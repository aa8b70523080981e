"""Runs llama.cpp's converter on one checkpoint and corrects its output. To be imported after llama_cpp.load()."""

from pathlib import Path

import conversion
import gguf
import transformers
from conversion import ModelBase, ModelType
from conversion.base import TextModel

import mends
import refusals
from errors import ConversionError
from pre_tokenizers import splitting_of


class Writer(gguf.GGUFWriter):
    """The converter's writer, which corrects what it was given when all of it is known. `of` and `context` are set by write()."""

    of: mends.Checkpoint
    context: int
    verbose: bool

    def write_header_to_file(self, path: Path | None = None) -> None:
        for mend in mends.MENDS:
            mend(self, self.of)
        refusals.check_window(self, self.of, self.context)
        refusals.check_divisors(self, self.of)
        super().write_header_to_file(path)

    def write_tensors_to_file(self, *, progress: bool = False) -> None:
        super().write_tensors_to_file(progress=progress and self.verbose)


_by_fingerprint = TextModel.get_vocab_base_pre


def _pre_tokenizer(model: TextModel, tokenizer) -> str:
    """tokenizer.ggml.pre: llama.cpp's name of a published vocabulary, else by the expressions of tokenizer.json."""
    try:
        return _by_fingerprint(model, tokenizer)
    except NotImplementedError:
        return splitting_of(mends.Checkpoint(model.dir_model, {}).json("tokenizer.json"))


TextModel.get_vocab_base_pre = _pre_tokenizer
gguf.GGUFWriter = Writer  # ModelBase makes its writer by this name


def _check_context(of: mends.Checkpoint, context: int | None) -> int:
    """The positions of the model."""
    trained, rope = of.config["max_position_embeddings"], of.rope
    stretched = int(rope["factor"] * rope.get("original_max_position_embeddings", 0)) if rope["rope_type"] == "yarn" else 0
    if context is not None and not 0 < context <= max(trained, stretched):
        raise ConversionError(f"--context {context}: need 1 to {max(trained, stretched)}, " + (
            "to which YaRN stretches the original positions" if stretched > trained else "max_position_embeddings"))
    return context or trained


def _transpose_experts(model: ModelBase, of: mends.Checkpoint) -> None:
    """Experts of Qwen3-VL as they were published, inputs by outputs, which the converter turns. transformers saves outputs by inputs."""
    if of.config.get("model_type") != "qwen3_vl_moe_text":
        return
    d_model, d_ff, tensors = of.config["hidden_size"], of.config["moe_intermediate_size"], model.get_tensors
    part, saved = ("gate_up_proj", (2 * d_ff, d_model)) if d_ff == d_model else ("down_proj", (d_model, d_ff))
    if any(name.endswith(part) and value.shape[1:] == saved for name, value in tensors()):
        model.get_tensors = lambda: ((name, value.transpose(1, 2) if value.ndim == 3 else value) for name, value in tensors())


def write(directory: Path, output: Path, kind: gguf.LlamaFileType, context: int | None, name: str, *, mtp: bool,
          verbose: bool) -> None:
    transformers.logging.set_verbosity_error()
    hparams = ModelBase.load_hparams(directory, False)
    of = mends.Checkpoint(directory, hparams | hparams.get("text_config", {}))
    architecture = conversion.get_model_architecture(hparams, ModelType.TEXT)
    try:
        kind_of_model = conversion.get_model_class(architecture)
    except NotImplementedError as error:
        raise ConversionError(f"config.json: architectures is {architecture}, which llama.cpp's converter does not know") from error
    if architecture == "HunYuanMoEV1ForCausalLM" and (directory / "tokenizer.json").is_file():  # else only a checkpoint's own code reads it
        kind_of_model.set_vocab = kind_of_model._set_vocab_gpt2
    refusals.check_config(of)
    refusals.check_tokenizer(of)
    positions = _check_context(of, context)
    refusals.check_long_rope(of, positions)
    for part in (hparams, hparams.get("text_config", {})):
        if "max_position_embeddings" in part:
            part["max_position_embeddings"] = positions
        if part.get("model_type") == "granitemoehybrid":  # newer names of layers, which the converter does not know
            part["layer_types"] = mends.old_layer_types(part["layer_types"])
    kind_of_model.no_mtp = kind_of_model.supports_mtp_export and not mtp  # transformers saves none, and the converter needs one
    Writer.of, Writer.context, Writer.verbose = of, positions, verbose
    model = kind_of_model(directory, kind, output, model_name=name, hparams=hparams)
    _transpose_experts(model, of)
    tensors = model.get_tensors
    # The converter computes with some vectors (1 + w of norms, -exp of A_log), of F16 checkpoints in F16.
    model.get_tensors = lambda: ((name, value.float() if value.ndim == 1 else value) for name, value in tensors())
    model.write()
    refusals.check_finite(output)

