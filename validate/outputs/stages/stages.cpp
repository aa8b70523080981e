#include "validate/outputs/stages/stages.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/shown_text.h"
#include "engine/generation/generate.h"
#include "validate/reference/diff/likelihood.h"
#include "validate/reference/diff/metrics.h"

namespace llm {
namespace {

constexpr int kOutside = ProbeSink::kGlobal;
/// Stages without which nothing is said of a model as a whole.
constexpr std::size_t kFewest = 3;

struct StageWords {
  std::string_view name;
  std::string_view hint;
};

constexpr std::array<StageWords, kStages> kWords = {{
    {"embedding",
     "the token ids and BOS that the reference was made with (llmtok --ids), dequantization of "
     "token_embd.weight, the order of its rows"},
    {"layer 0",
     "the op named here: norm eps and weight, RoPE style (neighbours or halves) and theta, the map "
     "of heads to KV heads, scale and mask of attention, the activation, gate and up exchanged, "
     "the residual"},
    {"all layers",
     "what differs between layers: tensors of the wrong layer, types that only later layers have, "
     "the layer's place in the cache, the residual that is passed on"},
    {"second token (KV cache)",
     "what only a pass with one token does: its position, where its keys and values are stored and "
     "read, the keys it may see, products with one row"},
    {"logits", "output_norm, the head (output.weight, or token_embd.weight when tied), its type"},
    {"text",
     "how text is generated from logits: which row is used, its largest value, ties, the cache "
     "over many steps"},
}};

std::size_t index_of(Stage stage) { return static_cast<std::size_t>(stage); }

/// The first tokens of a dump as another split into calls: a reference for that run.
Result<Dump> with_steps(const Dump& dump, const TapFlow& flow,
                        std::span<const std::int64_t> step_ptr) {
  struct Read {
    int layer;
    std::string_view name;
    TapMatrix matrix;
  };
  std::vector<Read> taps;
  for (const auto& [tap, layer] : taps_of_model(flow)) {
    if (!dump.has(layer, tap->name)) continue;
    LLM_TRY(TapMatrix matrix, dump.tap(layer, tap->name));
    taps.push_back({layer, tap->name, std::move(matrix)});
  }
  Recorder recorder;
  for (std::size_t s = 0; s + 1 < step_ptr.size(); ++s) {
    const auto begin = static_cast<std::size_t>(step_ptr[s]);
    const auto n = static_cast<std::size_t>(step_ptr[s + 1]) - begin;
    recorder.begin_step(dump.tokens().subspan(begin, n), begin);
    for (Read& tap : taps) {
      const std::size_t features = tap.matrix.features;
      recorder.tap(tap.layer, tap.name,
                   std::span(tap.matrix.values).subspan(begin * features, n * features), features,
                   0);
    }
  }
  return std::move(recorder).finish(dump.meta());
}

/// What one comparison says to a stage.
struct Answer {
  Stage stage;
  bool failed;
  bool held;     ///< to the reference, and not to the definition alone
  double share;  ///< the error in units of its limit; 0 where there is none
  std::string words;
};

std::string figures_of(const LayerDiffRow& row) {
  if (!row.note.empty()) return row.note;
  for (const Limit& limit : row.limits) {
    const double value = metric_value(limit.metric, row.error);
    if (!(value <= limit.bound))
      return fmt::format("{} {:.2e}, limit {:.1e}", metric_name(limit.metric), value, limit.bound);
  }
  return fmt::format("nmse {:.2e}", row.error.nmse);
}

std::string shown_token(const Model& model, TokenId id) {
  return fmt::format("{} ({})", id, quoted(model.tokenizer().piece_text(id, true)));
}

Result<std::vector<float>> logits_of(const std::shared_ptr<const Model>& model, ComputeMode mode,
                                     std::span<const std::int32_t> tokens) {
  LLM_TRY(const auto in_mode, model->with_compute(mode.compute));
  LLM_TRY(const auto session, open_sequence(in_mode, {.context = tokens.size(), .kv = mode.kv}));
  const std::vector<TokenId> ids(tokens.begin(), tokens.end());
  LLM_TRY(const auto logits, session->evaluate(ids, LogitRows::kAll));
  return std::vector<float>(logits.begin(), logits.end());
}

class Stages {
 public:
  Stages(const LoadMode& load, const Dump& reference, const StagesOptions& options)
      : load_(load), reference_(reference), options_(options) {}

