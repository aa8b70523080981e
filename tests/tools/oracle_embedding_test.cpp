// Embeddings of llmserve against those that follow from the oracle's last norm, which is numpy in
// f64.

#include <numeric>

#include "tests/tools/llmserve_process.h"
#include "tests/tools/oracle_process.h"

namespace llm::test {
namespace {

/// Rows pooled, cut, of length 1 (docs/numerics.md, "Embeddings").
std::vector<double> embedding(const TapMatrix& rows, std::string_view pooling, std::size_t size) {
  std::vector<double> out(size);
  for (std::size_t r = pooling == "last" ? rows.rows - 1 : 0; r < rows.rows; ++r)
    for (std::size_t i = 0; i < size; ++i) out[i] += static_cast<double>(rows.row(r)[i]);
  const double length = std::sqrt(std::inner_product(out.begin(), out.end(), out.begin(), 0.0));
  for (double& value : out) value /= length;
  return out;
}

}  // namespace

TEST_CASE("embeddings agree with the f64 oracle", "[oracle]") {
  if (!oracle_available()) return;
  const std::string path = LLM_SOURCE_DIR "/models/fable-3m-f16.gguf";
  const ScratchDirectory scratch;
  for (const std::string pooling : {"mean", "last"}) {
    const Server server({path, "-q", "--compute", "f32", "--kv", "f32", "--pooling", pooling});
    const Json ids = server
                         .post("/tokenize", {{"prompt",
                                              "Once upon a time, there was a little girl "
                                              "named Lily. She found a red ball."}})
                         .json()["tokens"];
    const std::string list = json_text(ids);
    const Dump dump =
        oracle_dump(path, "--ids " + list.substr(1, list.size() - 2), scratch / "r0.npz");
    const TapMatrix rows = require_ok(dump.tap(ProbeSink::kGlobal, "result_norm"));
    for (const int dimensions : {256, 40}) {
      CAPTURE(pooling, dimensions);
      const Json answer =
          server.post("/v1/embeddings", {{"input", ids}, {"dimensions", dimensions}}).json();
      const auto found = answer["data"][0]["embedding"].get<std::vector<double>>();
      const auto expected = embedding(rows, pooling, static_cast<std::size_t>(dimensions));
      REQUIRE(found.size() == expected.size());
      double cosine = 0;
      double most = 0;
      for (std::size_t i = 0; i < found.size(); ++i) {
        cosine += found[i] * expected[i];
        most = std::max(most, std::abs(found[i] - expected[i]));
      }
      std::cout << pooling << ", " << dimensions << " values: 1 - cosine " << 1 - cosine
                << ", largest error " << most << "\n";
      // f32 noise: NMSE 1e-9 (oracle_test), so 3e-5 of a vector of length 1, which is spread over
      // it.
      CHECK(std::abs(1 - cosine) < 1e-7);
      CHECK(most < 1e-6);
    }
  }
}

}  // namespace llm::test
