#include "engine/forward/reference/forward.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string_view>
#include <vector>

namespace llm::reference {

void Forward::run(std::span<const TokenId> tokens, std::size_t first_position, SequenceState& cache,
                  std::span<const float> adapters, std::span<float> rows, std::string_view wanted,
                  ProbeSink* probe) const {
  if (probe != nullptr) probe->begin_step(tokens, first_position);
  const std::size_t n_tokens = tokens.size();
  std::vector<std::size_t> positions(n_tokens);
  std::iota(positions.begin(), positions.end(), first_position);
  const std::size_t n_wanted =
      rows.size() / find_tap(kOutsideLayers, wanted)->width.of(config_, kOutsideLayers);
  const TapFlow flow(config_);

  std::map<std::string_view, std::vector<float>> values;  // of each tap, in the last layer it had
  for (const auto& [tap, layer] : taps_of_model(flow)) {
    // After the layers, rows that are wanted.
    const bool is_last = !tap->per_layer && tap > layer_taps().data();
    const std::size_t n = is_last ? n_wanted : n_tokens;
    if (n == 0) return;
    OpInputs in{.tokens = tokens.last(n),
                .positions = std::span(positions).last(n),
                .cache = &cache,
                .cache_layer = static_cast<std::size_t>(layer),
                .adapters = adapters};
    for (std::size_t i = 0; const auto input = input_of(*tap, layer, flow, i); ++i) {
      // Keys and values of another layer are in the cache.
      if (tap->op == TapOp::kAttention && input->layer != layer) break;
      in.taps[i] =
          std::span(values[input->row->name]).last(n * input->row->width.of(config_, input->layer));
    }
    if (tap->op == TapOp::kAttention && !in.taps[1].empty())
      interpreter_.store(positions, in.taps[1], in.taps[2], cache, in.cache_layer);
    std::vector<float>& out = values[tap->name];
    out = interpreter_.run(*tap, layer, in);
    if (probe != nullptr) probe->tap(layer, tap->name, out, out.size() / n, n_tokens - n);
    if (tap->name != wanted) continue;
    std::ranges::copy(out, rows.begin());
    return;
  }
}

}  // namespace llm::reference
