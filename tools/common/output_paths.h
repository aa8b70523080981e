#pragma once

#include <span>
#include <string>

#include "base/result.h"

namespace llm {

/// Tells, before the work, whether the result can be written to `path` (AtomicFile::probe), and
/// that it is none of the files the work reads, through whatever links. Call it for every file that
/// is written at the end.
/// @param what  the option or argument that names `path`
/// @param read  the paths that are read; empty ones and those that do not exist do not count
/// Errors: kUsage when it is one of `read`; kIo.
Status check_output(const std::string& what, const std::string& path,
                    std::span<const std::string> read);

}  // namespace llm
