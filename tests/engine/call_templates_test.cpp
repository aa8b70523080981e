// Published templates: what form of calls is read off each, and that the calls which it writes into
// a history are read back as they were.

#include <cstdlib>
#include <filesystem>

#include "tests/base/texts.h"
#include "tests/engine/reply_support.h"

namespace llm::test::call_templates {
namespace {

using Call = ReplyFormat::Call;
using Kind = ReplyPart::Kind;

struct Known {
  Call call;
  std::size_t most_calls;  ///< that the template writes into one reply; 0: it leaves them out
  const char* names;       ///< of the templates, with blanks between
};

/// Templates that tell of functions or write calls. One that writes none is recognized by the marks
/// that it names.
constexpr Known kKnown[] = {
    {Call::kObject, 2,
     "Apriel-1.6-15b-Thinker-fixed Cohere2MoE CohereForAI-c4ai-command-r-plus-tool_use "
     "CohereForAI-c4ai-command-r7b-12-2024-tool_use MiMo-VL "
     "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use "
     "NousResearch-Hermes-3-Llama-3.1-8B-tool_use Qwen-QwQ-32B Qwen-Qwen2.5-7B-Instruct "
     "Qwen-Qwen3-0.6B ibm-granite-granite-4.0 ibm-granite-granite-4.1 "
     "mistralai-Mistral-Nemo-Instruct-2407 unsloth-Apriel-1.5"},
    {Call::kPairs, 2,
     "GLM-4.7-Flash MiniMax-M2 NVIDIA-Nemotron-3-Nano-30B-A3B-BF16 Qwen3-Coder Qwen3.5-4B "
     "deepseek-ai-DeepSeek-V4-Flash-0731 poolside-Laguna-S-2.1 poolside-Laguna-XS.2"},
    {Call::kObject, 1,
     "GigaChat3-10B-A1.8B GigaChat3.1-10B-A1.8B meta-llama-Llama-3.1-8B-Instruct "
     "meta-llama-Llama-3.2-3B-Instruct meta-llama-Llama-3.3-70B-Instruct"},
    {Call::kKeywords, 0, "LFM2-8B-A1B"},
    {Call::kKeywords, 2, "LFM2.5-8B-A1B"},
    {Call::kElements, 2, "MiniMax-M3"},
    {Call::kJson, 2,
     "Mistral-Small-3.2-24B-Instruct-2506 deepseek-ai-DeepSeek-R1-Distill-Llama-8B "
     "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B deepseek-ai-DeepSeek-V3.1 google-gemma-4-31B-it "
     "google-gemma-4-31B-it-interleaved llama-cpp-deepseek-r1 meetkai-functionary-medium-v3.2 "
     "mistralai-Ministral-3-14B-Reasoning-2512 moonshotai-Kimi-K2 "
     "unsloth-mistral-Devstral-Small-2507 upstage-Solar-Open-100B"},
    {Call::kObject, 0, "ibm-granite-granite-3.3-2B-Instruct"},
    {Call::kChannels, 1, "openai-gpt-oss-120b"},
};

std::map<std::string, Known> known_templates() {
  std::map<std::string, Known> all;
  for (const Known& known : kKnown)
    for (const std::string& name : split(known.names, " ")) all[name] = known;
  return all;
}

/// Templates whose calls are not read: Kimi-K2-Instruct's changes a list, which jinja2's sandbox
/// and so transformers forbid; muse-glimmer's names a function twice, before and inside its marks.
const std::set<std::string> kUnread = {"Kimi-K2-Instruct", "muse-glimmer"};

OrderedJson tools() {
  return OrderedJson::array(
      {function("save_note", parse_ordered_json(R"({
         "title": {"type": "string", "description": "d"},
         "count": {"type": "integer", "description": "d"},
         "ratio": {"type": "number", "description": "d"},
         "is_new": {"type": "boolean", "description": "d"},
         "tags": {"type": "array", "description": "d", "items": {"type": "string"}},
         "place": {"type": "object", "description": "d", "additionalProperties": {"type": "string"},
           "properties": {"x": {"type": "integer", "description": "d"},
                          "name": {"type": "string", "description": "d"}}}})"),
                "title"),
       function("get-time", {{"zone", {{"type", "string"}, {"description", "d"}}}}, "zone")});
}

const OrderedJson& calls() {
  static const OrderedJson all = parse_ordered_json(R"([
    {"name": "save_note", "arguments": {
      "title": "S\u00e3o \"P\"\n{x} <b>", "count": 3, "ratio": -0.5, "is_new": true,
      "tags": ["a", "b, c"], "place": {"x": 1, "name": "y"}}},
    {"name": "get-time", "arguments": {"zone": "Europe/Berlin"}}])");
  return all;
}

