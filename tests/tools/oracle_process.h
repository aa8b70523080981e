#pragma once

#include "tests/support/process.h"
#include "validate/reference/dump/dump.h"

namespace llm::test {

/// The value of an environment variable; `otherwise` where it is unset or empty.
inline std::string environment(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

inline std::string python() { return environment("LLM_PYTHON", "python3"); }

/// The exit code of a shell's command; what it says of a failure goes to the log.
inline int run(const std::string& command) {
  const auto finished = run_shell(command);
  if (finished.exit_code != 0) std::cerr << finished.err;
  return finished.exit_code;
}

/// Whether the oracle can run here; says why not.
inline bool oracle_available() {
  if (run(fmt::format("'{}' -c 'import numpy, gguf' 2>/dev/null", python())) == 0) return true;
  std::cerr << "SKIPPED: the oracle needs numpy and gguf; '" << python()
            << "' lacks them (set LLM_PYTHON)\n";
  return false;
}

/// What from_gguf.py makes of a model.
/// @param options  which tokens, and what is rounded
inline Dump oracle_dump(const std::string& model, const std::string& options,
                        const std::string& output) {
  const auto command = fmt::format("'{}' '{}/tools/reference_f64/from_gguf.py' '{}' {} -o '{}'",
                                   python(), LLM_SOURCE_DIR, model, options, output);
  REQUIRE(run(command) == 0);
  return require_ok(Dump::load(output));
}

}  // namespace llm::test
