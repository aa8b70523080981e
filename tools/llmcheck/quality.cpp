#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/atomic_file.h"
#include "base/sha256.h"
#include "tools/llmcheck/run.h"
#include "validate/outputs/quality/baseline.h"
#include "validate/outputs/quality/sweep.h"
#include "validate/outputs/quality/text_windows.h"
#include "validate/reference/diff/likelihood.h"
#include "validate/reference/dump/dump.h"
#include "validate/reference/dump/engine_dump.h"

namespace llm {
namespace {

constexpr std::size_t kSampledWindow = 32;
constexpr double kPercent = 100;
constexpr std::size_t kMaxBaselineBytes = std::size_t{16} << 20;
constexpr std::string_view kDocuments = "documents";

/// What one model makes of the text, and how it compares with the reference, if there is one.
struct Scores {
  std::string path;
  std::uint64_t file_bytes = 0;
  std::vector<double> nll;
  std::vector<double> difference;  ///< nll - the reference's
  Divergence divergence;
};

class QualityRun {
 public:
  explicit QualityRun(CheckRun& run) : run_(run) {}

  Status run() {
    if (!a_.ppl.empty()) LLM_RETURN_IF_ERROR(perplexity());
    if (!a_.kld.empty()) LLM_RETURN_IF_ERROR(divergence());
    if (!a_.quality.empty()) LLM_RETURN_IF_ERROR(quality());
    bar_.clear();
    return Ok{};
  }

 private:
  Result<ModelPointer> load(const std::string& path) {
    return run_.load_file(path, path == path_ ? run_.sha256 : std::string(),
                          a_.compute == CheckCompute::kF32 ? Compute::kF32 : Compute::kInt8);
  }

  /// With the cache that --kv asks for, or as a reference.
  Result<std::unique_ptr<Sequence>> open_asked(const ModelPointer& model, std::size_t context) {
    return open_sequence(model, {.context = context, .kv = a_.cache_for(model->compute())});
  }
  static Result<std::unique_ptr<Sequence>> open_reference(const ModelPointer& model,
                                                          std::size_t context) {
    return open_sequence(model, {.context = context, .kv = usual_kv(model->compute())});
  }

  /// The text of --ppl in windows, all as `model` encodes it.
  Result<std::vector<TextWindow>> windows(const Model& model) {
    window_ = a_.ppl_window;
    if (window_ == 0) window_ = a_.ppl_sample > 0 ? kSampledWindow : model.config().context;
    LLM_TRY(const std::string text, read_text_file(a_.ppl, Tokenizer::kMaxTextBytes));
    return in_file(text_windows(model.tokenizer(), text,
                                {.window = window_,
                                 .sample = a_.ppl_sample,
                                 .documents = a_.ppl_documents,
                                 .seed = a_.seed}),
                   a_.ppl);
  }

  std::string text_facts(std::span<const TextWindow> windows) const {
    return fmt::format("{}, {} tokens in {} windows of {}{}{}{}", a_.ppl, count_targets(windows),
                       windows.size(), window_,
                       a_.ppl_sample > 0 ? fmt::format(" drawn with seed {}", a_.seed) : "",
                       a_.ppl_documents ? ", by document" : "",
                       a_.kv ? fmt::format(", {} cache", kv_name(*a_.kv)) : "");
  }

  /// @param is_reference  of --against
  Result<Scores> score(const std::string& path, bool is_reference,
                       std::span<const TextWindow> windows) {
    LLM_TRY(const ModelPointer model, load(path));
    LLM_TRY(const auto session,
            is_reference ? open_reference(model, window_) : open_asked(model, window_));
    Scores scores{path, model->file_bytes(), {}, {}, {}};
    LLM_RETURN_IF_ERROR(visit_rows(
        *session, windows,
        [&](std::span<const float> logits, TokenId target) {
          scores.nll.push_back(negative_log_likelihood(logits, target));
        },
        std::ref(bar_)));
    return scores;
  }

