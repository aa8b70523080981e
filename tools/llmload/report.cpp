#include "tools/llmload/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/shown_text.h"
#include "tools/common/option_pages.h"

namespace llm {
namespace {

std::string percent(double share) { return fmt::format("{:.1f} %", share * 100); }

std::string settings_text(const OrderedJson& settings) {
  std::string text;
  for (const auto& [name, value] : settings.items()) {
    text += fmt::format("{:<14}{}\n", name,
                        value.is_string() ? shown(value.get<std::string>()) : json_text(value));
  }
  return text;
}

std::string fit_text(const FitQuality& fit) {
  return fmt::format("{} steps, median error {}, predicted/measured {:.3f} in all", fit.n_steps,
                     percent(fit.median_error), fit.total_ratio);
}

std::string table_text(const LoadFigures& real, const LoadFigures& simulated) {
  const bool both = !real.empty() && !simulated.empty();
  std::string text = fmt::format("\n{:<20}", "");
  if (!real.empty()) text += fmt::format(" {:>12} {:>12} {:>12}", "real", "least", "most");
  if (!simulated.empty()) text += fmt::format(" {:>12}", "simulated");
  if (both) text += fmt::format(" {:>8}", "ratio");
  text += '\n';
  for (std::size_t i = 0; i < std::max(real.size(), simulated.size()); ++i) {
    text += fmt::format("{:<20}", real.empty() ? simulated[i].name : real[i].name);
    if (!real.empty()) {
      const LoadFigure& f = real[i];
      for (const double value : {f.value, f.least, f.most})
        text += fmt::format(" {:>12.{}f}", value, f.decimals);
    }
    if (!simulated.empty())
      text += fmt::format(" {:>12.{}f}", simulated[i].value, simulated[i].decimals);
    if (both && real[i].value > 0) {
      text +=
          fmt::format(" {:>8.3f}{}", simulated[i].value / real[i].value, real[i].gated ? " *" : "");
    }
    text += '\n';
  }
  return text;
}

/// By name; `value` of a figure.
OrderedJson figures_json(const LoadFigures& figures, const auto& value) {
  OrderedJson json;
  for (const LoadFigure& figure : figures) {
    std::string name = figure.name;
    std::ranges::replace(name, ' ', '_');
    std::erase(name, ',');
    json[name] = value(figure);
  }
  return json;
}

OrderedJson medians_json(const LoadFigures& figures) {
  return figures_json(figures, [](const LoadFigure& f) { return OrderedJson(f.value); });
}

OrderedJson fit_json(const FitQuality& fit) {
  return {{"steps", fit.n_steps},
          {"median_error", fit.median_error},
          {"predicted_to_measured", fit.total_ratio}};
}

}  // namespace

std::vector<std::string> LoadReport::disagreements() const {
  return llm::disagreements(real, simulated, agree);
}

bool LoadReport::passed() const {
  return disagreements().empty() && same_decisions.value_or(true) &&
         (!differing_texts || differing_texts->empty());
}

std::string report_text(const LoadReport& r) {
  std::string text = settings_text(r.settings);
  if (r.costs) text += "step costs: " + fit_text(r.fit) + "\n";
  text += table_text(r.real, r.simulated);
  if (r.real_fit) text += "\ncosts on the real runs' steps: " + fit_text(*r.real_fit) + "\n";
  if (r.same_decisions) {
    text += fmt::format(
        "replay of the measured steps: {}\n",
        *r.same_decisions ? "the same decisions, to the nanosecond" : "FAIL, other decisions");
  }
  if (r.differing_texts) {
    const double n = value_of(r.real, "finished");
    text += r.differing_texts->empty()
                ? fmt::format(
                      "outputs: {} are bit-identical to separate runs, including their logits\n", n)
                : fmt::format("outputs: FAIL, {} of {} differ from separate runs: requests {}\n",
                              r.differing_texts->size(), n, fmt::join(*r.differing_texts, ", "));
  }
  if (!r.real.empty() && !r.simulated.empty()) {
    const auto names = r.disagreements();
    text += names.empty() ? fmt::format("agreement (*): PASS, within {}\n", percent(r.agree))
                          : fmt::format("agreement (*): FAIL, beyond {}: {}\n", percent(r.agree),
                                        fmt::join(names, ", "));
  }
  return text;
}

std::string report_json(const LoadReport& r) {
  OrderedJson json = r.settings;
  if (r.costs) {
    OrderedJson& costs = json["costs"] = fit_json(r.fit);
    for (std::size_t i = 0; i < CostModel::kNames.size(); ++i)
      costs["seconds"][std::string(CostModel::kNames[i])] = r.costs->seconds()[i];
  }
  if (!r.real.empty()) {
    json["real"] = medians_json(r.real);
    json["real_range"] = figures_json(r.real, [](const LoadFigure& f) {
      return OrderedJson{f.least, f.most};
    });
    json["texts_sha256"] = r.texts_sha256;
  }
  if (!r.simulated.empty()) json["simulated"] = medians_json(r.simulated);
  if (r.real_fit) json["costs_on_real_steps"] = fit_json(*r.real_fit);
  if (r.same_decisions) json["same_decisions"] = *r.same_decisions;
  if (r.differing_texts) json["differing_texts"] = *r.differing_texts;
  if (!r.real.empty() && !r.simulated.empty()) {
    json["agree"] = r.agree;
    json["disagreements"] = r.disagreements();
  }
  json["passed"] = r.passed();
  json["engine_version"] = version();
  json["schema_version"] = 3;
  return json_text(json, 2) + "\n";
}

}  // namespace llm
