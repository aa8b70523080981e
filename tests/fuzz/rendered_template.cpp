#include "tests/fuzz/rendered_template.h"

#include <chrono>
#include <fstream>
#include <iterator>

namespace llm::fuzz {

const ChatInput& template_input() {
  static const ChatInput made = [] {
    std::ifstream file(LLM_SOURCE_DIR "/tests/fuzz/jinja_conversation.json");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const OrderedJson json = parse_ordered_json(text);
    ChatInput input;
    input.messages = json.at("messages");
    input.tools = json.at("tools");
    input.variables = json.at("variables");
    input.bos_token = "<s>";
    input.eos_token = "</s>";
    using namespace std::chrono_literals;
    input.date = 2026y / 11 / 4;
    return input;
  }();
  return made;
}

Result<std::string> rendered(std::string jinja) {
  LLM_TRY(const auto parsed, ChatTemplate::parse(std::move(jinja)));
  LLM_TRY(const auto parts, parsed.render(template_input()));
  return chat_text(parts);
}

}  // namespace llm::fuzz