  /// Scores `path` and the reference side by side, so that no logits need to be kept.
  Result<Scores> score_against(const std::string& path, const ModelPointer& reference,
                               std::span<const TextWindow> windows) {
    LLM_TRY(const ModelPointer model, load(path));
    LLM_TRY(const auto session, open_asked(model, window_));
    LLM_TRY(const auto other, open_reference(reference, window_));
    Scores scores{path, model->file_bytes(), {}, {}, {}};
    DivergenceCollector collector;
    auto status = visit_row_pairs(
        *session, other.get(), windows,
        [&](std::span<const float> logits, std::span<const float> expected, TokenId target) {
          scores.nll.push_back(negative_log_likelihood(logits, target));
          scores.difference.push_back(scores.nll.back() -
                                      negative_log_likelihood(expected, target));
          collector.add(logits, expected, target);
        },
        std::ref(bar_));
    LLM_RETURN_IF_ERROR(in_file(std::move(status), path));
    scores.divergence = collector.finish();
    return scores;
  }

  Status perplexity() {
    const std::string& first = a_.against.empty() ? path_ : a_.against;
    LLM_TRY(ModelPointer reference, load(first));
    LLM_TRY(const std::vector<TextWindow> text, windows(*reference));
    if (a_.against.empty()) reference.reset();
    std::vector<Scores> all;
    LLM_TRY(Scores own, score(first, !a_.against.empty(), text));
    all.push_back(std::move(own));
    std::vector<std::string> others = a_.also;
    if (reference) others.insert(others.begin(), path_);
    for (const std::string& other : others) {
      LLM_TRY(Scores scores,
              reference ? score_against(other, reference, text) : score(other, false, text));
      all.push_back(std::move(scores));
    }
    report_.figures.push_back(perplexity_table(all, text_facts(text)));
    return Ok{};
  }

  FigureTable perplexity_table(const std::vector<Scores>& all, const std::string& text) const {
    FigureTable table{.title = "Perplexity of " + text,
                      .name = "perplexity",
                      .columns = {"model", "MB", "tokens", "nll", "+-", "perplexity"},
                      .rows = {}};
    if (!a_.against.empty()) {
      for (const char* column : {"change %", "d nll", "+- d", "KL mean", "KL p99", "same top %"})
        table.columns.emplace_back(column);
    }
    for (const Scores& scores : all) {
      const MeanEstimate nll = estimate_mean(scores.nll);
      std::vector<Figure> row = {{std::filesystem::path(scores.path).stem().string()},
                                 Figure::fixed(static_cast<double>(scores.file_bytes) / 1e6, 2),
                                 Figure::count(nll.count),
                                 Figure::fixed(nll.mean, 6),
                                 Figure::fixed(nll.standard_error, 4),
                                 Figure::fixed(std::exp(nll.mean), 5)};
      if (!a_.against.empty() && scores.difference.empty()) {
        for (int i = 0; i < 6; ++i) row.push_back({"-"});
      } else if (!a_.against.empty()) {
        const MeanEstimate d = estimate_mean(scores.difference);
        row.push_back(Figure::fixed((std::exp(d.mean) - 1) * kPercent, 3));
        row.push_back(Figure::fixed(d.mean, 6));
        row.push_back(Figure::fixed(d.standard_error, 6));
        row.push_back(Figure::number(scores.divergence.kl_mean, 4));
        row.push_back(Figure::number(scores.divergence.kl_p99, 4));
        row.push_back(Figure::fixed(scores.divergence.top1_agreement * kPercent, 2));
      }
      table.rows.push_back(std::move(row));
    }
    return table;
  }

  Status divergence() {
    if (a_.kld.ends_with(".npz")) return divergence_from_dump();
    LLM_TRY(const ModelPointer reference, load(a_.kld));
    LLM_TRY(const std::vector<TextWindow> text, windows(*reference));
    LLM_TRY(const Scores scores, score_against(path_, reference, text));
    report_.figures.push_back(divergence_table(scores.divergence, text_facts(text)));
    return Ok{};
  }

