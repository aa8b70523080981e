// llmfaults MODEL...: plants faults in turn and scores who finds them (docs/testing.md).

#include <fmt/core.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <random>
#include <regex>

#include "base/cpu_features.h"
#include "tests/fault_injection/runner.h"

namespace {

using namespace llm;
using namespace llm::faults;

constexpr double kFoundNeeded = 0.97;
constexpr double kNamedNeeded = 0.90;
constexpr double kStruckNeeded = 0.5;  ///< of a class, all of it, on the first model

struct Options {
  std::vector<std::string> models;
  std::map<std::string, std::string> references;  ///< by model
  std::string only = "";
  std::map<std::string, std::size_t> samples;  ///< faults drawn, by model; "": from all of them
  unsigned seed = 1;
  int jobs = 3;  // some checks sleep
  bool list = false;
  bool verbose = false;
};

int usage() {
  fmt::print(stderr,
             "usage: llmfaults [--list] [--only REGEX] [--sample N [--seed S]] [--jobs N] [-v]\n"
             "                 MODEL.gguf [--reference NPZ] [--sample N] ...\n"
             "Plants faults in turn, on each model, and prints which check finds which.\n");
  return 2;
}

bool parse(int argc, char** argv, Options& o) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&]() -> std::string { return i + 1 < argc ? argv[++i] : ""; };
    if (word == "--list") {
      o.list = true;
    } else if (word == "-v") {
      o.verbose = true;
    } else if (word == "--only") {
      o.only = value();
    } else if (word == "--sample") {
      o.samples[o.models.empty() ? "" : o.models.back()] = std::stoul(value());
    } else if (word == "--seed") {
      o.seed = static_cast<unsigned>(std::hash<std::string>()(value()));
    } else if (word == "--jobs") {
      o.jobs = std::stoi(value());
    } else if (word == "--reference" && !o.models.empty()) {
      o.references[o.models.back()] = value();
    } else if (word.starts_with("-")) {
      return false;
    } else {
      o.models.push_back(word);
    }
  }
  return o.list || !o.models.empty();
}

/// The instruction set that a fault is of and this CPU lacks; nothing where it can be tried.
std::string missing_isa(const Row& row) {
  std::smatch found;
  static const std::regex isa_of(":isa=(\\w+)");
  if (!std::regex_search(row.id, found, isa_of)) return "";
  const auto isa = isa_from_name(found[1].str());
  return isa && isa_supported(*isa) ? "" : found[1].str();
}

/// Whether a fault is looked for first in data of the checks' own, and not in a model's.
bool needs_no_model(std::string_view checks, std::string_view id = "") {
  const std::string_view first = checks.substr(0, checks.find(' '));
  return first == "kernels" || first == "shares" || first == "sampler" ||
         (first == "definition" && !id.starts_with("angle") && !id.starts_with("rope"));
}

/// So many of them, drawn by the seed.
std::vector<Row> drawn(const std::vector<Row>& rows, std::size_t n, unsigned seed) {
  std::vector<Row> some;
  std::ranges::sample(rows, std::back_inserter(some), static_cast<std::ptrdiff_t>(n),
                      std::mt19937(seed));
  return some;
}

std::vector<Row> choose(const Options& o) {
  std::vector<Row> rows = all_faults();
  if (!o.only.empty())
    std::erase_if(rows, [only = std::regex(o.only)](const Row& row) {
      return !std::regex_search(row.id, only);
    });
  std::map<std::string, std::size_t> missing;
  std::erase_if(rows, [&](const Row& row) {
    const std::string isa = missing_isa(row);
    if (!isa.empty()) ++missing[isa];
    return !isa.empty();
  });
  for (const auto& [isa, n] : missing)
    fmt::print("skipped: {} of {}, which this CPU lacks\n", n, isa);
  const auto n = o.samples.find("");
  return n == o.samples.end() ? rows : drawn(rows, n->second, o.seed);
}

/// Ways to run without a fault; no check may complain. What needs no model is run with the first.
std::vector<Row> benign(const Bench& bench, bool is_first) {
  std::vector<Row> rows;
  const auto add = [&](const std::string& how, std::string_view check,
                       std::string_view needs = "") {
    if (!has_reference(check, bench)) return;
    if (!is_first && needs_no_model(check)) return;
    rows.push_back({"none:" + how, '-', std::string(check), "", std::string(needs), ""});
  };
  for (const std::string_view check : check_names()) add("effect=none", check);
  for (const auto& [needs, add_part] : kModelParts) add("effect=none", "paths", needs);
  for (const Isa isa : all_isas()) {
    if (is_first && isa_supported(isa)) add(fmt::format("isa={}", isa_name(isa)), "layers");
  }
  for (const int threads : {2, 3, 7}) add(fmt::format("threads={}", threads), "layers");
  return rows;
}

bool is_quiet(const Bench& bench, const Options& o) {
  const std::vector<Row> rows = benign(bench, bench.path == o.models.front());
  const std::vector<Judgement> judged = judge(bench, rows, o.jobs);
  std::size_t alarms = 0;
  for (const Judgement& j : judged) {
    const bool alarm = j.outcome.found();
    alarms += alarm ? 1 : 0;
    if (o.verbose || alarm)
      fmt::print("{}  {} {} {}: {:.2f} s {}{}\n", alarm ? "ALARM" : "quiet", j.row->checks,
                 j.row->id, j.row->needs, j.seconds, j.outcome.end,
                 j.outcome.complaints.empty() ? "" : j.outcome.complaints.front());
  }
  fmt::print("alarms without a fault: {} in {} ways to run\n", alarms, rows.size());
  return alarms == 0;
}

