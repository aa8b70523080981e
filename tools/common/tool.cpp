#include "tools/common/tool.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <pthread.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <new>
#include <optional>
#include <thread>
#include <vector>

#include "base/atomic_file.h"
#include "base/shown_text.h"
#include "tools/common/compat_options.h"
#include "tools/common/log.h"
#include "tools/common/option_pages.h"
#include "tools/common/signals.h"

namespace llm {
namespace {

struct StandardOptions {
  int verbose = 0;
  bool quiet = false;
  std::optional<Shell> completion;
  Color color = Color::kAuto;
};

void add_standard_options(OptionTable& table, StandardOptions& standard) {
  table.group("Messages and help");
  table.count("v,verbose", &standard.verbose,
              "print more messages on stderr; -vv prints even more");
  table.flag("q,quiet", &standard.quiet, "print errors only: no warnings, statistics or progress");
  table.choice("color", "WHEN", &standard.color,
               {{"auto", Color::kAuto}, {"always", Color::kAlways}, {"never", Color::kNever}},
               "colour in messages and reports; auto: on a terminal, unless the environment "
               "variable NO_COLOR is set");
  table.page(
      "h,help", [&table] { return help_page(table); }, "print this page");
  table.page(
      "version", [&table] { return version_line(table); }, "print the version");
  table
      .choice("completion", "SHELL", &standard.completion,
              {{"bash", Shell::kBash}, {"zsh", Shell::kZsh}, {"fish", Shell::kFish}},
              "print a completion script for this shell")
      .page = [&] { return completion(table, *standard.completion); };
  table.page(
      "help-markdown", [&table] { return markdown_page(table); }, "print this page in Markdown");
}

/// A file opened while descriptor 0, 1 or 2 is free would become stdin, stdout or stderr. The
/// stand-in has the wrong direction, so that reading and writing it fails with EBADF as before.
void occupy_standard_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(descriptor, F_GETFD) >= 0) continue;
    const int opened = open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    if (opened >= 0 && opened != descriptor) close(opened);
  }
}

/// @param words  the command line, the program first
Result<int> serve(OptionTable& table, std::span<char* const> words,
                  const std::function<Result<int>(const ToolContext&)>& body) {
  StandardOptions standard;
  add_standard_options(table, standard);
  add_foreign_options(table);
  const Status parsed = table.parse(words.subspan(std::min<std::size_t>(1, words.size())));
  // A page asked for is printed even where a required argument is missing.
  if (const auto page = table.wanted_page()) {
    LLM_RETURN_IF_ERROR(write_stdout(*page));
    return 0;
  }
  if (!parsed.ok()) {
    report_error(table.tool(), parsed.error());
    for (const Error& error : table.further_errors()) report_error(table.tool(), error);
    return Error{parsed.error().code, "", ""};  // which has been printed
  }
  const ToolContext context{
      .options = table, .command_line = words, .verbosity = standard.quiet ? -1 : standard.verbose};
  setup_log(table.tool(), context.verbosity, standard.color);
  std::string unused;
  for (const OptionTable::WithoutEffect& option : table.given_without_effect())
    unused += fmt::format("{}{} ({})", unused.empty() ? "" : ", ", option.name, option.why);
  if (!unused.empty()) spdlog::warn("without effect: {}", unused);
  return body(context);
}

Error system_error(std::string path, int number) {
  return in_file(Error{ErrorCode::kIo, "", std::strerror(number)}, std::move(path));
}

Result<std::string> read_all(int descriptor, const std::string& name, std::size_t limit) {
  std::string text;
  std::vector<char> buffer(std::size_t{1} << 16);
  while (true) {
    const ssize_t count = read(descriptor, buffer.data(), buffer.size());
    if (count < 0) return system_error(name, errno);
    if (count == 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(count));
    if (text.size() > limit) {
      return in_file(Error{ErrorCode::kResource, "",
                           fmt::format("found more than {} bytes, need at most that", limit)},
                     name);
    }
  }
}

constexpr const char* kNoMemory =
    "memory: an allocation failed, need more memory; close other programs or use a smaller model";
std::string_view tool_name;  // of this process

thread_local bool new_was_refused = false;

/// The new handler. It leaves a trace for end_without_memory(), which does not always get the
/// exception.
[[noreturn]] void refuse_memory() {
  new_was_refused = true;
  throw std::bad_alloc();
}

/// Whether what ends the process is a std::bad_alloc. Where the compiler ends a noexcept function
/// by a call of std::terminate(), as in libstdc++'s directory_iterator, the exception is on its way
/// and no handler has it, so that its type cannot be asked for.
bool ends_for_memory() noexcept {
  try {
    if (const auto active = std::current_exception()) std::rethrow_exception(active);
  } catch (const std::bad_alloc&) {
    return true;
  } catch (...) {
    return false;
  }
  return new_was_refused && std::uncaught_exceptions() > 0;
}

