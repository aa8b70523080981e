#pragma once

#include "tests/support/json.h"
#include "tests/support/test.h"
#include "tokenizer/vocab_spec.h"

namespace llm {

/// A small vocabulary with every kind of piece, and texts with the ids and the decoded text of the
/// real SentencePiece library, without BOS: golden/make_odd_vocabs.py.
struct OddVocab {
  struct Case {
    std::string text;
    std::vector<TokenId> ids;
    std::string decoded;
  };
  VocabSpec spec;
  std::vector<Case> cases;
};

inline std::vector<OddVocab> odd_vocabs() {
  std::ifstream file(LLM_SOURCE_DIR "/tests/tokenizer/golden/odd_vocabs.jsonl");
  REQUIRE(file.is_open());
  std::vector<OddVocab> vocabs;
  for (std::string text; std::getline(file, text);) {
    const auto line = test::parse_json(text);
    OddVocab& vocab = vocabs.emplace_back();
    for (const auto& token : line.at("tokens")) {
      vocab.spec.tokens.push_back({token.at(0).get<std::string>(), token.at(1).get<float>(),
                                   static_cast<TokenKind>(token.at(2).get<int>())});
    }
    vocab.spec.unknown = 0;
    vocab.spec.bos = 1;
    vocab.spec.eos = 2;
    vocab.spec.add_space_prefix = line.at("prefix").get<bool>();
    for (const auto& golden : line.at("cases")) {
      vocab.cases.push_back({golden.at(0).get<std::string>(),
                             golden.at(1).get<std::vector<TokenId>>(),
                             golden.at(2).get<std::string>()});
    }
  }
  return vocabs;
}

}  // namespace llm