  Status divergence_from_dump() {
    LLM_TRY(const Dump dump, Dump::load(a_.kld));
    LLM_TRY(const TapMatrix expected, dump.tap(ProbeSink::kGlobal, "logits"));
    LLM_TRY(const ModelPointer model, load(path_));
    const std::size_t n_vocab = model->config().n_vocab;
    const auto tokens = dump.tokens();
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (dump.positions()[i] != static_cast<std::int32_t>(i)) {
        return in_file(Error{ErrorCode::kUnsupported, "positions", "need 0, 1, 2, ..."}, a_.kld);
      }
    }
    if (expected.features != n_vocab || expected.rows != tokens.size()) {
      return in_file(Error{ErrorCode::kMalformed, "logits",
                           fmt::format("found {} x {}, need {} x {} (tokens x vocabulary)",
                                       expected.rows, expected.features, tokens.size(), n_vocab)},
                     a_.kld);
    }
    if (!is_finite(expected)) return Ok{};
    // The last row has no following token.
    TextWindow window{{tokens.begin(), tokens.end()}, {tokens.begin() + 1, tokens.end()}};
    window.targets.push_back(-1);
    LLM_TRY(const auto session, open_asked(model, tokens.size()));
    DivergenceCollector collector;
    std::size_t row = 0;
    LLM_RETURN_IF_ERROR(visit_rows(
        *session, std::span(&window, 1),
        [&](std::span<const float> logits, TokenId target) {
          collector.add(logits, std::span(expected.values).subspan(row++ * n_vocab, n_vocab),
                        target);
        },
        std::ref(bar_)));
    report_.figures.push_back(
        divergence_table(collector.finish(), fmt::format("{} tokens", tokens.size())));
    return Ok{};
  }

  /// Whether the reference's logits are numbers; else a failed check says where they are not.
  bool is_finite(const TapMatrix& logits) {
    const auto at =
        std::ranges::find_if_not(logits.values, [](float x) { return std::isfinite(x); });
    if (at == logits.values.end()) return true;
    const auto i = static_cast<std::size_t>(at - logits.values.begin());
    report_.checks.push_back(
        {fmt::format("{}: the logits are numbers", a_.kld), false,
         fmt::format("{}: found {} at position {}, token {}; no divergence is computed",
                     tap_label(ProbeSink::kGlobal, "logits"), *at, i / logits.features,
                     i % logits.features)});
    return false;
  }

  Status quality() {
    LLM_TRY(const ModelPointer model, load(path_));
    LLM_TRY(const std::string text, read_text_file(a_.quality, Tokenizer::kMaxTextBytes));
    std::vector<QualityResult> results;
    for (const Implementation& implementation : quality_implementations()) {
      auto result = measure_quality(model, implementation, text, {}, std::ref(bar_));
      LLM_TRY(QualityResult measured, in_file(std::move(result), a_.quality));
      results.push_back(std::move(measured));
    }
    report_.figures.push_back(quality_table(results));
    run_.add(check_equality(results));
    if (a_.baseline.empty()) return Ok{};
    const BaselineOrigin origin =
        run_.origin(a_.update_baseline, sha256_hex(std::as_bytes(std::span(text))));
    if (!a_.update_baseline.empty()) return freeze(model, results, text, origin);
    for (const QualityResult& result : results)
      LLM_RETURN_IF_ERROR(against_baseline(result, origin));
    return documents_against_baseline(model, text, origin);
  }

  std::string baseline_path(std::string_view name) const {
    return fmt::format("{}/{}.json", a_.baseline, name);
  }

  Status freeze(const ModelPointer& model, const std::vector<QualityResult>& results,
                const std::string& text, const BaselineOrigin& origin) {
    const auto write = [&](std::string_view name, const std::string& json) {
      return write_file_atomically(baseline_path(name), std::as_bytes(std::span(json)));
    };
    for (const QualityResult& result : results) {
      QualityBaseline made = make_baseline(result, {});
      made.origin = origin;
      LLM_RETURN_IF_ERROR(write(result.name, baseline_json(made)));
    }
    DocumentBaseline made{.origin = origin, .documents = {}};
    const auto never = [](std::span<const DocumentScore>) { return false; };
    LLM_TRY(made.documents, score_documents(model, text, made.seed, never, std::ref(bar_)));
    return write(kDocuments, document_baseline_json(made));
  }

