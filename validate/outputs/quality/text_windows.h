#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"

namespace llm {

/// A piece of text to be scored: targets[i] is the token that follows inputs[0..i]. Every target
/// counts, and inputs is all the context it has.
struct TextWindow {
  std::vector<TokenId> inputs;
  std::vector<TokenId> targets;  ///< as many as inputs, at least 1
};

/// What every text of a vocabulary begins with: BOS, if there is one and the file wants it
/// (`tokenizer.ggml.add_bos_token`).
std::optional<TokenId> text_start(const VocabSpec& spec);

/// How a text becomes windows (docs/quality.md). The text is encoded once, as a whole, without BOS
/// or EOS. A window of W evaluates BOS and W - 1 tokens of the text and scores the W tokens that
/// follow them. Without a text_start the token before the window stands in its place, and the first
/// of the text is not scored.
struct WindowOptions {
  std::size_t window = 0;  ///< W >= 1
  std::size_t sample = 0;  ///< 0: consecutive windows over the whole text, the last one shorter;
                           ///< else this many windows at random starts, which may overlap
  bool documents = false;  ///< the text is documents parted by two or more empty lines: each is
                           ///< encoded by itself, ends in EOS, which counts, and has windows of
                           ///< its own. Not with `sample`.
  std::uint64_t seed = 0;  ///< of the starts: floor(uniform_draw(seed, 0, i) * (n - W + 1))
};

/// Errors: kUsage for a text too short to score anything (sampled: for one window); kResource for a
/// text longer than the tokenizer takes.
Result<std::vector<TextWindow>> text_windows(const Tokenizer& tokenizer, std::string_view text,
                                             const WindowOptions& options);
/// The same for a text that is tokens already. @param start  what each window begins with
/// @pre every id is in the vocabulary
Result<std::vector<TextWindow>> token_windows(std::span<const TokenId> text,
                                              std::optional<TokenId> start,
                                              const WindowOptions& options);

/// The documents of a text: the parts between runs of two or more empty lines, without newlines at
/// either end. Views into `text`.
std::vector<std::string_view> split_documents(std::string_view text);

std::size_t count_targets(std::span<const TextWindow> windows);

/// Called with each row of logits, [n_vocab], and the token that really follows, in order.
using RowVisitor = std::function<void(std::span<const float> logits, TokenId target)>;
/// The same with the rows of two models.
using RowPairVisitor =
    std::function<void(std::span<const float> a, std::span<const float> b, TokenId target)>;

/// Evaluates every window from position 0. The sessions need a context of the longest window.
/// @param step  tokens an evaluation; never changes the logits
/// Errors: the session's; for pairs kUsage when the vocabularies differ in size.
Status visit_rows(Session& session, std::span<const TextWindow> windows, const RowVisitor& visit,
                  const Progress& progress = {}, std::size_t step = 64);
/// @param b  null: its rows are empty
Status visit_row_pairs(Session& a, Session* b, std::span<const TextWindow> windows,
                       const RowPairVisitor& visit, const Progress& progress = {},
                       std::size_t step = 64);

}  // namespace llm
