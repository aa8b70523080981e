#ifndef LLM_VALIDATE_REPORT_MARKUP_H_
#define LLM_VALIDATE_REPORT_MARKUP_H_

#include <string>
#include <string_view>

namespace llm {

/// Text made safe for XML and HTML, in elements and quoted attributes. Control characters that XML
/// cannot hold become '?'.
std::string escaped(std::string_view text);

}  // namespace llm

#endif  // LLM_VALIDATE_REPORT_MARKUP_H_