  Result<StagesOutcome> run() {
    for (const ComputeMode mode : options_.modes) {
      LLM_TRY(const auto model, load_(mode.compute));
      const auto n = static_cast<std::int64_t>(reference_.tokens().size());
      LLM_RETURN_IF_ERROR(run_split(model, mode, std::vector<std::int64_t>{0, n}, false));
      if (n > 1) LLM_RETURN_IF_ERROR(run_split(model, mode, {0, 1, 2}, true));
      // A mode whose logits are no numbers is a tap's fault, which has been told.
      if (mode.compute != Compute::kInt8) continue;
      if (const Status status = run_logits(model, mode);
          !status.ok() && status.error().code != ErrorCode::kNonFinite)
        return status.error();
    }
    const Status text = run_text();
    if (!text.ok() && text.error().code != ErrorCode::kNonFinite) return text.error();
    if (!text.ok()) add_failure(Stage::kText, text.error().message);
    return finish();
  }

 private:
  /// One run of the reference's first tokens, in such calls.
  Status run_split(const std::shared_ptr<const Model>& model, ComputeMode mode,
                   const std::vector<std::int64_t>& step_ptr, bool is_second_token) {
    LLM_TRY(const Dump part, with_steps(reference_, reference_.flow(), step_ptr));
    LayerCheckOptions options;
    options.model_sha256 = options_.model_sha256;
    options.progress = options_.progress;
    LLM_TRY(const auto sections, check_layers(model, mode, part, options));
    const bool has_layers =
        std::ranges::any_of(layer_taps(), [&](const Tap& tap) { return part.has(0, tap.name); });
    for (const DiffSection& section : sections) {
      for (const LayerDiffRow& row : section.diff.rows) {
        if (section.judged && (!is_second_token || (row.layer == kOutside) != has_layers))
          add(is_second_token ? Stage::kSecondToken : stage_of(row), section, row);
        if (row.tap == "logits" && mode.compute == Compute::kF32 && section.name.ends_with("-run"))
          noise_ = std::max(noise_, row.error.max_abs);
      }
      add_whole(is_second_token ? Stage::kSecondToken : Stage::kEmbedding, section);
    }
    return Ok{};
  }

  static Stage stage_of(const LayerDiffRow& row) {
    if (row.layer == kOutside) return row.tap == "embd" ? Stage::kEmbedding : Stage::kLogits;
    return row.layer == 0 ? Stage::kFirstLayer : Stage::kAllLayers;
  }

  void add_failure(Stage stage, std::string words) {
    answers_.push_back({stage, true, true, 0, std::move(words)});
  }

  void add(Stage stage, const DiffSection& section, const LayerDiffRow& row) {
    std::string words =
        fmt::format("{} {}: {}", section.name, tap_label(row.layer, row.tap), figures_of(row));
    if (row.fails()) {
      for (const Finding& f : section.location.findings)
        if (f.layer == row.layer && f.tap == row.tap) words += "; " + f.op;
      add_failure(stage, std::move(words));
    } else if (row.verdict == TapVerdict::kPass) {
      double share = 0;
      for (const Limit& limit : row.limits)
        share = std::max(share, metric_value(limit.metric, row.error) / limit.bound);
      answers_.push_back({stage, false, !section.name.ends_with("-bits"), share, std::move(words)});
    }
  }

