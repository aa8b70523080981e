#include "engine/gguf/gguf_salvage.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include "base/checked_size.h"
#include "engine/gguf/gguf_parser.h"

namespace llm {
namespace {

constexpr std::string_view kSaidAlignment = "general.alignment";

std::uint64_t round_up(std::uint64_t value, std::uint64_t step) {
  return (value + step - 1) / step * step;
}

std::string name_of(const GgufTensor& tensor) { return fmt::format("tensor \"{}\"", tensor.name); }

}  // namespace

/// Where tensors may lie: offsets of each, counted from `begin` in the file.
struct GgufPlacement {
  std::uint64_t begin = 0;
  std::uint64_t alignment = 1;  ///< of the writer that is supposed
  std::vector<std::uint64_t> offsets;
};

/// Parses with a layout that is not the format's.
class GgufSalvage {
 public:
  explicit GgufSalvage(std::span<const std::byte> bytes) : bytes_(bytes), parser_(bytes) {}

  Result<GgufFile> run(std::vector<LayoutFault>& faults) {
    LLM_RETURN_IF_ERROR(parser_.parse_header());
    parser_.file_.bytes_ = bytes_;
    parser_.file_.file_bytes_ = bytes_.size();
    LLM_RETURN_IF_ERROR(parser_.parse_entries());
    LLM_RETURN_IF_ERROR(parser_.index_entries());
    if (file_.find(kSplitCount) != nullptr)
      return malformed(std::string(kSplitCount), "found a part of a model, need a whole one");
    read_alignment(faults);
    LLM_RETURN_IF_ERROR(parser_.parse_tensors());
    LLM_RETURN_IF_ERROR(file_.index_tensors());
    LLM_RETURN_IF_ERROR(parser_.check_nothing_follows());
    const auto placement = choose();
    if (!placement) return malformed("file", "tensors overlap or leave the file");
    report(*placement, faults);
    file_.data_offset_ = placement->begin;
    for (std::size_t i = 0; i < file_.tensors_.size(); ++i)
      file_.tensors_[i].offset = placement->offsets[i];
    const std::uint64_t end = round_up(end_of(*placement), placement->alignment);
    file_.trailing_bytes_ = end < bytes_.size() ? bytes_.size() - end : 0;
    return std::move(file_);
  }

 private:
  /// What the key says, of whatever type, and the alignment of a copy.
  void read_alignment(std::vector<LayoutFault>& faults) {
    const GgufValue* value = file_.find(kSaidAlignment);
    if (value == nullptr || parser_.read_alignment().ok()) {
      said_ = file_.alignment_;
      return;
    }
    double number = 0;
    std::string shown = value->type_name();
    if (gguf_fixed_size(value->type) > 0) {
      visit_gguf_number(value->type, value->bytes, [&](auto found) {
        number = static_cast<double>(found);
        shown += fmt::format(" {}", found);
      });
    }
    const bool is_step = number >= 1 && number <= GgufLimits::kMaxAlignment &&
                         number == std::floor(number);  // NaN fails
    if (is_step) said_ = static_cast<std::uint64_t>(number);
    if (said_ >= GgufLimits::kMinAlignment && (said_ & (said_ - 1)) == 0)
      file_.alignment_ = static_cast<std::uint32_t>(said_);
    faults.push_back(
        {.where = std::string(kSaidAlignment),
         .what = fmt::format("found {}, need UINT32, a power of two from {} to {}", shown,
                             GgufLimits::kMinAlignment, GgufLimits::kMaxAlignment),
         .mend = fmt::format("{} = {}", kSaidAlignment, file_.alignment_)});
  }

  std::uint64_t end_of(const GgufPlacement& placement) const {
    std::uint64_t end = placement.begin;
    for (std::size_t i = 0; i < placement.offsets.size(); ++i)
      end = std::max(end, placement.begin + placement.offsets[i] + file_.tensors_[i].n_bytes);
    return end;
  }

  std::vector<std::size_t> by_offset(const GgufPlacement& placement) const {
    std::vector<std::size_t> order(placement.offsets.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, {}, [&](std::size_t i) { return placement.offsets[i]; });
    return order;
  }