/// A user's question, the reply of n calls, and their results.
OrderedJson history(const ReplyFormat& format, std::size_t n) {
  OrderedJson reply = {{"role", "assistant"}, {"content", ""}};
  if (format.null_content) reply["content"] = nullptr;
  OrderedJson messages = OrderedJson::array({{{"role", "user"}, {"content", "zzquestion"}}, reply});
  for (std::size_t i = 0; i < n; ++i) {
    OrderedJson call = calls()[i];
    const std::string id = "abcdef00" + std::to_string(i);
    messages.push_back({{"role", "tool"},
                        {"tool_call_id", id},
                        {"name", call["name"]},
                        {"content", "zzresult" + std::to_string(i)}});
    if (format.text_arguments) call["arguments"] = json_text(call["arguments"]);
    messages[1]["tool_calls"].push_back({{"id", id}, {"type", "function"}, {"function", call}});
  }
  return messages;
}

/// What of the history is the model's, and what follows it up to the first result.
std::string written_reply(const std::string& asked, const std::string& whole) {
  auto at = static_cast<std::size_t>(std::ranges::mismatch(asked, whole).in1 - asked.begin());
  const std::size_t opened = at == 0 ? std::string::npos : whole.find_last_of("<[", at - 1);
  if (opened != std::string::npos &&
      whole.substr(opened, at - opened).find_first_of(">]") == std::string::npos)
    at = opened;
  const std::size_t result = whole.find("zzresult0", at);
  REQUIRE(result != std::string::npos);
  return whole.substr(at, result - at);
}

/// Checks that the reply, in pieces of `step` bytes, begins with these calls and nothing else.
void check_calls(const ReplyFormat& format, const std::string& reply, bool is_thinking,
                 std::size_t n, std::size_t step) {
  const auto parts = whole_parts(pushed(ReplyParser(format, tools(), is_thinking), reply, step),
                                 UnfinishedCall::kContent);
  REQUIRE(parts.size() >= n);
  for (std::size_t i = 0; i < n; ++i) {
    CAPTURE(i, parts[i].text);
    REQUIRE(parts[i].kind == Kind::kCall);
    CHECK(parts[i].call.name == calls()[i]["name"]);
    // Some templates write arguments in alphabetical order.
    CHECK(parse_json(parts[i].call.arguments) == parse_json(json_text(calls()[i]["arguments"])));
  }
}

}  // namespace

TEST_CASE("calls that published templates write are read back", "[reply][calls][golden]") {
  const char* data = std::getenv("LLM_TEST_DATA");
  if (data == nullptr) {
    WARN("SKIPPED: LLM_TEST_DATA is not set");
    return;
  }
  const auto templates = known_templates();
  std::size_t n_known = 0;
  for (const auto& file : std::filesystem::directory_iterator(std::string(data) + "/templates")) {
    const std::string name = file.path().stem();
    CAPTURE(name);
    const std::string jinja = read_file(file.path());
    const auto known = templates.find(name);
    if (known == templates.end()) {
      CHECK((kUnread.contains(name) || jinja.find("tool_calls") == std::string::npos));
      continue;
    }
    ++n_known;
    const ChatModel model = chat_model(jinja, {"</s>"});
    const ReplyFormat& format = model.format;
    CHECK(format.call == known->second.call);
    for (std::size_t n = 1; n <= known->second.most_calls; ++n) {
      const OrderedJson messages = history(format, n);
      const std::string asked =
          require_ok(model.render(OrderedJson::array({messages[0]}), tools(), true));
      const std::string reply =
          written_reply(asked, require_ok(model.render(messages, tools(), true)));
      CAPTURE(reply);
      const std::string end = asked.substr(0, asked.find_last_not_of(" \n") + 1);
      // Some templates end a thought of earlier replies that was never begun.
      const bool is_thinking = !format.think_begin.empty() &&
                               reply.find(format.think_end) != std::string::npos &&
                               (end.ends_with(format.think_begin) ||
                                reply.find(format.think_begin) == std::string::npos);
      for (const std::size_t step : {reply.size(), std::size_t{1}, std::size_t{3}})
        check_calls(format, reply, is_thinking, n, step);
    }
  }
  CHECK(n_known == 44);
}

TEST_CASE("calls that a template leaves out are read back as they are spelled for it",
          "[reply][calls]") {
  const std::string jinja =
      "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}<|{{ m.role "
      "}}|>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}";
  CHECK(chat_model(jinja).format.call == Call::kNone);
  const std::string mark = GENERATE("<|tool_call_start|>\n<|tool_call_end|>", "<|tool_call|>",
                                    "<TOOLCALL>\n</TOOLCALL>", "<tool_call>\n</tool_call>");
  CAPTURE(mark);
  const ReplyFormat format = chat_model(jinja, {}, "<s>\n" + mark).format;
  REQUIRE((format.knows_tools && !format.writes_calls));
  REQUIRE(format.call == (mark.starts_with("<|tool_call_start") ? Call::kKeywords : Call::kObject));
  OrderedJson list;
  for (const OrderedJson& call : calls()) {
    list.push_back(
        {{"function", {{"name", call["name"]}, {"arguments", json_text(call["arguments"])}}}});
    const std::string reply = text_of_calls(format, list);
    CAPTURE(reply);
    for (const std::size_t step : {reply.size(), std::size_t{1}, std::size_t{3}})
      check_calls(format, reply, false, list.size(), step);
  }
}

}  // namespace llm::test::call_templates
