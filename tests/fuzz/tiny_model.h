#pragma once

#include <memory>
#include <string_view>

#include "engine/engine.h"
#include "engine/generation/chat_style.h"
#include "tests/fuzz/fuzz.h"

namespace llm::fuzz {

/// The model of tiny_model_path(), loaded.
inline std::shared_ptr<const Model> tiny_model(std::string_view name) {
  return must(Model::load(tiny_model_path(name), {.threads = 1, .hash_file = true}));
}

/// How it converses. @param model  outlives the style
inline std::shared_ptr<const ChatStyle> chatml_style(const Model& model) {
  return must(ChatStyle::create("chatml", std::string(ChatStyle::built_in_text("chatml")),
                                model.tokenizer()));
}

}  // namespace llm::fuzz