  /// Whether all tensors lie inside the file, and two of them are apart or the same bytes.
  bool is_possible(const GgufPlacement& placement) const {
    for (std::size_t i = 0; i < placement.offsets.size(); ++i) {
      const auto end =
          (CheckedSize(placement.begin) + placement.offsets[i] + file_.tensors_[i].n_bytes).value();
      if (!end || *end > bytes_.size()) return false;
    }
    const auto order = by_offset(placement);
    for (std::size_t k = 1; k < order.size(); ++k) {
      const std::uint64_t before = placement.offsets[order[k - 1]];
      const std::uint64_t after = placement.offsets[order[k]];
      const std::uint64_t n_before = file_.tensors_[order[k - 1]].n_bytes;
      const bool is_shared = before == after && n_before == file_.tensors_[order[k]].n_bytes;
      if (before + n_before > after && !is_shared) return false;
    }
    return true;
  }

  bool is_zero(std::uint64_t begin, std::uint64_t end) const {
    if (end <= begin) return true;
    const auto gap =
        bytes_.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
    return std::ranges::all_of(gap, [](std::byte byte) { return byte == std::byte{0}; });
  }

  /// Whether nothing but zeros and one alignment's padding is outside of all tensors.
  bool explains_all(const GgufPlacement& placement) const {
    std::uint64_t end = placement.begin;
    for (const std::size_t i : by_offset(placement)) {
      const std::uint64_t begin = placement.begin + placement.offsets[i];
      if (!is_zero(end, begin)) return false;
      end = std::max(end, begin + file_.tensors_[i].n_bytes);
    }
    return bytes_.size() - end < std::max<std::uint64_t>(placement.alignment, 1) &&
           is_zero(end, bytes_.size());
  }

  /// One after the other in `order`, each at a multiple of `alignment`.
  std::optional<GgufPlacement> in_a_row(std::span<const std::size_t> order, std::uint64_t begin,
                                        std::uint64_t alignment) const {
    GgufPlacement placement{.begin = begin, .alignment = alignment, .offsets = {}};
    placement.offsets.resize(order.size());
    std::uint64_t next = 0;
    for (const std::size_t i : order) {
      placement.offsets[i] = next;
      if (file_.tensors_[i].n_bytes > bytes_.size() - next) return std::nullopt;
      next = round_up(next + file_.tensors_[i].n_bytes, alignment);
      if (next > bytes_.size() + alignment) return std::nullopt;
      next = std::min<std::uint64_t>(next, bytes_.size());
    }
    return placement;
  }

  /// The alignments that the writer may have used.
  std::vector<std::uint64_t> supposed() const {
    std::vector<std::uint64_t> alignments = {said_};
    for (std::uint64_t step = GgufLimits::kDefaultAlignment; step > 0; step /= 2)
      alignments.push_back(step);
    return alignments;
  }

  /// Whether the data section can begin there: behind zeros alone, and not before what the
  /// alignment skips with zeros, which would be the padding of a file that was cut short.
  bool can_begin(std::uint64_t begin) const {
    const std::uint64_t head = parser_.reader_.offset();
    const std::uint64_t usual = std::max<std::uint64_t>(said_, GgufLimits::kDefaultAlignment);
    const std::uint64_t skipped = std::min<std::uint64_t>(round_up(head, usual), bytes_.size());
    return begin <= bytes_.size() && is_zero(head, begin) &&
           (begin >= skipped || !is_zero(begin, skipped));
  }

  /// The file's own offsets, from where they explain every byte; else from where the file says, if
  /// that can be; else an order without gaps that explains all.
  std::optional<GgufPlacement> choose() const {
    const std::uint64_t head = parser_.reader_.offset();
    std::vector<std::uint64_t> begins;
    for (const std::uint64_t alignment : supposed()) begins.push_back(round_up(head, alignment));
    for (std::uint64_t i = 0; i < GgufLimits::kDefaultAlignment; ++i) begins.push_back(head + i);
    GgufPlacement own{.alignment = std::max<std::uint64_t>(said_, GgufLimits::kDefaultAlignment),
                      .offsets = {}};
    for (const GgufTensor& tensor : file_.tensors_) own.offsets.push_back(tensor.offset);
    std::optional<GgufPlacement> possible;
    for (const std::uint64_t begin : begins) {
      own.begin = begin;
      if (!can_begin(begin) || !is_possible(own)) continue;
      if (explains_all(own)) return own;
      if (begin == begins.front()) possible = own;
    }
    std::vector<std::size_t> listed(own.offsets.size());
    std::iota(listed.begin(), listed.end(), std::size_t{0});
    // In a row of another alignment than the file's, what was cut short by its padding would fit.
    const bool is_said =
        std::ranges::all_of(own.offsets, [this](std::uint64_t at) { return at % said_ == 0; });
    for (const auto& order : {listed, by_offset(own)}) {
      for (const std::uint64_t alignment : supposed()) {
        if (is_said && alignment != said_) continue;
        auto row = in_a_row(order, round_up(head, alignment), alignment);
        if (row && can_begin(row->begin) && is_possible(*row) && explains_all(*row)) return row;
      }
    }
    return possible;
  }