  /// What is wrong with a comparison as a whole: other tokens, another vocabulary, other
  /// hyper-parameters.
  void add_whole(Stage stage, const DiffSection& section) {
    for (const std::string& problem : section.diff.problems)
      add_failure(stage, fmt::format("{}: {}", section.name, problem));
    for (const std::string& remark : section.diff.remarks) {
      if (remarks_.find(remark) == std::string::npos) remarks_ += "; " + remark;
    }
    for (const std::string& text : section.location.preflight)
      add_failure(Stage::kFirstLayer, "preflight: " + text);
  }

  /// Logits of a mode that rounds activations, whose cost check_layers() shows and does not judge.
  /// What int8 costs this model is known from itself: logits that are further than ten times that
  /// from the reference's are not of this model, but of one scale, one-hot, or of other tokens.
  Status run_logits(const std::shared_ptr<const Model>& model, ComputeMode mode) {
    constexpr double kUnits = 10;
    // Of a model whose weights take no codes: what rounding to f32 and to f16 may do.
    constexpr double kLeastLimit = 1e-6;
    if (!reference_.has(kOutside, "logits")) return Ok{};
    LLM_TRY(const TapMatrix expected, reference_.tap(kOutside, "logits"));
    LLM_TRY(const auto rounded, logits_of(model, mode, reference_.tokens()));
    LLM_TRY(const auto exact, logits_of(model, {Compute::kF32, KvType::kF32}, reference_.tokens()));
    if (rounded.size() != expected.values.size()) return Ok{};
    const double error = nmse(rounded, expected.values);
    const double limit = std::max(kLeastLimit, kUnits * nmse(rounded, exact));
    if (options_.modes[0].compute == Compute::kInt8) noise_ = max_abs_difference(rounded, exact);
    answers_.push_back({Stage::kLogits, !(error <= limit), true, error / limit,
                        fmt::format("int8 logits: nmse {:.2e}, limit {:.1e}", error, limit)});
    return Ok{};
  }

  /// Generates after the reference's prompt as llmrun does with --temp 0. Where the choices differ
  /// although the reference's logits of both are within twice the noise, they are a tie, and what
  /// follows is not compared.
  Status run_text() {
    LLM_TRY(const auto greedy, greedy_text(reference_));
    if (!greedy) return Ok{};
    const std::vector<TokenId>& expected = greedy->tokens;
    const ComputeMode mode = options_.modes[0];
    LLM_TRY(const auto model, load_(mode.compute));
    LLM_TRY(
        const auto session,
        open_sequence(model, {.context = greedy->prompt.size() + expected.size(), .kv = mode.kv}));
    GenerateOptions options;
    options.sampler.temperature = 0;
    options.max_tokens = expected.size();
    LLM_TRY(const GenerateResult result, generate(*session, greedy->prompt, options));
    const std::vector<TokenId>& chosen = result.ids;
    const auto agreed =
        static_cast<std::size_t>(std::ranges::mismatch(chosen, expected).in1 - chosen.begin());
    std::string words = fmt::format("{} of {} tokens after {} of the reference's", agreed,
                                    expected.size(), greedy->prompt.size());
    bool passed = agreed == expected.size();
    if (!passed && agreed == chosen.size()) {
      const auto& ends = model->tokenizer().spec().end_of_generation;
      passed = result.stop_reason == StopReason::kEos &&
               std::ranges::find(ends, expected[agreed]) != ends.end();
      words += passed ? ", which end the text"
                      : fmt::format(", then the text ended; the reference has {}",
                                    shown_token(*model, expected[agreed]));
    } else if (!passed) {
      LLM_TRY(const TapMatrix logits, reference_.tap(kOutside, "logits"));
      const auto row = logits.row(greedy->prompt.size() + agreed - 1);
      const double gap = static_cast<double>(row[static_cast<std::size_t>(expected[agreed])]) -
                         static_cast<double>(row[static_cast<std::size_t>(chosen[agreed])]);
      passed = gap <= 2 * noise_;
      words += fmt::format(
          "; then {}, the reference {}, {} {:.4g} apart", shown_token(*model, chosen[agreed]),
          shown_token(*model, expected[agreed]), passed ? "a tie," : "their logits", gap);
    }
    answers_.push_back({Stage::kText, !passed, true, 0, std::move(words)});
    return Ok{};
  }

