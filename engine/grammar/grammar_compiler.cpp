#include <utility>

#include "engine/grammar/grammar.h"

namespace llm {

Result<std::shared_ptr<const Grammar>> GrammarCompiler::compile(const GrammarSource& source,
                                                                const CompileLimits& limits) {
  if (auto kept = find(source)) return kept;
  LLM_TRY(auto tokens, vocabulary());
  LLM_TRY(auto grammar, Grammar::compile(source, tokenizer_, std::move(tokens), limits));
  keep(grammar);
  return grammar;
}

std::size_t GrammarCompiler::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

Result<std::shared_ptr<const Grammar::Vocabulary>> GrammarCompiler::vocabulary() {
  const std::lock_guard lock(mutex_);
  if (vocabulary_ == nullptr) {
    LLM_TRY(vocabulary_, Grammar::read_vocabulary(tokenizer_));
  }
  return vocabulary_;
}

std::shared_ptr<const Grammar> GrammarCompiler::find(const GrammarSource& source) {
  const std::lock_guard lock(mutex_);
  const auto place = places_.find(source);
  if (place == places_.end()) return nullptr;
  kept_.splice(kept_.begin(), kept_, place->second);
  return kept_.front();
}

void GrammarCompiler::keep(std::shared_ptr<const Grammar> grammar) {
  const std::lock_guard lock(mutex_);
  if (places_.contains(grammar->source())) return;
  bytes_ += grammar->bytes();
  kept_.push_front(std::move(grammar));
  places_[kept_.front()->source()] = kept_.begin();
  while (bytes_ > most_bytes_ && kept_.size() > 1) {
    bytes_ -= kept_.back()->bytes();
    places_.erase(kept_.back()->source());
    kept_.pop_back();
  }
}

}  // namespace llm
