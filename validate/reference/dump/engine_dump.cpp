#include "validate/reference/dump/engine_dump.h"

#include <utility>

#include "base/mapped_file.h"
#include "base/sha256.h"
#include "engine/gguf/gguf_split.h"
#include "validate/reference/dump/vocab_hash.h"

namespace llm {

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
  meta.taps_absent = {{"probs", "attention is never stored as a matrix"}};
  meta.n_layers = config.n_layers;
  meta.head_dim = config.head_dim;
  meta.rope_dim = config.rope_dims;
  return meta;
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

}  // namespace llm
