#include "validate/provenance/receipt_log.h"

#include <fmt/core.h>

#include <charconv>
#include <limits>
#include <span>
#include <system_error>

#include "base/json.h"
#include "base/json_members.h"
#include "base/sha256.h"

namespace llm {
namespace {

constexpr std::string_view kSignature = R"(,"signature":")";
constexpr std::string_view kSignatureEnd = "\"}\n";

std::string hash_of(std::string_view line) { return sha256_hex(std::as_bytes(std::span(line))); }

/// What a line is signed over, and its signature; nothing where it has none.
std::optional<std::pair<std::string_view, std::string_view>> signed_parts(std::string_view line) {
  const std::size_t at = line.rfind(kSignature);
  if (at == std::string_view::npos || !line.ends_with(kSignatureEnd)) return std::nullopt;
  std::string_view signature = line.substr(at + kSignature.size());
  signature.remove_suffix(kSignatureEnd.size());
  return std::pair(line.substr(0, at), signature);
}

struct Line {
  std::size_t number;
  std::string previous;
};

Result<Line> parse_line(std::string_view line) {
  if (!line.ends_with('\n'))
    return malformed_json("", fmt::format("{} bytes without a line break", line.size()),
                          "a whole line");
  LLM_TRY(const Json json, parse_json_object(line));
  const JsonMembers members(json, "");
  LLM_RETURN_IF_ERROR(members.format(kReceiptLogFormat));
  Line parsed;
  LLM_TRY(parsed.number, members.count("number", 1, std::numeric_limits<std::int64_t>::max()));
  LLM_TRY(parsed.previous, members.sha256("previous"));
  LLM_TRY([[maybe_unused]] const Json* receipt, members.object("receipt"));
  return parsed;
}

/// Why a line does not follow `head`, or nothing.
std::string fault_of(const Line& line, const LogHead& head) {
  if (line.number != head.n_lines + 1)
    return fmt::format(
        "number: found {}, need {}: one is missing, was put in, or is in another place",
        line.number, head.n_lines + 1);
  if (line.previous != head.sha256)
    return fmt::format(
        "previous: found {}, need {}, the SHA-256 of line {}: that one was changed, or this one "
        "put in",
        line.previous, head.sha256, head.n_lines);
  return "";
}

}  // namespace

Result<std::string> log_line(const LogHead& head, const Receipt& receipt, std::string_view time,
                             const SigningKey* key) {
  const OrderedJson json = {{"format", kReceiptLogFormat},
                            {"number", head.n_lines + 1},
                            {"time", time},
                            {"previous", head.sha256},
                            {"receipt", parse_ordered_json(receipt_json(receipt))}};
  std::string line = json_text(json);
  if (key != nullptr) {
    line.pop_back();
    LLM_TRY(const std::string signature, key->sign(line));
    return fmt::format("{}{}{}{}", line, kSignature, signature, kSignatureEnd);
  }
  return line + '\n';
}

Result<LogHead> head_of(std::string_view line) {
  LLM_TRY(const Line parsed, parse_line(line));
  return LogHead{parsed.number, hash_of(line)};
}

Result<Receipt> receipt_of_line(std::string_view line) {
  LLM_RETURN_IF_ERROR(parse_line(line));
  return parse_receipt(json_text(parse_json(line)["receipt"]));
}

std::vector<std::string_view> log_lines(std::string_view log) {
  std::vector<std::string_view> lines;
  while (!log.empty()) {
    const std::size_t end = log.find('\n');
    lines.push_back(log.substr(0, end == std::string_view::npos ? end : end + 1));
    log.remove_prefix(lines.back().size());
  }
  return lines;
}

ReceiptPlace receipt_place(std::string_view path) {
  constexpr std::string_view kLog = ".jsonl:";
  const std::size_t at = path.rfind(kLog);
  std::size_t line = 0;
  if (at != std::string_view::npos) {
    const std::string_view digits = path.substr(at + kLog.size());
    const auto [end, error] = std::from_chars(digits.begin(), digits.end(), line);
    if (error == std::errc() && end == digits.end() && line > 0)
      return {std::string(path.substr(0, at + kLog.size() - 1)), line};
  }
  return {std::string(path)};
}

Result<Receipt> receipt_at(const ReceiptPlace& place, std::string_view text) {
  if (place.line == 0) return parse_receipt(text);
  const auto lines = log_lines(text);
  if (place.line > lines.size())
    return Error{ErrorCode::kUsage, "line",
                 fmt::format("found {}, need 1..{}, the log's", place.line, lines.size())};
  return receipt_of_line(lines[place.line - 1]);
}

LogCheck check_log(std::string_view log, const PublicKey* key, std::string_view known_head) {
  LogCheck check;
  for (const std::string_view line : log_lines(log)) {
    const std::size_t at = ++check.n_lines;
    const auto parsed = parse_line(line);
    const std::string fault =
        parsed.ok() ? fault_of(*parsed, check.head) : parsed.error().to_string();
    if (!fault.empty()) check.chain.emplace_back(at, fault);
    if (key != nullptr) {
      const auto parts = signed_parts(line);
      if (!parts) {
        check.signatures.emplace_back(at, "signature: found none, need one");
      } else if (!key->verify(parts->first, parts->second)) {
        check.signatures.emplace_back(
            at, "signature: it is not this key's: the line was changed, or another key signed it");
      }
    }
    check.head = {parsed.ok() ? parsed->number : check.head.n_lines + 1, hash_of(line)};
    check.has_known_head = check.has_known_head || check.head.sha256 == known_head;
  }
  return check;
}

}  // namespace llm
