#include "validate/self/self_check.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "engine/model/model.h"
#include "validate/diff/likelihood.h"
#include "validate/self/cache_check.h"
#include "validate/self/kernel_check.h"
#include "validate/self/matrix_check.h"
#include "validate/self/sampler_check.h"
#include "validate/self/sequence_check.h"
#include "validate/self/shift_check.h"
#include "validate/self/tokenizer_check.h"

namespace llm {
namespace {

using ModelPointer = std::shared_ptr<const Model>;
using Logits = std::vector<float>;

constexpr int kTeams[] = {1, 2, 3, 7};
constexpr const char* kDecode = "one token per call (decode)";
constexpr std::uint64_t kSmallModel = std::uint64_t{64} << 20;

/// Tokens of the ways to evaluate, by what a token costs in each.
struct Lengths {
  std::size_t usual;       ///< fast kernels
  std::size_t definition;  ///< plain loops
  std::size_t scalar;      ///< the scalar kernels
  std::size_t split;       ///< small batches, teams of threads
  std::size_t recomputed;  ///< without a cache: costs the square
};
constexpr Lengths kSmallInt8 = {272, 272, 40, 40, 40};  // 272: past the first chunk of 256 keys
constexpr Lengths kSmallF32 = {272, 272, 40, 40, 40};
constexpr Lengths kLargeInt8 = {40, 2, 2, 14, 8};
constexpr Lengths kLargeF32 = {14, 1, 1, 8, 5};

/// How a session is fed; every one must give the same logits.
struct Path {
  std::string name;
  ExecutorOptions executor = {};
  SequenceOptions sequence = {};
  std::size_t tokens_per_call = 0;  ///< 0: all at once
  std::size_t truncate_to = 0;      ///< other tokens from here on first, then back to here; 0: no
  std::size_t n_tokens = 0;         ///< only the first so many tokens; 0: all
  bool last_row = false;            ///< ask for the logits of the last token only
};

Result<Logits> evaluate(const ModelPointer& model, const Path& path,
                        std::span<const TokenId> tokens) {
  ExecutorOptions options = path.executor;
  options.context = tokens.size();
  LLM_TRY(const auto session, open_sequence(model, options, path.sequence));
  const std::size_t n_vocab = model->config().n_vocab;
  Logits logits;
  const LogitRows wanted = path.last_row ? LogitRows::kLast : LogitRows::kAll;
  const auto feed = [&](std::span<const TokenId> fed, std::size_t from) -> Status {
    const std::size_t step = path.tokens_per_call == 0 ? fed.size() : path.tokens_per_call;
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

std::vector<Path> session_paths(KvType kv, const Lengths& n) {
  const ExecutorOptions plain{.kv = kv};
  const auto batches_of = [&](std::size_t batch, std::size_t n_tokens) {
    return Path{.name = fmt::format("batches of {}", batch),
                .executor = {.kv = kv, .batch = batch},
                .n_tokens = n_tokens};
  };
  return {{.name = "the definition in plain loops (R1)",
           .executor = plain,
           .sequence = {.reference = true},
           .n_tokens = n.definition},
          batches_of(1, n.split),
          batches_of(2, n.split),
          batches_of(7, n.split),
          batches_of(32, 0),
          {.name = kDecode, .executor = plain, .tokens_per_call = 1},
          {.name = "without a cache, one token per call",
           .executor = plain,
           .sequence = {.use_cache = false},
           .tokens_per_call = 1,
           .n_tokens = n.recomputed},
          {.name = "cut back by half and fed anew", .executor = plain, .truncate_to = n.usual / 2},
          {.name = "the last row of logits only",
           .executor = plain,
           .n_tokens = n.split,
           .last_row = true}};
}

/// Perplexity of the text itself, exp(mean NLL) of each token given those before it.
double perplexity(std::span<const float> logits, std::span<const TokenId> tokens,
                  std::size_t n_vocab) {
  double sum = 0;
  for (std::size_t t = 0; t + 1 < tokens.size(); ++t)
    sum += negative_log_likelihood(logits.subspan(t * n_vocab, n_vocab), tokens[t + 1]);
  return std::exp(sum / static_cast<double>(std::max<std::size_t>(1, tokens.size() - 1)));
}

class SelfCheck {
 public:
  SelfCheck(const std::string& path, const SelfCheckOptions& options)
      : path_(path), options_(options) {}

  Result<std::vector<CheckResult>> run() {
    LoadOptions load;
    load.threads = options_.threads;
    load.progress = options_.progress;
    LLM_TRY(base_, Model::load(path_, load));
    small_ = base_->weight_bytes() <= kSmallModel;
    LLM_RETURN_IF_ERROR(definitions());
    LLM_RETURN_IF_ERROR(kernels());
    LLM_RETURN_IF_ERROR(matrices());
    LLM_RETURN_IF_ERROR(run_mode(Compute::kInt8, KvType::kF16, small_ ? kSmallInt8 : kLargeInt8));
    LLM_RETURN_IF_ERROR(run_mode(Compute::kF32, KvType::kF32, small_ ? kSmallF32 : kLargeF32));
    return std::move(results_);
  }

 private:
  /// Around the forward pass: the tokenizer, the sampler, the context shift.
  Status definitions() {
    const Tokenizer& tokenizer = base_->tokenizer();
    for (auto& result : check_tokenizer(tokenizer.spec(), tokenizer_functions(tokenizer)))
      results_.push_back(std::move(result));
    LLM_TRY(auto sampler, check_sampler(base_));
    for (CheckResult& result : sampler) results_.push_back(std::move(result));
    ShiftCheckOptions options;
    if (!small_) options = {.contexts = {16}, .without_bos = false, .open = {}};
    LLM_TRY(auto shift, check_context_shift(base_, KvType::kF16, options));
    for (CheckResult& result : shift) results_.push_back(std::move(result));
    return Ok{};
  }

  Status kernels() {
    LLM_TRY(const ModelFile file, open_model_file(path_));
    LLM_TRY(auto found, check_kernels(kernel_tables_here(), kernel_sizes(file), options_.progress));
    for (CheckResult& result : found) results_.push_back(std::move(result));
    return Ok{};
  }

  Status matrices() {
    LLM_TRY(const ModelFile file, open_model_file(path_));
    MatrixCheckOptions options;
    options.threads = base_->threads();
    options.progress = options_.progress;
    if (!small_) {
      options.n_tokens = 11;
      options.single_step = 10;
      options.scalar_batch_rows = 96;
    }
    LLM_TRY(auto found, check_matrices(*base_, file, options));
    for (CheckResult& result : found) results_.push_back(std::move(result));
    return Ok{};
  }

  Result<ModelPointer> variant(int threads, std::optional<Isa> isa = {}) const {
    LoadOptions load;
    load.compute = compute_;
    load.threads = threads;
    load.isa = isa;
    LLM_TRY(ModelPointer model, base_->variant(load));
    return model;
  }

  /// Evaluates on `path` and compares with the first evaluation of this mode. Returns the logits.
  Result<Logits> check(const ModelPointer& model, const Path& path) {
    const std::size_t n =
        path.n_tokens == 0 ? tokens_.size() : std::min(path.n_tokens, tokens_.size());
    LLM_TRY(Logits actual, evaluate(model, path, std::span(tokens_).first(n)));
    const std::size_t n_vocab = model->config().n_vocab;
    const std::size_t first = path.last_row ? n - 1 : 0;
    results_.push_back(compare_bits(
        fmt::format("{}, {}: {}", mode_, isa_name(model->isa()), path.name), actual,
        std::span(expected_).subspan(first * n_vocab, (n - first) * n_vocab), n_vocab));
    if (options_.progress) options_.progress(mode_, ++done_, n_paths_);
    return actual;
  }

  Status encode_text(std::size_t wanted) {
    tokens_ = base_->tokenizer().encode(options_.text);
    const std::size_t n_text = tokens_.size();
    if (n_text == 0)
      return Error{.code = ErrorCode::kUsage, .field = "text", .message = "encodes to no tokens"};
    while (tokens_.size() < wanted) tokens_.push_back(tokens_[tokens_.size() - n_text]);
    tokens_.resize(std::min(wanted, base_->config().context));
    return Ok{};
  }

  Status run_mode(Compute compute, KvType kv, const Lengths& lengths) {
    compute_ = compute;
    mode_ = compute == Compute::kInt8 ? "int8" : "f32";
    LLM_RETURN_IF_ERROR(encode_text(lengths.usual));
    LLM_TRY(const ModelPointer model, variant(options_.threads));
    Path usual{.name = "prefill", .executor = {.kv = kv}};
    LLM_TRY(expected_, evaluate(model, usual, tokens_));
    const auto paths = session_paths(kv, lengths);
    std::vector<Isa> others;
    for (const Isa isa : all_isas())
      if (isa_supported(isa) && isa != model->isa()) others.push_back(isa);
    done_ = 0;
    n_paths_ = paths.size() + 2 * others.size() + std::size(kTeams);
    for (const Path& path : paths) {
      if (path.truncate_to >= tokens_.size() || tokens_.size() < 2) continue;
      LLM_TRY(const Logits logits, check(model, path));
      if (path.name == kDecode) compare_perplexity(logits);
    }
    for (const Isa isa : others) {
      LLM_TRY(const ModelPointer other, variant(options_.threads, isa));
      usual.n_tokens = isa == Isa::kScalar ? lengths.scalar : lengths.usual;
      LLM_RETURN_IF_ERROR(check(other, usual));
      const std::size_t n = std::min(lengths.split, usual.n_tokens);
      LLM_RETURN_IF_ERROR(check(
          other,
          {.name = kDecode, .executor = usual.executor, .tokens_per_call = 1, .n_tokens = n}));
    }
    for (const int threads : kTeams) {
      LLM_TRY(const ModelPointer other, variant(threads));
      usual.name = fmt::format("{} thread{}", threads, threads == 1 ? "" : "s");
      usual.n_tokens = lengths.split;
      LLM_RETURN_IF_ERROR(check(other, usual));
    }
    LLM_RETURN_IF_ERROR(sequences(model, kv));
    return compute == Compute::kInt8 ? generation(model, kv) : Ok{};
  }

  Status sequences(const ModelPointer& model, KvType kv) {
    SequenceCheckOptions options;
    options.progress = options_.progress;
    if (!small_) {
      options.n_sequences = 3;
      options.most_new = 12;
      options.every_mix = false;
    }
    LLM_TRY(auto found, check_sequences(model, kv, options));
    for (CheckResult& result : found) {
      result.name = fmt::format("{}, {}: {}", mode_, isa_name(model->isa()), result.name);
      results_.push_back(std::move(result));
    }
    return Ok{};
  }

  void compare_perplexity(const Logits& decoded) {
    const std::size_t n_vocab = base_->config().n_vocab;
    const double prefill = perplexity(expected_, tokens_, n_vocab);
    const double decode = perplexity(decoded, tokens_, n_vocab);
    results_.push_back(
        {fmt::format("{}: perplexity by prefill and by decode", mode_),
         std::bit_cast<std::uint64_t>(prefill) == std::bit_cast<std::uint64_t>(decode),
         fmt::format("{:.9g} and {:.9g} over {} tokens", prefill, decode, tokens_.size() - 1)});
  }

  Status generation(const ModelPointer& model, KvType kv) {
    CacheCheckOptions options;
    options.progress = options_.progress;
    if (!small_) {
      options.n_prompts = 2;
      options.n_prompt_tokens = 16;
      options.n_tokens = 12;
    }
    const std::size_t context = base_->config().context;
    if (options.n_prompt_tokens + options.n_tokens > context) return Ok{};
    LLM_TRY(CheckResult result, check_cached_generation(model, kv, options));
    result.name = fmt::format("{}, {}: with and without a cache, {}", mode_, isa_name(model->isa()),
                              result.name);
    results_.push_back(std::move(result));
    return Ok{};
  }

  const std::string& path_;
  const SelfCheckOptions& options_;
  ModelPointer base_;
  bool small_ = true;
  Compute compute_ = Compute::kInt8;
  std::string mode_;
  std::vector<TokenId> tokens_;
  Logits expected_;
  std::size_t done_ = 0;
  std::size_t n_paths_ = 0;
  std::vector<CheckResult> results_;
};

}  // namespace

Result<std::vector<CheckResult>> self_check(const std::string& model_path,
                                            const SelfCheckOptions& options) {
  return SelfCheck(model_path, options).run();
}

}  // namespace llm
