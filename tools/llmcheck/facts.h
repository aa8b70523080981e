#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tools/llmcheck/arguments.h"

namespace llm {

/// What a report says of the run that made it, in order: version, date (UTC), command line, model
/// and its hash, CPU, instruction set, threads.
/// @param command  argv; shown so that a shell reads the same words
std::vector<std::pair<std::string, std::string>> run_facts(const CheckArguments& arguments,
                                                           std::span<const char* const> command,
                                                           const std::string& path,
                                                           const std::string& sha256);

}  // namespace llm