struct Count {
  int never = 0;  ///< struck; those are not among `all`
  int all = 0;
  int found = 0;
  int named = 0;
};

void add(Count& count, const Judgement& v) {
  ++count.all;
  count.found += v.check.empty() ? 0 : 1;
  count.named += v.named() ? 1 : 0;
}

bool report(const std::vector<Judgement>& judged, bool is_whole, bool verbose) {
  std::map<char, Count> by_class;
  std::map<std::string, Count> by_check;
  Count all;
  std::size_t never = 0;
  for (const Judgement& v : judged) {
    if (verbose && v.struck)
      fmt::print("{}  {:<70} {:<10} {} {:.2f} s\n", v.row->kind, v.row->id,
                 v.check.empty() ? "SURVIVED" : v.check, v.named() ? "named" : "-", v.seconds);
    if (!v.struck) {
      ++never;
      ++by_class[v.row->kind].never;
      if (verbose) fmt::print("never struck  {}  {}\n", v.row->kind, v.row->id);
      continue;
    }
    add(all, v);
    add(by_class[v.row->kind], v);
    if (!v.check.empty()) add(by_check[v.check], v);
  }
  for (const Judgement& v : judged) {
    if (!v.struck) continue;
    if (v.check.empty()) fmt::print("SURVIVED   {}  {}\n", v.row->kind, v.row->id);
  }
  for (const Judgement& v : judged) {
    if (!v.struck || v.check.empty() || v.named()) continue;
    fmt::print("NOT NAMED  {}  {}: {}: need {}: {}{}\n", v.row->kind, v.row->id, v.check,
               v.row->names, v.outcome.end,
               v.outcome.complaints.empty() ? "" : v.outcome.complaints.front().substr(0, 300));
  }
  fmt::print("\n{:<58} faults  found  named\n", "class");
  bool strike = true;
  for (const FaultClass& c : kClasses) {
    const Count& n = by_class[c.letter];
    if (n.all > 0)
      fmt::print("{} {:<56} {:>6} {:>6} {:>6}\n", c.letter, c.what, n.all, n.found, n.named);
    if (!is_whole || n.all >= kStruckNeeded * (n.all + n.never)) continue;
    fmt::print("SITES LOST {}  {} of {} faults never struck\n", c.letter, n.never, n.all + n.never);
    strike = false;
  }
  fmt::print("\nfirst found by:");
  for (const auto& [check, n] : by_check) fmt::print(" {} {} ({} named)", check, n.found, n.named);
  fmt::print("\nnever struck here: {}\n", never);
  fmt::print("faults found: {}/{} (need {:.0f} %), named: {}/{} (need {:.0f} %)\n", all.found,
             all.all, 100 * kFoundNeeded, all.named, all.all, 100 * kNamedNeeded);
  return strike && all.found >= kFoundNeeded * all.all && all.named >= kNamedNeeded * all.all;
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  if (!parse(argc, argv, o)) return usage();
  std::vector<Row> rows = choose(o);
  if (o.list) {
    for (const Row& row : rows) fmt::print("{}  {}  ({})\n", row.kind, row.id, row.checks);
    fmt::print("{} faults\n", rows.size());
    return 0;
  }
  bool good = true;
  const auto started = std::chrono::steady_clock::now();
  for (const std::string& path : o.models) {
    if (path != o.models.front()) {
      const std::size_t n =
          std::erase_if(rows, [](const Row& row) { return needs_no_model(row.checks, row.id); });
      fmt::print("{} faults that need no model were tried with the first\n", n);
    }
    auto model = Model::load(path, {.threads = 1});
    auto file = open_model_file(path);
    if (!model.ok() || !file.ok()) {
      fmt::print(stderr, "llmfaults: {}\n",
                 (model.ok() ? file.error() : model.error()).to_string());
      return 3;
    }
    Bench bench{.path = path,
                .reference = o.references[path],
                .model = *model,
                .file = std::make_shared<const ModelFile>(std::move(file).value()),
                .sizes = {}};
    bench.sizes = kernel_sizes(*bench.file);
    bench.sizes.context = std::max<std::size_t>(bench.sizes.context, 1100);
    fmt::print("== {}\n", path);
    good = is_quiet(bench, o) && good;
    const auto n_drawn = o.samples.find(path);
    const auto tried = n_drawn == o.samples.end() ? rows : drawn(rows, n_drawn->second, o.seed);
    if (tried.size() < rows.size())
      fmt::print("{} of {} faults, drawn by seed {}\n", tried.size(), rows.size(), o.seed);
    good = report(judge(bench, tried, o.jobs), path == o.models.front() && o.only.empty(),
                  o.verbose) &&
           good;
  }
  rusage used{};
  ::getrusage(RUSAGE_CHILDREN, &used);
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - started;
  fmt::print("{} ({:.0f} s, {} s of CPU)\n", good ? "PASS" : "FAIL", time.count(),
             used.ru_utime.tv_sec + used.ru_stime.tv_sec);
  return good ? 0 : 1;
}
