#pragma once

#include "tests/support/test.h"
#include "validate/reference/dump/dump.h"

namespace llm::test {

inline DumpMeta fake_meta() {
  DumpMeta meta;
  meta.producer = "fake";
  meta.producer_version = "1";
  meta.model_name = "fake";
  meta.tokenizer_hash = "a1";
  meta.merges_hash = "b1";
  meta.oracle = "engine";
  meta.compute = "f32";
  meta.kv = "f32";
  meta.eps = 1e-5;
  meta.rope_theta = 10000;
  meta.head_dim = 4;
  meta.rope_dim = 4;
  return meta;
}

/// Sends made-up activations of six tokens to a Recorder: every value depends on tap, layer,
/// position and feature, so any mix-up shows.
class FakeModel {
 public:
  static constexpr std::size_t kLayers = 2;
  static constexpr std::size_t kFeatures = 8;
  static constexpr std::size_t kTokens = 6;

  /// May change a tap's rows; false drops the tap.
  using Edit = std::function<bool(int layer, std::string_view tap, std::vector<float>& values)>;

  /// @param steps  tokens of each forward call, kTokens in all
  Result<Dump> record(const std::vector<std::size_t>& steps, const Edit& edit = {},
                      const DumpMeta& meta = fake_meta()) const {
    Recorder recorder;
    std::size_t position = 0;
    for (const std::size_t n : steps) {
      std::vector<int> tokens;
      for (std::size_t i = 0; i < n; ++i) tokens.push_back(static_cast<int>(100 + position + i));
      recorder.begin_step(tokens, position);
      for (const auto& [tap, layer] : taps_of_model(kLayers))
        send(recorder, layer, *tap, position, n, edit);
      position += n;
    }
    return std::move(recorder).finish(meta);
  }

 private:
  static void send(Recorder& recorder, int layer, const Tap& tap, std::size_t position,
                   std::size_t n, const Edit& edit) {
    const auto row = static_cast<double>(&tap - kTaps.data());
    std::vector<float> values;
    for (std::size_t i = 0; i < n * kFeatures; ++i) {
      const double phase = static_cast<double>(position * kFeatures + i) + 37.0 * layer + 5.0 * row;
      values.push_back(static_cast<float>(std::sin(phase)));
    }
    if (!edit || edit(layer, tap.name, values)) recorder.tap(layer, tap.name, values, kFeatures, 0);
  }
};

}  // namespace llm::test
