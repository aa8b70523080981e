#ifndef LLM_VALIDATE_REPORT_MARKUP_H_
#define LLM_VALIDATE_REPORT_MARKUP_H_

#include <string>
#include <string_view>

namespace llm {

/// Clean text (shown_report.h) made safe for XML and HTML, in elements and quoted attributes.
std::string escaped(std::string_view text);

/// Clean text made safe for Markdown, also in a table's cell: no markup, link or HTML begins in it.
std::string markdown_text(std::string_view text);

}  // namespace llm

#endif  // LLM_VALIDATE_REPORT_MARKUP_H_
