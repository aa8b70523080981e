#pragma once

#include <cstddef>
#include <memory>

#include "engine/generate/proposer.h"

namespace llm {

/// What came of a text, for proposers that know it: a first run is listened to, and a second run of
/// the same text gets proposals whose leading tokens are right, as many as wanted, then a wrong
/// one. So everything happens to proposals that can happen to them, whatever the model is like.
class Rehearsal {
 public:
  explicit Rehearsal(std::size_t n_vocab);
  ~Rehearsal();
  Rehearsal(const Rehearsal&) = delete;
  Rehearsal& operator=(const Rehearsal&) = delete;

  /// Proposes nothing and remembers the text.
  std::unique_ptr<Proposer> listener();
  /// Proposes 1 to 7 tokens in turn, with every number of leading right ones.
  /// @pre the listener heard the run
  std::unique_ptr<Proposer> prompter() const;

  struct Memory;

 private:
  std::shared_ptr<Memory> memory_;
};

}  // namespace llm
