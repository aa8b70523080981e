#include <fmt/core.h>

#include <random>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/check.h"
#include "tokenizer/vocab_spec.h"
#include "tools/llmsynth/synthetic_model.h"

namespace llm {
namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581, a space in SentencePiece
constexpr std::size_t kLongestPiece = 14;

class VocabBuilder {
 public:
  void add(std::string text, TokenKind kind, float score) {
    tokens.push_back(std::move(text));
    kinds.push_back(static_cast<std::int32_t>(kind));
    scores.push_back(score);
  }

  std::vector<std::string> tokens;
  std::vector<std::int32_t> kinds;
  std::vector<float> scores;
};

/// Pieces of at most kLongestPiece bytes that each join two earlier ones, all different.
class Joiner {
 public:
  /// @param space  may begin a piece only
  Joiner(std::vector<std::string> characters, std::string_view space, std::uint64_t seed)
      : pieces_(std::move(characters)),
        seen_(pieces_.begin(), pieces_.end()),
        space_(space),
        random_(seed) {}

  void join_up_to(std::size_t n_pieces) {
    while (pieces_.size() < n_pieces) {
      const std::size_t left = random_() % pieces_.size();
      const std::size_t right = random_() % pieces_.size();
      std::string joined = pieces_[left] + pieces_[right];
      if (joined.size() > kLongestPiece || pieces_[right].starts_with(space_)) continue;
      if (!seen_.insert(joined).second) continue;
      merges_.push_back(pieces_[left] + ' ' + pieces_[right]);
      pieces_.push_back(std::move(joined));
    }
  }
  const std::vector<std::string>& pieces() const { return pieces_; }
  /// "left right" of each joined piece, in their order.
  const std::vector<std::string>& merges() const { return merges_; }

 private:
  std::vector<std::string> pieces_;
  std::vector<std::string> merges_;
  std::unordered_set<std::string> seen_;
  std::string_view space_;
  std::mt19937_64 random_;  // bare: distributions differ between standard libraries
};

/// GPT-2's characters for the 256 bytes (bytes_to_unicode() in OpenAI's gpt-2/src/encoder.py).
std::vector<std::string> byte_alphabet() {
  std::vector<std::string> out;
  unsigned next = 0x100;  // of bytes that Latin-1 does not print
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool printable = (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
    const unsigned code = printable ? byte : next++;
    if (code < 0x80) {
      out.emplace_back(1, static_cast<char>(code));
    } else {
      out.push_back(
          {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))});
    }
  }
  return out;
}

}  // namespace

void add_synthetic_byte_vocab(GgufWriter& writer, std::uint64_t n_vocab, std::uint64_t seed,
                              std::string_view pre_tokenizer) {
  LLM_CHECK(n_vocab >= 400);
  constexpr std::string_view kByteSpace = "\xC4\xA0";  // U+0120
  const std::vector<std::string> alphabet = byte_alphabet();
  std::vector<std::string> characters = {std::string(kByteSpace)};
  for (char c = '!'; c <= '~'; ++c) characters.emplace_back(1, c);
  const std::size_t n_characters = characters.size();
  Joiner joiner(std::move(characters), kByteSpace, seed);
  joiner.join_up_to(n_vocab - alphabet.size() - 2 + n_characters);
  VocabBuilder vocab;
  for (const std::string& text : alphabet) vocab.add(text, TokenKind::kNormal, 0);
  for (std::size_t i = n_characters; i < joiner.pieces().size(); ++i)
    vocab.add(joiner.pieces()[i], TokenKind::kNormal, 0);
  vocab.add("<|begin_of_text|>", TokenKind::kControl, 0);
  vocab.add("<|end_of_text|>", TokenKind::kControl, 0);

  writer.add_string("tokenizer.ggml.model", "gpt2");
  writer.add_string("tokenizer.ggml.pre", pre_tokenizer);
  writer.add_strings("tokenizer.ggml.tokens", vocab.tokens);
  writer.add_numbers<std::int32_t>("tokenizer.ggml.token_type", vocab.kinds);
  writer.add_strings("tokenizer.ggml.merges", joiner.merges());
  const auto last = static_cast<std::uint32_t>(n_vocab - 1);
  writer.add_number<std::uint32_t>("tokenizer.ggml.bos_token_id", last - 1);
  writer.add_number<std::uint32_t>("tokenizer.ggml.eos_token_id", last);
  writer.add_number<bool>("tokenizer.ggml.add_bos_token", true);
}

void add_synthetic_vocab(GgufWriter& writer, std::uint64_t n_vocab, std::uint64_t seed) {
  LLM_CHECK(n_vocab >= 400);
  VocabBuilder vocab;
  vocab.add("<unk>", TokenKind::kUnknown, 0);
  vocab.add("<s>", TokenKind::kControl, 0);
  vocab.add("</s>", TokenKind::kControl, 0);
  for (int byte = 0; byte < 256; ++byte) {
    vocab.add(fmt::format("<0x{:02X}>", byte), TokenKind::kByte, 0);
  }
  std::vector<std::string> pieces = {std::string(kSpace)};
  for (char c = '!'; c <= '~'; ++c) pieces.emplace_back(1, c);
  const std::size_t n_characters = pieces.size();
  Joiner joiner(std::move(pieces), kSpace, seed);
  joiner.join_up_to(n_vocab - vocab.tokens.size());
  // Joined pieces score by age, oldest first; characters, which no merge makes, come last as in
  // real files.
  float score = 0;
  const std::vector<std::string>& all = joiner.pieces();
  for (std::size_t i = n_characters; i < all.size(); ++i)
    vocab.add(all[i], TokenKind::kNormal, score--);
  for (std::size_t i = 0; i < n_characters; ++i) vocab.add(all[i], TokenKind::kNormal, score--);

  writer.add_string("tokenizer.ggml.model", "llama");
  writer.add_strings("tokenizer.ggml.tokens", vocab.tokens);
  writer.add_numbers<float>("tokenizer.ggml.scores", vocab.scores);
  writer.add_numbers<std::int32_t>("tokenizer.ggml.token_type", vocab.kinds);
  writer.add_number<std::uint32_t>("tokenizer.ggml.unknown_token_id", 0);
  writer.add_number<std::uint32_t>("tokenizer.ggml.bos_token_id", 1);
  writer.add_number<std::uint32_t>("tokenizer.ggml.eos_token_id", 2);
  writer.add_number<bool>("tokenizer.ggml.add_bos_token", true);
  writer.add_number<bool>("tokenizer.ggml.add_eos_token", false);
}

}  // namespace llm
