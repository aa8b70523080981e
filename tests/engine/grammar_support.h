#pragma once

#include "engine/grammar/grammar.h"
#include "tests/support/embedded_model.h"
#include "tests/support/test.h"

namespace llm::test {

inline const Tokenizer& vocabulary() {
  static const std::shared_ptr<const Model> model = embedded();
  return model->tokenizer();
}

inline std::shared_ptr<const Grammar> compile(GrammarKind kind, const std::string& text) {
  return require_ok(Grammar::compile({kind, text}, vocabulary()));
}

inline TokenId byte_token(char c) {
  return *vocabulary().find(fmt::format("<0x{:02X}>", static_cast<unsigned char>(c)));
}

/// Whether the text is of the grammar, taken byte by byte.
inline bool takes(const std::shared_ptr<const Grammar>& grammar, std::string_view text) {
  GrammarState state(grammar, {});
  for (const char c : text) {
    if (!allows(require_ok(state.mask()), byte_token(c))) return false;
    require_ok(state.accept(byte_token(c)));
  }
  return state.is_complete();
}

inline void check_takes(const std::shared_ptr<const Grammar>& grammar,
                        const std::vector<std::string>& valid,
                        const std::vector<std::string>& others) {
  for (const auto& [texts, is_valid] : {std::pair(&valid, true), std::pair(&others, false)}) {
    for (const std::string& text : *texts) {
      CAPTURE(text);
      REQUIRE(takes(grammar, text) == is_valid);
    }
  }
}

/// A text of the grammar from random tokens; nothing where it is longer than `most` tokens.
/// @param haste  how often it ends, or a closing token is taken, where it may; in percent
inline std::optional<std::string> random_text(const std::shared_ptr<const Grammar>& grammar,
                                              std::mt19937& random, unsigned haste,
                                              std::size_t most = 300) {
  const Tokenizer& tokens = vocabulary();
  GrammarState state(grammar, {});
  std::string text;
  for (std::size_t i = 0; i < most; ++i) {
    const auto mask = require_ok(state.mask());
    REQUIRE(allows(mask, *tokens.spec().eos) == state.is_complete());
    std::vector<TokenId> all;
    std::vector<TokenId> closing;
    for (TokenId id = 0; tokens.contains(id); ++id) {
      if (!allows(mask, id) || tokens.is_end_of_generation(id)) continue;
      all.push_back(id);
      if (tokens.piece_text(id).find_first_of("\"]}") != std::string::npos) closing.push_back(id);
    }
    const bool hurries = random() % 100 < haste;
    if (all.empty()) REQUIRE(state.is_complete());  // else it is stuck
    if (all.empty() || (state.is_complete() && hurries)) return text;
    const auto& from = hurries && !closing.empty() ? closing : all;
    const TokenId id = from[random() % from.size()];
    require_ok(state.accept(id));
    text += tokens.piece_text(id);
  }
  return std::nullopt;
}

}  // namespace llm::test
