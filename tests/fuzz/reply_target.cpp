// Replies taken apart: the parts do not depend on how the text came.

#include <string>
#include <vector>

#include "base/utf8.h"
#include "engine/chat/reply_parser.h"
#include "tests/fuzz/fuzz.h"

namespace llm::fuzz {
namespace {

using Call = ReplyFormat::Call;

ReplyFormat format_of(Call call) {
  ReplyFormat format = usual_reply_format("<think></think>");
  format.call = call;
  if (call == Call::kJson) format.middle = "<args>";
  if (call == Call::kPairs) {
    format.key_begin = "<k>";
    format.key_end = "</k>";
    format.value_end = "</v>";
  }
  return format;
}

const std::vector<ReplyFormat>& formats() {
  static const std::vector<ReplyFormat> all = [] {
    std::vector<ReplyFormat> made;
    for (const Call call : {Call::kNone, Call::kObject, Call::kJson, Call::kPairs, Call::kChannels})
      made.push_back(format_of(call));
    ReplyFormat list = format_of(Call::kObject);
    list.begin = "[CALLS][";
    list.between = ", ";
    list.end = "]";
    made.push_back(list);
    ReplyFormat bare = format_of(Call::kObject);
    bare.begin = bare.between = bare.end = "";
    bare.arguments_key = "parameters";
    made.push_back(bare);
    return made;
  }();
  return all;
}

const OrderedJson& tools() {
  static const OrderedJson list = parse_ordered_json(
      R"([{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":
         {"s":{"type":"string"},"n":{"type":"integer"},"o":{"type":["object","null"]}}}}},
         {"type":"function","function":{"name":"g"}}])");
  return list;
}

/// What a reply is in pieces of `step` bytes: whole calls, and content and thoughts joined.
std::string parts_of(const ReplyFormat& format, bool is_thinking, bool is_cut,
                     std::string_view text, std::size_t step) {
  ReplyParser parser(format, tools(), is_thinking, 3);
  std::vector<ReplyPart> parts;
  std::string arguments;
  const auto add = [&](std::vector<ReplyPart> more) {
    for (ReplyPart& part : more) {
      if (part.kind == ReplyPart::Kind::kCall) arguments.clear();
      if (part.kind == ReplyPart::Kind::kArguments) arguments += part.text;
      if (part.kind == ReplyPart::Kind::kCallEnd) {
        require(part.call.arguments == arguments, "arguments are what was given of them",
                part.call.arguments + "\n--\n" + arguments);
        if (part.is_whole)
          require(parse_json(arguments).is_object(), "arguments are an object", arguments);
      }
      parts.push_back(std::move(part));
    }
  };
  for (std::size_t i = 0; i < text.size(); i += step) add(parser.push(text.substr(i, step)));
  add(parser.finish(is_cut));
  std::string all;
  for (const ReplyPart& part :
       whole_parts(std::move(parts), is_cut ? UnfinishedCall::kCall : UnfinishedCall::kContent))
    all += "\x01" + std::to_string(static_cast<int>(part.kind)) + part.text + part.call.name +
           '\x02' + part.call.arguments;
  return all;
}

}  // namespace
}  // namespace llm::fuzz

LLM_FUZZ(input) {
  using namespace llm::fuzz;
  const auto& format = formats()[input.byte() % formats().size()];
  const std::uint8_t flags = input.byte();
  const bool is_thinking = (flags & 1) != 0;
  const std::string_view text = input.rest();
  if (!llm::is_valid_utf8(text)) return;  // a model's text is
  const bool is_cut = (flags & 2) != 0;
  const std::string whole = parts_of(format, is_thinking, is_cut, text, text.size() + 1);
  for (const std::size_t step : {std::size_t{1}, std::size_t{2} + flags / 2U}) {
    const std::string cut = parts_of(format, is_thinking, is_cut, text, step);
    require(cut == whole, "a reply's parts do not depend on its pieces", cut + "\n--\n" + whole);
  }
}
