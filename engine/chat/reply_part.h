#pragma once

#include <string>

namespace llm {

/// A call of a function, as a model wrote it.
struct FunctionCall {
  std::string name;
  std::string arguments;  ///< JSON of an object
};

/// What a reply grows by.
struct ReplyPart {
  enum class Kind {
    kContent,
    kThought,
    kCall,       ///< a call begins, of `call.name`; or all of it, in whole_parts()
    kArguments,  ///< its arguments go on by `text`
    kCallEnd,    ///< it ends; `call` is all of it, `text` what the model wrote
  };
  Kind kind;
  std::string text;
  FunctionCall call = {};
  /// Of kCallEnd: the arguments are complete. Else they are no JSON, so that nobody takes a part of
  /// them for all.
  bool is_whole = true;
};

}  // namespace llm
