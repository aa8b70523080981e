#pragma once

#include "validate/report/report.h"

namespace llm {

/// The report as people may see it: every text one clean line of bounded length
/// (base/shown_text.h), since names come from files. Writers for people start with this; JSON keeps
/// the texts as they are.
Report shown_report(Report report);

}  // namespace llm
