// Embeddings of llmserve against the oracle's (tools/reference_f64/embedding.py), which is numpy in
// f64.

#include "tests/tools/llmserve_process.h"
#include "tests/tools/oracle_process.h"

namespace llm::test {
TEST_CASE("embeddings agree with the f64 oracle", "[oracle]") {
  if (!oracle_available()) return;
  const std::string path = LLM_SOURCE_DIR "/models/fable-3m-f16.gguf";
  for (const std::string pooling : {"mean", "last"}) {
    const Server server({path, "-q", "--compute", "f32", "--kv", "f32", "--pooling", pooling});
    const Json ids = server
                         .post("/tokenize", {{"prompt",
                                              "Once upon a time, there was a little girl "
                                              "named Lily. She found a red ball."}})
                         .json()["tokens"];
    for (const int dimensions : {256, 40}) {
      CAPTURE(pooling, dimensions);
      const Json answer =
          server.post("/v1/embeddings", {{"input", ids}, {"dimensions", dimensions}}).json();
      const auto found = answer["data"][0]["embedding"].get<std::vector<double>>();
      const std::string list = json_text(ids);
      const auto oracle = run_shell(fmt::format(
          "'{}' '{}/tools/reference_f64/embedding.py' '{}' --ids {} --pooling {} --dimensions {}",
          python(), LLM_SOURCE_DIR, path, list.substr(1, list.size() - 2), pooling, dimensions));
      REQUIRE(oracle.exit_code == 0);
      const auto expected = test::parse_json(oracle.out).get<std::vector<double>>();
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