  /// The baseline of that name, which must be of this text.
  template <typename Baseline>
  Result<Baseline> read_baseline(std::string_view name, const BaselineOrigin& origin,
                                 Result<Baseline> (*parse)(std::string_view)) {
    const std::string file = baseline_path(name);
    LLM_TRY(Baseline baseline, parse_file(file, kMaxBaselineBytes, parse));
    if (baseline.origin.text_sha256 == origin.text_sha256) return baseline;
    return in_file(Error{ErrorCode::kIntegrity, "text_sha256",
                         fmt::format("found {}, need {}, the text's", baseline.origin.text_sha256,
                                     origin.text_sha256)},
                   file);
  }

  Status against_baseline(const QualityResult& result, const BaselineOrigin& origin) {
    LLM_TRY(const QualityBaseline baseline, read_baseline(result.name, origin, parse_baseline));
    if (baseline.implementation != result.name) {
      return in_file(
          Error{ErrorCode::kIntegrity, "implementation",
                fmt::format("found \"{}\", need \"{}\"", baseline.implementation, result.name)},
          baseline_path(result.name));
    }
    run_.add(check_against(result, origin.model_sha256, baseline));
    return Ok{};
  }

  Status documents_against_baseline(const ModelPointer& model, const std::string& text,
                                    const BaselineOrigin& origin) {
    LLM_TRY(const DocumentBaseline baseline,
            read_baseline(kDocuments, origin, parse_document_baseline));
    auto checked = check_documents(model, text, baseline, std::ref(bar_));
    LLM_TRY(CheckResult check, in_file(std::move(checked), baseline_path(kDocuments)));
    run_.add({std::move(check)});
    return Ok{};
  }

  FigureTable quality_table(const std::vector<QualityResult>& results) const {
    FigureTable table{
        .title = fmt::format("Text generated from {}", a_.quality),
        .name = "quality",
        .columns = {"way", "perplexity", "repetition", "distinct-2", "distinct-3", "consistency"},
        .rows = {}};
    for (const QualityResult& r : results) {
      table.rows.push_back({{r.name},
                            Figure::fixed(r.perplexity, 4),
                            Figure::fixed(r.repetition, 4),
                            Figure::fixed(r.distinct2, 4),
                            Figure::fixed(r.distinct3, 4),
                            Figure::fixed(r.consistency, 3)});
    }
    return table;
  }

  FigureTable divergence_table(const Divergence& d, const std::string& text) const {
    return {.title = fmt::format("KL divergence from {} over {}", a_.kld, text),
            .name = "kld",
            .columns = {"model", "positions", "mean", "median", "p90", "p99", "p99.9", "max",
                        "same top %", "rms delta-p %"},
            .rows = {{{std::filesystem::path(path_).stem().string()},
                      Figure::count(d.positions),
                      Figure::number(d.kl_mean, 5),
                      Figure::number(d.kl_median, 4),
                      Figure::number(d.kl_p90, 4),
                      Figure::number(d.kl_p99, 4),
                      Figure::number(d.kl_p999, 4),
                      Figure::number(d.kl_max, 4),
                      Figure::fixed(d.top1_agreement * kPercent, 3),
                      Figure::fixed(d.delta_p_rms * kPercent, 4)}}};
  }

  CheckRun& run_;
  const CheckArguments& a_ = run_.a;
  const std::string& path_ = run_.path;
  ProgressBar& bar_ = run_.bar;
  Report& report_ = run_.report;
  std::size_t window_ = 0;
};

}  // namespace

Status run_quality_checks(CheckRun& run) { return QualityRun(run).run(); }

}  // namespace llm
