#include "validate/reference/fault_localization/op_replay.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/float_environment.h"
#include "engine/state/sequence_state.h"
#include "validate/reference/diff/layer_diff.h"

namespace llm {
namespace {

TapMatrix shaped(std::size_t rows, std::size_t features) {
  return TapMatrix{rows, features, std::vector<float>(rows * features)};
}

}  // namespace

TapMatrix select_rows(TapMatrix matrix, TokenRows rows) {
  if (rows.empty()) return matrix;
  TapMatrix out = shaped(rows.size(), matrix.features);
  for (std::size_t i = 0; i < rows.size(); ++i)
    std::ranges::copy(matrix.row(rows[i]), out.row(i).begin());
  return out;
}

Result<std::optional<TapMatrix>> engine_order_tap(const Dump& dump, int layer, std::string_view tap,
                                                  const HyperParameters& config) {
  std::optional<TapMatrix> none;
  if (!dump.has(layer, tap)) return none;
  LLM_TRY(TapMatrix out, dump.tap(layer, tap));
  const Tap* row = TapFlow(config).find(layer, tap);
  if (row != nullptr && out.features != row->width.of(config, layer)) {
    return Error{ErrorCode::kMalformed, tap_label(layer, tap),
                 fmt::format("found shape [{}, {}], need [{}, {}] for this model", out.rows,
                             out.features, out.rows, row->width.of(config, layer))};
  }
  const bool has_heads = row != nullptr && row->layout == TapLayout::kRopeHeads;
  if (has_heads && dump.meta().qk_layout == "half") {
    const auto at = static_cast<std::size_t>(layer);
    // Converters reorder the rows of all layers, also of those that do not rotate.
    half_to_interleaved(out, config.attention(at).head_dim, config.paired_dims(at));
  }
  return std::optional<TapMatrix>(std::move(out));
}

Replay::Replay(std::shared_ptr<const Model> model, KvType kv)
    : model_(std::move(model)), definition_(*model_), kv_(kv) {}

const PackedMatrix* Replay::matrix(int layer, std::string_view tap) const {
  const Tap* row = TapFlow(config()).find(layer, tap);
  return row == nullptr ? nullptr : definition_.matrix(*row, layer);
}

std::string Replay::weight_type(int layer, std::string_view tap) const {
  const PackedMatrix* w = matrix(layer, tap);
  return w == nullptr ? std::string() : std::string(block_traits(w->type()).name);
}

std::optional<ActivationFormat> Replay::product_format(int layer, std::string_view tap) const {
  const Tap* row = TapFlow(config()).find(layer, tap);
  if (row == nullptr || row->op == TapOp::kEmbedding) return std::nullopt;
  const PackedMatrix* w = matrix(layer, tap);
  if (w == nullptr) return std::nullopt;
  return model_->compute() == Compute::kInt8 ? activation_format(w->type())
                                             : ActivationFormat::kF32;
}

Result<std::optional<std::vector<reference::Product>>> Replay::products(const Dump& inputs,
                                                                        int layer, const Tap& tap,
                                                                        const TapMatrix& x,
                                                                        TokenRows rows) const {
  TapMatrix router;
  if (const auto from = input_of(tap, layer, config(), 1)) {
    LLM_TRY(auto logits, engine_order_tap(inputs, layer, from->row->name, config()));
    if (!logits) return std::optional<std::vector<reference::Product>>();
    router = select_rows(*std::move(logits), rows);
  }
  return std::optional(definition_.products(tap, layer, x.values, router.values));
}

Result<std::optional<TapMatrix>> Replay::run(const Dump& inputs, int layer, std::string_view tap,
                                             TokenRows rows) const {
  const FloatEnvironment contract;
  const Tap& op = *TapFlow(config()).find(layer, tap);
  const bool attends = op.op == TapOp::kAttention;
  const bool has_state = llm::has_state(op.op);
  std::vector<std::size_t> all(inputs.tokens().size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  const TokenRows wanted = rows.empty() || has_state ? TokenRows(all) : rows;
  std::vector<TokenId> tokens;
  for (const std::size_t t : wanted) tokens.push_back(inputs.tokens()[t]);

  reference::OpInputs in{.tokens = tokens, .positions = wanted};
  std::vector<TapMatrix> read(op.inputs.size());
  for (std::size_t i = 0; const auto at = input_of(op, layer, config(), i); ++i) {
    LLM_TRY(auto found, engine_order_tap(inputs, at->layer, at->row->name, config()));
    if (!found) return std::optional<TapMatrix>();
    // Keys and values of every token are attended to; a state has met every token.
    const bool is_whole = has_state || (attends && i > 0);
    read[i] = is_whole ? *std::move(found) : select_rows(*std::move(found), rows);
    in.taps[i] = read[i].values;
  }
  std::optional<SequenceState> cache;
  if (attends || has_state) {
    const HyperParameters one_layer = config().only(static_cast<std::size_t>(layer));
    LLM_TRY(auto pool, KvPool::create(one_layer, KvGroups::pages_for(all.size()), kv_));
    cache.emplace(std::move(pool));
    LLM_CHECK(cache->reserve(0, all.size()));
    if (attends) definition_.store(all, in.taps[1], in.taps[2], *cache, 0);
    in.cache = &*cache;
  }
  TapMatrix out{wanted.size(), op.width.of(config(), layer), definition_.run(op, layer, in)};
  return std::optional(has_state ? select_rows(std::move(out), rows) : std::move(out));
}

}  // namespace llm
