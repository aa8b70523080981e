#include <fmt/format.h>

#include <algorithm>

#include "tools/llmquant/convert.h"

namespace llm {
namespace {

std::string dims_of(const GgufTensor& tensor) {
  return fmt::format("{}", fmt::join(std::span(tensor.dims).first(tensor.n_dims), " x "));
}

double mebibytes(std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

std::string error_columns(const TensorPlan& item, const ConversionError& error, bool weighted) {
  if (item.target == item.tensor->type)
    return fmt::format("  {:>10}  {:>10}{}", "-", "-", weighted ? "           -" : "");
  const std::string noise = item.importance.empty() ? fmt::format("  {:>10}", "-")
                                                    : fmt::format("  {:>10.3e}", error.noise());
  return fmt::format("  {:>10.3e}  {:>10.3e}{}", error.nmse(), error.largest,
                     weighted ? noise : "");
}

struct Totals {
  std::uint64_t weights = 0;
  std::uint64_t source_bytes = 0;
  std::uint64_t bytes = 0;
  ConversionError error;
};

Totals totals_of(std::span<const TensorPlan> plan, std::span<const ConversionError> errors) {
  Totals totals;
  for (const TensorPlan& item : plan) {
    totals.weights += item.tensor->n_elements;
    totals.source_bytes += item.tensor->n_bytes;
    totals.bytes += item.bytes;
  }
  for (const ConversionError& error : errors) {
    totals.error.add(error);
  }
  return totals;
}

}  // namespace

std::string report_table(std::span<const TensorPlan> plan,
                         std::span<const ConversionError> errors) {
  std::size_t name_width = 6;
  std::size_t dims_width = 4;
  for (const TensorPlan& item : plan) {
    name_width = std::max(name_width, item.name.size());
    dims_width = std::max(dims_width, dims_of(*item.tensor).size());
  }
  const bool weighted =
      std::ranges::any_of(plan, [](const auto& item) { return !item.importance.empty(); });
  std::string text = fmt::format("{:<{}}  {:>{}}  {:>4}    {:<7}  {:>9}{}\n", "tensor", name_width,
                                 "dims", dims_width, "from", "to", "MiB",
                                 errors.empty() ? ""
                                 : weighted     ? "        NMSE   max error       noise"
                                                : "        NMSE   max error");
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const TensorPlan& item = plan[i];
    text += fmt::format("{:<{}}  {:>{}}  {:>4} -> {:<7}  {:>9.3f}{}\n", item.name, name_width,
                        dims_of(*item.tensor), dims_width, block_traits(item.tensor->type).name,
                        block_traits(item.target).name, mebibytes(item.bytes),
                        errors.empty() ? "" : error_columns(item, errors[i], weighted));
  }
  const Totals totals = totals_of(plan, errors);
  const double bits = totals.weights == 0 ? 0.0
                                          : 8.0 * static_cast<double>(totals.bytes) /
                                                static_cast<double>(totals.weights);
  text +=
      fmt::format("total: {} weights, {:.3f} MiB -> {:.3f} MiB, {:.3f} bits per weight",
                  totals.weights, mebibytes(totals.source_bytes), mebibytes(totals.bytes), bits);
  if (!errors.empty()) {
    text +=
        fmt::format(", NMSE {:.3e}, max error {:.3e}", totals.error.nmse(), totals.error.largest);
  }
  return text + "\n";
}

}  // namespace llm
