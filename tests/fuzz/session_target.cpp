// A chat's session.

#include "engine/generation/conversation.h"
#include "tests/fuzz/tiny_model.h"
#include "tools/llmrun/session_file.h"

LLM_FUZZ(input) {
  using namespace llm;
  // Without a hash, so that inputs stay right when the model is made again.
  static auto sequence = fuzz::must(
      open_sequence(fuzz::must(Model::load(fuzz::tiny_model_path("gemma3"), {.threads = 1})),
                    {.context = 64, .batch = 16}));
  static const auto style = fuzz::chatml_style(sequence->model());
  const fuzz::MemoryFile file(input.rest());
  auto loaded = load_session(file.path(), style, *sequence);
  if (!loaded.ok()) return;
  (void)(*loaded)->text();
  (void)(*loaded)->ask("So?", true);
}
