// The parts of llmcheck that make the texts of receipts again, and hold a log of them to its chain.

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "base/mapped_file.h"
#include "tools/llmcheck/run.h"
#include "validate/provenance/compare_receipts.h"
#include "validate/provenance/receipt_checks.h"
#include "validate/provenance/receipt_log.h"
#include "validate/provenance/replay_receipt.h"

namespace llm {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxReceiptBytes = std::size_t{256} << 20;
constexpr std::size_t kMaxLogBytes = std::size_t{1} << 34;

bool is_log(const fs::path& path) { return path.extension() == ".jsonl"; }

/// The paths themselves, and in place of a folder the receipts and logs in it.
Result<std::vector<std::string>> files_of(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      files.push_back(path);
      continue;
    }
    const std::size_t n_before = files.size();
    for (const auto& entry : fs::directory_iterator(path, error)) {
      if (is_log(entry.path()) || entry.path().extension() == ".json")
        files.push_back(entry.path().string());
    }
    if (error) return in_file(Error{ErrorCode::kIo, "", error.message()}, path);
    if (files.size() == n_before)
      return in_file(usage_error("--replay", "found no .json and no .jsonl, need a receipt"), path);
    std::sort(files.begin() + static_cast<std::ptrdiff_t>(n_before), files.end());
  }
  return files;
}

/// The receipts of `which` made again with one model.
void replay_group(const std::shared_ptr<const Model>& model,
                  const std::vector<GivenReceipt>& receipts, std::span<const std::size_t> which,
                  const Progress& progress, ReplayOutcome& all) {
  std::vector<const Receipt*> group;
  for (const std::size_t i : which) group.push_back(&*receipts[i].receipt);
  ReplayOutcome outcome = replay_receipts(model, group, progress);
  for (std::size_t i = 0; i < which.size(); ++i)
    all.receipts[which[i]] = std::move(outcome.receipts[i]);
  all.n_positions += outcome.n_positions;
  all.n_passes += outcome.n_passes;
  all.seconds += outcome.seconds;
}

/// The model of that hash. @param file  a receipt of it
Result<ModelPointer> load_model(CheckRun& run, const std::string& sha256, const std::string& file) {
  if (sha256 == run.sha256) return run.load(Compute::kInt8);
  if (!run.a.model.empty()) {
    LLM_RETURN_IF_ERROR(run.check_hash(sha256, "model.sha256", file));
  }
  LLM_TRY(const std::string path, find_model_by_hash(sha256, file));
  run.fact("another model", fmt::format("{} (SHA-256 {})", path, sha256));
  return run.load_file(path, sha256, Compute::kInt8);
}

/// What was found of several receipts.
std::vector<CheckResult> checks_of(const std::vector<GivenReceipt>& receipts,
                                   ReplayOutcome& outcome) {
  CheckResult all{"receipts: the model produces their outputs", false, ""};
  std::vector<CheckResult> others;
  std::size_t n_passed = 0;
  bool any_failed = false;
  for (std::size_t i = 0; i < receipts.size(); ++i) {
    const std::string& name = receipts[i].name;
    auto& checks = outcome.receipts[i];
    if (!checks.ok()) {
      others.push_back({.name = name + ": can be checked",
                        .detail = checks.error().to_string(),
                        .undecided = true});
      continue;
    }
    const std::size_t n_before = others.size();
    for (CheckResult& check : *checks) {
      check.name = fmt::format("{}: {}", name, check.name);
      if (!check.passed) others.push_back(std::move(check));
    }
    n_passed += others.size() == n_before ? 1 : 0;
    any_failed = any_failed || others.size() > n_before;
  }
  all.passed = others.empty();
  all.undecided = !any_failed;
  all.detail = fmt::format("{} of {}", n_passed, receipts.size());
  others.insert(others.begin(), std::move(all));
  return others;
}

/// A check that lists the faults of lines, the first ones with words.
CheckResult line_check(std::string name, const LogCheck::Faults& faults, std::string words) {
  constexpr std::size_t kMostShown = 8;
  if (faults.empty()) return {std::move(name), true, std::move(words)};
  words.clear();
  for (std::size_t i = 0; i < std::min(faults.size(), kMostShown); ++i)
    words += fmt::format("{}line {}: {}", i > 0 ? "; " : "", faults[i].first, faults[i].second);
  if (faults.size() > kMostShown) words += fmt::format("; and {} more", faults.size() - kMostShown);
  return {std::move(name), false, std::move(words)};
}

}  // namespace

