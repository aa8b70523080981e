#pragma once

#include <string>
#include <string_view>

namespace llm {

/// Clean text (shown_report.h) made safe for XML and HTML, in elements and quoted attributes.
std::string escaped(std::string_view text);

/// Clean text made safe for Markdown, also in a table's cell: no markup, link or HTML begins in it.
std::string markdown_text(std::string_view text);

}  // namespace llm
