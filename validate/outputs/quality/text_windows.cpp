#include "validate/outputs/quality/text_windows.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"
#include "engine/sampler/sampler.h"

namespace llm {
namespace {

// The window that scores text[begin, begin + n); without a start text[begin - 1] is the first
// input.
TextWindow make_window(std::span<const TokenId> text, std::optional<TokenId> start,
                       std::size_t begin, std::size_t n) {
  const auto targets = text.subspan(begin, n);
  TextWindow window;
  window.inputs.push_back(start ? *start : text[begin - 1]);
  window.inputs.insert(window.inputs.end(), targets.begin(), targets.end() - 1);
  window.targets.assign(targets.begin(), targets.end());
  return window;
}

}  // namespace

std::optional<TokenId> text_start(const VocabSpec& spec) {
  return spec.add_bos ? spec.bos : std::nullopt;
}

Result<std::vector<TextWindow>> token_windows(std::span<const TokenId> text,
                                              std::optional<TokenId> start,
                                              const WindowOptions& options) {
  LLM_CHECK(options.window >= 1);
  const std::size_t first = start ? 0 : 1;  // the first token that can be scored
  const std::size_t needed = first + (options.sample == 0 ? 1 : options.window);
  if (text.size() < needed) {
    return Error{ErrorCode::kUsage, "text",
                 fmt::format("found {} tokens, need at least {}", text.size(), needed)};
  }
  std::vector<TextWindow> windows;
  if (options.sample == 0) {
    for (std::size_t begin = first; begin < text.size(); begin += options.window) {
      const std::size_t n = std::min(options.window, text.size() - begin);
      windows.push_back(make_window(text, start, begin, n));
    }
    return windows;
  }
  const auto starts = static_cast<double>(text.size() - needed + 1);
  for (std::size_t i = 0; i < options.sample; ++i) {
    const auto drawn = static_cast<std::size_t>(uniform_draw(options.seed, 0, i) * starts);
    windows.push_back(make_window(text, start, first + drawn, options.window));
  }
  return windows;
}

Result<std::vector<TextWindow>> text_windows(const Tokenizer& tokenizer, std::string_view text,
                                             const WindowOptions& options) {
  if (text.size() > Tokenizer::kMaxTextBytes) {
    return Error{
        ErrorCode::kResource, "text",
        fmt::format("found {} bytes, need at most {}", text.size(), Tokenizer::kMaxTextBytes)};
  }
  const std::optional<TokenId> start = text_start(tokenizer.spec());
  if (!options.documents)
    return token_windows(tokenizer.encode(text, {.add_bos = false, .add_eos = false}), start,
                         options);
  std::vector<TextWindow> windows;
  for (const std::string_view document : split_documents(text)) {
    const auto tokens = tokenizer.encode(document, {.add_bos = false, .add_eos = true});
    LLM_TRY(auto made, token_windows(tokens, start, options));
    windows.insert(windows.end(), made.begin(), made.end());
  }
  if (!windows.empty()) return windows;
  return Error{ErrorCode::kUsage, "text", "found no document"};
}

std::vector<std::string_view> split_documents(std::string_view text) {
  std::vector<std::string_view> documents;
  while (true) {
    text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
    if (text.empty()) return documents;
    const std::size_t end = std::min(text.find("\n\n\n"), text.size());
    std::string_view document = text.substr(0, end);
    document = document.substr(0, document.find_last_not_of('\n') + 1);
    documents.push_back(document);
    text.remove_prefix(end);
  }
}

std::size_t count_targets(std::span<const TextWindow> windows) {
  std::size_t n = 0;
  for (const TextWindow& window : windows) n += window.targets.size();
  return n;
}

Status visit_row_pairs(Session& a, Session* b, std::span<const TextWindow> windows,
                       const RowPairVisitor& visit, const Progress& progress, std::size_t step) {
  const std::size_t n_vocab = a.n_vocab();
  if (b != nullptr && b->n_vocab() != n_vocab) {
    return Error{
        ErrorCode::kUsage, "vocabulary",
        fmt::format("found {} and {} tokens, need equal vocabularies", n_vocab, b->n_vocab())};
  }
  const std::size_t total = count_targets(windows);
  std::size_t done = 0;
  for (const TextWindow& window : windows) {
    a.truncate(0);
    if (b != nullptr) b->truncate(0);
    const std::span inputs = window.inputs;
    for (std::size_t begin = 0; begin < inputs.size(); begin += step) {
      const auto some = inputs.subspan(begin, std::min(step, inputs.size() - begin));
      LLM_TRY(const auto rows_a, a.evaluate(some, LogitRows::kAll));
      std::span<const float> rows_b;
      if (b != nullptr) {
        LLM_TRY(rows_b, b->evaluate(some, LogitRows::kAll));
      }
      for (std::size_t i = 0; i < some.size(); ++i) {
        visit(rows_a.subspan(i * n_vocab, n_vocab),
              b == nullptr ? rows_b : rows_b.subspan(i * n_vocab, n_vocab),
              window.targets[begin + i]);
      }
      done += some.size();
      if (progress) progress("scoring", done, total);
    }
  }
  return Ok{};
}

Status visit_rows(Session& session, std::span<const TextWindow> windows, const RowVisitor& visit,
                  const Progress& progress, std::size_t step) {
  return visit_row_pairs(
      session, nullptr, windows,
      [&](std::span<const float> row, std::span<const float>, TokenId target) {
        visit(row, target);
      },
      progress, step);
}

}  // namespace llm
