#include "tools/common/signals.h"

#include <unistd.h>

#include <csignal>
#include <cstring>

#include "base/atomic_file.h"
#include "base/mapped_region.h"

namespace llm {
namespace {

// Written by handlers, so only types a handler may touch.
volatile std::sig_atomic_t pending_signal = 0;
volatile std::sig_atomic_t graceful_scopes = 0;
void (*volatile exit_hook)() = nullptr;
const char* tool_name = "";
volatile std::sig_atomic_t mends_mappings = 0;

void write_stderr(const char* text) {
  // Nothing is left to do when stderr itself fails.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, std::strlen(text));
}

/// No trace on the disk, and none on the terminal.
void clean_up() {
  remove_temporary_files();
  if (exit_hook != nullptr) exit_hook();
}

/// Ends the process at once.
[[noreturn]] void leave(int code) {
  clean_up();
  _exit(code);
}

void on_interrupt(int signal) {
  if (graceful_scopes == 0 || pending_signal != 0) leave(128 + signal);
  pending_signal = signal;
}

/// The process ends as the signal's default says, only cleaned up.
void on_fatal(int signal) {
  clean_up();
  std::signal(signal, SIG_DFL);
  raise(signal);
}

void on_bus_error(int signal, siginfo_t* info, void*) {
  if (info->si_code != BUS_ADRERR) {  // not a mapping past its file's end: a bug, so crash as one
    std::signal(signal, SIG_DFL);
    return;  // the faulting instruction runs again
  }
  if (mends_mappings != 0 && MappedRegion::mend_at(info->si_addr)) return;
  const char* const path = MappedRegion::named_at(info->si_addr);
  write_stderr(tool_name);
  write_stderr(": error: ");
  write_stderr(path == nullptr ? "a mapped file" : path);
  write_stderr(
      ": found fewer bytes than when it was opened, need an unchanged file; "
      "replace files by renaming, not in place\n");
  leave(4);
}

/// Unless the signal is ignored (a shell's background job, nohup) or has another's handler (a
/// sanitizer's): that wish is kept.
void handle(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  if (sigaction(signal, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) return;
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);  // no SA_RESTART: a read from the terminal must return
}

}  // namespace

void install_signal_handlers(const char* tool) {
  tool_name = tool;
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file size limit is a failed write
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) handle(signal, on_interrupt);
  for (const int signal : {SIGQUIT, SIGABRT, SIGSEGV, SIGILL, SIGFPE, SIGTRAP, SIGSYS, SIGALRM,
                           SIGVTALRM, SIGPROF, SIGUSR1, SIGUSR2, SIGXCPU, SIGPOLL, SIGPWR}) {
    handle(signal, on_fatal);
  }
  struct sigaction bus = {};
  bus.sa_sigaction = on_bus_error;
  bus.sa_flags = SA_SIGINFO;
  sigemptyset(&bus.sa_mask);
  sigaction(SIGBUS, &bus, nullptr);
}

GracefulInterrupt::GracefulInterrupt() { graceful_scopes = graceful_scopes + 1; }
GracefulInterrupt::~GracefulInterrupt() { graceful_scopes = graceful_scopes - 1; }
bool GracefulInterrupt::requested() { return pending_signal != 0; }
int GracefulInterrupt::exit_code() { return pending_signal == 0 ? 0 : 128 + pending_signal; }
void GracefulInterrupt::clear() { pending_signal = 0; }

void set_exit_hook(void (*hook)()) { exit_hook = hook; }

void outlive_mapped_files() { mends_mappings = 1; }

}  // namespace llm
