#include "tools/llmsynth/synthetic_vocab.h"

#include <fmt/core.h>

#include <random>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/check.h"
#include "tokenizer/vocab_spec.h"

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

}  // namespace

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
  std::unordered_set<std::string> seen(pieces.begin(), pieces.end());
  // Only the bare generator: distributions differ between standard libraries.
  std::mt19937_64 random(seed);
  const std::size_t n_pieces = n_vocab - vocab.tokens.size();
  while (pieces.size() < n_pieces) {
    const std::string& left = pieces[random() % pieces.size()];
    const std::string& right = pieces[random() % pieces.size()];
    const std::string joined = left + right;
    if (joined.size() > kLongestPiece || right.starts_with(kSpace)) continue;
    if (seen.insert(joined).second) pieces.push_back(joined);
  }
  // Joined pieces score by age, oldest first; characters, which no merge makes, come last as in
  // real files.
  float score = 0;
  for (std::size_t i = n_characters; i < pieces.size(); ++i) {
    vocab.add(pieces[i], TokenKind::kNormal, score--);
  }
  for (std::size_t i = 0; i < n_characters; ++i) vocab.add(pieces[i], TokenKind::kNormal, score--);

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
