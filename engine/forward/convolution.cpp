#include "engine/forward/convolution.h"

#include <algorithm>
#include <array>

#include "engine/state/conv_tail.h"

namespace llm {

Result<Convolution> Convolution::create(const Model& model, LayerPart part) {
  Convolution made;
  const HyperParameters& config = model.config();
  for (std::size_t layer = 0; layer < config.n_layers; ++layer) {
    std::span<const float> in_file;
    if (config.layers[layer].has(part)) in_file = model.weights().layers[layer].conv1d.span();
    LLM_TRY(auto weights, allocate_activations(in_file.size()));
    const auto [channels, width, silu] = config.layers[layer].convolution();
    for (std::size_t i = 0; i < in_file.size(); ++i)
      weights[i % width * channels + i / width] = in_file[i];
    made.weights_.push_back(std::move(weights));
  }
  return made;
}

void Convolution::plan(std::span<const PassSegment> segments) {
  sequences_.clear();
  std::size_t row = 0;
  for (const PassSegment& segment : segments) {
    sequences_.push_back({row, segment.tokens.size(), segment.first_position, segment.state});
    row += segment.tokens.size();
  }
}

void Convolution::run(PassWorker& at, std::size_t layer, Worker::Range channels, const float* x,
                      float* y) {
  const ConvolutionSpec spec = at.config().layers[layer].convolution();
  const std::size_t begin = channels.begin;
  const std::size_t n = channels.end - channels.begin;
  const std::span<const float> bias = at.weights().layers[layer].conv1d_bias.span();
  std::array<const float*, 16> rows;  // Reader::kMaxConvWidth
  for (const SequenceRows& of : sequences_) {
    const ConvTail tail(spec, of.state->state(layer));
    /// Of these channels, what the convolution reads of row t of the sequence, or before it.
    const auto input = [&](std::size_t t, std::size_t age) -> const float* {
      return t >= age ? x + (of.first_row + t - age) * spec.channels + begin
                      : tail.input(age - t).data() + begin;
    };
    for (std::size_t t = 0; t < of.n_rows; ++t) {
      for (std::size_t j = 0; j < spec.width; ++j) rows[j] = input(t, spec.width - 1 - j);
      at.kernels().convolve({.rows = rows.data(),
                             .weights = weights_[layer].data() + begin,
                             .stride = spec.channels,
                             .width = spec.width,
                             .n = n,
                             .bias = bias.empty() ? nullptr : bias.data() + begin,
                             .silu = spec.silu,
                             .y = y + (of.first_row + t) * spec.channels + begin});
    }
    // From the oldest on: each comes from one that is younger, and not replaced yet.
    const auto keep = [&](std::size_t n_rows, const ConvTail& to) {
      for (std::size_t age = spec.width - 1; age > 0; --age)
        std::copy_n(input(n_rows, age), n, to.input(age).data() + begin);
    };
    for (std::size_t copy = 0; copy < of.state->n_copies(); ++copy)
      keep(of.rows_to_copy(copy), ConvTail(spec, of.state->copied_state(copy, layer)));
    keep(of.n_rows, tail);
  }
  at.lap(PassOp::kConvolution);
}

}  // namespace llm
