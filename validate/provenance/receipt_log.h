#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ed25519.h"
#include "base/result.h"
#include "validate/provenance/receipt.h"

namespace llm {

// A log of receipts (docs/receipts.md, "Logs"): JSON Lines, each with the SHA-256 of the one
// before, and signed. Lines here have their line breaks.

inline constexpr std::string_view kReceiptLogFormat = "llm-receipt-log/1";
/// In the folder of a log.
inline constexpr std::string_view kReceiptLogFile = "receipts.jsonl";

/// The end of a log: all that the next line depends on.
struct LogHead {
  std::size_t n_lines = 0;
  std::string sha256 = std::string(64, '0');  ///< of the last line
};

/// The line that follows `head`. @param time  as it stands there. @param key  null: it is not
/// signed. Errors: SigningKey::sign()'s.
Result<std::string> log_line(const LogHead& head, const Receipt& receipt, std::string_view time,
                             const SigningKey* key);
/// The head that a line makes. Errors: kMalformed naming the field.
Result<LogHead> head_of(std::string_view line);
/// Errors: the same; parse_receipt()'s.
Result<Receipt> receipt_of_line(std::string_view line);

/// The lines of a log; the last one may be without its break.
std::vector<std::string_view> log_lines(std::string_view log);

/// A receipt's file, or a line of a log: "receipts.jsonl:7".
struct ReceiptPlace {
  std::string file;
  std::size_t line = 0;  ///< from 1; 0: the file is a receipt
};
ReceiptPlace receipt_place(std::string_view path);
/// @param text  of place.file. Errors: kUsage for a line that is not there; those of parsing
Result<Receipt> receipt_at(const ReceiptPlace& place, std::string_view text);

struct LogCheck {
  using Faults = std::vector<std::pair<std::size_t, std::string>>;  ///< number of a line, from 1
  std::size_t n_lines = 0;
  LogHead head;
  Faults chain;
  Faults signatures;
  bool has_known_head = false;
};

/// Holds each line against the one before it, and with a key against its signature. What is wrong
/// in one place is one line's fault: the others are judged by the lines that are there.
/// @param known_head  SHA-256 of a line that must be there; empty: none
LogCheck check_log(std::string_view log, const PublicKey* key, std::string_view known_head);

}  // namespace llm
