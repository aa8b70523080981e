#include "tokenizer/vocab_check.h"

#include <algorithm>
#include <bitset>
#include <cmath>
#include <limits>

#include "base/hex.h"
#include "base/shown_text.h"
#include "tokenizer/byte_bpe/byte_alphabet.h"
#include "tokenizer/pre_tokenizer_rules.h"

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

/// SentencePiece: tokens of kind kByte name all bytes or none.
std::optional<std::string> byte_token_fault(const VocabSpec& spec) {
  std::bitset<256> present;
  for (std::size_t id = 0; id < spec.tokens.size(); ++id) {
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

/// Byte-level BPE: every printable byte of ASCII has a token, the others may.
std::optional<std::string> alphabet_fault(const VocabSpec& spec) {
  std::bitset<256> present;
  for (std::size_t id = 0; id < spec.tokens.size(); ++id) {
    const auto& [text, score, kind] = spec.tokens[id];
    if (kind == TokenKind::kByte) {
      return fmt::format("found byte token id {} with text {}, need none in byte-level BPE", id,
                         quoted(text));
    }
    if (!takes_part_in_merges(kind) || text.size() > 2) continue;
    const auto bytes = bytes_of_spelling(text);
    if (bytes && bytes->size() == 1) present.set(static_cast<unsigned char>(bytes->front()));
  }
  for (std::size_t byte = 0x20; byte < 0x7F; ++byte) {
    if (present.test(byte)) continue;
    return fmt::format(
        "found no token {} for byte 0x{:02X}, need one for each printable byte of ASCII",
        quoted(spelling_of_byte(static_cast<std::uint8_t>(byte))), byte);
  }
  return std::nullopt;
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
  return spec.tokenizer == TokenizerKind::kByteBpe ? alphabet_fault(spec) : byte_token_fault(spec);
}

std::optional<std::string> unknown_fault(const VocabSpec& spec) {
  if (spec.tokenizer == TokenizerKind::kByteBpe || spec.unknown || has_byte_tokens(spec))
    return std::nullopt;
  return "found neither byte tokens nor an unknown token, need one";
}

bool takes_part_in_merges(TokenKind kind, TokenizerKind tokenizer) {
  return kind == TokenKind::kNormal || kind == TokenKind::kUnused ||
         (kind == TokenKind::kUserDefined && tokenizer == TokenizerKind::kSentencePiece);
}

std::optional<std::string> merge_fault(const VocabSpec& spec) {
  for (std::size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const auto& [left, right, joined] = spec.merges[rank];
    for (const TokenId id : {left, right, joined}) {
      if (auto fault = token_id_fault(id, spec.tokens.size()))
        return fmt::format("{} in merge {}", *fault, rank);
      const VocabSpec::Token& token = spec.tokens[static_cast<std::size_t>(id)];
      if (token.text.empty() || !takes_part_in_merges(token.kind, spec.tokenizer))
        return fmt::format("found token id {} in merge {}, need a normal token", id, rank);
    }
    const auto text = [&spec](TokenId id) -> std::string_view {
      return spec.tokens[static_cast<std::size_t>(id)].text;
    };
    const std::string_view whole = text(joined);
    if (whole.size() != text(left).size() + text(right).size() || !whole.starts_with(text(left)) ||
        !whole.ends_with(text(right)))
      return fmt::format("found {} in merge {}, need the spellings of its parts", quoted(whole),
                         rank);
  }
  return std::nullopt;
}

std::optional<std::string> pre_tokenizer_fault(const VocabSpec& spec) {
  if (spec.tokenizer != TokenizerKind::kByteBpe || find_pre_tokenizer_rule(spec.pre_tokenizer))
    return std::nullopt;
  return fmt::format("found {}, need one of {}", quoted(spec.pre_tokenizer), pre_tokenizer_names());
}

Status check_vocab(const VocabSpec& spec) {
  const std::size_t n_tokens = spec.tokens.size();
  LLM_RETURN_IF_ERROR(status_of("vocabulary", token_fault(spec)));
  LLM_RETURN_IF_ERROR(status_of("vocabulary", unknown_fault(spec)));
  LLM_RETURN_IF_ERROR(status_of("scores", score_fault(spec)));
  LLM_RETURN_IF_ERROR(status_of("merges", merge_fault(spec)));
  if (auto fault = pre_tokenizer_fault(spec)) {
    return Error{
        .code = ErrorCode::kUnsupported, .field = "pre-tokenizer", .message = *std::move(fault)};
  }
  LLM_RETURN_IF_ERROR(check_id("bos", spec.bos, n_tokens));
  LLM_RETURN_IF_ERROR(check_id("eos", spec.eos, n_tokens));
  LLM_RETURN_IF_ERROR(check_id("unknown", spec.unknown, n_tokens));
  const VocabSpec::FillInMiddle& fim = spec.fim;
  for (const auto& id :
       {fim.prefix, fim.suffix, fim.middle, fim.pad, fim.repository, fim.file_separator})
    LLM_RETURN_IF_ERROR(check_id("fill-in-the-middle", id, n_tokens));
  for (const TokenId id : spec.end_of_generation)
    LLM_RETURN_IF_ERROR(check_id("end of generation", id, n_tokens));
  return Ok{};
}

}  // namespace llm
