#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "validate/remote_server/question.h"

namespace llm {

/// A way in which a server may run the file: as it should, but for what is set here.
struct ServingHypothesis {
  enum class Cut { kNone, kFront, kEnd };

  std::string name = {};  ///< as a verdict says it
  int bos = 0;            ///< BOS tokens in front: one more, one fewer
  bool chat_too = true;   ///< `bos` is also of chats
  std::optional<std::string> template_text =
      {};                                  ///< of chats, Jinja; empty: none, the bare message
  std::optional<std::string> system = {};  ///< of chats that have no system message
  bool asks = true;                        ///< chats end with what asks for the reply
  std::optional<float> rope_base = {};
  double rope_factor = 1;  ///< positions are divided by it, too
  std::optional<float> norm_eps = {};
  bool has_windows = true;
  KvFilter kv_filter = nullptr;
  Cut cut = Cut::kNone;  ///< to as many tokens as the server counted

  /// Whether it makes a difference to such a question.
  bool concerns(QuestionKind kind) const;
  /// The model, run so.
  std::shared_ptr<const Model> model(const std::shared_ptr<const Model>& plain) const;
  /// Ids of the prompt; none where it cannot be so. Errors: those of encode_chat().
  Result<std::vector<TokenId>> prompt(const Model& model, const JudgeQuestion& question,
                                      const JudgeAnswer& answer) const;

 private:
  Result<std::vector<TokenId>> chat(const Model& model, const JudgeQuestion& question) const;
};

/// Every way that is tried for such a model, the likelier of alike ones first.
std::vector<ServingHypothesis> served_otherwise(const Model& model);

/// The same fault with its number multiplied by `factor`; nothing for a fault without a number.
/// @param model  that `way` is a way of serving
std::optional<ServingHypothesis> with_number(const ServingHypothesis& way, const Model& model,
                                             double factor);

}  // namespace llm
