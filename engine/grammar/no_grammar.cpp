// In place of grammar.cpp where the library is not there.

#include <utility>

#include "base/check.h"
#include "engine/grammar/grammar.h"

namespace llm {

struct Grammar::Vocabulary {};
struct Grammar::Impl {};
struct GrammarState::Impl {};

Grammar::Grammar(GrammarSource source, std::unique_ptr<const Impl> impl)
    : source_(std::move(source)), impl_(std::move(impl)) {}
Grammar::~Grammar() = default;
std::size_t Grammar::bytes() const { return 0; }

Result<std::shared_ptr<const Grammar::Vocabulary>> Grammar::read_vocabulary(const Tokenizer&) {
  return Error{.code = ErrorCode::kUnsupported,
               .field = "grammar",
               .message = "this build has no grammars",
               .hint = "run ./dev grammars and build again"};
}

Result<std::shared_ptr<const Grammar>> Grammar::compile(GrammarSource, const Tokenizer& tokenizer) {
  return read_vocabulary(tokenizer).error();
}

Result<std::shared_ptr<const Grammar>> Grammar::compile(GrammarSource, const Tokenizer& tokenizer,
                                                        std::shared_ptr<const Vocabulary>,
                                                        const CompileLimits&) {
  return read_vocabulary(tokenizer).error();
}

// Nobody has a grammar to make one of.
GrammarState::GrammarState(std::shared_ptr<const Grammar>, std::span<const TokenId>) {
  LLM_CHECK(false);
}
GrammarState::GrammarState(GrammarState&&) noexcept = default;
GrammarState::~GrammarState() = default;
Result<std::span<const std::uint32_t>> GrammarState::mask() {
  return std::span<const std::uint32_t>();
}
Status GrammarState::accept(TokenId) { return Ok{}; }
bool GrammarState::is_complete() { return false; }
Result<bool> GrammarState::takes(TokenId) { return false; }

}  // namespace llm
