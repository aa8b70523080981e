#include "engine/model/model_file.h"

#include <fmt/core.h>

#include <utility>

#include "engine/gguf/gguf_split.h"

namespace llm {
namespace {

Status check_split(const GgufFile& gguf) {
  constexpr std::string_view kKey = "split.count";
  LLM_TRY(const std::uint64_t parts, gguf.get_unsigned_or(kKey, 1));
  if (parts <= 1) return Ok{};
  LLM_TRY(const std::uint64_t index, gguf.get_unsigned_or("split.no", 0));
  Error error = gguf.value_error(
      ErrorCode::kUnsupported, kKey,
      fmt::format(
          "found {} parts, of which this is part {}: {} missing part{}, need one whole file", parts,
          index + 1, parts - 1, parts == 2 ? "" : "s"));
  error.hint = "merge the parts with `llama-gguf-split --merge`";
  return error;
}

/// A vocabulary alone is a valid GGUF, which people have for tests of tokenizers.
Status check_has_weights(const GgufFile& gguf) {
  if (!gguf.tensors().empty() || gguf.find("tokenizer.ggml.tokens") == nullptr) return Ok{};
  return Error{.code = ErrorCode::kUnsupported,
               .field = "tensors",
               .message = "found a vocabulary only, need a model with weights",
               .hint = "llmtok reads such files"};
}

Status check_trailing(const GgufFile& gguf, bool strict, std::vector<std::string>& warnings) {
  const std::uint64_t trailing = gguf.trailing_bytes();
  if (trailing == 0) return Ok{};
  const std::string message =
      fmt::format("found {} bytes after the last tensor, need none", trailing);
  if (strict) {
    return Error{ErrorCode::kMalformed, "trailing data", message, gguf.file_bytes() - trailing};
  }
  warnings.push_back(
      fmt::format("trailing data (byte {}): {}; ignored", gguf.file_bytes() - trailing, message));
  return Ok{};
}

std::string base_name(const std::string& path) {
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

Result<ModelContents> read_contents(GgufFile gguf, const ModelFileOptions& options) {
  std::vector<std::string> warnings;
  LLM_RETURN_IF_ERROR(check_has_weights(gguf));
  LLM_RETURN_IF_ERROR(check_trailing(gguf, options.strict, warnings));
  LLM_TRY(HyperParameters config, read_hyper_parameters(gguf));
  if (options.mtp) {
    if (config.n_mtp_layers == 0)
      return gguf.value_error(ErrorCode::kUnsupported,
                              config.architecture->key(config.architecture->keys.n_mtp_layers),
                              "found 0, need a block that predicts further tokens (MTP)");
    config = config.mtp();
  }
  if (config.has_trunk() && options.trunk != nullptr)
    LLM_RETURN_IF_ERROR(join_trunk(gguf, *options.trunk, config));
  LLM_TRY(VocabSpec vocab, vocab_from_gguf(gguf, warnings));
  LLM_TRY(ModelTensors tensors, bind_tensors(gguf, config, options.strict, warnings));
  LLM_TRY(const std::string_view name, gguf.get_string_or("general.name", {}));
  LLM_TRY(const std::string_view chat_template, chat_template_from_gguf(gguf));
  return ModelContents{.gguf = std::move(gguf),
                       .config = std::move(config),
                       .vocab = std::move(vocab),
                       .tensors = std::move(tensors),
                       .name = std::string(name),
                       .chat_template = std::string(chat_template),
                       .warnings = std::move(warnings)};
}

}  // namespace

Status check_runs_alone(const ModelFile& model) {
  if (!model.config.has_trunk()) return Ok{};
  const Architecture& architecture = *model.config.architecture;
  Error error = model.gguf.value_error(
      ErrorCode::kUnsupported, "general.architecture",
      fmt::format("found {}, need a model that runs alone: this one reads the keys and values of a "
                  "{} model",
                  architecture.name, architecture.trunk));
  error.hint = "load that model, and give this file as its --draft";
  return in_file(std::move(error), model.file.path());
}

Error nonfinite_error(const ModelFile& model, const TensorView& tensor, std::size_t block) {
  const MappedFile::Part& part = model.file.part_at(tensor.data.data());
  const BlockTraits& traits = block_traits(tensor.type);
  const std::size_t blocks_of_row = tensor.n_cols / traits.block_weights;
  const std::size_t row = tensor.first_row + block / blocks_of_row;
  return Error{
      .code = ErrorCode::kNonFinite,
      .field = tensor.name,
      .message = fmt::format("found NaN or Inf in {} block {} (row {}), need finite values",
                             traits.name, tensor.first_row * blocks_of_row + block, row),
      .offset = static_cast<std::uint64_t>(tensor.data.data() - part.bytes.data()) +
                block * traits.block_bytes,
      .file = part.path};
}

Result<ModelContents> open_model_bytes(std::span<const std::byte> bytes,
                                       const ModelFileOptions& options) {
  LLM_TRY(GgufFile gguf, GgufFile::parse(bytes));
  LLM_RETURN_IF_ERROR(check_split(gguf));
  return read_contents(std::move(gguf), options);
}

Result<ModelFile> open_model_file(const std::string& path, const ModelFileOptions& options) {
  LLM_TRY(OpenGguf open, open_gguf_file(path));
  auto contents = read_contents(std::move(open.gguf), options);
  LLM_RETURN_IF_ERROR(open.file.check_unchanged());  // else nothing that was read means anything
  if (!contents.ok()) return in_file(std::move(contents).error(), path);
  ModelFile model{std::move(contents).value(), std::move(open.file)};
  if (model.name.empty()) model.name = base_name(path);
  return model;
}

Result<VocabSpec> open_vocab_file(const std::string& path, std::vector<std::string>& warnings) {
  LLM_TRY(const OpenGguf open, open_gguf_file(path));
  auto vocab = vocab_from_gguf(open.gguf, warnings);
  if (!vocab.ok()) return in_file(std::move(vocab).error(), path);
  return vocab;
}

}  // namespace llm
