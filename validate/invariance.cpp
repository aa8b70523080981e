#include "validate/invariance.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <utility>

namespace llm {
namespace {

using ModelPointer = std::shared_ptr<const Model>;
using Logits = std::vector<float>;

constexpr std::uint64_t kSmallModel = std::uint64_t{64} << 20;
constexpr std::size_t kManyTokens = 272;
constexpr std::size_t kFewTokens = 40;

/// How a session is fed; every one must give the same logits.
struct Path {
  std::string name;
  SessionOptions session;
  std::size_t tokens_a_call = 0;  ///< 0: all at once
  std::size_t truncate_to = 0;    ///< other tokens from here on first, then back to here; 0: no
  std::size_t n_tokens = 0;       ///< only the first so many tokens; 0: all
  bool last_row = false;          ///< ask for the logits of the last token only
};

Result<Logits> evaluate(const ModelPointer& model, const Path& path,
                        std::span<const TokenId> tokens) {
  SessionOptions options = path.session;
  options.context = tokens.size();
  LLM_TRY(const std::unique_ptr<Session> session, Session::create(model, options));
  const std::size_t n_vocab = model->config().n_vocab;
  Logits logits;
  const LogitRows wanted = path.last_row ? LogitRows::kLast : LogitRows::kAll;
  const auto feed = [&](std::span<const TokenId> fed, std::size_t from) -> Status {
    const std::size_t step = path.tokens_a_call == 0 ? fed.size() : path.tokens_a_call;
    for (std::size_t begin = from; begin < fed.size(); begin += step) {
      const std::size_t n = std::min(step, fed.size() - begin);
      LLM_TRY(const auto rows, session->evaluate(fed.subspan(begin, n), wanted));
      logits.insert(logits.end(), rows.begin(), rows.end());
    }
    return Ok{};
  };
  if (path.truncate_to > 0) {
    // What is forgotten must differ from what follows, or a row left over would go unnoticed.
    std::vector<TokenId> other(tokens.begin(), tokens.end());
    for (std::size_t i = path.truncate_to; i < other.size(); ++i)
      other[i] = static_cast<TokenId>((static_cast<std::size_t>(other[i]) + 1) % n_vocab);
    LLM_RETURN_IF_ERROR(feed(other, 0));
    session->truncate(path.truncate_to);
    logits.resize(path.truncate_to * n_vocab);
  }
  LLM_RETURN_IF_ERROR(feed(tokens, path.truncate_to));
  return logits;
}

CheckResult compare_bits(std::string name, std::span<const float> actual,
                         std::span<const float> expected, std::size_t n_vocab) {
  if (actual.size() != expected.size())
    return {std::move(name), false,
            fmt::format("{} logits, need {}", actual.size(), expected.size())};
  std::size_t different = 0;
  std::size_t first = actual.size();
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(actual[i]) == std::bit_cast<std::uint32_t>(expected[i]))
      continue;
    first = std::min(first, i);
    ++different;
  }
  if (different == 0) return {std::move(name), true, fmt::format("{} logits", actual.size())};
  return {
      std::move(name), false,
      fmt::format("{} of {} logits differ, first at position {}, token {}: {} and {}", different,
                  actual.size(), first / n_vocab, first % n_vocab, actual[first], expected[first])};
}

std::vector<Path> session_paths(KvType kv, std::size_t n_tokens) {
  SessionOptions plain;
  plain.kv = kv;
  const auto with_batch = [&](std::size_t batch) {
    SessionOptions options = plain;
    options.batch = batch;
    return options;
  };
  SessionOptions reference = plain;
  reference.reference = true;
  SessionOptions no_cache = plain;
  no_cache.use_cache = false;
  std::vector<Path> paths = {{"the definition in plain loops (R1)", reference}};
  for (const std::size_t batch : {1U, 2U, 7U})
    paths.push_back({fmt::format("batches of {}", batch), with_batch(batch), 0, 0, kFewTokens});
  paths.push_back({"batches of 32", with_batch(32)});
  paths.push_back({"one token a call (decode)", plain, 1});
  // Recomputation costs the square of the length.
  paths.push_back({"without a cache, one token a call", no_cache, 1, 0, kFewTokens});
  if (n_tokens > 2) paths.push_back({"cut back by half and fed anew", plain, 0, n_tokens / 2});
  paths.push_back({"the last row of logits only", plain, 0, 0, kFewTokens, true});
  return paths;
}

