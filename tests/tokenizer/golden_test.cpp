// Small vocabularies with every kind of piece against the real SentencePiece library.

#include "tests/support/test.h"
#include "tests/tokenizer/odd_vocabs.h"
#include "tokenizer/tokenizer.h"

namespace llm {

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

}  // namespace llm
