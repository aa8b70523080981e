#include "validate/reference/dump/dump.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

namespace llm {
namespace {

constexpr std::size_t kMaxLayers = 4096;

std::string key_of(std::size_t step, int layer, std::string_view tap) {
  return fmt::format("s{:04}/{}", step, tap_label(layer, tap));
}

struct KeyParts {
  std::size_t step = 0;
  int layer = ProbeSink::kGlobal;
  std::string_view tap;
};

bool digits(std::string_view text, std::size_t& out) {
  const auto* end = text.data() + text.size();
  return text.size() >= 3 && text.size() <= 9 && std::from_chars(text.data(), end, out).ptr == end;
}

// "s0012/L003/q" or "s0000/G/logits"; nothing for any other form.
std::optional<KeyParts> parse_key(std::string_view key) {
  KeyParts parts;
  const auto first = key.find('/');
  if (first == std::string_view::npos || !key.starts_with('s')) return std::nullopt;
  const auto second = key.find('/', first + 1);
  if (second == std::string_view::npos) return std::nullopt;
  if (!digits(key.substr(1, first - 1), parts.step)) return std::nullopt;
  const auto where = key.substr(first + 1, second - first - 1);
  parts.tap = key.substr(second + 1);
  if (where == "G") return parts;
  std::size_t layer = 0;
  if (!where.starts_with('L') || !digits(where.substr(1), layer) || layer >= kMaxLayers)
    return std::nullopt;
  parts.layer = static_cast<int>(layer);
  return parts;
}

template <typename T>
NpyArray vector_array(NpyType type, const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return NpyArray{type, {values.size()}, {bytes.begin(), bytes.end()}};
}

}  // namespace

std::string tap_label(int layer, std::string_view tap) {
  return layer == ProbeSink::kGlobal ? fmt::format("G/{}", tap)
                                     : fmt::format("L{:03}/{}", layer, tap);
}

TapFlow Dump::flow() const {
  std::vector<LayerPartSet> layers(n_layers_);
  for (std::size_t i = 0; i < n_layers_; ++i) {
    for (const Tap& tap : layer_taps()) {
      const bool is_of_parts = std::ranges::count(layer_taps(), tap.name, &Tap::name) > 1;
      if (!is_of_parts) layers[i].add(tap.part, has(static_cast<int>(i), tap.name));
    }
    // Taps of both kinds of states have these names; only a DeltaNet has beta.
    const int at = static_cast<int>(i);
    const bool has_states = has(at, "qkv") || has(at, "qkv_conv") || has(at, "z");
    layers[i].add(LayerPart::kMamba, has_states && !layers[i].has(LayerPart::kDeltaNet));
    // A dump need not have taps of the mixer. A layer with q alone has keys of another.
    const int layer = static_cast<int>(i);
    const bool attends =
        !layers[i].has(LayerPart::kStates) && !layers[i].has(LayerPart::kShortConv);
    layers[i].add(LayerPart::kOwnKeys, attends && (has(layer, "k") || !has(layer, "q")));
    layers[i].add(LayerPart::kAttention, attends);
    const bool has_ffn_norms = has(layer, "router_norm");
    layers[i].add(LayerPart::kPlainShared,
                  has(layer, "shared_out") && !has_ffn_norms && !has(layer, "shared_weight"));
    layers[i].add(LayerPart::kFfnNorms, has_ffn_norms);
    layers[i].add(LayerPart::kOneFfnNorm, !has_ffn_norms);
    // Only layers with norms behind the products may lack those before.
    const bool may_lack_norms = has(layer, "attn_post");
    layers[i].add(LayerPart::kPreNorms, !may_lack_norms);
    layers[i].add(LayerPart::kFfnNorm,
                  !has_ffn_norms && (has(layer, "ffn_norm") || !may_lack_norms));
    layers[i].add(LayerPart::kExperts, has(layer, "router"));
    layers[i].add(LayerPart::kExpertsOfOne, !has_ffn_norms && has(layer, "router"));
  }
  return TapFlow(std::move(layers));
}

Result<Dump> Dump::load(const std::string& path, const NpzLimits& limits) {
  Dump dump;
  LLM_TRY(dump.file_, NpzReader::open(path, limits));
  if (auto status = dump.read_index(); !status.ok())
    return in_file(std::move(status).error(), path);
  if (auto status = dump.read_keys(); !status.ok()) return in_file(std::move(status).error(), path);
  return dump;
}

Result<NpyArray> Dump::array(const std::string& key) const {
  if (file_) return file_->read(key);
  const auto found = arrays_.find(key);
  if (found == arrays_.end()) return malformed(key, "no such array in the dump");
  return found->second;
}

Status Dump::read_index() {
  LLM_TRY(const NpyArray meta, array("__meta__"));
  if (meta.type != NpyType::kU8) return malformed("__meta__", "need u1 (UTF-8 bytes)");
  LLM_TRY(meta_,
          parse_dump_meta({reinterpret_cast<const char*>(meta.data.data()), meta.data.size()}));

  const auto integers = [&](const char* key, std::vector<std::int64_t>& out) -> Status {
    LLM_TRY(const NpyArray found, array(key));
    if (found.shape.size() != 1) return malformed(key, "need one dimension");
    auto values = found.as_i64();
    if (!values.ok()) return malformed(key, values.error().message);
    out = std::move(values).value();
    return Ok{};
  };
  const auto to_i32 = [](const char* key, const std::vector<std::int64_t>& from,
                         std::vector<std::int32_t>& out) -> Status {
    for (const auto value : from) {
      if (value < 0 || value > INT32_MAX)
        return malformed(key, fmt::format("found {}, need 0 to 2^31 - 1", value));
      out.push_back(static_cast<std::int32_t>(value));
    }
    return Ok{};
  };
  std::vector<std::int64_t> tokens;
  std::vector<std::int64_t> positions;
  LLM_RETURN_IF_ERROR(integers("tokens", tokens));
  LLM_RETURN_IF_ERROR(integers("positions", positions));
  LLM_RETURN_IF_ERROR(integers("step_ptr", step_ptr_));
  LLM_RETURN_IF_ERROR(to_i32("tokens", tokens, tokens_));
  LLM_RETURN_IF_ERROR(to_i32("positions", positions, positions_));
  if (tokens_.empty()) return malformed("tokens", "need at least one token");
  if (positions_.size() != tokens_.size()) {
    return malformed("positions", fmt::format("found {}, need one for each of {} tokens",
                                              positions_.size(), tokens_.size()));
  }
  const bool ascending =
      std::ranges::adjacent_find(step_ptr_, std::greater_equal<>()) == step_ptr_.end();
  if (step_ptr_.size() < 2 || !ascending || step_ptr_.front() != 0 ||
      step_ptr_.back() != static_cast<std::int64_t>(tokens_.size())) {
    return malformed("step_ptr",
                     fmt::format("need ascending values from 0 to {}, the tokens", tokens_.size()));
  }
  return Ok{};
}

Status Dump::read_keys() {
  for (const std::string& key : file_->keys()) {
    if (key == "tokens" || key == "positions" || key == "step_ptr" || key == "__meta__") continue;
    const auto parts = parse_key(key);
    if (parts && parts->step >= n_steps())
      return malformed(key, fmt::format("step_ptr knows {} steps", n_steps()));
    if (parts && parts->layer != ProbeSink::kGlobal)
      n_layers_ = std::max(n_layers_, static_cast<std::size_t>(parts->layer) + 1);
    const bool optional = parts && parts->tap == "probs" && parts->layer != ProbeSink::kGlobal;
    const bool known = parts && find_tap(parts->layer, parts->tap) != nullptr;
    if (!known && !optional) unknown_keys_.push_back(key);
  }
  if (meta_.n_layers > kMaxLayers)
    return malformed("__meta__ n_layers", fmt::format("need at most {}", kMaxLayers));
  // A layer that is absent as a whole must be missed, so the stated count wins when it is larger.
  n_layers_ = std::max(n_layers_, meta_.n_layers);
  return Ok{};
}

bool Dump::has(int layer, std::string_view tap) const {
  for (std::size_t step = 0; step < n_steps(); ++step) {
    const std::string key = key_of(step, layer, tap);
    if (!(file_ ? file_->contains(key) : arrays_.contains(key))) return false;
  }
  return true;
}

Result<TapMatrix> Dump::tap(int layer, std::string_view tap) const {
  TapMatrix out;
  for (std::size_t step = 0; step < n_steps(); ++step) {
    const std::string key = key_of(step, layer, tap);
    LLM_TRY(const NpyArray found, array(key));
    const auto rows = static_cast<std::uint64_t>(step_ptr_[step + 1] - step_ptr_[step]);
    if (found.shape.size() != 2 || found.shape[0] != rows || found.shape[1] == 0 ||
        (step > 0 && found.shape[1] != out.features)) {
      return malformed(
          key, fmt::format("found shape ({}), need [{} tokens, {}]", fmt::join(found.shape, ", "),
                           rows, step == 0 ? "features" : std::to_string(out.features)));
    }
    auto values = found.as_f32();
    if (!values.ok()) return malformed(key, values.error().message);
    out.rows += static_cast<std::size_t>(rows);
    out.features = static_cast<std::size_t>(found.shape[1]);
    out.values.insert(out.values.end(), values->begin(), values->end());
  }
  return out;
}

Status Dump::write(const std::string& path) const {
  LLM_TRY(NpzWriter writer, NpzWriter::create(path));
  const std::string meta = to_json(meta_);
  const std::uint64_t meta_shape[] = {meta.size()};
  LLM_RETURN_IF_ERROR(
      writer.add("__meta__", NpyType::kU8, meta_shape, std::as_bytes(std::span(meta))));
  LLM_RETURN_IF_ERROR(writer.add("tokens", vector_array(NpyType::kI32, tokens_)));
  LLM_RETURN_IF_ERROR(writer.add("positions", vector_array(NpyType::kI32, positions_)));
  LLM_RETURN_IF_ERROR(writer.add("step_ptr", vector_array(NpyType::kI64, step_ptr_)));
  if (file_) {
    for (const std::string& key : file_->keys()) {
      if (!parse_key(key)) continue;
      LLM_TRY(const NpyArray values, file_->read(key));
      LLM_RETURN_IF_ERROR(writer.add(key, values));
    }
  }
  for (const auto& [key, values] : arrays_) LLM_RETURN_IF_ERROR(writer.add(key, values));
  return writer.finish();
}

void Recorder::fail(int layer, std::string_view name, std::string message) {
  if (error_) return;
  error_ =
      Error{ErrorCode::kUsage, fmt::format("probe {}", tap_label(layer, name)), std::move(message)};
}

// Of the step that ends now: every tap must have as many rows as the step has tokens.
void Recorder::check_complete() {
  const std::size_t steps = dump_.n_steps();
  if (steps == 0) return;
  const auto rows = static_cast<std::uint64_t>(dump_.step_ptr_[steps] - dump_.step_ptr_[steps - 1]);
  const std::string prefix = fmt::format("s{:04}/", steps - 1);
  for (auto it = dump_.arrays_.lower_bound(prefix);
       it != dump_.arrays_.end() && it->first.starts_with(prefix); ++it) {
    if (it->second.shape[0] == rows || error_) continue;
    error_ = Error{ErrorCode::kUsage, fmt::format("probe {}", it->first),
                   fmt::format("{} rows for {} tokens", it->second.shape[0], rows)};
  }
}

void Recorder::begin_step(std::span<const int> tokens, std::size_t first_position) {
  check_complete();
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    dump_.tokens_.push_back(tokens[i]);
    dump_.positions_.push_back(static_cast<std::int32_t>(first_position + i));
  }
  dump_.step_ptr_.push_back(static_cast<std::int64_t>(dump_.tokens_.size()));
}

