#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "engine/state/sequence_state.h"
#include "tokenizer/vocab_spec.h"

namespace llm {

/// What a proposal is made from.
struct ProposalRequest {
  std::span<const TokenId> text;  ///< all of it so far, the prompt included; not empty
  /// The token that the text would draw behind `past` from such a row of logits; nothing where it
  /// would end the text or cannot be drawn.
  std::function<std::optional<TokenId>(std::span<const float> logits,
                                       std::span<const TokenId> past)>
      draw;
  std::function<bool()> interrupted;  ///< asked in long work; may be empty
  /// What the model keeps of the text, but for its last token; nullptr: not known.
  const SequenceState* state = nullptr;
};

/// Tokens that may follow a text.
struct Proposal {
  std::vector<TokenId> tokens;
  std::size_t grade = 0;  ///< below Proposer::kGrades: those of one grade are about equally good
};

/// Guesses how a text goes on. A guess is never trusted: what is wrong costs time and nothing else.
class Proposer {
 public:
  static constexpr std::size_t kGrades = 8;
  /// How many tokens of a grade are worth proposing; 0: none.
  using Worth = std::function<std::size_t(std::size_t grade)>;

  virtual ~Proposer() = default;

  virtual std::string_view name() const = 0;
  /// Whether it is told what Sequence::OnNormed is, of each pass over the text.
  virtual bool reads_rows() const { return false; }
  virtual void take_rows(std::size_t first, std::span<const float> rows) {
    static_cast<void>(first);
    static_cast<void>(rows);
  }
  /// At most worth(grade) tokens that may follow request.text; none where it knows none.
  virtual Proposal propose(const ProposalRequest& request, const Worth& worth) = 0;
};

}  // namespace llm
