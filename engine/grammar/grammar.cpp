#include "engine/grammar/grammar.h"

#include <fmt/format.h>
#include <xgrammar/xgrammar.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <utility>

#include "engine/grammar/grammar_source.h"
#include "engine/grammar/work_meter.h"

namespace {

/// Where this thread wants to know what xgrammar says: parts of a grammar that it leaves out.
thread_local std::string* warning = nullptr;

class Listening {
 public:
  explicit Listening(std::string& said) { warning = &said; }
  ~Listening() { warning = nullptr; }
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;
};

}  // namespace

namespace xgrammar {

// Built with XGRAMMAR_LOG_CUSTOMIZE, the library asks its user for these.
[[noreturn]] void LogFatalImpl(const std::string& file, int line, const std::string& message);
void LogMessageImpl(const std::string& file, int line, int level, const std::string& message);

void LogFatalImpl(const std::string&, int, const std::string& message) {
  throw std::runtime_error(message);
}

void LogMessageImpl(const std::string&, int, int, const std::string& message) {
  // Empty where there was no memory for it; the few bytes in its place need none.
  if (warning != nullptr) *warning = message.empty() ? "a part left out" : message;
}

}  // namespace xgrammar

namespace llm {
namespace {

Error refused(std::string_view what) {
  std::string line(what.substr(0, 300));
  std::ranges::replace(line, '\n', ' ');
  return Error{ErrorCode::kUsage, "", "need a different grammar: " + line};
}

Error out_of_memory() {
  return Error{ErrorCode::kResource, "memory",
               "found too little memory for the automaton of a grammar"};
}

/// @param rule  may be empty
Error too_costly(std::string_view rule) {
  return Error{
      ErrorCode::kUsage, "grammar",
      fmt::format(
          "found more than {} units of work for a token{}, need a grammar with fewer parses of the "
          "same output: a rule that repeats instead of one that contains itself twice",
          GrammarState::kMostUnits,
          rule.empty() ? std::string() : fmt::format(", last for rule {}", rule))};
}

}  // namespace

struct Grammar::Vocabulary {
  xgrammar::TokenizerInfo tokens;
  std::vector<TokenId> ends;
  std::vector<TokenId> control;
};

struct Grammar::Impl {
  xgrammar::CompiledGrammar compiled;
  std::vector<TokenId> barred;  ///< control tokens that are not the grammar's
  std::shared_ptr<const Vocabulary> vocabulary;
};

Grammar::Grammar(GrammarSource source, std::unique_ptr<const Impl> impl)
    : source_(std::move(source)), impl_(std::move(impl)) {}

Grammar::~Grammar() = default;

std::size_t Grammar::bytes() const {
  return impl_->compiled.MemorySizeBytes() + source_.text.size();
}

Result<std::shared_ptr<const Grammar::Vocabulary>> Grammar::read_vocabulary(
    const Tokenizer& tokenizer) {
  const std::vector<TokenId>& ends = tokenizer.spec().end_of_generation;
  if (ends.empty()) {
    return Error{ErrorCode::kUnsupported, "grammar",
                 "found a vocabulary without an end token, need one"};
  }
  std::vector<std::string> texts(tokenizer.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const TokenKind kind = tokenizer.kind(id);
    // A token without bytes is none that a rule can take.
    const bool has_text =
        kind == TokenKind::kNormal || kind == TokenKind::kUserDefined || kind == TokenKind::kByte;
    if (has_text) texts[i] = tokenizer.piece_text(id);
  }
  const std::vector<TokenId> control = control_tokens(tokenizer);
  // Rules name these by their ids. No text has their bytes, which are no UTF-8.
  for (const TokenId id : control) texts[static_cast<std::size_t>(id)] = fmt::format("\xFF{}", id);
  try {
    xgrammar::TokenizerInfo tokens(texts, xgrammar::VocabType::RAW, std::nullopt, ends);
    return std::make_shared<const Vocabulary>(Vocabulary{std::move(tokens), ends, control});
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  } catch (const std::exception& error) {
    return refused(error.what());
  }
}

Result<std::shared_ptr<const Grammar>> Grammar::compile(GrammarSource source,
                                                        const Tokenizer& tokenizer) {
  LLM_TRY(auto vocabulary, read_vocabulary(tokenizer));
  return compile(std::move(source), tokenizer, std::move(vocabulary), CompileLimits{});
}

Result<std::shared_ptr<const Grammar>> Grammar::compile(
    GrammarSource source, const Tokenizer& tokenizer, std::shared_ptr<const Vocabulary> vocabulary,
    const CompileLimits& limits) {
  LLM_TRY(const Ebnf ebnf, ebnf_of(source, tokenizer));
  std::string said;
  const Listening listening(said);
  try {
    std::uint64_t left = limits.units;
    std::optional<WorkMeter> meter(std::in_place, left, limits.is_given_up);
    // One thread, so that warnings come to this one; what is kept is kept by GrammarCompiler.
    xgrammar::GrammarCompiler compiler(vocabulary->tokens, 1, false);
    auto compiled = compiler.CompileGrammar(ebnf.text);
    meter.reset();
    if (!said.empty()) return refused(said);
    std::vector<TokenId> barred;
    std::ranges::copy_if(vocabulary->control, std::back_inserter(barred), [&](TokenId id) {
      return std::ranges::find(ebnf.control, id) == ebnf.control.end();
    });
    auto impl = std::make_unique<const Impl>(
        Impl{std::move(compiled), std::move(barred), std::move(vocabulary)});
    return std::shared_ptr<const Grammar>(new Grammar(std::move(source), std::move(impl)));
  } catch (const WorkExceeded&) {
    return Error{ErrorCode::kUsage, std::string(CompileLimits::kExceeded),
                 fmt::format("found more than {} units of work to compile it, need fewer states: "
                             "shorter strings, fewer rules and repetitions",
                             limits.units)};
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  } catch (const std::exception& error) {
    return refused(error.what());
  }
}

struct GrammarState::Impl {
  std::shared_ptr<const Grammar> grammar;
  std::vector<TokenId> ends;
  std::vector<std::uint32_t> words;
  std::optional<xgrammar::GrammarMatcher> matcher = {};  ///< made by the first step
  std::uint64_t units = kMostUnits;                      ///< of work that are left
  std::optional<TokenId> taken = {};  ///< the matcher is behind it, the text not yet
  std::optional<Error> failed = {};  ///< the matcher was given up amid a step and is not used again