  StagesOutcome finish() const {
    StagesOutcome out;
    out.table = {.title = "Stages",
                 .name = "stages",
                 .columns = {"stage", "answers", "failed", "of its limit", "verdict"},
                 .rows = {}};
    std::optional<std::size_t> first;
    for (std::size_t i = 0; i < kStages; ++i) {
      std::vector<const Answer*> all;
      std::vector<const Answer*> failed;
      const Answer* nearest = nullptr;
      bool held = false;
      for (const Answer& answer : answers_) {
        if (index_of(answer.stage) != i) continue;
        all.push_back(&answer);
        held = held || answer.held;
        if (answer.failed)
          failed.push_back(&answer);
        else if (nearest == nullptr || answer.share > nearest->share)
          nearest = &answer;
      }
      const std::string name = fmt::format("stage {}, {}", i + 1, kWords[i].name);
      if (!held) {
        out.not_covered.push_back(name + ": the reference does not have the data to check it");
        continue;
      }
      const bool has_share = nearest != nullptr && nearest->share > 0;
      CheckResult check{name, failed.empty(), {}, first.has_value()};
      if (check.passed && i == index_of(Stage::kText)) {
        check.detail = nearest->words;
      } else if (check.passed) {
        check.detail =
            fmt::format("{} right{}{}", all.size(), has_share ? "; nearest to its limit " : "",
                        has_share ? nearest->words : "");
      } else if (first) {
        check.detail = fmt::format("may be caused by stage {}; {}", *first + 1, failed[0]->words);
      } else {
        check.detail = fmt::format(
            "{}{}{}; look at: {}", failed[0]->words,
            failed.size() > 1 ? fmt::format(" (and {} more)", failed.size() - 1) : std::string(),
            remarks_, kWords[i].hint);
        first = i;
      }
      out.table.rows.push_back(
          {{std::string(kWords[i].name)},
           Figure::count(all.size()),
           Figure::count(failed.size()),
           has_share ? Figure::number(nearest->share, 2) : Figure{"-"},
           {check.undecided && !check.passed ? "FOLLOWS"
                                             : std::string(verdict_name(check.verdict()))}});
      out.checks.push_back(std::move(check));
    }
    if (out.checks.size() < kFewest) {
      out.checks.push_back(
          {.name = "stages that the reference can check",
           .detail = fmt::format("{} of {}, need {} to say that the model is right",
                                 out.checks.size(), kStages, kFewest),
           .undecided = true});
    }
    return out;
  }

  const LoadMode& load_;
  const Dump& reference_;
  const StagesOptions& options_;
  std::vector<Answer> answers_;
  std::string remarks_;  ///< what else is known of the reference, each after "; "
  double noise_ = 0;     ///< the largest difference of a logit from the reference's
};

}  // namespace

std::string_view stage_hint(Stage stage) { return kWords[index_of(stage)].hint; }

Result<std::optional<GreedyText>> greedy_text(const Dump& reference) {
  if (!reference.has(kOutside, "logits")) return std::optional<GreedyText>();
  LLM_TRY(const TapMatrix logits, reference.tap(kOutside, "logits"));
  const std::span<const std::int32_t> tokens = reference.tokens();
  const auto choice = [&](std::size_t row) {
    return static_cast<TokenId>(top_token(logits.row(row)));
  };
  std::size_t begin = tokens.size();
  while (begin > 1 && choice(begin - 2) == tokens[begin - 1]) --begin;
  const auto middle = tokens.begin() + static_cast<std::ptrdiff_t>(begin);
  GreedyText out{{tokens.begin(), middle}, {middle, tokens.end()}};
  out.tokens.push_back(choice(tokens.size() - 1));
  return std::optional(std::move(out));
}

Result<StagesOutcome> check_stages(const LoadMode& load, const Dump& reference,
                                   const StagesOptions& options) {
  return Stages(load, reference, options).run();
}

}  // namespace llm