class SelfCheck {
 public:
  SelfCheck(const std::string& path, const SelfCheckOptions& options)
      : path_(path), options_(options) {}

  Result<std::vector<CheckResult>> run() {
    LLM_RETURN_IF_ERROR(run_mode(Compute::kInt8, KvType::kF16, "int8"));
    LLM_RETURN_IF_ERROR(run_mode(Compute::kF32, KvType::kF32, "f32"));
    return std::move(results_);
  }

 private:
  Status run_mode(Compute compute, KvType kv, const std::string& mode) {
    LoadOptions load;
    load.compute = compute;
    load.threads = options_.threads;
    load.progress = options_.progress;
    LLM_TRY(const ModelPointer model, Model::load(path_, load));
    tokens_ = model->tokenizer().encode(options_.text);
    const std::size_t n_text = tokens_.size();
    if (n_text == 0) {
      return Error{.code = ErrorCode::kUsage, .field = "text", .message = "encodes to no tokens"};
    }
    const std::size_t wanted = model->weight_bytes() > kSmallModel ? kFewTokens : kManyTokens;
    while (tokens_.size() < wanted) tokens_.push_back(tokens_[tokens_.size() - n_text]);
    tokens_.resize(std::min(wanted, model->config().context));
    Path usual{"usual", {}};
    usual.session.kv = kv;
    LLM_TRY(const Logits expected, evaluate(model, usual, tokens_));
    const std::size_t n_vocab = model->config().n_vocab;
    const auto check = [&](const ModelPointer& other, const Path& path) -> Status {
      const std::size_t n =
          path.n_tokens == 0 ? tokens_.size() : std::min(path.n_tokens, tokens_.size());
      LLM_TRY(const Logits actual, evaluate(other, path, std::span(tokens_).first(n)));
      results_.push_back(
          compare_bits(fmt::format("{}, {}: {}", mode, isa_name(other->isa()), path.name), actual,
                       std::span(expected).subspan((path.last_row ? n - 1 : 0) * n_vocab,
                                                   (path.last_row ? 1 : n) * n_vocab),
                       n_vocab));
      return Ok{};
    };
    for (const Path& path : session_paths(kv, tokens_.size()))
      LLM_RETURN_IF_ERROR(check(model, path));
    for (const Isa isa : all_isas()) {
      if (!isa_supported(isa) || isa == model->isa()) continue;
      load.isa = isa;
      LLM_TRY(const ModelPointer other, Model::load(path_, load));
      usual.name = "prefill";
      LLM_RETURN_IF_ERROR(check(other, usual));
      LLM_RETURN_IF_ERROR(
          check(other, {"one token a call (decode)", usual.session, 1, 0, kFewTokens}));
    }
    load.isa.reset();
    for (const int threads : {1, 2, 3, 7}) {
      load.threads = threads;
      LLM_TRY(const ModelPointer other, Model::load(path_, load));
      usual.name = fmt::format("{} thread{}", threads, threads == 1 ? "" : "s");
      usual.n_tokens = kFewTokens;
      LLM_RETURN_IF_ERROR(check(other, usual));
    }
    return Ok{};
  }

  const std::string& path_;
  const SelfCheckOptions& options_;
  std::vector<TokenId> tokens_;
  std::vector<CheckResult> results_;
};

}  // namespace

Result<std::vector<CheckResult>> self_check(const std::string& model_path,
                                            const SelfCheckOptions& options) {
  return SelfCheck(model_path, options).run();
}

}  // namespace llm
