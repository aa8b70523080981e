#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/ed25519.h"
#include "base/result.h"
#include "validate/provenance/receipt_log.h"

namespace llm {

struct ReceiptFigures {
  std::uint64_t logged = 0;
  std::uint64_t lost = 0;  ///< could not be written, or too many waited
};

/// The log of receipts (docs/receipts.md, "Logs") as one process appends to it: a thread that makes
/// the lines, signs, writes and syncs them, so that nobody waits for a disk. A line that cannot be
/// written is an error in the program's log, and the next one takes its number.
class ReceiptLogFile {
 public:
  /// Opens `folder`/receipts.jsonl, which goes on behind its last line, or makes both; cuts off,
  /// with a warning, what a crash has left of a line.
  /// @param key  none: lines are not signed. Errors: kIo, another process that writes it included;
  /// kMalformed for a last line that is none of such a log.
  static Result<std::unique_ptr<ReceiptLogFile>> open(const std::string& folder,
                                                      std::optional<SigningKey> key);
  /// Writes what waits.
  ~ReceiptLogFile();
  ReceiptLogFile(const ReceiptLogFile&) = delete;
  ReceiptLogFile& operator=(const ReceiptLogFile&) = delete;

  /// Appends a line, soon. Any thread, never waits. @param make  is called by the log's thread
  void add(std::function<Receipt()> make);
  ReceiptFigures figures() const;

 private:
  static constexpr std::size_t kMostWaiting = 4096;

  ReceiptLogFile(std::string path, std::optional<SigningKey> key)
      : path_(std::move(path)), key_(std::move(key)) {}
  Status go_on();
  void work();
  /// Whether the line is there.
  bool log_one(const std::function<Receipt()>& make) noexcept;
  void tell_of_sync() const noexcept;
  /// Errors: kIo, kResource; the file ends with a whole line, or will before the next one.
  Status append(const Receipt& receipt);
  Status cut();
  /// The path is still the open file's: who writes to a removed one loses all of it.
  Status check_place() const;
  Error refused() const;

  std::string path_;
  std::optional<SigningKey> key_;
  int descriptor_ = -1;
  LogHead head_;
  std::uint64_t size_ = 0;  ///< of the whole lines
  bool is_torn_ = false;    ///< there are bytes behind them
  bool fails_ = false;      ///< the last line could not be written

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  std::deque<std::function<Receipt()>> waiting_;
  ReceiptFigures figures_;
  bool stopped_ = false;

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace llm
