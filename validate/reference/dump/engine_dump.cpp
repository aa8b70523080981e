#include "validate/reference/dump/engine_dump.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <filesystem>
#include <ranges>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "base/sha256.h"
#include "engine/gguf/gguf_split.h"

namespace llm {
namespace {

template <typename T>
void update(Sha256& hash, const T& value) {
  hash.update(std::as_bytes(std::span(&value, 1)));
}

void update_text(Sha256& hash, std::string_view text) {
  update(hash, static_cast<std::uint32_t>(text.size()));
  hash.update(std::as_bytes(std::span(text)));
}

namespace fs = std::filesystem;

std::vector<fs::path> ggufs_in(const fs::path& directory) {
  std::vector<fs::path> out;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (it->path().extension() == ".gguf" && it->is_regular_file(ignored))
      out.push_back(it->path());
  }
  std::ranges::sort(out);
  return out;
}

}  // namespace

DumpMeta engine_meta(const Sequence& session, const std::string& producer,
                     const std::string& model_sha256) {
  const Model& model = session.model();
  const HyperParameters& config = model.config();
  DumpMeta meta;
  meta.producer = producer;
  meta.producer_version = std::string(isa_name(model.isa()));
  meta.model_sha256 = model_sha256;
  meta.model_name = model.name();
  meta.tokenizer_hash = tokenizer_hash(model.tokenizer().spec());
  meta.merges_hash = merges_hash(model.tokenizer().spec());
  meta.oracle = "engine";
  meta.compute = model.compute() == Compute::kF32 ? "f32" : "int8";
  meta.kv = std::string(kv_name(session.kv()));
  meta.eps = static_cast<double>(config.norm_eps);
  meta.rope_theta = static_cast<double>(config.ropes.front().theta);
  for (const HyperNumber& one : hyper_numbers(config)) meta.numbers.emplace(one.name, one.value);
  meta.taps_absent = {{"probs", "attention is never stored as a matrix"}};
  meta.n_layers = config.n_layers;
  meta.head_dim = config.most(&LayerSpec::head_dim);
  meta.rope_dim = 2 * config.rope_pairs();
  for (const LayerSpec& layer : config.layers) meta.head_dims.push_back(layer.head_dim());
  const bool differ = std::ranges::any_of(config.layers, [&](const LayerSpec& layer) {
    return layer.head_dim() != 0 && layer.head_dim() != meta.head_dim;
  });
  if (!differ) meta.head_dims.clear();
  return meta;
}

std::vector<HyperNumber> hyper_numbers(const HyperParameters& config) {
  const RopeSpec rope = config.ropes.empty() ? RopeSpec() : config.ropes.front();
  AttentionSpec attention;
  FfnSpec ffn;
  for (const LayerSpec& layer : config.layers | std::views::reverse) {
    if (layer.attention() != nullptr) attention = *layer.attention();
    if (layer.n_experts() > 0) ffn = layer.ffns[0];
  }
  const auto number = [](auto value) { return static_cast<double>(value); };
  return {{"rope.scale", "rope.scaling.factor", number(rope.scale)},
          {"rope.magnitude", "rope.scaling.attn_factor", rope.magnitude},
          {"rope.query_growth", "attention.temperature_scale", number(rope.query_growth)},
          {"attention_scale", "attention.scale", number(attention.scale)},
          {"score_cap", "attn_logit_softcapping", number(attention.score_cap)},
          {"embedding_scale", "embedding_scale", number(config.embedding_scale)},
          {"residual_scale", "residual_scale", number(config.residual_scale)},
          {"logit_scale", "logit_scale", number(config.logit_divisor)},
          {"logit_cap", "final_logit_softcapping", number(config.logit_cap)},
          {"n_experts_used", "expert_used_count", number(ffn.n_used)},
          {"experts_scale", "expert_weights_scale", number(ffn.experts_scale)}};
}