  /// Does what may cost too much. @param step  gets the matcher
  template <typename Step>
  Result<bool> within_limits(Step step) {
    if (failed) return *failed;
    try {
      const WorkMeter meter(units);
      if (!matcher) matcher.emplace(grammar->impl_->compiled);
      return step(*matcher);
    } catch (const WorkExceeded& exceeded) {
      failed = too_costly(exceeded.rule.data());
    } catch (const std::bad_alloc&) {
      failed = out_of_memory();
    } catch (const std::exception& error) {
      failed = refused(error.what());
    }
    return *failed;
  }

  bool is_end(TokenId id) const { return std::ranges::find(ends, id) != ends.end(); }
  void take_back() {
    if (std::exchange(taken, std::nullopt) && !failed) matcher->Rollback(1);
  }
};

GrammarState::GrammarState(std::shared_ptr<const Grammar> grammar, std::span<const TokenId> ends) {
  std::vector<TokenId> all = grammar->impl_->vocabulary->ends;
  all.insert(all.end(), ends.begin(), ends.end());
  const int n_words = xgrammar::GetBitmaskSize(grammar->impl_->vocabulary->tokens.GetVocabSize());
  impl_ =
      std::make_unique<Impl>(Impl{std::move(grammar), std::move(all),
                                  std::vector<std::uint32_t>(static_cast<std::size_t>(n_words))});
}

GrammarState::GrammarState(GrammarState&&) noexcept = default;
GrammarState::~GrammarState() = default;

Result<std::span<const std::uint32_t>> GrammarState::mask() {
  impl_->take_back();
  std::vector<std::uint32_t>& words = impl_->words;
  auto size = static_cast<std::int64_t>(words.size());
  DLTensor tensor{.data = words.data(),
                  .device = {kDLCPU, 0},
                  .ndim = 1,
                  .dtype = xgrammar::GetBitmaskDLType(),
                  .shape = &size,
                  .strides = nullptr,
                  .byte_offset = 0};
  // It leaves the words alone where everything may come.
  LLM_TRY(const bool is_limited, impl_->within_limits([&](auto& matcher) {
    return matcher.FillNextTokenBitmask(&tensor);
  }));
  if (!is_limited) std::ranges::fill(words, ~std::uint32_t{0});
  const auto allow = [&words](TokenId id, bool may) {
    std::uint32_t& word = words[static_cast<std::size_t>(id) / 32];
    const std::uint32_t bit = 1U << (id % 32);
    word = may ? word | bit : word & ~bit;
  };
  for (const TokenId id : impl_->grammar->impl_->barred) allow(id, false);
  const bool may_end = is_complete();
  for (const TokenId id : impl_->ends) allow(id, may_end);
  return std::span<const std::uint32_t>(words);
}

Result<bool> GrammarState::takes(TokenId id) {
  if (impl_->taken == id) return true;
  impl_->take_back();
  if (impl_->is_end(id)) return is_complete();
  const std::vector<TokenId>& barred = impl_->grammar->impl_->barred;
  if (std::ranges::find(barred, id) != barred.end()) return false;
  LLM_TRY(const bool is_taken,
          impl_->within_limits([&](auto& matcher) { return matcher.AcceptToken(id); }));
  if (is_taken) {
    impl_->taken = id;
  } else {
    // Another draw goes through all logits.
    impl_->units -= std::min<std::uint64_t>(impl_->units, 4 * impl_->words.size());
  }
  return is_taken;
}

Status GrammarState::accept(TokenId id) {
  if (impl_->is_end(id)) return Ok{};
  LLM_TRY(const bool is_taken, takes(id));
  if (!is_taken)
    return Error{ErrorCode::kUsage, "grammar",
                 fmt::format("found token {}, need one that the grammar allows there", id)};
  impl_->taken.reset();
  const std::uint64_t more = std::max(kUnitsOfToken, kUnitsOfEntry * 32 * impl_->words.size());
  impl_->units = std::min(impl_->units + more, kMostUnits);
  return Ok{};
}

bool GrammarState::is_complete() {
  impl_->take_back();
  const auto is_whole = impl_->within_limits([](auto& matcher) { return matcher.IsCompleted(); });
  return is_whole.ok() && *is_whole;
}

}  // namespace llm
