// A vocabulary of any tokens, merges, kinds and flags, as a GGUF states it; then texts through it.

#include <vector>

#include "engine/gguf/gguf_writer.h"
#include "engine/model/vocab_from_gguf.h"
#include "quant/formats/block_traits.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/tokenizer_laws.h"
#include "tokenizer/byte_bpe/byte_alphabet.h"
#include "tokenizer/pre_tokenizer_rules.h"

namespace llm::fuzz {
namespace {

struct Tokens {
  std::vector<std::string> texts;
  std::vector<float> scores;
  std::vector<std::int32_t> kinds;

  void add(std::string text, float score, std::int32_t kind) {
    texts.push_back(std::move(text));
    scores.push_back(score);
    kinds.push_back(kind);
  }
};

void add_bytes(Tokens& tokens, bool is_bpe) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  for (unsigned b = 0; b < 256; ++b) {
    if (is_bpe) {
      tokens.add(std::string(spelling_of_byte(static_cast<std::uint8_t>(b))), 0, 1);
    } else {
      tokens.add({'<', '0', 'x', kHex[b / 16], kHex[b % 16], '>'}, 0, 6);
    }
  }
}

void add_ids(GgufWriter& writer, Input& input) {
  for (const char* key :
       {"bos_token_id", "eos_token_id", "unknown_token_id", "eot_token_id", "fim_pre_token_id",
        "fim_suf_token_id", "fim_mid_token_id", "padding_token_id"}) {
    const std::uint8_t id = input.byte();
    if (id < 250) writer.add_number<std::uint32_t>(std::string("tokenizer.ggml.") + key, id);
  }
}

/// The metadata of a file that has a vocabulary alone.
Result<std::vector<std::byte>> vocabulary(Input& input) {
  const std::uint8_t flags = input.byte();
  const bool is_bpe = (flags & 1) != 0;
  Tokens tokens;
  if ((flags & 2) != 0) add_bytes(tokens, is_bpe);
  GgufWriter writer;
  writer.add_string("tokenizer.ggml.model", is_bpe ? "gpt2" : "llama");
  const std::uint8_t pre = input.byte();
  const auto rules = all_pre_tokenizer_rules();
  const std::string_view pre_name = pre == 255 ? input.text() : rules[pre % rules.size()].name;
  if (is_bpe) writer.add_string("tokenizer.ggml.pre", pre_name);
  if ((flags & 4) != 0) writer.add_number("tokenizer.ggml.add_bos_token", (flags & 8) != 0);
  if ((flags & 16) != 0) writer.add_number("tokenizer.ggml.add_space_prefix", (flags & 32) != 0);
  if ((flags & 64) != 0) writer.add_number("tokenizer.ggml.add_eos_token", true);
  add_ids(writer, input);
  for (int n = input.byte(); n > 0 && !input.empty(); --n) {
    const auto kind = static_cast<std::int32_t>(input.byte() % 8);
    const auto score = static_cast<float>(static_cast<std::int8_t>(input.byte()));
    tokens.add(std::string(input.text()), score, kind);
  }
  std::vector<std::string> merges;
  for (int n = input.byte(); n > 0 && !input.empty(); --n) merges.emplace_back(input.text());
  if ((flags & 128) != 0) tokens.scores.push_back(0);  // one too many
  writer.add_strings("tokenizer.ggml.tokens", tokens.texts);
  if (!is_bpe || (flags & 128) != 0)
    writer.add_numbers<float>("tokenizer.ggml.scores", tokens.scores);
  writer.add_numbers<std::int32_t>("tokenizer.ggml.token_type", tokens.kinds);
  if (is_bpe) writer.add_strings("tokenizer.ggml.merges", merges);
  return writer.header();
}

}  // namespace
}  // namespace llm::fuzz

LLM_FUZZ(input) {
  using namespace llm;
  const auto bytes = fuzz::vocabulary(input);
  if (!bytes.ok()) return;
  const auto gguf = fuzz::must(GgufFile::parse(*bytes));
  std::vector<std::string> warnings;
  auto spec = vocab_from_gguf(gguf, warnings);
  if (!spec.ok()) return;
  const auto tokenizer = Tokenizer::create(*std::move(spec));
  fuzz::require(tokenizer.ok(), "a vocabulary that was read is one");
  const std::string_view text = input.part();
  fuzz::check_tokenizer(*tokenizer, text, input.rest());
}
