#pragma once

#include "tests/support/test.h"
#include "tests/support/tiny_gguf.h"

namespace llm::test {

/// One fault of docs/bad_input.md. Constant data: tables of it cost nothing to compile.
struct BadInputRow {
  const char* name;  ///< number and fault
  int exit_code;
  /// All of them (up to the first absent one) stand in the error, or in a warning of code 0.
  std::array<const char*, 4> words;
  void (*patch)(TinyGguf&);
};

/// Name, exit code, what is done to the model `m`, words.
#define ROW(name, code, patch, ...)                       \
  {                                                       \
    name, code, {__VA_ARGS__}, [](TinyGguf& m) { patch; } \
  }

/// Name, exit code, a key that `set` (a function of TinyGguf) gives a value, and words besides the
/// key.
#define KEY(name, code, key, set, value, ...) ROW(name, code, m.set(key, value), key, __VA_ARGS__)

/// Patches a small model for each row and checks code and words twice: of open_model_bytes(), and
/// of `llmgguf verify` on a file (where the message must also name program and file).
void check_rows(std::span<const BadInputRow> rows);

/// The same for a file that is there already; the library is not called.
void check_file(const std::string& path, int exit_code, const std::vector<std::string>& words,
                const std::vector<std::string>& flags = {});

}  // namespace llm::test
