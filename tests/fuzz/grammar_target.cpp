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
    // A mask may allow a token that is not taken, but none that is taken is missing in it.
    const std::vector<std::uint32_t> allowed(mask->begin(), mask->end());
    auto taken = state.takes(id);
    fuzz::require(!taken.ok() || !*taken || allows(allowed, id), "the mask has what may come");
    for (TokenId i = 0; i < n_vocab && taken.ok() && !*taken; ++i) {
      id = (id + 1) % n_vocab;
      if (allows(allowed, id)) taken = state.takes(id);
    }
    if (!taken.ok() || !*taken) return;
    fuzz::require(state.accept(id).ok(), "a token that may come is taken");
  }
}
