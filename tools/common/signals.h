#pragma once

namespace llm {

/// Installs the process's signal handling; run_tool calls it.
///
/// SIGPIPE and SIGXFSZ are ignored, so writing to a closed pipe or beyond a size limit is an error
/// like any other. SIGINT, SIGTERM and SIGHUP end the process at once with 130, 143 and 129, except
/// while a GracefulInterrupt lives. SIGBUS from a mapped file that became shorter ends it with 4
/// and names the file, unless outlive_mapped_files(). After any signal but SIGKILL no temporary
/// file stays.
/// @param tool  must outlive the process's end (argv[0] or a literal)
void install_signal_handlers(const char* tool);

/// While one lives, the first SIGINT, SIGTERM or SIGHUP only sets a flag; a second one still ends
/// the process at once. Make one where partial output is worth finishing.
class GracefulInterrupt {
 public:
  GracefulInterrupt();
  ~GracefulInterrupt();
  GracefulInterrupt(const GracefulInterrupt&) = delete;
  GracefulInterrupt& operator=(const GracefulInterrupt&) = delete;

  /// Whether a signal came. A plain load: ask as often as you like.
  static bool requested();
  /// 130, 143 or 129 for the signal that came, 0 for none.
  static int exit_code();
  /// Forgets the signal: a chat goes on after an interrupted reply.
  static void clear();
};

/// Called before a signal ends the process, to give the terminal back as it was. It may do what a
/// signal handler may. nullptr: nothing.
void set_exit_hook(void (*hook)());

/// From now on SIGBUS from a mapped file that became shorter does not end the process: the read
/// goes on with zeros, and MappedFile::check_unchanged() is an error. For who asks that before
/// anything that came from a mapped file is given out.
void outlive_mapped_files();

}  // namespace llm
