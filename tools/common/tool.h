#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/file_lock.h"
#include "base/result.h"
#include "tools/common/options.h"

namespace llm {

/// What every tool does, so that a tool is its option table and one function:
///
///   int main(int argc, char** argv) { return run_tool(argc, argv, make_table, run); }

struct ToolContext {
  const OptionTable& options;           ///< as parsed
  std::span<char* const> command_line;  ///< as main() got it
  int verbosity = 0;                    ///< -1 for -q, else the number of -v

  bool quiet() const { return verbosity < 0; }
};

/// Exit code of a verdict that failed (a check found a difference). Errors have their ErrorCode's.
inline constexpr int kExitVerdictFailed = 1;
/// Exit code of a check that all of its input did not decide.
inline constexpr int kExitUndecided = 9;

/// Makes the option table, adds --help, --version, --completion, --help-markdown, --color,
/// -v and -q to it, parses, serves the pages, sets up log and signals, runs `body` and reports its
/// error.
///
/// Nothing escapes: std::bad_alloc, in the table's making too, becomes exit code 5; a failed write
/// to stdout 4, quietly when the reader is gone; a failed write to stderr changes nothing.
/// Opens /dev/null in place of closed standard descriptors, so that no file ever takes their place.
/// @param make_table, body  capture at most two references, so that passing them allocates nothing
/// @param body  the exit code, or the error to report
int run_tool(int argc, char** argv, const std::function<OptionTable()>& make_table,
             const std::function<Result<int>(const ToolContext&)>& body) noexcept;

/// The same with arguments, which are made inside: their texts need memory, which may be refused.
/// @param run  takes Arguments and a ToolContext
template <typename Arguments, typename Run>
int run_tool(int argc, char** argv, OptionTable (*make_table)(Arguments&), Run run) noexcept {
  std::optional<Arguments> arguments;
  return run_tool(
      argc, argv, [&] { return make_table(arguments.emplace()); },
      [&](const ToolContext& context) { return run(*arguments, context); });
}

/// Prints `TOOL: error: ERROR` on stderr, unless the error's message is empty.
/// @return the exit code
int report_error(std::string_view tool, const Error& error) noexcept;

/// The first error of several steps that are all taken: results are not lost because a report, a
/// receipt or stdout could not be written.
class FirstError {
 public:
  void add(Status status) {
    if (first_.ok()) first_ = std::move(status);
  }
  const Status& status() const { return first_; }

 private:
  Status first_ = Ok{};
};

/// Writes all of `text` to stdout and flushes it. Results go through here, never through printf.
/// Errors: kIo with the system's words; with an empty message (quiet) when nobody reads stdout.
Status write_stdout(std::string_view text);

/// Writes text that a model made to stdout. It is the result, so its bytes stay as they are, except
/// on a terminal, which no model may steer: there its control characters become escapes.
Status write_generated(std::string_view text);

/// The whole of stdin, or of the file at `path`, at most `limit` bytes.
/// Errors: kIo; kResource with both numbers for a larger one.
Result<std::string> read_stdin(std::size_t limit);
Result<std::string> read_text_file(const std::string& path, std::size_t limit);

/// `result`, its error with the file set.
template <typename T>
Result<T> in_file(Result<T> result, std::string_view file) {
  if (result.ok()) return result;
  return in_file(std::move(result).error(), file);
}

/// What `parse` makes of the text of the file at `path`, which every error names.
template <typename T>
Result<T> parse_file(const std::string& path, std::size_t limit,
                     Result<T> (*parse)(std::string_view)) {
  LLM_TRY(const std::string text, read_text_file(path, limit));
  return in_file(parse(text), path);
}

/// Tells, before the work, whether the result can be written to `path` (AtomicFile::probe), and
/// that it is none of the files the work reads, through whatever links. Call it for every file that
/// is written at the end.
/// @param what  the option or argument that names `path`
/// @param read  the paths that are read; empty ones and those that do not exist do not count
/// @param held  the caller's lock of the file (AtomicFile::create())
/// Errors: kUsage when it is one of `read`; kIo.
Status check_output(const std::string& what, const std::string& path,
                    std::span<const std::string> read, FileLock* held = nullptr);

/// Errors: kUsage where `path` is a file that exists, with a hint at --force.
Status check_is_new(const std::string& what, const std::string& path);

}  // namespace llm
