#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "engine/gguf/gguf_file.h"
#include "engine/model/hyper_parameters.h"
#include "engine/model/model_tensors.h"
#include "engine/model/vocab_from_gguf.h"
#include "quant/formats/block_traits.h"
#include "tokenizer/vocab_spec.h"

namespace llm {

/// What a Llama's bytes say, all of it checked; tensors are views into those bytes.
struct ModelContents {
  GgufFile gguf;
  HyperParameters config;
  VocabSpec vocab;
  ModelTensors tensors;
  std::string name;                   ///< general.name, may be empty
  std::string chat_template;          ///< tokenizer.chat_template, may be empty
  std::vector<std::string> warnings;  ///< one line each, for the tool to log
};

/// A GGUF opened as a Llama: mapped, parsed, checked, nothing copied yet. `name` is never empty:
/// without general.name it is the file's base name.
struct ModelFile : ModelContents {
  MappedFile file;
};

/// Errors: kUnsupported for a model with a trunk.
Status check_runs_alone(const ModelFile& model);

/// NaN or Inf in block `block` of `tensor`, by row, block and place in the file.
Error nonfinite_error(const ModelFile& model, const TensorView& tensor, std::size_t block);

struct ModelFileOptions {
  bool strict = false;  ///< trailing bytes and unknown tensors are errors instead of warnings
  bool mtp = false;     ///< the model that is HyperParameters::mtp() of the file's
  /// The model that the file's is a draft of: join_trunk(), where it has a trunk. Without it such a
  /// model can be looked at, and not run.
  const HyperParameters* trunk = nullptr;
};

/// Opens `path` and checks everything that can be checked without running the model: format,
/// metadata, vocabulary, presence, shapes and types of tensors. Scales are checked for NaN/Inf when
/// weights are packed. Errors: docs/bad_input.md, each naming file, field, value and rule;
/// kIntegrity for a file that changed meanwhile.
/// Cost: reads the metadata only, a few milliseconds for a vocabulary of 128,000 tokens.
Result<ModelFile> open_model_file(const std::string& path, const ModelFileOptions& options = {});

/// The same for bytes that are in memory and outlive the result.
Result<ModelContents> open_model_bytes(std::span<const std::byte> bytes,
                                       const ModelFileOptions& options = {});

/// The vocabulary of the GGUF at `path`, which may hold nothing else (no tensors, no
/// hyper-parameters). Warnings are appended to `warnings`.
Result<VocabSpec> open_vocab_file(const std::string& path, std::vector<std::string>& warnings);

}  // namespace llm
