#pragma once

#include <string>
#include <string_view>

#include "validate/report/report.h"

namespace llm {

/// Clean text made safe for XML and HTML, in elements and quoted attributes.
std::string escaped(std::string_view text);

/// The report as people may see it: every text one clean line of bounded length
/// (base/shown_text.h), since names come from files. Writers for people start with this; JSON keeps
/// the texts as they are.
Report shown_report(Report report);

}  // namespace llm
