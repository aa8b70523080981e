#include "validate/provenance/audit_proof.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>

#include "base/hex.h"
#include "base/json_members.h"
#include "base/merkle_tree.h"
#include "validate/provenance/receipt_checks.h"

namespace llm {
namespace {

constexpr std::string_view kFormat = "llm-opening/1";

template <typename T>
std::span<const std::byte> bytes_of(const T& values) {
  return std::as_bytes(std::span(values));
}

/// `count` of n, drawn by hashes, ascending; all where there are no more.
std::vector<std::size_t> draw_some(std::string_view kind, std::size_t count, std::size_t n,
                                   const std::string& root, const std::string& challenge) {
  std::vector<std::size_t> all(count < n ? 0 : n);
  std::iota(all.begin(), all.end(), std::size_t{0});
  std::set<std::size_t> some;
  for (std::uint64_t i = 0; count < n && some.size() < count; ++i) {
    Sha256 hash;
    hash.update(bytes_of(root));
    hash.update(bytes_of(kind));
    hash.update(bytes_of(std::array{i}));
    hash.update(bytes_of(challenge));
    const Sha256Digest digest = hash.digest();
    std::uint64_t x = 0;
    std::memcpy(&x, digest.data(), sizeof x);
    some.insert(x % n);
  }
  return count < n ? std::vector(some.begin(), some.end()) : all;
}

void sort_once(std::vector<std::size_t>& rows) {
  std::ranges::sort(rows);
  rows.erase(std::ranges::unique(rows).begin(), rows.end());
}

/// The lines that an opening begins with.
std::array<std::pair<std::string_view, std::string>, 5> head_of(const Receipt& receipt,
                                                                const Challenge& challenge) {
  return {{{"format", std::string(kFormat)},
           {"root", *receipt.rows_sha256},
           {"challenge", sha256_hex(bytes_of(challenge.text))},
           {"rows", std::to_string(challenge.rows)},
           {"draws", std::to_string(challenge.draws)}}};
}

/// Takes the head, which must be the expected one, off the bytes.
Status read_head(std::span<const std::byte>& bytes, const Receipt& receipt,
                 const Challenge& challenge) {
  std::string_view text(reinterpret_cast<const char*>(bytes.data()),
                        std::min<std::size_t>(bytes.size(), 512));
  for (const auto& [name, value] : head_of(receipt, challenge)) {
    const std::size_t end = text.find('\n');
    const std::string start = fmt::format("{} ", name);
    if (end == std::string_view::npos || !text.starts_with(start))
      return Error{ErrorCode::kMalformed, std::string(name),
                   fmt::format("found no line that begins with it, need \"{}{}\"", start, value)};
    const std::string_view found = text.substr(start.size(), end - start.size());
    if (found != value)
      return Error{name == "format" ? ErrorCode::kUnsupported : ErrorCode::kIntegrity,
                   std::string(name),
                   fmt::format("found {}, need {}", shown_json(std::string(found)), value)};
    text.remove_prefix(end + 1);
    bytes = bytes.subspan(end + 1);
  }
  return Ok{};
}

}  // namespace

AuditPlan AuditPlan::of(const RowTable& table, const Receipt& receipt, const Challenge& challenge) {
  const std::string& root = *receipt.rows_sha256;
  const std::size_t first_drawn = receipt.prompt_ids.size() - 1;
  const std::size_t n_draws = std::min(receipt.ids.size() + 1, table.n_positions() - first_drawn);
  AuditPlan plan;
  plan.draws = draw_some("draw", challenge.draws, n_draws, root, challenge.text);
  if (plan.draws.empty() || plan.draws.back() != n_draws - 1) plan.draws.push_back(n_draws - 1);
  plan.asked = draw_some("rows", challenge.rows, table.size(), root, challenge.text);
  for (std::size_t p = 0; p < table.n_positions(); ++p) plan.asked.push_back(table.row(0, p));
  for (const std::size_t draw : plan.draws)
    plan.asked.push_back(table.row(table.n_columns() - 1, first_drawn + draw));
  sort_once(plan.asked);
  for (std::size_t i = 0; i < plan.asked.size(); ++i) {
    const std::size_t row = plan.asked[i];
    const bool follows =
        i > 0 && table.column_of(plan.asked[i - 1]) == table.column_of(row);  // the same keys
    table.add_inputs(row, follows ? table.position_of(plan.asked[i - 1]) + 1 : 0, plan.inputs);
  }
  sort_once(plan.inputs);
  std::ranges::set_union(plan.asked, plan.inputs, std::back_inserter(plan.shown));
  return plan;
}

Result<AuditProof> AuditProof::parse(std::span<const std::byte> bytes, const RowTable& table,
                                     const AuditPlan& plan, const Receipt& receipt,
                                     const Challenge& challenge) {
  const std::size_t whole = bytes.size();
  LLM_RETURN_IF_ERROR(read_head(bytes, receipt, challenge));
  const std::size_t n_nodes = merkle_proof_size(table.size(), plan.shown);
  std::size_t size = (plan.shown.size() + n_nodes) * sizeof(Sha256Digest);
  for (const std::size_t row : plan.inputs) size += table.width(row) * sizeof(float);
  if (bytes.size() != size)
    return Error{ErrorCode::kMalformed, "size",
                 fmt::format("found {} bytes, need {}, what the challenge asks for", whole,
                             whole - bytes.size() + size)};
  LLM_TRY(RowValues values, RowValues::allocate(table, plan.inputs));
  AuditProof opening{.leaves = std::vector<Sha256Digest>(plan.shown.size()),
                     .values = std::move(values),
                     .nodes = std::vector<Sha256Digest>(n_nodes)};
  const auto take = [&](std::span<std::byte> to) {
    std::ranges::copy(bytes.first(to.size()), to.begin());
    bytes = bytes.subspan(to.size());
  };
  take(std::as_writable_bytes(std::span(opening.leaves)));
  take(std::as_writable_bytes(opening.values.all()));
  take(std::as_writable_bytes(std::span(opening.nodes)));
  return opening;
}

std::vector<std::byte> opening_bytes(const AuditPlan& plan, const Receipt& receipt,
                                     const Challenge& challenge, std::vector<Sha256Digest> leaves,
                                     const RowValues& values) {
  std::vector<std::byte> out;
  const auto add = [&](std::span<const std::byte> bytes) {
    out.insert(out.end(), bytes.begin(), bytes.end());
  };
  for (const auto& [name, value] : head_of(receipt, challenge))
    add(bytes_of(fmt::format("{} {}\n", name, value)));
  for (const std::size_t row : plan.shown) add(leaves[row]);
  for (const std::size_t row : plan.inputs) add(std::as_bytes(values.of(row)));
  for (const Sha256Digest& node : merkle_proof(std::move(leaves), plan.shown)) add(node);
  return out;
}

Status evaluate_run(const std::shared_ptr<const Model>& model, const Receipt& receipt,
                    ProbeSink& sink, const Progress& progress) {
  const std::vector<TokenId> tokens = receipt.evaluated();
  const std::size_t batch = receipt_batch(model->config().n_vocab);
  LLM_TRY(const auto session,
          open_sequence(model, {.context = tokens.size(), .kv = receipt.kv, .batch = batch}));
  session->set_probe(&sink);
  for (std::size_t at = 0; at < tokens.size(); at = session->position()) {
    const std::size_t count = std::min(batch, tokens.size() - at);
    LLM_RETURN_IF_ERROR(session->evaluate(std::span(tokens).subspan(at, count), LogitRows::kAll));
    if (progress) progress("rows", at + count, tokens.size());
  }
  return Ok{};
}

Result<std::string> rows_sha256(const std::shared_ptr<const Model>& model, const Receipt& receipt,
                                const Progress& progress) {
  const RowTable table(model->config(), receipt.evaluated().size());
  LLM_TRY(RowValues none, RowValues::allocate(table, {}));
  RowRecorder recorder(table, std::move(none));
  LLM_RETURN_IF_ERROR(evaluate_run(model, receipt, recorder, progress));
  return hex_text(merkle_root(std::move(recorder.leaves)));
}

Result<std::vector<std::byte>> open_rows(const std::shared_ptr<const Model>& model,
                                         const Receipt& receipt, const Challenge& challenge,
                                         const Progress& progress) {
  ReceiptModel shared(*model);
  LLM_RETURN_IF_ERROR(ReceiptTerms::of(shared, receipt));
  const RowTable table(model->config(), receipt.evaluated().size());
  const AuditPlan plan = AuditPlan::of(table, receipt, challenge);
  LLM_TRY(RowValues inputs, RowValues::allocate(table, plan.inputs));
  RowRecorder recorder(table, std::move(inputs));
  LLM_RETURN_IF_ERROR(evaluate_run(model, receipt, recorder, progress));
  if (const std::string root = hex_text(merkle_root(recorder.leaves)); root != *receipt.rows_sha256)
    return Error{
        ErrorCode::kIntegrity, "rows_sha256",
        fmt::format("found {}, need {}, what the model's rows give", *receipt.rows_sha256, root)};
  return opening_bytes(plan, receipt, challenge, std::move(recorder.leaves), recorder.kept);
}

}  // namespace llm
