// Replies taken apart: the parts do not depend on how the text came.

#include <string>
#include <vector>

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

/// Parts of a kind joined, so that only what was found is compared.
std::string parts_of(const ReplyFormat& format, bool is_thinking, std::string_view text,
                     std::size_t step) {
  ReplyParser parser(format, tools(), is_thinking, 3);
  std::string all;
  auto last = ReplyPart::Kind::kCall;
  const auto add = [&](const std::vector<ReplyPart>& parts) {
    for (const ReplyPart& part : parts) {
      if (part.kind != last || part.kind == ReplyPart::Kind::kCall)
        all += "\x01" + std::to_string(static_cast<int>(part.kind));
      last = part.kind;
      all += part.text + part.call.name + '\x02' + part.call.arguments;
      if (part.kind != ReplyPart::Kind::kCall)
        all.pop_back();
      else
        require(parse_json(part.call.arguments).is_object(), "arguments are an object",
                part.call.arguments);
    }
  };
  for (std::size_t i = 0; i < text.size(); i += step) add(parser.push(text.substr(i, step)));
  add(parser.finish());
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
  const std::string whole = parts_of(format, is_thinking, text, text.size() + 1);
  for (const std::size_t step : {std::size_t{1}, std::size_t{2} + flags / 2U}) {
    const std::string cut = parts_of(format, is_thinking, text, step);
    require(cut == whole, "a reply's parts do not depend on its pieces", cut + "\n--\n" + whole);
  }
}
