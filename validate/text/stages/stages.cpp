#include "validate/text/stages/stages.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "validate/text/stages/stage_text.h"

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
     "what tells layers apart: tensors bound to another layer, types that only later layers have, "
     "the layer's place in the cache, the residual that is carried on"},
    {"second token (KV cache)",
     "what only a token by itself does: its position, where its keys and values are stored and "
     "read, the keys it may see, products with one row"},
    {"logits", "output_norm, the head (output.weight, or token_embd.weight when tied), its type"},
    {"text",
     "what makes text of logits: which row is asked for, the largest of it, ties, the cache over "
     "many steps"},
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

/// What is known of a stage.
struct Found {
  std::size_t judged = 0;  ///< answers
  std::size_t held = 0;    ///< of these, to the reference, and not to the definition alone
  std::size_t failed = 0;
  double nearest = 0;  ///< the largest error in units of its limit, of answers with one
  std::string nearest_words = {};
  std::string first = {};  ///< the first failure, in words

  void add_failure(std::string words) {
    ++judged;
    if (failed++ == 0) first = std::move(words);
  }
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
      if (mode.compute == Compute::kInt8) LLM_RETURN_IF_ERROR(run_logits(model, mode));
    }
    LLM_RETURN_IF_ERROR(run_text());
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

  void add(Stage stage, const DiffSection& section, const LayerDiffRow& row) {
    Found& found = found_[index_of(stage)];
    const std::string label = fmt::format("{} {}", section.name, tap_label(row.layer, row.tap));
    switch (row.verdict) {
      case TapVerdict::kFail:
      case TapVerdict::kMissing: {
        std::string words = fmt::format("{}: {}", label, figures_of(row));
        for (const Finding& f : section.location.findings) {
          if (f.layer == row.layer && f.tap == row.tap) words += fmt::format("; {}", f.op);
        }
        found.add_failure(std::move(words));
        break;
      }
      case TapVerdict::kPass:
        ++found.judged;
        if (!section.name.ends_with("-bits")) ++found.held;
        for (const Limit& limit : row.limits) {
          const double share = metric_value(limit.metric, row.error) / limit.bound;
          if (!(share > found.nearest)) continue;
          found.nearest = share;
          found.nearest_words = fmt::format("{}: {}", label, figures_of(row));
        }
        break;
      case TapVerdict::kShown:
      case TapVerdict::kAbsent:
        break;
    }
  }

  /// What is wrong with a comparison as a whole: other tokens, another vocabulary, other
  /// hyper-parameters.
  void add_whole(Stage stage, const DiffSection& section) {
    for (const std::string& problem : section.diff.problems)
      found_[index_of(stage)].add_failure(fmt::format("{}: {}", section.name, problem));
    for (const std::string& remark : section.diff.remarks) {
      if (remarks_.find(remark) == std::string::npos) remarks_ += "; " + remark;
    }
    for (const std::string& text : section.location.preflight)
      found_[index_of(Stage::kFirstLayer)].add_failure(fmt::format("preflight: {}", text));
  }

  /// Logits of int8, whose cost check_layers() shows and does not judge.
  Status run_logits(const std::shared_ptr<const Model>& model, ComputeMode mode) {
    auto logits = check_logits(model, mode, reference_);
    if (!logits.ok() && logits.error().code == ErrorCode::kNonFinite) return Ok{};  // a tap's fault
    if (!logits.ok()) return std::move(logits).error();
    if (!*logits) return Ok{};
    if (options_.modes[0].compute == Compute::kInt8) noise_ = (*logits)->noise;
    const double share = (*logits)->error / (*logits)->limit;
    std::string words =
        fmt::format("int8 logits: nmse {:.2e}, limit {:.1e}", (*logits)->error, (*logits)->limit);
    Found& found = found_[index_of(Stage::kLogits)];
    if (!(share <= 1)) {
      found.add_failure(std::move(words));
      return Ok{};
    }
    ++found.judged;
    ++found.held;
    if (share > found.nearest) {
      found.nearest = share;
      found.nearest_words = std::move(words);
    }
    return Ok{};
  }

  Status run_text() {
    const ComputeMode mode = options_.modes[0];
    LLM_TRY(const auto model, load_(mode.compute));
    auto text = check_text(model, mode.kv, reference_, noise_);
    Found& found = found_[index_of(Stage::kText)];
    if (!text.ok() && text.error().code == ErrorCode::kNonFinite) {
      found.add_failure(text.error().message);
      return Ok{};
    }
    if (!text.ok()) return std::move(text).error();
    if (!*text) return Ok{};
    text_ = (*text)->words;
    ++found.judged;
    ++found.held;
    if ((*text)->passed) return Ok{};
    ++found.failed;
    found.first = text_;
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
      const Found& found = found_[i];
      const std::string name = fmt::format("stage {}, {}", i + 1, kWords[i].name);
      if (found.held + found.failed == 0) {
        out.not_covered.push_back(name + ": the reference has nothing to judge it by");
        continue;
      }
      CheckResult check{name, found.failed == 0, {}, first.has_value()};
      if (check.passed && i == index_of(Stage::kText)) {
        check.detail = text_;
      } else if (check.passed) {
        check.detail = fmt::format("{} right{}{}", found.judged,
                                   found.nearest_words.empty() ? "" : "; nearest to its limit ",
                                   found.nearest_words);
      } else if (first) {
        check.detail = fmt::format("may follow from stage {}; {}", *first + 1, found.first);
      } else {
        check.detail = fmt::format(
            "{}{}{}; look at: {}", found.first,
            found.failed > 1 ? fmt::format(" (and {} more)", found.failed - 1) : std::string(),
            remarks_, kWords[i].hint);
        first = i;
      }
      out.table.rows.push_back(
          {{std::string(kWords[i].name)},
           Figure::count(found.judged),
           Figure::count(found.failed),
           found.nearest > 0 ? Figure::number(found.nearest, 2) : Figure{"-"},
           {check.undecided && !check.passed ? "FOLLOWS"
                                             : std::string(verdict_name(check.verdict()))}});
      out.checks.push_back(std::move(check));
    }
    if (out.checks.size() < kFewest) {
      out.checks.push_back(
          {.name = "stages that the reference judges",
           .detail = fmt::format("{} of {}, need {} to say that the model is right",
                                 out.checks.size(), kStages, kFewest),
           .undecided = true});
    }
    return out;
  }

  const LoadMode& load_;
  const Dump& reference_;
  const StagesOptions& options_;
  std::array<Found, kStages> found_;
  std::string remarks_;  ///< what else is known of the reference, each after "; "
  std::string text_;     ///< what the greedy run gave, in words
  double noise_ = 0;     ///< the largest difference of a logit from the reference's
};

}  // namespace

std::string_view stage_hint(Stage stage) { return kWords[index_of(stage)].hint; }

Result<StagesOutcome> check_stages(const LoadMode& load, const Dump& reference,
                                   const StagesOptions& options) {
  return Stages(load, reference, options).run();
}

}  // namespace llm
