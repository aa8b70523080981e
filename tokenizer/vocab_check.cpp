#include "tokenizer/vocab_check.h"

#include <algorithm>
#include <bitset>
#include <cmath>
#include <limits>

#include "base/hex.h"
#include "base/shown_text.h"

namespace llm {
namespace {

Status status_of(std::string_view field, std::optional<std::string> fault) {
  if (!fault) return Ok{};
  return Error{
      .code = ErrorCode::kMalformed, .field = std::string(field), .message = *std::move(fault)};
}

Status check_id(std::string_view field, std::optional<TokenId> id, std::size_t n_tokens) {
  return id ? status_of(field, token_id_fault(*id, n_tokens)) : Ok{};
}

}  // namespace

bool has_byte_tokens(const VocabSpec& spec) {
  return std::ranges::any_of(
      spec.tokens, [](const VocabSpec::Token& token) { return token.kind == TokenKind::kByte; });
}

std::optional<std::uint8_t> byte_of_spelling(std::string_view spelling) {
  if (spelling.size() != 6 || !spelling.starts_with("<0x") || !spelling.ends_with('>'))
    return std::nullopt;
  const auto byte = hex_byte(spelling.substr(3, 2));
  if (!byte || spelling != fmt::format("<0x{:02X}>", *byte)) return std::nullopt;
  return byte;
}

std::optional<std::string> score_fault(const VocabSpec& spec) {
  for (std::size_t id = 0; id < spec.tokens.size(); ++id) {
    if (std::isnan(spec.tokens[id].score))
      return fmt::format("found NaN at index {}, need a number", id);
  }
  return std::nullopt;
}

std::optional<std::string> token_fault(const VocabSpec& spec) {
  const std::size_t n_tokens = spec.tokens.size();
  if (n_tokens == 0 || n_tokens > std::numeric_limits<TokenId>::max())
    return fmt::format("found {} tokens, need 1 to 2^31 - 1", n_tokens);
  std::bitset<256> present;
  for (std::size_t id = 0; id < n_tokens; ++id) {
    const VocabSpec::Token& token = spec.tokens[id];
    if (token.kind != TokenKind::kByte) continue;
    const auto byte = byte_of_spelling(token.text);
    if (!byte) {
      return fmt::format(
          "found byte token id {} with text {}, need <0x00> to <0xFF> in upper-case hex", id,
          quoted(token.text));
    }
    present.set(*byte);
  }
  if (present.all() || present.none()) return std::nullopt;
  std::size_t byte = 0;
  while (present.test(byte)) ++byte;
  return fmt::format("found {} byte tokens and no token id for <0x{:02X}>, need all 256",
                     present.count(), byte);
}

std::optional<std::string> unknown_fault(const VocabSpec& spec) {
  if (spec.unknown || has_byte_tokens(spec)) return std::nullopt;
  return "found neither byte tokens nor an unknown token, need one";
}

Status check_vocab(const VocabSpec& spec) {
  const std::size_t n_tokens = spec.tokens.size();
  LLM_RETURN_IF_ERROR(status_of("vocabulary", token_fault(spec)));
  LLM_RETURN_IF_ERROR(status_of("vocabulary", unknown_fault(spec)));
  LLM_RETURN_IF_ERROR(status_of("scores", score_fault(spec)));
  LLM_RETURN_IF_ERROR(check_id("bos", spec.bos, n_tokens));
  LLM_RETURN_IF_ERROR(check_id("eos", spec.eos, n_tokens));
  LLM_RETURN_IF_ERROR(check_id("unknown", spec.unknown, n_tokens));
  for (const TokenId id : spec.end_of_generation)
    LLM_RETURN_IF_ERROR(check_id("end of generation", id, n_tokens));
  return Ok{};
}

}  // namespace llm