  void report(const GgufPlacement& placement, std::vector<LayoutFault>& faults) const {
    report_replaced(placement, faults);
    report_unaligned(placement, faults);
    const auto order = by_offset(placement);
    for (std::size_t k = 1; k < order.size(); ++k) {
      if (placement.offsets[order[k]] != placement.offsets[order[k - 1]]) continue;
      const GgufTensor& tensor = file_.tensors_[order[k]];
      faults.push_back({.where = name_of(tensor),
                        .what = fmt::format("found the bytes of {}, need separate bytes",
                                            name_of(file_.tensors_[order[k - 1]])),
                        .mend = "each gets a copy of the bytes"});
    }
  }

  void report_replaced(const GgufPlacement& placement, std::vector<LayoutFault>& faults) const {
    std::size_t n_replaced = 0;
    std::size_t first = 0;
    for (std::size_t i = placement.offsets.size(); i-- > 0;) {
      if (placement.offsets[i] == file_.tensors_[i].offset) continue;
      ++n_replaced;
      first = i;
    }
    if (n_replaced == 0) return;
    const GgufTensor& tensor = file_.tensors_[first];
    faults.push_back(
        {.where = name_of(tensor),
         .what = fmt::format(
             "found offset {}, need {}: with the offsets found, tensors overlap or leave the file; "
             "one after the other, they fill it exactly; the same for {} tensors",
             tensor.offset, placement.offsets[first], n_replaced),
         .mend = "tensors are written one after the other, in the order of their bytes"});
  }

  void report_unaligned(const GgufPlacement& placement, std::vector<LayoutFault>& faults) const {
    const std::uint64_t need = file_.alignment_;
    std::size_t n_unaligned = 0;
    std::size_t first = 0;
    for (std::size_t i = placement.offsets.size(); i-- > 0;) {
      if (placement.offsets[i] % need == 0) continue;
      ++n_unaligned;
      first = i;
    }
    const std::uint64_t need_begin = round_up(parser_.reader_.offset(), need);
    if (n_unaligned == 0 && placement.begin == need_begin) return;
    const std::string mend = fmt::format("tensors are written at multiples of {}", need);
    if (n_unaligned > 0) {
      faults.push_back({.where = name_of(file_.tensors_[first]),
                        .what = fmt::format(
                            "found offset {}, need a multiple of {}; the same for {} of {} tensors",
                            placement.offsets[first], need, n_unaligned, placement.offsets.size()),
                        .mend = mend});
    } else {
      faults.push_back({.where = "file",
                        .what = fmt::format("found tensors that begin at byte {}, need byte {}: "
                                            "the next multiple of {}",
                                            placement.begin, need_begin, need),
                        .mend = mend});
    }
  }

  std::span<const std::byte> bytes_;
  GgufParser parser_;
  GgufFile& file_ = parser_.file_;
  std::uint64_t said_ = GgufLimits::kDefaultAlignment;
};

Result<SalvagedGguf> salvage_gguf_file(const std::string& path) {
  LLM_TRY(MappedFile file, MappedFile::open(path));
  std::vector<LayoutFault> faults;
  auto gguf = GgufSalvage(file.bytes()).run(faults);
  if (!gguf.ok()) return in_file(std::move(gguf).error(), path);
  return SalvagedGguf{.open = {std::move(file), std::move(gguf).value()},
                      .faults = std::move(faults)};
}

}  // namespace llm
