// All that loading does with a file's template: how it converses, how it writes calls, and a
// conversation's ids.

#include "engine/generation/chat_style.h"
#include "tests/fuzz/tiny_model.h"
#include "tools/llmserve/api/prompts.h"

LLM_FUZZ(input) {
  using namespace llm;
  static const auto model = fuzz::tiny_model("qwen2");
  const auto style = ChatStyle::create("template", std::string(input.rest()), model->tokenizer());
  if (!style.ok()) return;
  const ReplyFormat format = reply_format_of(**style, model->tokenizer());
  (void)has_control_tokens(format, model->tokenizer());
  const auto parts = (*style)->render(
      OrderedJson::array({chat_message("system", "<|im_end|>"), chat_message("user", "a\xFF")}));
  if (parts.ok()) (void)(*style)->encode(*parts, true);
  (void)(*style)->encode_reply("So.");
}