/// What std::bad_alloc calls where it cannot be caught: destructors that allocate (nlohmann's) and
/// some functions of libstdc++ may not throw. Everything else is a bug, which keeps its core.
[[noreturn]] void end_without_memory() noexcept {
  if (!ends_for_memory()) std::abort();
  write_error(tool_name, kNoMemory);
  remove_temporary_files();
  _exit(static_cast<int>(ErrorCode::kResource));
}

/// What the deepest bounded recursion needs, with room to spare.
constexpr std::size_t kStackBytes = std::size_t{8} << 20;

/// Gives threads to come stacks of kStackBytes where the system's limit (ulimit -s) is below that.
void enlarge_thread_stacks() noexcept {
  pthread_attr_t attributes;
  if (pthread_getattr_default_np(&attributes) != 0) return;
  std::size_t bytes = 0;
  if (pthread_attr_getstacksize(&attributes, &bytes) == 0 && bytes < kStackBytes &&
      pthread_attr_setstacksize(&attributes, kStackBytes) == 0)
    pthread_setattr_default_np(&attributes);
  pthread_attr_destroy(&attributes);
}

/// Runs `body` on a stack of kStackBytes: the main thread's, or another thread's where that is
/// smaller. Signals then go to the other threads, whose reads they interrupt.
template <typename Body>
int on_large_stack(const Body& body) noexcept {
  enlarge_thread_stacks();
  struct rlimit limit {};
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= kStackBytes) return body();
  int code = 0;
  std::thread thread;
  try {
    thread = std::thread([&] { code = body(); });
  } catch (const std::exception&) {
    return body();
  }
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  thread.join();
  return code;
}

/// Whether both paths name one file (device and inode), by whatever links.
bool is_same_file(const std::string& a, const std::string& b) {
  struct stat first {};
  struct stat second {};
  return ::stat(a.c_str(), &first) == 0 && ::stat(b.c_str(), &second) == 0 &&
         S_ISREG(first.st_mode) && first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

}  // namespace

int report_error(std::string_view tool, const Error& error) noexcept {
  const int code = static_cast<int>(error.code);
  if (error.message.empty()) return code;
  try {
    write_error(tool, error.to_string());
  } catch (...) {
    write_error(tool, error.message);
  }
  return code;
}

Status write_stdout(std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = write(STDOUT_FILENO, text.data(), text.size());
    if (count >= 0) {
      text.remove_prefix(static_cast<std::size_t>(count));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno == EPIPE || errno == EBADF) return Error{ErrorCode::kIo, "", ""};
    return system_error("stdout", errno);
  }
  return Ok{};
}

Status write_generated(std::string_view text) {
  return isatty(STDOUT_FILENO) == 1 ? write_stdout(terminal_text(text)) : write_stdout(text);
}

Result<std::string> read_stdin(std::size_t limit) { return read_all(STDIN_FILENO, "stdin", limit); }

Result<std::string> read_text_file(const std::string& path, std::size_t limit) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return system_error(path, errno);
  auto text = read_all(descriptor, path, limit);
  close(descriptor);
  return text;
}

int run_tool(int argc, char** argv, const std::function<OptionTable()>& make_table,
             const std::function<Result<int>(const ToolContext&)>& body) noexcept {
  const std::string_view path = argc > 0 ? argv[0] : "";
  const std::string_view tool = path.substr(path.rfind('/') + 1);
  const auto fail = [tool](ErrorCode code, const char* message) {
    write_error(tool, message);  // nothing here may allocate
    return static_cast<int>(code);
  };
  tool_name = tool;
  std::set_terminate(end_without_memory);
  std::set_new_handler(refuse_memory);
  occupy_standard_descriptors();
  install_signal_handlers(argc > 0 ? tool.data() : "");
  return on_large_stack([&] {
    try {
      OptionTable table = make_table();
      const Result<int> result = serve(table, {argv, static_cast<std::size_t>(argc)}, body);
      return result.ok() ? *result : report_error(tool, with_download_hint(result.error()));
    } catch (const std::bad_alloc&) {
      return fail(ErrorCode::kResource, kNoMemory);
    } catch (const std::exception& exception) {
      return fail(ErrorCode::kResource, exception.what());
    } catch (...) {
      return fail(ErrorCode::kResource, "found an unknown exception; please report this as a bug");
    }
  });
}

Status check_output(const std::string& what, const std::string& path,
                    std::span<const std::string> read, FileLock* held) {
  for (const std::string& source : read) {
    if (source.empty() || !is_same_file(path, source)) continue;
    return in_file(
        Error{
            ErrorCode::kUsage, what,
            fmt::format("found an input file ({}), need a different file, because it would be lost",
                        source)},
        path);
  }
  return AtomicFile::probe(path, held);
}

Status check_is_new(const std::string& what, const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return Ok{};
  Error error = usage_error(what, "found a file that exists, need a new one",
                            "--force replaces it when the result is complete");
  return in_file(std::move(error), path);
}

}  // namespace llm
