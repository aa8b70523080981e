#include "engine/chat/call_marks.h"

#include <algorithm>

#include "engine/chat/call_reader.h"
#include "engine/chat/value_reader.h"

namespace llm {
namespace {

using Text = std::string_view;

constexpr Text kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";

/// The size of the mark that `text` begins with: <...>, [NAME], or what no bracket closes; 0: none.
std::size_t mark_size(Text text) {
  if (text.starts_with('<')) {
    const std::size_t end = text.find_first_of("<>", 1);
    if (end == Text::npos) return text.size();
    return text[end] == '>' ? end + 1 : end;
  }
  if (!text.starts_with('[')) return 0;
  const std::size_t end = text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_/", 1);
  return end != Text::npos && end > 1 && text[end] == ']' ? end + 1 : 0;
}

/// What every mark of elements begins with, up to its bracket; mostly nothing.
Text mark_space(const ReplyFormat& format) {
  if (format.call != ReplyFormat::Call::kElements) return {};
  const Text key = without_spaces(format.key_begin);
  return key.ends_with('<') ? key.substr(0, key.size() - 1) : Text();
}

/// The marks of a text; what stands between them in `words`, as words, and in `plain`.
/// @param space  of all marks
std::vector<Text> marks_of(Text text, std::vector<std::string>& words, std::vector<Text>& plain,
                           Text space = {}) {
  std::vector<Text> marks;
  while (!space.empty() && text.find(space) != Text::npos) {
    text.remove_prefix(text.find(space));
    const Text mark = text.substr(0, text.find(space, space.size()));
    marks.push_back(without_spaces(mark));
    text.remove_prefix(mark.size());
    if (text.empty()) return marks;
  }
  while (!text.empty()) {
    std::size_t size = mark_size(text);
    if (size > 0) {
      marks.push_back(text.substr(0, size));
    } else {
      size = 1;
      while (size < text.size() && mark_size(text.substr(size)) == 0) ++size;
      Text piece = text.substr(0, size);
      if (const Text some = without_spaces(piece); some.size() > 1) plain.push_back(some);
      for (std::size_t at = 0; (at = piece.find_first_of(kLetters)) != Text::npos;) {
        piece.remove_prefix(at);
        at = std::min(piece.find_first_not_of(kLetters), piece.size());
        words.emplace_back(piece.substr(0, at));
        piece.remove_prefix(at);
      }
    }
    text.remove_prefix(size);
  }
  return marks;
}

void add_pair_marks(const ReplyFormat& format, MarkLexer& lexer) {
  lexer.add(format.key_begin, kBeginsKey);
  lexer.add(format.value_end, kEndsValue);
  // Something may stand between a name in quotation marks and the end of its mark.
  const Text key_end = without_spaces(format.key_end);
  if (key_end.starts_with('"') && key_end.ends_with('>')) {
    lexer.add("\"", kEndsKey);
    lexer.add(">", kBeginsValue);
    return;
  }
  std::vector<std::string> words;
  std::vector<Text> plain;
  const std::vector<Text> marks = marks_of(key_end, words, plain);
  const bool is_one = marks.size() < 2;
  lexer.add(is_one ? key_end : marks.front(), is_one ? kEndsKey | kBeginsValue : kEndsKey);
  if (!is_one) lexer.add(marks.back(), kBeginsValue);
}

}  // namespace

CallMarks call_marks(const ReplyFormat& format, bool has_tools) {
  CallMarks found;
  MarkLexer& lexer = found.lexer;
  lexer.add(format.think_begin, kBeginsThought);
  lexer.add(format.think_end, kEndsThought);
  if (format.call == ReplyFormat::Call::kChannels) {
    for (const Text mark : {"<|start|>", "<|channel|>"}) lexer.add(mark, kHeader);
    lexer.add("<|message|>", kMessage);
    lexer.add("<|end|>", kHeader | kEndsThought | kEndsCall);
    lexer.add("<|call|>", kEndsCall);
  }
  if (!has_tools) return found;
  lexer.add(ValueReader::kQuote, 0);
  lexer.add("```", kFence);
  std::vector<Text> plain;
  const Text space = mark_space(format);
  std::vector<Text> begin = marks_of(format.begin, found.words, plain, space);
  if (begin.empty() && !plain.empty()) begin.push_back(plain.front());
  plain.clear();
  std::vector<std::string> ignored;
  const std::vector<Text> end = marks_of(format.end, ignored, plain, space);
  for (const Text mark : begin) lexer.add(mark, kBeginsCall);
  for (const Text mark : end) lexer.add(mark, kEndsCall);
  for (const Text mark : marks_of(format.between, found.words, plain, space)) {
    const bool ends = std::ranges::find(end, mark) != end.end() || mark.starts_with("</");
    const bool is_of_middle = format.middle.find(mark) != std::string::npos;
    if (std::ranges::find(begin, mark) == begin.end() && !is_of_middle)
      lexer.add(mark, ends ? kEndsCall : kBeginsCall);
  }
  for (const std::string& mark : format.more_begins) lexer.add(mark, kBeginsCall);
  found.has_lines = format.key_end.ends_with('\n') || format.value_end.starts_with('\n');
  if (format.call == ReplyFormat::Call::kPairs) add_pair_marks(format, lexer);
  if (format.call == ReplyFormat::Call::kElements) {
    lexer.add(format.key_begin, kBeginsKey);
    lexer.add(format.value_end, kEndsValue);
  }
  return found;
}

}  // namespace llm
