#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/batching/generation_service.h"
#include "engine/chat/reply_format.h"
#include "engine/engine.h"
#include "engine/generation/chat_style.h"
#include "engine/generation/embedding.h"
#include "engine/grammar/grammar.h"
#include "tools/llmserve/api/served_adapters.h"
#include "tools/llmserve/conversations/chat_roles.h"

namespace llm {

/// The facts of a model that is served; all answers of it are a function of these and the request.
struct ServedModel {
  std::shared_ptr<const Model> model;
  std::string id;                                      ///< its name in answers
  std::shared_ptr<const ChatStyle> style;              ///< null: no chat
  ReplyFormat reply_format = {};                       ///< of its chats
  ChatRoles roles = {};                                ///< of the messages that its template takes
  bool reply_shows_special = false;                    ///< control tokens, which that format has
  std::optional<Pooling> pooling = {};                 ///< of embeddings; none: as the file says
  std::shared_ptr<ServedAdapters> adapters = nullptr;  ///< null: it has none
  KvType kv = KvType::kF16;
  std::size_t context = 0;
  std::size_t most_new_tokens = 0;                      ///< of one choice
  std::size_t most_texts = 0;                           ///< choices of one answer
  bool logs_receipts = false;                           ///< every text has what one needs
  std::shared_ptr<GrammarCompiler> grammars = nullptr;  ///< keeps them; null: each is compiled anew

  const Tokenizer& tokenizer() const { return model->tokenizer(); }
};

/// A model that is loaded, and what generates its texts.
struct LoadedModel {
  ServedModel facts;
  std::unique_ptr<GenerationService> service;

  /// Whether its weights are what was loaded: nobody has written to a file that they lie in, or cut
  /// it. Errors: Model::check_weights().
  Status check() const {
    return facts.model == nullptr ? Status(Ok{}) : facts.model->check_weights();
  }
};
/// Keeps a model loaded.
using Lease = std::shared_ptr<LoadedModel>;

/// What decides an answer's bits besides the request: version of the numeric contract, the file's
/// hash (its first 12 digits), compute and KV type, and of adapters in use a hash of their files
/// and scales. Equal ones give equal answers, on any machine.
/// @param adapters  as GenerationRequest::adapters
std::string system_fingerprint(const ServedModel& served, std::span<const float> adapters = {});

}  // namespace llm
