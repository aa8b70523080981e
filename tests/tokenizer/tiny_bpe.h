#pragma once

#include "tests/support/json.h"
#include "tests/support/test.h"
#include "tokenizer/vocab_spec.h"

namespace llm {

/// The small byte-level vocabulary of tests/golden/bpe: 1,500 tokens with their merges, three that
/// no merges make ("Ġtzunami", "!?!", "zzz"), three control tokens and three user-defined ones.
inline VocabSpec tiny_bpe(const std::string& pre_tokenizer) {
  const auto json = test::parse_json(test::read_file(LLM_SOURCE_DIR "/tests/golden/bpe/tiny.json"));
  VocabSpec spec;
  spec.tokenizer = TokenizerKind::kByteBpe;
  spec.pre_tokenizer = pre_tokenizer;
  spec.add_bos = false;
  spec.add_space_prefix = false;
  std::map<std::string, TokenId> ids;
  const auto& special = json.at("special");
  for (const auto& token : json.at("tokens")) {
    const auto text = token.get<std::string>();
    const auto kind = special.contains(text) ? special.at(text).get<int>() : 1;
    ids[text] = static_cast<TokenId>(spec.tokens.size());
    spec.tokens.push_back({.text = text, .score = 0, .kind = static_cast<TokenKind>(kind)});
  }
  for (const auto& merge : json.at("merges")) {
    const auto text = merge.get<std::string>();
    const auto space = text.find(' ');
    const std::string left = text.substr(0, space);
    const std::string right = text.substr(space + 1);
    spec.merges.push_back({ids.at(left), ids.at(right), ids.at(left + right)});
  }
  spec.eos = ids.at("<|endoftext|>");
  spec.end_of_generation = {*spec.eos};
  return spec;
}

/// The vocabulary without tokens for the bytes 04, F1, FF and AD, and without merges of them.
inline VocabSpec lacking_bytes(VocabSpec spec) {
  for (const std::string spelling : {"\u0104", "\u00F1", "\u00FF", "\u0143"}) {
    const auto token = std::ranges::find(spec.tokens, spelling, &VocabSpec::Token::text);
    REQUIRE(token != spec.tokens.end());
    token->text = "lacking" + spelling;
  }
  std::erase_if(spec.merges, [&spec](const VocabSpec::Merge& merge) {
    const auto text = [&spec](TokenId id) {
      return spec.tokens[static_cast<std::size_t>(id)].text;
    };
    return text(merge.joined) != text(merge.left) + text(merge.right);
  });
  return spec;
}

/// The 2,000 random strings of tests/golden/bpe.
inline std::vector<std::string> golden_texts() {
  std::ifstream file(LLM_SOURCE_DIR "/tests/golden/bpe/texts.jsonl");
  std::vector<std::string> texts;
  for (std::string line; std::getline(file, line);)
    texts.push_back(test::parse_json(line).get<std::string>());
  REQUIRE(texts.size() == 2000);
  return texts;
}

}  // namespace llm
