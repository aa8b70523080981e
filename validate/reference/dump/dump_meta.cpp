#include <fmt/core.h>

#include <cmath>
#include <utility>

#include "base/json.h"
#include "validate/reference/dump/dump.h"

namespace llm {
namespace {

constexpr std::string_view kFormat = "llmcheck-act/1";
constexpr std::size_t kMaxShape = std::size_t{1} << 24;

/// Typed reads of an object's keys; the first failure is kept.
class MetaReader {
 public:
  explicit MetaReader(const Json& object) : object_(object) {}

  void text(const char* key, std::string& out) {
    const auto found = object_.find(key);
    if (found == object_.end()) return fail(key, "missing");
    if (!found->is_string()) return fail(key, "need a string");
    out = found->get<std::string>();
  }
  void number(const char* key, double& out) {
    const auto found = object_.find(key);
    if (found == object_.end()) return fail(key, "missing");
    if (!found->is_number() || !std::isfinite(found->get<double>()))
      return fail(key, "need a finite number");
    out = found->get<double>();
  }
  void optional_size(const Json& from, const char* key, std::size_t& out) {
    const auto found = from.find(key);
    if (found == from.end() || found->is_null()) return;
    if (!found->is_number_unsigned() || found->get<std::uint64_t>() > kMaxShape)
      return fail(key, "need a whole number of at most 2^24");
    out = found->get<std::size_t>();
  }
  void fail(std::string_view key, std::string message) {
    if (!error_.message.empty()) return;
    error_ = Error{ErrorCode::kMalformed, fmt::format("__meta__ {}", key), std::move(message)};
  }
  const Error& error() const { return error_; }
  bool ok() const { return error_.message.empty(); }

 private:
  const Json& object_;
  Error error_;
};

}  // namespace

std::string to_json(const DumpMeta& meta) {
  Json json = {{"format", kFormat},
               {"producer", meta.producer},
               {"producer_version", meta.producer_version},
               {"model_sha256", meta.model_sha256},
               {"model_name", meta.model_name},
               {"tokenizer_hash", meta.tokenizer_hash},
               {"merges_hash", meta.merges_hash},
               {"oracle", meta.oracle},
               {"compute", meta.compute},
               {"kv", meta.kv},
               {"eps", meta.eps},
               {"rope_theta", meta.rope_theta},
               {"qk_layout", meta.qk_layout},
               {"taps_absent", meta.taps_absent}};
  json["hparams"] = {
      {"n_layers", meta.n_layers}, {"head_dim", meta.head_dim}, {"rope_dim", meta.rope_dim}};
  // Names come from model files and need not be UTF-8; the dump must be.
  return json_text(json);
}

Result<DumpMeta> parse_dump_meta(std::string_view text) {
  const Json json = parse_json(text);
  MetaReader reader(json);
  if (!json.is_object()) {
    reader.fail("", "need a JSON object");
    return reader.error();
  }
  DumpMeta meta;
  std::string format;
  reader.text("format", format);
  if (reader.ok() && format != kFormat) {
    return Error{ErrorCode::kUnsupported, "__meta__ format",
                 fmt::format("found '{}', need '{}'", format, kFormat)};
  }
  reader.text("producer", meta.producer);
  reader.text("producer_version", meta.producer_version);
  reader.text("model_sha256", meta.model_sha256);
  reader.text("model_name", meta.model_name);
  reader.text("tokenizer_hash", meta.tokenizer_hash);
  if (json.contains("merges_hash")) reader.text("merges_hash", meta.merges_hash);
  reader.text("oracle", meta.oracle);
  reader.text("compute", meta.compute);
  reader.text("kv", meta.kv);
  reader.number("eps", meta.eps);
  reader.number("rope_theta", meta.rope_theta);
  reader.text("qk_layout", meta.qk_layout);
  if (reader.ok() && meta.qk_layout != "interleaved" && meta.qk_layout != "half") {
    reader.fail("qk_layout",
                fmt::format("found '{}', need 'interleaved' or 'half'", meta.qk_layout));
  }
  if (const auto absent = json.find("taps_absent"); absent != json.end()) {
    if (!absent->is_object()) reader.fail("taps_absent", "need an object of tap: reason");
    for (const auto& [tap, reason] : absent->items()) {
      if (!reason.is_string()) reader.fail("taps_absent", "need a string as reason");
      if (reader.ok()) meta.taps_absent[tap] = reason.get<std::string>();
    }
  }
  if (const auto shape = json.find("hparams"); shape != json.end() && shape->is_object()) {
    reader.optional_size(*shape, "n_layers", meta.n_layers);
    reader.optional_size(*shape, "head_dim", meta.head_dim);
    reader.optional_size(*shape, "rope_dim", meta.rope_dim);
  }
  if (!reader.ok()) return reader.error();
  return meta;
}

}  // namespace llm
