// The tokenizer's check passes on every vocabulary at hand, and notices a tokenizer that is wrong
// in one way.

#include "validate/selftest/tokenizer_check.h"

#include "engine/model/model_file.h"
#include "tests/tokenizer/odd_vocabs.h"
#include "tests/tokenizer/tiny_bpe.h"
#include "tests/tokenizer/vocab_builder.h"
#include "tests/validate/check_results.h"
#include "tokenizer/byte_bpe/splitter.h"
#include "tokenizer/pre_tokenizer_rules.h"
#include "validate/selftest/naive_splitter.h"
#include "validate/selftest/naive_tokenizer.h"

namespace llm::test {
namespace {

const CheckResult& of_ids(const std::vector<CheckResult>& results) { return results.front(); }

/// Pieces of one score over the letters a to d and the space, an unused one and a user-defined one.
VocabBuilder all_equal(VocabBuilder::Bytes bytes = VocabBuilder::Bytes::kYes) {
  VocabBuilder vocab(bytes);
  for (const char* text : {"\u2581", "a", "b", "c", "d", "\u00E9", "ab", "bc", "cd", "abc", "bcd",
                           "\u2581a", "\u2581\u2581", "aa", "aab", "da", "\u00E9a"})
    vocab.add(text, -1);
  vocab.add("cda", -1, TokenKind::kUnused);
  vocab.add("<mark>", 0, TokenKind::kUserDefined);
  vocab.add("x y", 0, TokenKind::kUserDefined);
  vocab.add("dd", 0, TokenKind::kUserDefined);  // merges with nothing, whatever pieces there are
  vocab.add("ddd", -1);
  vocab.add("add", -1);
  return vocab;
}

std::vector<CheckResult> check(const Tokenizer& tokenizer) {
  return check_tokenizer(tokenizer.spec(), tokenizer_functions(tokenizer));
}

TEST_CASE("small vocabularies follow the rules", "[self][tokenizer]") {
  for (const auto bytes : {VocabBuilder::Bytes::kYes, VocabBuilder::Bytes::kNo}) {
    for (const bool prefix : {true, false}) {
      VocabBuilder vocab = all_equal(bytes);
      vocab.spec.add_space_prefix = prefix;
      const auto results = check(vocab.build());
      check_passed(results);
      CHECK(of_ids(results).detail.find("matters in 0") == std::string::npos);
    }
  }
}

TEST_CASE("pieces that are no UTF-8 follow the rules", "[self][tokenizer]") {
  VocabBuilder vocab = all_equal();
  for (const char* text : {"\xE2", "\x9F", "\xFF", "a\xFF", "\xFF\xC3"}) vocab.add(text, -1);
  check_passed(check(vocab.build()));
}

TEST_CASE("a vocabulary without equal scores says so", "[self][tokenizer]") {
  VocabBuilder vocab;
  for (const char* text : {"\u2581", "a", "b", "ab", "bc"})
    vocab.add(text, -static_cast<float>(vocab.spec.tokens.size()));
  const auto results = check(vocab.build());
  check_passed(results);
  CHECK(of_ids(results).detail.find("no equal scores in this vocabulary") != std::string::npos);
}

TEST_CASE("vocabularies of files follow the rules", "[self][tokenizer]") {
  const char* data = std::getenv("LLM_TEST_DATA");
  std::vector<std::string> paths = {LLM_SOURCE_DIR "/models/fable-3m-f16.gguf"};
  if (data != nullptr) {
    for (const char* name :
         {"llama-spm-vocab.gguf", "stories260K.gguf", "llama-bpe-vocab.gguf", "qwen2-vocab.gguf"})
      paths.push_back(std::string(data) + "/" + name);
  }
  for (const std::string& path : paths) {
    if (!std::filesystem::exists(path)) continue;
    CAPTURE(path);
    std::vector<std::string> warnings;
    auto spec = require_ok(open_vocab_file(path, warnings));
    const auto tokenizer = require_ok(Tokenizer::create(std::move(spec)));
    const auto results = check(tokenizer);
    check_passed(results);
    const bool bytes = tokenizer.spec().tokenizer == TokenizerKind::kSentencePiece;
    CHECK((of_ids(results).detail.find("; 0 have byte tokens") == std::string::npos) == bytes);
    CHECK(of_ids(results).detail.find("matters in 0") == std::string::npos);
  }
  if (data == nullptr) WARN("skipped: LLM_TEST_DATA is not set");
}

TEST_CASE("byte-level vocabularies follow the rules, under every pre-tokenizer",
          "[self][tokenizer]") {
  for (const PreTokenizerRule& rule : all_pre_tokenizer_rules()) {
    CAPTURE(rule.name);
    const auto tokenizer = require_ok(Tokenizer::create(tiny_bpe(std::string(rule.name))));
    check_passed(
        check_tokenizer(tokenizer.spec(), tokenizer_functions(tokenizer), {.n_texts = 180}));
  }
}

TEST_CASE("a byte-level vocabulary that lacks bytes follows the rules", "[self][tokenizer]") {
  for (const char* rule : {"gpt-2", "smollm", "llama-bpe"}) {
    CAPTURE(rule);
    const auto tokenizer = require_ok(Tokenizer::create(lacking_bytes(tiny_bpe(rule))));
    const auto functions = tokenizer_functions(tokenizer);
    check_passed(check_tokenizer(tokenizer.spec(), functions, {.n_texts = 180}));
    TokenizerFunctions keeping = functions;  // U+FFFD for the bytes
    keeping.encode = [&](std::string_view text, const EncodeOptions& options) {
      std::string kept;
      for (const char c : text) kept += c == '\x04' ? std::string("\uFFFD") : std::string(1, c);
      return functions.encode(kept, options);
    };
    CHECK(failed(check_tokenizer(tokenizer.spec(), keeping, {.n_texts = 180})).size() == 1);
  }
}

/// The texts of the pieces.
std::vector<std::string> pieces_of(const Splitter& splitter, std::string_view text) {
  std::vector<std::string> pieces;
  if (text.empty()) return pieces;
  std::size_t begin = 0;
  for (const std::uint32_t end : splitter.split(text)) {
    pieces.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  return pieces;
}

TEST_CASE("every rule is the published one", "[self][tokenizer]") {
  std::vector<std::string_view> published;
  for (const PublishedRule& rule : all_published_rules()) published.push_back(rule.name);
  std::vector<std::string_view> known;
  // What only the last step of deepseek-llm splits: spaces after characters in none of its lists.
  auto texts = golden_texts();
  for (const char* text :
       {"\u0E01 ", "\u0E01  \u0E01 \t ", "\u0E01 \u3000\n", "\u0E01 \r\n \u2028"})
    texts.insert(texts.begin(), text);
  for (const PreTokenizerRule& rule : all_pre_tokenizer_rules()) {
    known.push_back(rule.name);
    const auto splitter = require_ok(Splitter::create(rule));
    const NaiveSplitter naive(published_rule(rule.name));
    CHECK(rule.ignore_merges == published_rule(rule.name).ignore_merges);
    for (const std::string& text : std::span(texts).first(800)) {
      CAPTURE(rule.name, text);
      CHECK(pieces_of(splitter, text) == naive.split(text));
    }
  }
  CHECK(published == known);
}

TEST_CASE("a byte-level tokenizer that is wrong is noticed", "[self][tokenizer]") {
  const auto differs = [](VocabSpec spec, VocabSpec other) {
    const auto tokenizer = require_ok(Tokenizer::create(std::move(other)));
    return !failed(check_tokenizer(spec, tokenizer_functions(tokenizer), {.n_texts = 180})).empty();
  };
  const VocabSpec spec = tiny_bpe("qwen2");
  CHECK_FALSE(differs(spec, tiny_bpe("deepseek-r1-qwen")));
  CHECK(differs(spec, tiny_bpe("deepseek-coder")));
  CHECK(differs(tiny_bpe("smaug-bpe"), tiny_bpe("llama-bpe")));  // ignore_merges
  VocabSpec reversed = spec;
  std::ranges::reverse(reversed.merges);
  CHECK(differs(spec, reversed));
}

TEST_CASE("the rules in plain loops are those of SentencePiece", "[self][tokenizer]") {
  for (const OddVocab& vocab : odd_vocabs()) {
    const NaiveTokenizer naive(vocab.spec);
    for (const auto& [text, ids, decoded] : vocab.cases) {
      CAPTURE(text);
      CHECK(naive.encode(text, {.add_bos = false}) == ids);
      CHECK(naive.decode_bytes(ids, {}) == decoded);
    }
    const auto tokenizer = require_ok(Tokenizer::create(vocab.spec));
    check_passed(check_tokenizer(vocab.spec, tokenizer_functions(tokenizer),
                                 {.n_texts = 80, .n_equal_scores = 40}));
  }
}

// Rules of merging and splitting that are wrong are planted by tests/fault_injection.
TEST_CASE("a wrong tokenizer is noticed and named", "[self][tokenizer]") {
  const Tokenizer tokenizer = all_equal().build();
  const auto fails = [&](std::size_t which, const std::string& words, auto change) {
    TokenizerFunctions functions = tokenizer_functions(tokenizer);
    change(functions);
    const auto results = check_tokenizer(tokenizer.spec(), functions, {.n_texts = 180});
    CAPTURE(results[which].name, results[which].detail);
    CHECK_FALSE(results[which].passed);
    CHECK(results[which].detail.find(words) != std::string::npos);
  };
  // User-defined tokens written by a chat's user, then special tokens, ignored.
  for (const bool literal : {true, false})
    fails(0, literal ? "user-defined tokens taken literally" : "special tokens parsed",
          [&, literal](TokenizerFunctions& f) {
            f.encode = [&, literal](std::string_view text, const EncodeOptions& options) {
              EncodeOptions without = options;
              if (literal) without.literal = {};
              if (!literal) without.parse_special = false;
              return tokenizer.encode(text, without);
            };
          });
  // A space more at the start.
  fails(1, "the rules give", [&](TokenizerFunctions& f) {
    f.decode = [&](std::span<const TokenId> ids, const DecodeOptions& options) {
      DecodeOptions kept = options;
      kept.continues_text = true;
      return tokenizer.decode(ids, kept);
    };
  });
  // Text that comes a token too late.
  fails(2, "the first ", [&](TokenizerFunctions& f) {
    f.stream = [stream = f.stream](std::span<const TokenId> ids) {
      auto steps = stream(ids);
      if (steps.size() > 2) steps[1] = std::exchange(steps[0], "") + steps[1];
      return steps;
    };
  });
  // A text that comes back without its end.
  fails(3, "its ids give", [&](TokenizerFunctions& f) {
    f.decode = [&](std::span<const TokenId> ids, const DecodeOptions& options) {
      std::string text = tokenizer.decode(ids, options);
      if (text.ends_with(' ')) text.pop_back();
      return text;
    };
  });
}

TEST_CASE("the rules' UTF-8 is that of the standard", "[self][tokenizer]") {
  CHECK(naive_valid_utf8("a\xC3\xA9\xF0\x9F\x98\x80") == "a\u00E9\U0001F600");
  for (const std::string bad : {"\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE2\x96", "\x80"})
    CHECK_FALSE(naive_is_character(bad));
  CHECK(naive_without_half_character("a\xE2\x96") == "a");
  CHECK(naive_without_half_character("a\xF4\x90") == "a\xF4\x90");
  CHECK(naive_without_half_character("a\u00E9") == "a\u00E9");
}

}  // namespace
}  // namespace llm::test
