#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "engine/chat/reply_format.h"
#include "engine/chat/value_reader.h"

namespace llm {

/// Reads a call that is one object: {"name": NAME, "arguments": {...}}, its members in any order
/// and others beside them.
class ObjectReader {
 public:
  explicit ObjectReader(const ReplyFormat& format) : format_(format) {}

  enum class Step {
    kMore,
    kName,       ///< name() is known
    kArguments,  ///< `json` is a piece of the arguments
    kEnd,        ///< the object has ended
    kFailed,
  };
  /// @param is_strict  it has no members but those of calls
  void begin(bool is_strict);
  /// @pre the brace that opens it has been taken
  Step take(std::string_view text, std::string& json);
  const std::string& name() const { return name_; }
  /// From now on arguments are given as they come.
  void accept_name() { has_name_ = true; }
  /// All of them were given.
  bool is_given() const { return is_given_; }
  bool has_arguments() const { return has_arguments_; }
  /// Those that stood before the name, or are spelled as text; nothing: they are no object.
  std::optional<std::string> other_arguments() const;

 private:
  enum class State { kKey, kInKey, kColon, kValue, kNext };

  bool is_arguments() const;
  bool is_name() const;
  Step value(std::string_view text, std::string& json);
  Step end_value();

  const ReplyFormat& format_;
  State state_ = State::kKey;
  ValueReader reader_;
  std::string key_;
  std::string value_;
  std::string name_;
  std::string arguments_;
  bool is_strict_ = false;
  bool has_name_ = false;
  bool has_arguments_ = false;
  bool is_streamed_ = false;  ///< the value under way
  bool is_given_ = false;
};

}  // namespace llm
