#pragma once

#include "base/mapped_file.h"
#include "engine/gguf/gguf_file.h"
#include "engine/model/vocab_from_gguf.h"
#include "tests/base/texts.h"
#include "tests/tokenizer/vocab_builder.h"
#include "tokenizer/tokenizer.h"

namespace llm {

/// Path of a file in the test data, or nothing (said aloud) when there is no such data.
inline std::optional<std::string> test_data(const std::string& name) {
  const char* folder = std::getenv("LLM_TEST_DATA");
  if (folder == nullptr || *folder == '\0') {
    WARN("SKIPPED: " << name << " (LLM_TEST_DATA is not set)");
    return std::nullopt;
  }
  return std::string(folder) + "/" + name;
}

inline Tokenizer tokenizer_of(const std::string& path) {
  const auto file = test::require_ok(MappedFile::open(path));
  const auto gguf = test::require_ok(GgufFile::parse(file.bytes()));
  std::vector<std::string> warnings;
  VocabSpec spec = test::require_ok(vocab_from_gguf(gguf, warnings));
  CHECK(warnings.empty());
  return test::require_ok(Tokenizer::create(std::move(spec)));
}

/// The texts of NAME.inp give the ids of NAME.out without BOS, and these the texts.
inline void check_llama_cpp(const Tokenizer& tokenizer, const std::string& name) {
  const auto texts =
      test::split(test::read_file(*test_data(name + ".inp")), "\n__ggml_vocab_test__\n");
  const auto rows = test::split(test::read_file(*test_data(name + ".out")), "\n");
  REQUIRE(texts.size() == 47);
  REQUIRE(rows.size() >= texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    std::istringstream row(rows[i]);
    const Ids ids{std::istream_iterator<TokenId>(row), {}};
    CAPTURE(i, texts[i]);
    CHECK(tokenizer.encode(texts[i], {.add_bos = false}) == ids);
    CHECK(tokenizer.decode(ids) == texts[i]);
  }
}

}  // namespace llm
