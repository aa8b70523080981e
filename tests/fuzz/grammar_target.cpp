// Grammars, regular expressions and JSON schemas: read, compiled, and a text of tokens that the
// mask allows.

#include "engine/grammar/grammar.h"
#include "tests/fuzz/tiny_model.h"

LLM_FUZZ(input) {
  using namespace llm;
  static const auto model = fuzz::tiny_model("qwen2");
  static constexpr GrammarKind kKinds[] = {GrammarKind::kEbnf, GrammarKind::kRegex,
                                           GrammarKind::kJsonSchema};
  const GrammarKind kind = kKinds[input.byte() % 3];
  const std::string_view choices = input.text();
  const auto grammar = Grammar::compile({kind, std::string(input.rest())}, model->tokenizer());
  if (!grammar.ok()) return;
  GrammarState state(*grammar, {});
  const auto n_vocab = static_cast<TokenId>(model->tokenizer().size());
  for (const char choice : choices.substr(0, 16)) {
    const auto mask = state.mask();
    if (!mask.ok()) return;
    TokenId id = static_cast<unsigned char>(choice) % n_vocab;
    for (TokenId i = 0; i < n_vocab && !allows(*mask, id); ++i) id = (id + 1) % n_vocab;
    if (!allows(*mask, id)) return;
    fuzz::require(state.takes(id), "a token of the mask may come");
    fuzz::require(state.accept(id).ok(), "a token of the mask is taken");
  }
}
