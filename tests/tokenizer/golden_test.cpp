// Small vocabularies with every kind of piece against the real SentencePiece library: see
// golden/make_odd_vocabs.py.

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/catch.h"
#include "tests/tokenizer/vocab_builder.h"
#include "tokenizer/tokenizer.h"

namespace llm {
namespace {

VocabSpec spec_of(const nlohmann::json& line) {
  VocabSpec spec;
  for (const auto& token : line.at("tokens")) {
    spec.tokens.push_back({token.at(0).get<std::string>(), token.at(1).get<float>(),
                           static_cast<TokenKind>(token.at(2).get<int>())});
  }
  spec.unknown = 0;
  spec.bos = 1;
  spec.eos = 2;
  spec.add_space_prefix = line.at("prefix").get<bool>();
  return spec;
}

}  // namespace

TEST_CASE("odd vocabularies tokenize as SentencePiece does", "[tokenizer][golden]") {
  std::ifstream file(LLM_SOURCE_DIR "/tests/tokenizer/golden/odd_vocabs.jsonl");
  REQUIRE(file.is_open());
  std::size_t cases = 0;
  for (std::string text; std::getline(file, text);) {
    const auto line = nlohmann::json::parse(text);
    const auto tokenizer = Tokenizer::create(spec_of(line));
    REQUIRE(tokenizer.ok());
    for (const auto& golden : line.at("cases")) {
      const auto input = golden.at(0).get<std::string>();
      const auto ids = golden.at(1).get<Ids>();
      CAPTURE(line.at("tokens").dump(), input);
      CHECK(tokenizer->encode(input, {.add_bos = false}) == ids);
      CHECK(tokenizer->decode(ids) == golden.at(2).get<std::string>());
      ++cases;
    }
  }
  REQUIRE(cases == 720);
}

}  // namespace llm
