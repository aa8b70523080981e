// What both forward passes send to a probe is the table of taps: every row in every layer, in
// order, with its width and a row for each token.

#include "engine/forward/activation_points.h"

#include "engine/engine.h"
#include "tests/support/test.h"
#include "tests/support/tiny_model.h"

namespace llm::test {
namespace {

struct Sent {
  int layer;
  std::string name;
  std::size_t features;
  std::size_t n_rows;
  std::size_t first_token;
  bool operator==(const Sent&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Sent& sent) {
  return out << sent.layer << '/' << sent.name << ' ' << sent.n_rows << " x " << sent.features
             << " from " << sent.first_token;
}

class Listener final : public ProbeSink {
 public:
  void begin_step(std::span<const int>, std::size_t) override {}
  void tap(int layer, std::string_view name, std::span<float> values, std::size_t features,
           std::size_t first_token) override {
    sent.push_back({layer, std::string(name), features, values.size() / features, first_token});
  }
  std::vector<Sent> sent;
};

/// What the table promises for a call of n_tokens that asks for the logits of the last n_rows.
std::vector<Sent> promised(const HyperParameters& config, std::size_t n_tokens,
                           std::size_t n_rows) {
  std::vector<Sent> out;
  for (const auto& [tap, layer] : taps_of_model(config)) {
    const bool of_rows = tap->name == "result_norm" || tap->name == "logits";
    if (of_rows && n_rows == 0) continue;
    const std::size_t first = of_rows ? n_tokens - n_rows : 0;
    out.push_back(
        {layer, std::string(tap->name), tap->width.of(config, layer), n_tokens - first, first});
  }
  return out;
}

}  // namespace

TEST_CASE("a forward pass sends the taps of the table", "[engine][taps]") {
  const std::string architecture = GENERATE(from_range(TinyGguf::architectures()));
  CAPTURE(architecture);
  const auto model = loaded(TinyGguf::llama({.n_layers = 2, .architecture = architecture}));
  const bool reference = GENERATE(false, true);
  CAPTURE(reference);
  const auto sequence = require_ok(open_sequence(model, {}, {.reference = reference}));
  struct Call {
    std::vector<TokenId> tokens;
    LogitRows rows;
    std::size_t n_rows;
  };
  const std::vector<Call> calls = {{{1, 2, 3, 4, 5}, LogitRows::kAll, 5},
                                   {{6, 7, 8}, LogitRows::kLast, 1},
                                   {{9}, LogitRows::kLast, 1},
                                   {{10, 11}, LogitRows::kNone, 0}};
  for (const Call& call : calls) {
    Listener listener;
    sequence->set_probe(&listener);
    REQUIRE(sequence->evaluate(call.tokens, call.rows).ok());
    CHECK(listener.sent == promised(model->config(), call.tokens.size(), call.n_rows));
  }
}

}  // namespace llm::test
