#pragma once

#include <string>

#include "base/result.h"

namespace llm {

/// The GGUF a dump was made from: the file with that SHA-256 among `*.gguf` in the dump's own
/// directory, the working directory and its models/, in this order.
/// Errors: kIo naming the hash and the directories when there is none.
/// Cost: hashes every candidate until it is found.
Result<std::string> find_model_by_hash(const std::string& sha256, const std::string& dump_path);

}  // namespace llm
