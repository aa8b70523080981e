#include <fmt/core.h>

#include <algorithm>
#include <cctype>

#include "base/shown_text.h"
#include "tokenizer/rule_fit.h"
#include "validate/gguf_lint/checks.h"

namespace llm {
namespace {

constexpr std::string_view kKey = "tokenizer.ggml.pre";
/// Fewer tokens of ASCII show nothing.
constexpr std::size_t kEnoughTokens = 5000;

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

/// Of the rules that fit, one whose name the model's own names begin with, else the first of those
/// that split off the most.
const RuleFit* best_fit(const LintContext& patient, const RuleFits& fits) {
  const RuleFit* best = nullptr;
  for (const RuleFit& fit : fits.rules) {
    if (!fit.fits) continue;
    for (const std::string_view key : {"general.basename", "general.architecture", "general.name"})
      if (lower(patient.text(key)).starts_with(fit.rule->name)) return &fit;
    if (best == nullptr || fit.strays < best->strays) best = &fit;
  }
  return best;
}

}  // namespace

void check_pre_tokenizer(LintContext& patient) {
  if (patient.text("tokenizer.ggml.model") != "gpt2") return;
  const auto fits = fit_rules(patient.tokens());
  if (!fits.ok()) return;
  const bool is_absent = patient.gguf().find(kKey) == nullptr;
  const std::string_view name = patient.text(kKey);
  const PreTokenizerRule* rule = find_pre_tokenizer_rule(name);
  const bool shows_something = fits->n_tokens >= kEnoughTokens;
  const RuleFit* best = shows_something ? best_fit(patient, *fits) : nullptr;
  FileFinding finding{
      .where = std::string(kKey),
      .why =
          "text is split differently than in training: numbers, code and line breaks become tokens "
          "that the model never saw there, and answers get worse",
      .remedy = best != nullptr ? fmt::format("set {} to {}, with which the vocabulary agrees",
                                              kKey, quoted(best->rule->name))
                                : "convert the model again with a converter that writes the key"};
  if (is_absent) {
    finding.what = "found no key, need the name of the rule by which text is split";
  } else if (rule == nullptr) {
    finding.severity = Severity::kNote;
    finding.what = fmt::format(
        "found {}, which is not known here{}", quoted(name),
        best != nullptr ? fmt::format("; the vocabulary agrees with {}", quoted(best->rule->name))
                        : "");
    finding.why = "the vocabulary cannot be checked further here";
    finding.remedy = "none, where it is the name that other engines know the model's rule by";
    return patient.report(std::move(finding));
  } else if (const RuleFit& own = fits->of(*rule); shows_something && !own.fits) {
    finding.what =
        own.joins_numbers
            ? fmt::format("found {}, which leaves longer numbers whole than any that is a token",
                          quoted(name))
            : fmt::format("found {}, which splits {} of {} tokens, such as {}", quoted(name),
                          own.strays, fits->n_tokens, llm::quoted(own.example));
    // A vocabulary that no known rule fits says nothing against its file's.
    if (best == nullptr) return;
  } else {
    return;
  }
  if (best == nullptr) return patient.report(std::move(finding));
  patient.set_text(std::move(finding), kKey, std::string(best->rule->name),
                   fmt::format("{} = \"{}\"", kKey, best->rule->name));
}

}  // namespace llm
