#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace llm {

/// Reads one value as models write them and gives its JSON as it comes, without white space between
/// its parts. Beside JSON it takes
///
///   'text', True, None            Python's spellings
///   {key: value}                  names without quotes
///   (key=value)                   at the outside: an object
///   <|"|>text<|"|>                Gemma's strings, which have no escapes
///   line breaks in strings, escapes that JSON has not, a comma behind the last part
///
/// Numbers and strings keep their characters. At every moment what was given is the beginning of
/// JSON. Cost: linear.
class ValueReader {
 public:
  static constexpr std::string_view kQuote = "<|\"|>";

  enum class Step {
    kMore,
    kDone,
    kFailed,  ///< no value goes on like that
  };
  /// @param text  a character, or kQuote. @param json  is appended to
  /// @param is_taken  false: the value has ended before
  Step take(std::string_view text, std::string& json, bool& is_taken);
  /// The text ends: whether it was a whole value.
  bool finish(std::string& json);
  /// No value has begun.
  bool is_blank() const { return state_ == State::kValue && open_.empty(); }

 private:
  enum class State { kValue, kToken, kString, kEscape, kCode, kKey, kName, kColon, kNext, kEnd };

  Step step(char c, std::string& json, bool& is_taken);
  Step begin_value(char c, std::string& json);
  Step open(char bracket, std::string& json);
  Step close(char bracket, std::string& json);
  Step key(char c, std::string& json);
  Step colon(char c, std::string& json);
  Step next(char c, std::string& json);
  Step escape(char c, std::string& json);
  Step code(char c, std::string& json);
  void begin_string(char quote, bool is_key, std::string& json);
  void end_string(std::string& json);
  void add_code(std::string code, std::string& json);
  void end_pair(std::string& json);
  bool end_token(std::string& json);
  void add_comma(std::string& json);
  Step after_value();

  State state_ = State::kValue;
  std::string open_;   ///< brackets, the outermost first
  std::string token_;  ///< of numbers and words; digits of an escape behind its letter
  std::string high_;   ///< a code whose other half is due
  char quote_ = '"';   ///< that ends the string; '|': kQuote
  bool is_key_ = false;
  bool needs_comma_ = false;  ///< before the next part
};

/// A character as it stands in a JSON string.
void append_escaped(char c, std::string& json);
/// The JSON of a text that is one value, with white space around it or none.
std::optional<std::string> json_of_value(std::string_view text);

}  // namespace llm
