#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/chat/reply_format.h"
#include "engine/engine.h"
#include "engine/generate/chat_style.h"
#include "engine/generate/embedding.h"
#include "engine/grammar/grammar.h"

namespace llm {

/// The facts of a model that is served; all answers of it are a function of these and the request.
struct ServedModel {
  std::shared_ptr<const Model> model;
  std::vector<std::string> ids;            ///< as clients may name it; 1 or more
  std::shared_ptr<const ChatStyle> style;  ///< null: no chat
  ReplyFormat reply_format = {};           ///< of its chats
  bool reply_shows_special = false;        ///< control tokens, which that format has
  std::optional<Pooling> pooling = {};     ///< of embeddings; none: as the file says
  KvType kv = KvType::kF16;
  std::size_t context = 0;
  std::size_t most_new_tokens = 0;                      ///< of one choice
  std::size_t most_texts = 0;                           ///< choices of one answer
  std::shared_ptr<GrammarCompiler> grammars = nullptr;  ///< keeps them; null: each is compiled anew
  std::int64_t loaded_at = 0;                           ///< seconds since 1970

  const std::string& id() const { return ids.front(); }
  /// Ollama's clients put a tag behind a name that has none.
  bool has_id(std::string_view name) const {
    constexpr std::string_view kTag = ":latest";
    if (std::ranges::find(ids, name) != ids.end()) return true;
    if (name.ends_with(kTag)) name.remove_suffix(kTag.size());
    return std::ranges::find(ids, name) != ids.end();
  }
  const Tokenizer& tokenizer() const { return model->tokenizer(); }
};

/// What decides an answer's bits besides the request: version of the numeric contract, the file's
/// hash (its first 12 digits), compute and KV type. Equal ones give equal answers, on any machine.
std::string system_fingerprint(const ServedModel& served);

}  // namespace llm