Result<std::vector<GivenReceipt>> read_receipts(const std::vector<std::string>& paths) {
  LLM_TRY(const auto files, files_of(paths));
  std::vector<GivenReceipt> receipts;
  for (const std::string& file : files) {
    const std::string name = fs::path(file).filename().string();
    if (const ReceiptPlace place = receipt_place(file); place.line > 0) {
      LLM_TRY(const std::string log, read_text_file(place.file, kMaxLogBytes));
      receipts.push_back({file, name, in_file(receipt_at(place, log), file)});
      continue;
    }
    if (!is_log(file)) {
      receipts.push_back({file, name, parse_file(file, kMaxReceiptBytes, parse_receipt)});
      continue;
    }
    LLM_TRY(const std::string log, read_text_file(file, kMaxLogBytes));
    std::size_t number = 0;
    for (const std::string_view line : log_lines(log)) {
      ++number;
      receipts.push_back({file, fmt::format("{}:{}", name, number),
                          in_file(receipt_of_line(line), fmt::format("{}:{}", file, number))});
    }
  }
  if (receipts.empty())
    return in_file(usage_error("--replay", "found no line, need a receipt"), files.front());
  return receipts;
}

Result<std::string> find_model(const std::vector<GivenReceipt>& receipts) {
  std::map<std::string, Error> missing;
  for (const GivenReceipt& given : receipts) {
    if (!given.receipt.ok() || missing.contains(given.receipt->model_sha256)) continue;
    auto found = find_model_by_hash(given.receipt->model_sha256, given.file);
    if (found.ok()) return found;
    missing.emplace(given.receipt->model_sha256, found.error());
  }
  const auto& first = receipts.front().receipt;
  return first.ok() ? missing.at(first->model_sha256) : first.error();
}

Status run_replay(CheckRun& run, const std::vector<GivenReceipt>& receipts) {
  ReplayOutcome outcome;
  std::map<std::string, std::vector<std::size_t>> by_model;
  for (std::size_t i = 0; i < receipts.size(); ++i) {
    const auto& receipt = receipts[i].receipt;
    outcome.receipts.push_back(receipt.ok() ? Error{} : receipt.error());
    if (receipt.ok()) by_model[receipt->model_sha256].push_back(i);
  }
  for (const auto& [sha256, which] : by_model) {
    const auto model = load_model(run, sha256, receipts[which.front()].file);
    if (model.ok()) {
      replay_group(*model, receipts, which, std::ref(run.bar), outcome);
      continue;
    }
    for (const std::size_t i : which) outcome.receipts[i] = model.error();
  }
  const GivenReceipt& first = receipts.front();
  const std::string replayed =
      fmt::format("{} positions in {:.3f} s", outcome.n_positions, outcome.seconds);
  if (receipts.size() > 1) {
    run.fact("receipts", fmt::format("{}", receipts.size()));
    run.fact("replayed", fmt::format("{}, {} passes", replayed, outcome.n_passes));
    run.add(checks_of(receipts, outcome));
    run.bar.clear();
    return Ok{};
  }
  LLM_TRY(auto checks, run.ended(std::move(outcome.receipts.front()), first.file));
  run.fact("receipt", fmt::format("{} (by llmrun {}; {} tokens after {})", first.file,
                                  first.receipt->engine_version, first.receipt->ids.size(),
                                  first.receipt->prompt_ids.size()));
  run.fact("replayed", replayed);
  for (CheckResult& check : checks) check.name = "receipt: " + check.name;
  run.add(std::move(checks));
  return Ok{};
}

