// Byte-level BPE against Hugging Face's `tokenizers` and llama.cpp's expectations
// (tests/golden/README.md).

#include "base/sha256.h"
#include "tests/tokenizer/tiny_bpe.h"
#include "tests/tokenizer/vocab_builder.h"
#include "tests/tokenizer/vocab_files.h"
#include "tokenizer/pre_tokenizer_rules.h"
#include "tokenizer/tokenizer.h"

namespace llm {
namespace {

const std::string kFolder = LLM_SOURCE_DIR "/tests/golden/bpe/";

/// Little-endian numbers of a golden file, one after another.
class Numbers {
 public:
  explicit Numbers(const std::string& name) : bytes_(test::read_file(kFolder + name)) {}

  std::uint32_t next(std::size_t size) {
    REQUIRE(at_ + size <= bytes_.size());
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < size; ++i)
      value |= std::uint32_t{static_cast<unsigned char>(bytes_[at_ + i])} << 8 * i;
    at_ += size;
    return value;
  }
  Ids next_ids() {
    Ids ids(next(2));
    for (TokenId& id : ids) id = static_cast<TokenId>(next(3));
    return ids;
  }
  bool at_end() const { return at_ == bytes_.size(); }

 private:
  std::string bytes_;
  std::size_t at_ = 0;
};

}  // namespace

TEST_CASE("2,000 random strings give the ids of Hugging Face's tokenizers", "[tokenizer][golden]") {
  const std::string name = GENERATE("llama-bpe", "qwen2");
  const auto path = test_data(name + "-vocab.gguf");
  if (!path) return;
  const Tokenizer tokenizer = tokenizer_of(*path);
  Numbers golden(name + ".ids");
  const auto texts = golden_texts();
  for (const std::string& text : texts) {
    const Ids ids = golden.next_ids();
    CAPTURE(text);
    CHECK(tokenizer.encode(text, {.add_bos = false}) == ids);
    CHECK(tokenizer.decode(ids) == text);
  }
  std::size_t n_marked = 0;
  for (const std::string& text : texts) {
    if (text.find("<|") == std::string::npos) continue;
    ++n_marked;
    const Ids ids = golden.next_ids();
    CAPTURE(text);
    CHECK(tokenizer.encode(text, {.add_bos = false, .parse_special = true}) == ids);
    CHECK(tokenizer.decode(ids, {.render_special = true}) == text);
  }
  CHECK(n_marked > 100);
  CHECK(golden.at_end());
}

TEST_CASE("every pre-tokenizer splits as the model's own does", "[tokenizer][golden]") {
  const auto texts = golden_texts();
  Numbers golden("tiny.rules");
  for (const PreTokenizerRule& rule : all_pre_tokenizer_rules()) {
    const auto tokenizer = test::require_ok(Tokenizer::create(tiny_bpe(std::string(rule.name))));
    for (const std::string& text : std::span(texts).first(800)) {
      const Ids ids = tokenizer.encode(text);
      CAPTURE(rule.name, text, ids);
      Sha256 hash;
      hash.update(std::as_bytes(std::span(ids)));
      const std::uint32_t expected = golden.next(4);
      const std::string hex = hash.hex();
      std::uint32_t found = 0;
      for (std::size_t i = 0; i < 4; ++i)
        found |= static_cast<std::uint32_t>(std::stoul(hex.substr(2 * i, 2), nullptr, 16)) << 8 * i;
      CHECK(found == expected);
      CHECK(tokenizer.decode(ids) == text);
    }
  }
  CHECK(golden.at_end());
}

TEST_CASE("llama.cpp's tests of byte-level vocabularies give its ids", "[tokenizer][golden]") {
  const std::string name = GENERATE("llama-bpe-vocab", "qwen2-vocab");
  const auto path = test_data(name + ".gguf");
  if (!path) return;
  check_llama_cpp(tokenizer_of(*path), name);
}

}  // namespace llm
