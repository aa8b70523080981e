// Receipts, and logs of them: what is read is written so that it is read the same.

#include "tests/fuzz/fuzz.h"
#include "validate/provenance/receipt.h"
#include "validate/provenance/receipt_log.h"

LLM_FUZZ(input) {
  using namespace llm;
  const std::string_view text = input.rest();
  const auto receipt = parse_receipt(text);
  if (receipt.ok()) {
    const std::string written = receipt_json(*receipt);
    const auto again = parse_receipt(written);
    fuzz::require(again.ok(), "a written receipt is one",
                  again.ok() ? "" : again.error().to_string());
    fuzz::require(receipt_json(*again) == written, "a receipt is read as it was written", written);
  }
  const auto lines = log_lines(text);
  std::size_t n = 0;
  for (const std::string_view line : lines) n += line.size();
  fuzz::require(n == text.size(), "lines are the log");
  const LogCheck check = check_log(text, nullptr, "");
  fuzz::require(check.n_lines == lines.size(), "each line is judged");
  for (const std::string_view line : lines) (void)receipt_of_line(line);
}
