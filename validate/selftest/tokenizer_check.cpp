#include "validate/selftest/tokenizer_check.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <random>
#include <utility>

#include "base/shown_text.h"
#include "tokenizer/stream_decoder.h"
#include "validate/selftest/naive_tokenizer.h"

namespace llm {
namespace {

using Ids = std::vector<TokenId>;
constexpr std::size_t kShownBytes = 160;
constexpr std::size_t kShownIds = 8;

/// The shortest of the inputs that failed.
struct Failure {
  std::size_t count = 0;
  std::size_t size = 0;
  std::string detail;

  void add(std::size_t input_size, const std::string& what) {
    if (count == 0 || input_size < size) {
      size = input_size;
      detail = what;
    }
    ++count;
  }
};

CheckResult verdict(std::string name, const Failure& failure, std::string figures) {
  if (failure.count == 0) return {std::move(name), true, std::move(figures)};
  return {std::move(name), false, fmt::format("{} differ; {}", failure.count, failure.detail)};
}

std::string ids_from(std::span<const TokenId> ids, std::size_t first) {
  const auto shown = ids.subspan(std::min(first, ids.size()));
  const auto few = shown.first(std::min(kShownIds, shown.size()));
  return fmt::format("[{}{}]", fmt::join(few, " "), few.size() < shown.size() ? " ..." : "");
}

std::string options_text(const EncodeOptions& options) {
  std::string text;
  if (options.parse_special) text += ", special tokens parsed";
  if (options.add_space_prefix) {
    text += *options.add_space_prefix ? ", with a dummy prefix" : ", without a dummy prefix";
  }
  if (!options.literal.empty()) text += ", user-defined tokens taken literally";
  return text;
}

class TokenizerCheck {
 public:
  TokenizerCheck(const VocabSpec& spec, const TokenizerFunctions& functions,
                 const TokenizerCheckOptions& options)
      : spec_(spec), functions_(functions), options_(options), rules_(spec) {
    for (const VocabSpec::Token& token : spec.tokens) {
      if (token.kind == TokenKind::kUserDefined) literal_.push_back(token.text);
    }
    for (std::string& text : literal_) {
      if (!is_sentencepiece()) break;
      for (std::size_t at = 0; (at = text.find(' ', at)) != std::string::npos;)
        text.replace(at, 1, "\xE2\x96\x81");
    }
    literal_views_.assign(literal_.begin(), literal_.end());
    const auto space = rules_.piece("\xE2\x96\x81");
    space_is_a_piece_ = !is_sentencepiece() || (space && kind(*space) != TokenKind::kUnused);
  }

  std::vector<CheckResult> run() {
    auto texts = is_sentencepiece()
                     ? equal_score_texts(spec_, options_.n_equal_scores, options_.seed)
                     : unmerged_tokens();
    const bool equal_scores = !texts.empty() || !is_sentencepiece();
    for (std::string& text : tokenizer_texts(readable_spec(), options_.n_texts, options_.seed))
      texts.push_back(std::move(text));
    std::mt19937_64 random(options_.seed);
    for (const std::string& text : texts) {
      check_usual(text);
      check_ids(text, other_options(random()));
    }
    check_drawn_ids(random);
    const std::string order =
        equal_scores ? fmt::format("the order among equal scores matters in {}", n_order_matters_)
                     : "no equal scores in this vocabulary";
    return {verdict("tokenizer: ids by the rules", ids_,
                    fmt::format("{} texts in two ways, {} ids; {} have byte tokens, {}",
                                texts.size(), n_ids_, n_with_bytes_, order)),
            verdict("tokenizer: text of ids by the rules", text_,
                    fmt::format("{} rows of ids", n_decoded_)),
            verdict("tokenizer: text of ids one by one", stream_,
                    fmt::format("{} rows of ids", n_decoded_)),
            verdict("tokenizer: ids give their text back", round_trip_,
                    fmt::format("{} texts", n_round_trips_))};
  }

