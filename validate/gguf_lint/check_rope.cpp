#include <fmt/core.h>

#include <cmath>
#include <string_view>

#include "base/shown_text.h"
#include "validate/gguf_lint/checks.h"

namespace llm {
namespace {

/// Facts from the published config.json files: bases grew with contexts. With 10,000 the models of
/// these architectures were trained on 4,096 positions, or attend to a window; two of 8,192 are
/// known.
constexpr double kOldBase = 10000;
constexpr std::int64_t kLongContext = 8192;

class RopeCheck {
 public:
  explicit RopeCheck(LintContext& patient)
      : patient_(patient),
        architecture_(*patient.architecture()),
        context_(patient.integer(key("context_length")).value_or(0)) {}

  void run() {
    check_base();
    check_scaling();
    check_factors();
    check_window();
  }

 private:
  std::string key(std::string_view suffix) const { return patient_.key(suffix); }
  bool has_tensor(std::string_view name) const {
    return patient_.gguf().find_tensor(name) != nullptr;
  }
  bool has_factors() const {
    return has_tensor("rope_freqs.weight") || has_tensor("rope_factors_long.weight");
  }
  std::string_view scaling() const { return patient_.text(key("rope.scaling.type")); }
  /// Whether positions, or all but a few layers' reach, stay within what a base was made for.
  bool is_scaled() const {
    const double factor = patient_.number(key("rope.scaling.factor"))
                              .value_or(patient_.number(key("rope.scale_linear")).value_or(1));
    return factor > 1 || has_factors() || (!scaling().empty() && scaling() != "none");
  }
  void report(Severity severity, std::string where, std::string what, std::string why,
              std::string remedy) {
    patient_.report(
        {severity, std::move(where), std::move(what), std::move(why), std::move(remedy)});
  }

  void check_base() {
    const std::string where = key("rope.freq_base");
    const auto base = patient_.number(where);
    constexpr std::string_view kWhy =
        "positions are rotated differently than in training: longer outputs become incoherent, "
        "wrong bases give nonsense";
    constexpr std::string_view kRemedy = "take rope_theta of the original config.json";
    if (base && !(*base >= 1000 && *base <= 1e10)) {
      return report(Severity::kError, where, fmt::format("found {}, need 1000 to 1e10", *base),
                    std::string(kWhy), std::string(kRemedy));
    }
    const auto window = patient_.integer(key("attention.sliding_window")).value_or(0);
    const bool is_windowed = architecture_.window_period == 1 && window > 0 && window < context_;
    // Phi-3 keeps the base: its factors make the context (check_factors()).
    if (is_scaled() || is_windowed || architecture_.name == "phi3") return;
    const double used = base.value_or(static_cast<double>(architecture_.rope_theta));
    if (used > kOldBase || context_ < kLongContext) return;
    report(Severity::kWarning, where,
           fmt::format("found {}, for a context of {} without scaling or window",
                       base ? fmt::format("{}", *base) : "no key, which means 10000", context_),
           std::string(kWhy), std::string(kRemedy));
  }

  void check_scaling() {
    const std::string where = key("rope.scaling.type");
    const bool scales = scaling() == "yarn" || scaling() == "linear";
    if (scales && !patient_.number(key("rope.scaling.factor"))) {
      report(Severity::kWarning, where,
             fmt::format("found {} without {}", quoted(scaling()), key("rope.scaling.factor")),
             "positions are not scaled, and texts beyond the first context become nonsense",
             "take rope_scaling of the original config.json");
    }
    if (scaling() == "yarn" && !patient_.integer(key("rope.scaling.original_context_length"))) {
      report(Severity::kError, where,
             fmt::format("found \"yarn\" without {}", key("rope.scaling.original_context_length")),
             "which pairs are scaled is unknown: programs reject the file or guess",
             "take original_max_position_embeddings of the original config.json");
    }
    const bool needs_scaling = (architecture_.name == "gpt-oss" && context_ > 4096) ||
                               (architecture_.name == "gemma3" && context_ > 32768);
    if (!needs_scaling || is_scaled()) return;
    report(Severity::kError, where,
           fmt::format("found no scaling of RoPE, which every {} of a context of {} has",
                       architecture_.name, context_),
           "positions beyond the first context are rotated differently than in training",
           "take rope_scaling of the original config.json");
  }

  void check_factors() {
    constexpr std::string_view kWhy =
        "slow pairs are rotated differently than in training: answers get worse with every "
        "thousand tokens";
    const double base = patient_.number(key("rope.freq_base")).value_or(0);
    const bool is_llama31 = architecture_.name == "llama" && base == 500000 &&
                            context_ > kLongContext && patient_.has_weights();
    if (is_llama31 && !is_scaled()) {
      report(
          Severity::kError, "rope_freqs.weight",
          fmt::format("found no tensor, which a Llama 3 of a context of {} needs (3.1 and later)",
                      context_),
          std::string(kWhy),
          "convert the model again: converters write the tensor since July 2024");
    }
    const auto original =
        patient_.integer(key("rope.scaling.original_context_length")).value_or(4096);
    if (architecture_.name == "phi3" && context_ > original && patient_.has_weights() &&
        !has_tensor("rope_factors_long.weight") && (scaling().empty() || scaling() == "longrope")) {
      report(Severity::kError, "rope_factors_long.weight",
             fmt::format("found no tensor, which a Phi-3 of a context of {} over {} needs",
                         context_, original),
             std::string(kWhy), "convert the model again");
    }
    for (const std::string_view name :
         {"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"})
      check_values(name);
  }

  void check_values(std::string_view name) {
    const GgufTensor* tensor = patient_.gguf().find_tensor(name);
    if (tensor == nullptr || tensor->type != WeightType::kF32) return;
    const GgufArray<float> values(patient_.gguf().tensor_data(*tensor));
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i] >= 0.01F && std::isfinite(values[i])) continue;
      return report(Severity::kError, std::string(name),
                    fmt::format("found {} at {}, need a divisor of about 1 or more", values[i], i),
                    "a pair of each head is rotated far too fast or not at all",
                    "convert the model again");
    }
  }

  void check_window() {
    if (architecture_.name != "gemma3" && architecture_.name != "gpt-oss") return;
    const std::string where = key("attention.sliding_window");
    if (patient_.integer(where).value_or(0) <= 0) {
      report(Severity::kError, where,
             fmt::format("found no window, which every {} has", architecture_.name),
             "most layers see further than in training: texts longer than a window get worse",
             "take sliding_window of the original config.json");
    }
    const std::string local = key("rope.freq_base_swa");
    const auto base = patient_.number(local);
    if (!base || architecture_.window_rope_theta == 0 ||
        *base == static_cast<double>(architecture_.window_rope_theta))
      return;
    report(Severity::kWarning, local,
           fmt::format("found {}, need {}", *base, architecture_.window_rope_theta),
           "layers with a window rotate positions differently than in training",
           "leave the key out, or take rope_local_base_freq of the original config.json");
  }

  LintContext& patient_;
  const Architecture& architecture_;
  std::int64_t context_;
};

}  // namespace

void check_rope(LintContext& patient) {
  if (patient.architecture() != nullptr) RopeCheck(patient).run();
}

}  // namespace llm
