#include "tools/llmload/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "base/shown_text.h"
#include "tools/common/option_pages.h"

namespace llm {
namespace {

const char* arrivals_name(Arrivals arrivals) {
  return arrivals == Arrivals::kBurst ? "burst" : "poisson";
}

std::string percent(double share) { return fmt::format("{:.1f} %", share * 100); }

std::string fit_text(const FitQuality& fit) {
  return fmt::format("R2 {:.4f}, error {} median, {} p95", fit.r2, percent(fit.median_error),
                     percent(fit.p95_error));
}

std::string settings_text(const LoadReport& r) {
  const WorkloadOptions& w = r.workload;
  return fmt::format(
      "{}: {} threads, {}, {}, KV {}\n"
      "{} arrivals{}, {:.4g} requests/s, seed {}; parallel {}, chunk {}, {} KV pages, queue {}\n",
      shown(r.model), r.subject.threads, r.subject.isa, r.subject.compute, r.subject.kv,
      arrivals_name(w.arrivals),
      w.arrivals == Arrivals::kBurst ? fmt::format(" of {}", w.burst) : "", w.rate, w.seed,
      r.scheduler.parallel, r.scheduler.step_tokens, r.scheduler.kv_pages, r.scheduler.queue);
}

std::string table_text(const LoadReport& r) {
  using Figures = std::vector<NamedFigure>;
  const Figures real = r.real.empty() ? Figures{} : named_figures(r.real);
  const Figures simulated = r.simulated.empty() ? Figures{} : named_figures(r.simulated);
  const bool both = !real.empty() && !simulated.empty();
  std::string text = fmt::format("\n{:<20}", "");
  if (!real.empty()) text += fmt::format(" {:>12} {:>12} {:>12}", "real", "least", "most");
  if (!simulated.empty()) text += fmt::format(" {:>12}", "simulated");
  if (both) text += fmt::format(" {:>8}", "ratio");
  text += '\n';
  for (std::size_t i = 0; i < std::max(real.size(), simulated.size()); ++i) {
    text += fmt::format("{:<20}", real.empty() ? simulated[i].name : real[i].name);
    if (!real.empty()) {
      const NamedFigure& f = real[i];
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

std::string key_of(const NamedFigure& figure) {
  std::string name = figure.name;
  for (char& c : name) c = c == ' ' ? '_' : c;
  std::erase(name, ',');
  return name;
}

OrderedJson named_json(std::span<const LoadFigures> runs) {
  OrderedJson json;
  for (const NamedFigure& f : named_figures(runs)) json[key_of(f)] = f.value;
  return json;
}

/// Of each figure the least and the most.
OrderedJson range_json(std::span<const LoadFigures> runs) {
  OrderedJson json;
  for (const NamedFigure& f : named_figures(runs)) json[key_of(f)] = {f.least, f.most};
  return json;
}

OrderedJson fit_json(const FitQuality& fit) {
  return {{"r2", fit.r2},
          {"median_error", fit.median_error},
          {"p95_error", fit.p95_error},
          {"predicted_to_measured", fit.total_ratio}};
}

}  // namespace

std::vector<std::string> LoadReport::disagreements() const {
  if (real.empty() || simulated.empty()) return {};
  return llm::disagreements(named_figures(real), named_figures(simulated), agree);
}

bool LoadReport::passed() const {
  return disagreements().empty() && same_decisions.value_or(true) &&
         (!differing_texts || differing_texts->empty());
}

std::string report_text(const LoadReport& r) {
  std::string text = settings_text(r);
  if (r.calibration) {
    text += fmt::format("step costs: {} steps, {}", r.calibration->n_steps,
                        fit_text(r.calibration->fit));
    text += '\n';
  }
  text += table_text(r);
  if (r.steps_fit) {
    text += fmt::format("\ncosts on the real runs' steps: {}, predicted/measured {:.3f} in all\n",
                        fit_text(*r.steps_fit), r.steps_fit->total_ratio);
  }
  if (r.same_decisions) {
    text += fmt::format(
        "replay of the measured steps: {}\n",
        *r.same_decisions ? "the same decisions, to the nanosecond" : "FAIL, other decisions");
  }
  if (r.differing_texts) {
    text += r.differing_texts->empty()
                ? fmt::format("texts: {} equal those made alone, in every bit of their logits\n",
                              r.real.front().finished)
                : fmt::format("texts: FAIL, {} of {} differ from those made alone: requests {}\n",
                              r.differing_texts->size(), r.real.front().finished,
                              fmt::join(*r.differing_texts, ", "));
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
  OrderedJson json = {{"model", r.model},
                      {"model_sha256", r.subject.model_sha256},
                      {"cpu", r.subject.cpu},
                      {"isa", r.subject.isa},
                      {"threads", r.subject.threads},
                      {"compute", r.subject.compute},
                      {"kv", r.subject.kv},
                      {"arrivals", arrivals_name(r.workload.arrivals)},
                      {"burst", r.workload.burst},
                      {"rate", r.workload.rate},
                      {"seed", r.workload.seed},
                      {"parallel", r.scheduler.parallel},
                      {"chunk", r.scheduler.step_tokens},
                      {"kv_pages", r.scheduler.kv_pages},
                      {"queue", r.scheduler.queue}};
  if (r.calibration) json["calibration"] = parse_ordered_json(r.calibration->to_json());
  if (!r.real.empty()) {
    json["rounds"] = r.real.size();
    json["real"] = named_json(r.real);
    json["real_range"] = range_json(r.real);
    json["texts_sha256"] = r.texts_sha256;
  }
  if (!r.simulated.empty()) json["simulated"] = named_json(r.simulated);
  if (r.steps_fit) json["costs_on_real_steps"] = fit_json(*r.steps_fit);
  if (r.same_decisions) json["same_decisions"] = *r.same_decisions;
  if (r.differing_texts) json["differing_texts"] = *r.differing_texts;
  if (!r.real.empty() && !r.simulated.empty()) {
    json["agree"] = r.agree;
    json["disagreements"] = r.disagreements();
  }
  json["passed"] = r.passed();
  json["engine_version"] = version();
  json["schema_version"] = 2;
  return json_text(json, 2) + "\n";
}

}  // namespace llm
