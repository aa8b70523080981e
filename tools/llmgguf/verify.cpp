#include <fmt/core.h>
#include <spdlog/spdlog.h>

#include <functional>

#include "base/json.h"
#include "base/shown_text.h"
#include "engine/gguf/gguf_manifest.h"
#include "engine/model/model_file.h"
#include "quant/formats/finite.h"
#include "tokenizer/tokenizer.h"
#include "tools/common/progress.h"
#include "tools/llmgguf/commands.h"

namespace llm {
namespace {

Status check_finite(const MappedFile& file, const GgufFile& gguf, ProgressBar& progress) {
  std::size_t done = 0;
  std::size_t total = 0;
  for (const GgufTensor& tensor : gguf.tensors()) total += tensor.n_bytes;
  for (const GgufTensor& tensor : gguf.tensors()) {
    const auto data = gguf.tensor_data(tensor);
    if (const auto block = first_nonfinite_block(tensor.type, data)) {
      const std::byte* bad = data.data() + *block * block_traits(tensor.type).block_bytes;
      const MappedFile::Part& part = file.part_at(bad);
      return in_file(Error{ErrorCode::kNonFinite, fmt::format("tensor \"{}\"", tensor.name),
                           fmt::format("found NaN or Inf in block {}, need finite scales "
                                       "and weights",
                                       *block),
                           static_cast<std::uint64_t>(bad - part.bytes.data())},
                     part.path);
    }
    file.drop_pages(data);
    done += data.size();
    progress("check weights", done, total);
  }
  return Ok{};
}

Status print_verdict(const GgufArguments& arguments, const std::vector<std::string>& warnings,
                     const std::string& summary) {
  if (!arguments.json)
    return write_stdout(fmt::format("{}: ok, {}\n", shown(arguments.file), summary));
  const Json verdict = {{"schema_version", kGgufSchemaVersion},
                        {"file", arguments.file},
                        {"ok", true},
                        {"summary", summary},
                        {"warnings", warnings}};
  return write_stdout(json_text(verdict, 2) + "\n");
}

void log_warnings(const std::string& file, const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings) spdlog::warn("{}: {}", file, warning);
}

Result<int> verify_vocab(const GgufArguments& arguments) {
  std::vector<std::string> warnings;
  LLM_TRY(const VocabSpec vocab, open_vocab_file(arguments.file, warnings));
  log_warnings(arguments.file, warnings);
  LLM_RETURN_IF_ERROR(print_verdict(arguments, warnings,
                                    fmt::format("vocabulary of {} tokens", vocab.tokens.size())));
  return 0;
}

std::string differences_text(const std::vector<GgufDifference>& differences) {
  std::string out;
  for (const GgufDifference& difference : differences) {
    out +=
        fmt::format("! {}{}{}: {}\n", shown(difference.file), difference.file.empty() ? "" : ": ",
                    shown(difference.title), shown(difference.message));
  }
  return out;
}

std::string verdict_json(const GgufArguments& arguments, const GgufTree& manifest,
                         const std::vector<GgufDifference>& differences) {
  OrderedJson list = OrderedJson::array();
  for (const GgufDifference& difference : differences) {
    OrderedJson entry = {{"kind", difference.kind},
                         {"name", difference.name},
                         {"file", difference.file},
                         {"message", difference.message}};
    if (difference.chunks) entry["chunks"] = *difference.chunks;
    if (difference.bytes) {
      entry["begin"] = difference.bytes->first;
      entry["end"] = difference.bytes->second;
    }
    list.push_back(std::move(entry));
  }
  const OrderedJson all = {
      {"schema_version", kGgufSchemaVersion}, {"file", arguments.file},
      {"manifest", arguments.manifest},       {"ok", differences.empty()},
      {"promised", summary(manifest)},        {"differences", std::move(list)}};
  return json_text(all, 2) + "\n";
}

Result<int> verify_manifest(const GgufArguments& arguments, const ToolContext& context) {
  LLM_TRY(const GgufTree manifest, read_gguf_manifest(arguments.manifest));
  std::vector<GgufDifference> differences;
  {
    ProgressBar progress(!context.quiet(), "B");
    LLM_TRY(differences,
            compare_manifest(arguments.file, manifest,
                             {arguments.threads, std::bind_front(std::ref(progress), "compare")}));
  }
  LLM_RETURN_IF_ERROR(write_stdout(
      arguments.json        ? verdict_json(arguments, manifest, differences)
      : differences.empty() ? fmt::format("{}: ok, {}\n", shown(arguments.file), summary(manifest))
                            : differences_text(differences)));
  if (!differences.empty()) return in_file(integrity_error(differences), arguments.file);
  return 0;
}

}  // namespace

Result<int> verify_gguf(const GgufArguments& arguments, const ToolContext& context) {
  if (context.options.given("manifest")) return verify_manifest(arguments, context);
  if (arguments.vocab_only) return verify_vocab(arguments);
  LLM_TRY(const ModelFile model, open_model_file(arguments.file, {.strict = arguments.strict}));
  log_warnings(arguments.file, model.warnings);
  if (const auto tokenizer = Tokenizer::create(model.vocab); !tokenizer.ok())
    return in_file(tokenizer.error(), arguments.file);
  {
    ProgressBar progress(!context.quiet(), "B");
    const Status finite = check_finite(model.file, model.gguf, progress);
    if (!finite.ok()) return in_file(finite.error(), arguments.file);
  }
  LLM_RETURN_IF_ERROR(model.file.check_unchanged());
  const HyperParameters& config = model.config;
  LLM_RETURN_IF_ERROR(print_verdict(
      arguments, model.warnings,
      fmt::format("{} of {} layers, {} heads ({} KV), {} tokens, {} tensors, {} bytes",
                  config.architecture->name, config.n_layers, config.most(&LayerSpec::n_heads),
                  config.most(&LayerSpec::n_kv_heads), config.n_vocab, model.gguf.tensors().size(),
                  model.gguf.file_bytes())));
  return 0;
}

}  // namespace llm