 private:
  bool is_sentencepiece() const { return spec_.tokenizer == TokenizerKind::kSentencePiece; }

  /// Byte-level BPE: texts that are a token which no merges make, so that it matters whether merges
  /// are ignored.
  std::vector<std::string> unmerged_tokens() const {
    std::vector<bool> made(spec_.tokens.size());
    for (const VocabSpec::Merge& merge : spec_.merges)
      made[static_cast<std::size_t>(merge.joined)] = true;
    std::vector<std::string> texts;
    for (std::size_t i = made.size(); i > 0 && texts.size() < options_.n_equal_scores; --i) {
      const auto id = static_cast<TokenId>(i - 1);
      if (!made[i - 1] && kind(id) == TokenKind::kNormal) texts.push_back(rules_.bytes_of(id));
    }
    return texts;
  }

  /// The vocabulary, its tokens spelled as text has them.
  VocabSpec readable_spec() const {
    VocabSpec spec = spec_;
    if (is_sentencepiece()) return spec;
    for (std::size_t i = 0; i < spec.tokens.size(); ++i) {
      if (kind(static_cast<TokenId>(i)) == TokenKind::kNormal)
        spec.tokens[i].text = rules_.bytes_of(static_cast<TokenId>(i));
    }
    return spec;
  }

  TokenKind kind(TokenId id) const { return spec_.tokens[static_cast<std::size_t>(id)].kind; }

  EncodeOptions other_options(std::uint64_t drawn) const {
    if (drawn % 3 == 0) return {.parse_special = true};
    if (drawn % 3 == 1 && !literal_.empty()) return {.literal = literal_views_};
    return {.add_bos = !spec_.add_bos,
            .add_eos = !spec_.add_eos,
            .add_space_prefix = !spec_.add_space_prefix};
  }

  /// As the vocabulary says.
  void check_usual(const std::string& text) {
    const Ids expected = check_ids(text, {});
    n_with_bytes_ +=
        std::ranges::any_of(expected, [this](TokenId id) { return kind(id) == TokenKind::kByte; });
    n_order_matters_ += rules_.encode(text, {}, EqualScores::kRightmost) != expected;
    check_round_trip(text, expected);
  }

  /// @return the ids by the rules
  Ids check_ids(const std::string& text, const EncodeOptions& options) {
    Ids expected = rules_.encode(text, options);
    const Ids actual = functions_.encode(text, options);
    n_ids_ += expected.size();
    if (actual != expected) {
      const auto [a, e] = std::ranges::mismatch(actual, expected);
      const auto at = static_cast<std::size_t>(a - actual.begin());
      ids_.add(text.size(), fmt::format("{}{}: from id {} on {}, the rules give {}",
                                        quoted(text, kShownBytes), options_text(options), at,
                                        ids_from(actual, at), ids_from(expected, at)));
    }
    check_decoding(expected);
    return expected;
  }

  void check_decoding(const Ids& ids) {
    ++n_decoded_;
    const auto fail = [&ids](Failure& failure, std::string_view what, std::string_view actual,
                             std::string_view expected) {
      failure.add(ids.size(),
                  fmt::format("{}{}: {}, the rules give {}", ids_from(ids, 0), what,
                              quoted(actual, kShownBytes), quoted(expected, kShownBytes)));
    };
    const std::string bytes = rules_.decode_bytes(ids, {});
    const std::string whole = naive_valid_utf8(bytes);
    if (const auto text = functions_.decode(ids, {}); text != whole) fail(text_, "", text, whole);
    for (const DecodeOptions& options :
         {DecodeOptions{.render_special = true, .keep_invalid = true},
          DecodeOptions{.keep_invalid = true, .continues_text = true}}) {
      const std::string expected = rules_.decode_bytes(ids, options);
      const std::string text = functions_.decode(ids, options);
      if (text != expected)
        fail(text_, options.continues_text ? ", continuing a text" : ", as bytes", text, expected);
    }
    check_stream(ids, whole, fail);
  }

