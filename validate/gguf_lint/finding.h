#pragma once

#include <string>

namespace llm {

/// Only what is above a note is a fault.
enum class Severity { kNote, kWarning, kError };

/// "note", "warning", "error".
inline const char* severity_name(Severity severity) {
  return severity == Severity::kNote      ? "note"
         : severity == Severity::kWarning ? "warning"
                                          : "error";
}

/// One thing that is wrong with a file, or worth knowing.
struct FileFinding {
  Severity severity = Severity::kError;
  std::string where = {};   ///< key, tensor or token; "file"
  std::string what = {};    ///< found V, need RULE
  std::string why = {};     ///< what its user sees of it
  std::string remedy = {};  ///< what to do
  std::string check = {};   ///< the name in the table of checks that found it
  std::string mend = {};    ///< what --fix writes; empty: metadata alone cannot mend it
};

}  // namespace llm