Result<std::string> file_sha256(const std::string& path) {
  LLM_TRY(const OpenGguf open, open_gguf_file(path));
  const MappedFile& file = open.file;
  std::string hash = file_sha256_hex(file);
  LLM_RETURN_IF_ERROR(file.check_unchanged());
  return hash;
}

namespace {

Result<Dump> record(Recorder& recorder, const std::shared_ptr<const Model>& model,
                    const ExecutorOptions& options, bool by_definition,
                    std::span<const TokenId> tokens, const std::string& producer,
                    const std::string& model_sha256, std::span<const std::int64_t> step_ptr) {
  const std::int64_t one_call[] = {0, static_cast<std::int64_t>(tokens.size())};
  if (step_ptr.empty()) step_ptr = one_call;
  LLM_TRY(const auto session,
          open_sequence(model, options, {.reference = by_definition, .nonfinite = true}));
  session->set_probe(&recorder);
  for (std::size_t s = 0; s + 1 < step_ptr.size(); ++s) {
    const auto begin = static_cast<std::size_t>(step_ptr[s]);
    const auto end = static_cast<std::size_t>(step_ptr[s + 1]);
    LLM_RETURN_IF_ERROR(session->evaluate(tokens.subspan(begin, end - begin), LogitRows::kAll));
  }
  session->set_probe(nullptr);
  return std::move(recorder).finish(engine_meta(*session, producer, model_sha256));
}

}  // namespace

Result<Dump> record_activations(const std::shared_ptr<const Model>& model,
                                const ExecutorOptions& options, bool by_definition,
                                std::span<const TokenId> tokens, const std::string& producer,
                                const std::string& model_sha256,
                                std::span<const std::int64_t> step_ptr) {
  Recorder recorder;
  return record(recorder, model, options, by_definition, tokens, producer, model_sha256, step_ptr);
}

Result<Dump> record_with(Recorder& recorder, const std::shared_ptr<const Model>& model,
                         const ExecutorOptions& options, std::span<const TokenId> tokens,
                         std::span<const std::int64_t> step_ptr) {
  return record(recorder, model, options, false, tokens, "llmcheck", "", step_ptr);
}

std::string tokenizer_hash(const VocabSpec& vocab) {
  static_assert(std::endian::native == std::endian::little);
  if (vocab.tokens.empty()) return {};
  Sha256 hash;
  for (const VocabSpec::Token& token : vocab.tokens) {
    update_text(hash, token.text);
    update(hash, token.score);
    update(hash, static_cast<std::int32_t>(token.kind));
  }
  return hash.hex();
}

std::string merges_hash(const VocabSpec& vocab) {
  if (vocab.tokenizer != TokenizerKind::kByteBpe) return {};
  Sha256 hash;
  update_text(hash, vocab.pre_tokenizer);
  const auto text = [&vocab](TokenId id) {
    return vocab.tokens[static_cast<std::size_t>(id)].text;
  };
  for (const VocabSpec::Merge& merge : vocab.merges)
    update_text(hash, text(merge.left) + " " + text(merge.right));
  return hash.hex();
}

Result<std::string> find_model_by_hash(const std::string& sha256, const std::string& dump_path) {
  fs::path home = fs::path(dump_path).parent_path();
  if (home.empty()) home = ".";
  const fs::path directories[] = {home, ".", "models"};
  if (!sha256.empty()) {
    for (const fs::path& directory : directories) {
      for (const fs::path& candidate : ggufs_in(directory)) {
        const auto found = file_sha256(candidate.string());
        if (found.ok() && *found == sha256) return candidate.string();
      }
    }
  }
  return Error{.code = ErrorCode::kIo,
               .field = "model_sha256",
               .message = fmt::format("no .gguf with SHA-256 {} in {}, . or models",
                                      sha256.empty() ? "(none given)" : sha256, home.string()),
               .file = dump_path,
               .hint = "name the model: llmcheck MODEL --layer-diff REF.npz"};
}

}  // namespace llm