  /// After each id there is all text but a character that is not complete yet.
  void check_stream(const Ids& ids, const std::string& whole, const auto& fail) {
    const std::vector<std::string> steps = functions_.stream(ids);
    std::string streamed;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      streamed += steps[i];
      const std::string bytes = rules_.decode_bytes(std::span(ids).first(i + 1), {});
      const std::string expected = naive_valid_utf8(naive_without_half_character(bytes));
      if (streamed == expected) continue;
      return fail(stream_, fmt::format(", the first {}", i + 1), streamed, expected);
    }
    streamed += steps.back();
    if (streamed != whole) fail(stream_, ", all", streamed, whole);
  }

  void check_round_trip(const std::string& text, const Ids& ids) {
    const bool lost =
        std::ranges::any_of(ids, [this](TokenId id) { return kind(id) == TokenKind::kUnknown; });
    if (lost || rules_.loses_bytes(text) || !space_is_a_piece_ || naive_valid_utf8(text) != text)
      return;
    if (is_sentencepiece() && text.find("\xE2\x96\x81") != std::string::npos) return;
    ++n_round_trips_;
    const std::string back = functions_.decode(functions_.encode(text, {}), {});
    if (back == text) return;
    round_trip_.add(text.size(), fmt::format("{}: its ids give {}", quoted(text, kShownBytes),
                                             quoted(back, kShownBytes)));
  }

  /// Ids in an order that no text has, many of them bytes.
  void check_drawn_ids(std::mt19937_64& random) {
    Ids bytes;
    for (std::size_t i = 0; i < spec_.tokens.size(); ++i) {
      if (kind(static_cast<TokenId>(i)) == TokenKind::kByte)
        bytes.push_back(static_cast<TokenId>(i));
    }
    for (std::size_t row = 0; row < options_.n_texts / 2; ++row) {
      Ids ids(random() % 24);
      for (TokenId& id : ids) {
        const std::uint64_t drawn = random();
        id = drawn % 2 == 0 && !bytes.empty()
                 ? bytes[drawn / 2 % bytes.size()]
                 : static_cast<TokenId>(drawn / 2 % spec_.tokens.size());
      }
      check_decoding(ids);
    }
  }

  const VocabSpec& spec_;
  const TokenizerFunctions& functions_;
  const TokenizerCheckOptions& options_;
  NaiveTokenizer rules_;
  std::vector<std::string> literal_;
  std::vector<std::string_view> literal_views_;
  bool space_is_a_piece_ = false;
  Failure ids_;
  Failure text_;
  Failure stream_;
  Failure round_trip_;
  std::size_t n_ids_ = 0;
  std::size_t n_with_bytes_ = 0;
  std::size_t n_order_matters_ = 0;
  std::size_t n_decoded_ = 0;
  std::size_t n_round_trips_ = 0;
};

}  // namespace

TokenizerFunctions tokenizer_functions(const Tokenizer& tokenizer) {
  return {.encode = [&](std::string_view text,
                        const EncodeOptions& options) { return tokenizer.encode(text, options); },
          .decode = [&](std::span<const TokenId> ids,
                        const DecodeOptions& options) { return tokenizer.decode(ids, options); },
          .stream =
              [&](std::span<const TokenId> ids) {
                StreamDecoder decoder(tokenizer);
                std::vector<std::string> steps;
                for (const TokenId id : ids) steps.push_back(decoder.push(id));
                steps.push_back(decoder.flush());
                return steps;
              }};
}

std::vector<CheckResult> check_tokenizer(const VocabSpec& spec, const TokenizerFunctions& functions,
                                         const TokenizerCheckOptions& options) {
  return TokenizerCheck(spec, functions, options).run();
}

}  // namespace llm
