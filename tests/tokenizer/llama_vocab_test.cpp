// The Llama vocabulary of 32,000 tokens, read from a GGUF, against llama.cpp's expectations and the
// real SentencePiece library (tests/golden/README.md); small ones with every kind of piece as well.

#include "base/sha256.h"
#include "tests/support/json.h"
#include "tests/tokenizer/odd_vocabs.h"
#include "tests/tokenizer/vocab_builder.h"
#include "tests/tokenizer/vocab_files.h"
#include "tokenizer/tokenizer.h"

namespace llm {
namespace {

std::optional<Tokenizer> llama_tokenizer() {
  const auto path = test_data("llama-spm-vocab.gguf");
  if (!path) return std::nullopt;
  return tokenizer_of(*path);
}

/// The 1,000 strings of tests/golden/spm/<name>.
void check_golden(const Tokenizer& tokenizer, const std::string& name) {
  std::ifstream file(LLM_SOURCE_DIR "/tests/golden/spm/" + name);
  std::size_t lines = 0;
  for (std::string line; std::getline(file, line); ++lines) {
    const auto golden = test::parse_json(line);
    const auto text = golden.at("text").get<std::string>();
    const auto ids = golden.at("ids").get<Ids>();
    CAPTURE(lines, line);
    CHECK(tokenizer.encode(text, {.add_bos = false}) == ids);
    CHECK(tokenizer.decode(ids) == golden.value("decoded", text));
  }
  REQUIRE(lines == 1000);
}

constexpr EncodeOptions kPlain = {.add_bos = false};

}  // namespace

TEST_CASE("llama.cpp's vocabulary test gives its ids", "[tokenizer][golden]") {
  const auto tokenizer = llama_tokenizer();
  if (!tokenizer) return;
  check_llama_cpp(*tokenizer, "llama-spm-vocab");
}

TEST_CASE("random Unicode strings give SentencePiece's ids", "[tokenizer][golden]") {
  const auto tokenizer = llama_tokenizer();
  if (!tokenizer) return;
  check_golden(*tokenizer, "llama.jsonl");
}

TEST_CASE("the embedded model's vocabulary gives SentencePiece's ids", "[tokenizer][golden]") {
  check_golden(tokenizer_of(LLM_SOURCE_DIR "/models/fable-3m-f16.gguf"), "fable-3m.jsonl");
}

TEST_CASE("odd vocabularies tokenize as SentencePiece does", "[tokenizer][golden]") {
  std::size_t cases = 0;
  for (const OddVocab& vocab : odd_vocabs()) {
    const auto tokenizer = test::require_ok(Tokenizer::create(vocab.spec));
    for (const auto& [text, ids, decoded] : vocab.cases) {
      CAPTURE(cases, text);
      CHECK(tokenizer.encode(text, {.add_bos = false}) == ids);
      CHECK(tokenizer.decode(ids) == decoded);
      ++cases;
    }
  }
  REQUIRE(cases == 720);
}

TEST_CASE("a megabyte gives SentencePiece's ids", "[tokenizer][golden]") {
  const auto tokenizer = llama_tokenizer();
  if (!tokenizer) return;
  // Number of ids and SHA-256 over them as little-endian i32, by the real library (0.2.3).
  const auto [unit, count, hash] = GENERATE(table<std::string, std::size_t, std::string>(
      {{"a", 262146, "22cbba486e62e3a25194daa1f2c22fa42468d8b7eb3789ebda4e17667d6e225c"},
       {" ", 65537, "6d25c935b78501b016710636ba347e099c880fceea7641a0f3fba7c07f4cd89a"},
       {"the cat ", 262145, "f68aee499dfbde9aafd870c248c7738191b25e36c9118785963ee819dccf30ba"}}));
  std::string text;
  while (text.size() < std::size_t{1} << 20) text += unit;
  const Ids ids = tokenizer->encode(text, kPlain);
  CHECK(ids.size() == count);
  CHECK(sha256_hex(std::as_bytes(std::span(ids))) == hash);
  CHECK((tokenizer->decode(ids) == text));
}

TEST_CASE("chat templates tokenize as with llama.cpp", "[tokenizer]") {
  const auto tokenizer = llama_tokenizer();
  if (!tokenizer) return;
  const EncodeOptions parse = {.add_bos = false, .parse_special = true};
  // Zephyr: the line break after </s> gets the dummy prefix 29871.
  CHECK(tokenizer->encode("<|user|>\nhi</s>\n<|assistant|>\n", parse) ==
        Ids{529, 29989, 1792, 29989, 29958, 13, 2918, 2, 29871, 13, 29966, 29989, 465, 22137, 29989,
            29958, 13});
  // Llama 2: "▁[" after <s>.
  CHECK(tokenizer->encode("<s>[INST] hi [/INST]", parse) ==
        Ids{1, 518, 25580, 29962, 7251, 518, 29914, 25580, 29962});
}

}  // namespace llm
