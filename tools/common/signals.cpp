#include "tools/common/signals.h"

#include <unistd.h>

#include <csignal>
#include <cstring>

#include "base/shown_text.h"

namespace llm {
namespace {

// Written by handlers, so only types a handler may touch.
volatile std::sig_atomic_t pending_signal = 0;
volatile std::sig_atomic_t graceful_scopes = 0;
const char* tool_name = "";
char guarded_path[1024] = "a mapped file";

void write_stderr(const char* text) {
  // Nothing is left to do when stderr itself fails.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, std::strlen(text));
}

void on_interrupt(int signal) {
  if (graceful_scopes == 0 || pending_signal != 0) _exit(128 + signal);
  pending_signal = signal;
}

void on_bus_error(int signal, siginfo_t* info, void*) {
  if (info->si_code != BUS_ADRERR) {  // not a mapping past its file's end: a bug, so crash as one
    std::signal(signal, SIG_DFL);
    return;  // the faulting instruction runs again
  }
  write_stderr(tool_name);
  write_stderr(": error: ");
  write_stderr(guarded_path);
  write_stderr(
      ": found fewer bytes than when it was opened, need an unchanged file; "
      "replace files by renaming, not in place\n");
  _exit(4);
}

void handle(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);  // no SA_RESTART: a read from the terminal must return
}

}  // namespace

void install_signal_handlers(const char* tool) {
  tool_name = tool;
  std::signal(SIGPIPE, SIG_IGN);
  // A shell's background job starts with SIGINT ignored; that wish is kept.
  struct sigaction before = {};
  if (sigaction(SIGINT, nullptr, &before) == 0 && before.sa_handler != SIG_IGN) {
    handle(SIGINT, on_interrupt);
  }
  handle(SIGTERM, on_interrupt);
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

void guard_mapped_file(const std::string& path) {
  const std::string text = shown(path, sizeof guarded_path - 64);
  std::strncpy(guarded_path, text.c_str(), sizeof guarded_path - 1);
}

}  // namespace llm