void Recorder::tap(int layer, std::string_view name, std::span<float> values, std::size_t features,
                   std::size_t first_token) {
  if (dump_.n_steps() == 0) return fail(layer, name, "sent before begin_step");
  if (find_tap(layer, name) == nullptr) return fail(layer, name, "no tap of kTaps");
  NpyArray& array = dump_.arrays_[key_of(dump_.n_steps() - 1, layer, name)];
  if (array.shape.empty()) array.shape = {0, features};
  if (features == 0 || array.shape[1] != features || values.size() % features != 0)
    return fail(layer, name, "rows of differing width");
  if (array.shape[0] != first_token) {
    return fail(layer, name,
                fmt::format("row {} sent after {} rows (twice, or rows left out: are all rows of "
                            "logits asked for?)",
                            first_token, array.shape[0]));
  }
  const auto bytes = std::as_bytes(values);
  array.data.insert(array.data.end(), bytes.begin(), bytes.end());
  array.shape[0] += values.size() / features;
  if (layer != kGlobal)
    dump_.n_layers_ = std::max(dump_.n_layers_, static_cast<std::size_t>(layer) + 1);
}

// A tap that came in one step must have come in all: a batch without logits has none.
void Recorder::check_every_step() {
  std::map<std::string_view, std::size_t> steps_with;
  for (const auto& [key, values] : dump_.arrays_)
    ++steps_with[std::string_view(key).substr(key.find('/') + 1)];
  for (const auto& [label, steps] : steps_with) {
    if (steps == dump_.n_steps() || error_) continue;
    error_ = Error{ErrorCode::kUsage, fmt::format("probe {}", label),
                   fmt::format("sent in {} of {} steps (are all rows of logits asked "
                               "for?)",
                               steps, dump_.n_steps())};
  }
}

Result<Dump> Recorder::finish(DumpMeta meta) && {
  check_complete();
  check_every_step();
  if (error_) return *error_;
  if (dump_.tokens_.empty()) fail(kGlobal, "tokens", "nothing was evaluated");
  if (error_) return *error_;
  if (meta.n_layers == 0) meta.n_layers = dump_.n_layers_;
  dump_.n_layers_ = std::max(dump_.n_layers_, meta.n_layers);
  dump_.meta_ = std::move(meta);
  return std::move(dump_);
}

}  // namespace llm