Status run_compare(CheckRun& run, const std::vector<GivenReceipt>& receipts) {
  constexpr std::size_t kTop = 5;
  if (receipts.size() != 2)
    return usage_error("--compare", fmt::format("found {} receipts, need two", receipts.size()));
  for (const GivenReceipt& given : receipts)
    if (!given.receipt.ok()) return in_file(given.receipt.error(), given.file);
  const Receipt& a = *receipts[0].receipt;
  const Receipt& b = *receipts[1].receipt;
  const auto parting = parting_of(a, b);
  for (const std::string& line : different_settings(a, b)) run.fact("differs", line);
  CheckResult check{"compare: the outputs are equal", !parting.has_value(),
                    fmt::format("{} tokens", a.ids.size())};
  if (!parting) {
    run.add({std::move(check)});
    return Ok{};
  }
  FigureTable table{.title = fmt::format("Token {}: the five most likely tokens, with their log "
                                         "probabilities before sampling",
                                         parting->token),
                    .name = "compare",
                    .columns = {"A: " + receipts[0].name, "", "B: " + receipts[1].name, ""},
                    .rows = {}};
  table.rows.resize(kTop + 1);
  std::vector<std::string> drawn;
  std::vector<std::vector<float>> rows;
  for (std::size_t side = 0; side < receipts.size(); ++side) {
    const GivenReceipt& given = receipts[side];
    LLM_TRY(const ModelPointer loaded, load_model(run, given.receipt->model_sha256, given.file));
    LLM_TRY(const ModelPointer model, loaded->with_compute(given.receipt->compute));
    LLM_TRY(auto from,
            run.ended(drawn_from(model, *given.receipt, parting->at[side], kTop), given.file));
    const auto words = [&](const TokenLogprob& token) {
      return shown_token(model->tokenizer(), token.id);
    };
    const bool ends = !from || !from->chosen;
    drawn.push_back(ends ? fmt::format("the end ({})", stop_reason_name(given.receipt->stop_reason))
                         : words(*from->chosen));
    table.rows[0].push_back({"then: " + drawn.back()});
    table.rows[0].push_back(ends ? Figure{"-"} : Figure::fixed(from->chosen->logprob, 4));
    for (std::size_t i = 0; i < kTop; ++i) {
      const bool is_there = from && i < from->top.size();
      table.rows[i + 1].push_back({is_there ? words(from->top[i]) : "-"});
      table.rows[i + 1].push_back(is_there ? Figure::fixed(from->top[i].logprob, 4) : Figure{"-"});
    }
    rows.push_back(from ? std::move(from->row) : std::vector<float>());
  }
  check.detail = fmt::format("{} tokens are equal, then A has {} and B {}; the logits there are {}",
                             parting->token, drawn[0], drawn[1],
                             rows[0] == rows[1] ? "equal to the bit" : "different");
  run.add({std::move(check)});
  run.report.figures.push_back(std::move(table));
  run.report.summary = fmt::format("the outputs diverge at token {}", parting->token);
  return Ok{};
}

Status run_receipt_log(CheckRun& run) {
  std::error_code error;
  std::string path = run.a.receipt_log;
  if (fs::is_directory(path, error)) path = (fs::path(path) / kReceiptLogFile).string();
  std::optional<PublicKey> key;
  if (!run.a.public_key.empty()) {
    LLM_TRY(key, parse_file(run.a.public_key, kMaxReceiptBytes, PublicKey::parse));
  }
  LLM_TRY(const MappedFile file, MappedFile::open(path));
  const std::string_view log(reinterpret_cast<const char*>(file.bytes().data()),
                             file.bytes().size());
  const LogCheck found = check_log(log, key ? &*key : nullptr, run.a.log_head);
  const std::string lines = fmt::format("{} lines, head {}", found.n_lines, found.head.sha256);
  run.fact("log", fmt::format("{} ({})", path, lines));
  CheckResult chain = line_check("receipt log: chain", found.chain, lines);
  if (found.n_lines == 0)  // none was written, or all were cut off
    chain = {.name = chain.name, .detail = "found no line, need one", .undecided = true};
  run.add({std::move(chain)});
  if (key) {
    run.add({line_check("receipt log: signatures", found.signatures,
                        fmt::format("{} lines by this key", found.n_lines))});
  } else {
    run.report.not_covered.push_back(
        "the author of the log: without --public-key, a person who changes it can compute its "
        "hashes again");
  }
  if (!run.a.log_head.empty()) {
    const std::string fault = fmt::format(
        "found no line of SHA-256 {}, need one: the log was truncated before it, or it is a "
        "different log",
        run.a.log_head);
    run.add({CheckResult{"receipt log: known head", found.has_known_head,
                         found.has_known_head ? "there" : fault}});
  }
  return Ok{};
}

}  // namespace llm
