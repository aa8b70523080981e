// How replies are taken apart, and how that is found out from a template.

#include "tests/engine/reply_support.h"

namespace llm::test {
namespace {

using Call = ReplyFormat::Call;

const OrderedJson& tools() {
  static const OrderedJson list = OrderedJson::array(
      {function("weather", parse_ordered_json(R"({"city": {"type": "string", "description": "d"},
                                                "days": {"type": "integer", "description": "d"}})")),
       function("f2", parse_ordered_json(R"({"q": {"type": "string", "description": "d"}})"))});
  return list;
}

/// The parts in words: content as it is, <thought>, [name arguments], with ! where they are not
/// whole.
std::string in_words(const std::vector<ReplyPart>& parts) {
  std::string words;
  const ReplyPart* last = nullptr;
  for (const ReplyPart& part : parts) {
    const bool goes_on = last != nullptr && last->kind == part.kind;
    if (part.kind == ReplyPart::Kind::kContent) words += part.text;
    if (part.kind == ReplyPart::Kind::kThought) {
      if (goes_on) words.pop_back();
      words += (goes_on ? "" : "<") + part.text + ">";
    }
    if (part.kind == ReplyPart::Kind::kCall) words += "[" + part.call.name + " ";
    if (part.kind == ReplyPart::Kind::kArguments) words += part.text;
    if (part.kind == ReplyPart::Kind::kCallEnd) {
      CHECK(words.ends_with(part.call.name + " " + part.call.arguments));
      words += part.is_whole ? "]" : "!]";
    }
    last = &part;
  }
  return words;
}

/// What becomes of a reply, which is the same however it is cut.
std::string parsed(const ReplyFormat& format, const std::string& reply, bool is_thinking = false,
                   std::size_t most_calls = 128, bool is_cut = false) {
  std::string whole;
  for (const std::size_t step : {reply.size(), std::size_t{1}, std::size_t{2}, std::size_t{7}}) {
    const std::string words = in_words(
        pushed(ReplyParser(format, tools(), is_thinking, most_calls), reply, step, is_cut));
    if (step == reply.size()) whole = words;
    CAPTURE(reply, step);
    CHECK(words == whole);
  }
  return whole;
}

ReplyFormat hermes() { return usual_reply_format("<think></think>"); }

}  // namespace

TEST_CASE("a reply is taken apart into content, thoughts and calls", "[reply]") {
  const std::string call =
      "<tool_call>\n{\"name\": \"f2\", \"arguments\": {\"q\": \"a } \\\" b\"}}\n</tool_call>";
  const std::string is = "[f2 {\"q\":\"a } \\\" b\"}]";
  CHECK(parsed(hermes(), "Just text.\n") == "Just text.\n");
  CHECK(parsed(hermes(), " \n") == " \n");
  CHECK(parsed(hermes(), call) == is);
  CHECK(parsed(hermes(), "Let me see.\n\n" + call + "\n" + call + "\n") == "Let me see." + is + is);
  CHECK(parsed(hermes(), call + "\nDone. ") == is + "Done.");
  CHECK(parsed(hermes(), "<think>\nHm,\n\nwell.\n</think>\n\nYes. ") == "<Hm,\n\nwell.>Yes.");
  CHECK(parsed(hermes(), "Hm.\n</think>\n\n" + call, true) == "<Hm.>" + is);
  CHECK(parsed(hermes(), "cut off in thou", true) == "<cut off in thou>");
  CHECK(parsed(hermes(), "a <tool b <think") == "a <tool b <think");
  CHECK(parsed(hermes(), call + call, false, 1) == is);
}

TEST_CASE("calls in a list, and calls of a name and JSON", "[reply]") {
  ReplyFormat list;
  list.call = Call::kObject;
  list.begin = "[CALLS][";
  list.between = ", ";
  list.end = "]";
  const std::string one = R"({"name": "f2", "arguments": {"q": "x"}})";
  const std::string is = R"([f2 {"q":"x"}])";
  CHECK(parsed(list, "[CALLS][" + one + ", " + one + "] So.") == is + is + "So.");
  CHECK(parsed(list, "[CALLS][" + one + "]") == is);
  // Some models write the arguments as text.
  CHECK(parsed(list, R"([CALLS][{"name": "f2", "arguments": "{\"q\": \"x\"}"}])") == is);
  ReplyFormat named;
  named.call = Call::kJson;
  named.begin = "<call>";
  named.middle = "<args>";
  named.end = "</call>";
  CHECK(parsed(named, R"(<call>f2<args>{"q": "x"}</call>)") == is);
  CHECK(parsed(named, R"(<call>f2:0<args>{"q": "x"}</call>)") == is);  // Kimi counts calls
}

TEST_CASE("a value between marks is JSON unless its function takes a string", "[reply]") {
  ReplyFormat format;
  format.call = Call::kPairs;
  format.begin = "<call>";
  format.end = "</call>";
  format.key_begin = "<key>";
  format.key_end = "</key><value>";
  format.value_end = "</value>";
  CHECK(parsed(format,
               "<call>weather<key>city</key><value>7</value><key>days</key><value>\n7\n"
               "</value></call>") == R"([weather {"city":"7","days":7}])");
  CHECK(parsed(format, "<call>weather<key>city</key><value>\n a \n</value></call>") ==
        R"([weather {"city":" a "}])");
}

TEST_CASE("what is no call is content", "[reply]") {
  for (const char* text :
       {"<tool_call>\nnothing\n</tool_call>", "<tool_call>{\"name\": \"unknown\"}</tool_call>",
        "<tool_call>{\"name\": 7}</tool_call>",
        "<tool_call>{\"name\": \"f2\", \"arguments\": 7}</tool_call>",
        "<tool_call>{\"name\": \"f2\", \"argu", "<tool_call>", "{\"name\": \"f2\"}"}) {
    CHECK(parsed(hermes(), text) == text);
  }
  // No levels of nesting end the process.
  const std::string deep(100000, '[');
  const std::string text = "<tool_call>{\"name\": \"f2\", \"arguments\": {\"q\": " + deep +
                           std::string(100000, ']') + "}}";
  const auto parts = whole_parts(pushed(ReplyParser(hermes(), tools(), false), text, text.size()),
                                 UnfinishedCall::kContent);
  REQUIRE(parts.size() == 1);
  CHECK(parts[0].text == text);
  // Without tools nothing is looked for.
  const std::string call = "<tool_call>{\"name\": \"f2\"}</tool_call>";
  CHECK(in_words(pushed(ReplyParser(hermes(), nullptr, false), call, call.size())) == call);
}

TEST_CASE("a call without marks is the whole reply", "[reply]") {
  ReplyFormat format;
  format.call = Call::kObject;
  format.arguments_key = "parameters";
  CHECK(parsed(format, "{\"name\": \"f2\", \"parameters\": {\"q\": \"x\"}}") ==
        "[f2 {\"q\":\"x\"}]");
  CHECK(parsed(format, " {\"name\": \"f2\"} ") == "[f2 {}]");
  CHECK(parsed(format, "{\"name\": \"other\"}") == "{\"name\": \"other\"}");
  CHECK(parsed(format, "So {\"name\": \"f2\"}") == "So {\"name\": \"f2\"}");
}

TEST_CASE("gpt-oss's channels", "[reply]") {
  ReplyFormat format;
  format.call = Call::kChannels;
  CHECK(parsed(format,
               "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|"
               "message|>Hi.") == "<Hm.>Hi.");
  CHECK(parsed(format,
               "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary "
               "to=functions.f2 <|constrain|>json<|message|>{\"q\": \"x\"}") ==
        "<Hm.>[f2 {\"q\":\"x\"}]");
  CHECK(parsed(format, " to=functions.f2<|channel|>commentary json<|message|>{}") == "[f2 {}]");
  CHECK(parsed(format, " to=functions.unknown<|message|>{} So.") == "{} So.");
  CHECK(parsed(format, "Plain text.") == "Plain text.");
  CHECK(parsed(format, "<|channel|>final<|mess") == "");
}

TEST_CASE("the form of a call is read off from what a template writes", "[reply]") {
  // A template that writes `before` each call's name and arguments, as the words NAME and ARGS say.
  struct Case {
    const char* calls;  ///< the body of a loop over message.tool_calls
    Call call;
  };
  const Case cases[] = {
      {"<tool_call>\n{{ {'name': c.function.name, 'arguments': c.function.arguments} | tojson "
       "}}\n</tool_call>\n",
       Call::kObject},
      {"<|call|>{{ {'parameters': c.function.arguments, 'tool': c.function.name} | tojson "
       "}}<|done|>",
       Call::kObject},
      {"[CALLS]{{ c.function.name }}[ARGS]{{ c.function.arguments | tojson }}", Call::kJson},
      {"<begin>{{ c.function.name }}\n```json\n{{ c.function.arguments | tojson }}\n```<end>",
       Call::kJson},
      {"<invoke name=\"{{ c.function.name }}\">\n{% for k, v in c.function.arguments.items() "
       "%}<parameter name=\"{{ k }}\">{{ v }}</parameter>\n{% endfor %}</invoke>",
       Call::kPairs},
      {"<call>{{ c.function.name }}{% for k, v in c.function.arguments.items() %}<key>{{ k "
       "}}</key><value>{{ v }}</value>{% endfor %}</call>",
       Call::kPairs},
      {"{{ c.function.name }}({{ c.function.arguments | tojson }})", Call::kNone},
  };
  for (const Case& one : cases) {
    CAPTURE(one.calls);
    const ChatModel model = chat_model(calling_template("", one.calls, "", ""));
    CHECK(model.format.call == one.call);
    CHECK(model.format.knows_tools);
    if (one.call == Call::kNone) continue;
    const OrderedJson arguments = {{"city", "S\u00e3o \"P\" {x}"}, {"days", 3}};
    const OrderedJson calls =
        OrderedJson::array({{{"name", "weather"}, {"arguments", arguments}},
                            {{"name", "f2"}, {"arguments", {{"q", "a\nb"}}}}});
    CHECK(parsed(model.format, written(model, calls, "Well.")) ==
          "Well.[weather " + json_text(arguments) + "][f2 {\"q\":\"a\\nb\"}]");
  }
}

}  // namespace llm::test
