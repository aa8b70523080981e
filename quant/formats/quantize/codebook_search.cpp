#include "quant/formats/quantize/codebook_search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "base/check.h"
#include "quant/formats/block_visit.h"
#include "quant/formats/codes.h"
#include "quant/formats/half.h"

namespace llm {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// What eight weights have besides the magnitudes of their entries.
enum class Marks {
  kSigns,      ///< a sign each
  kEvenSigns,  ///< the same, but an even number of negative ones
  kDelta,      ///< 1 or -1 to be added; signs are in the entries
};

template <typename Block>
constexpr Marks kMarksOf = [] {
  using enum WeightType;
  constexpr WeightType kType = Block::kType;
  if (kType == kIQ1_S || kType == kIQ1_M) return Marks::kDelta;
  return kType == kIQ2_S || kType == kIQ3_S ? Marks::kSigns : Marks::kEvenSigns;
}();

/// What is stored of eight weights.
struct Eight {
  std::uint16_t entries[2] = {};  ///< the second only where entries have four weights
  std::uint8_t marks = 0;         ///< negative signs; all ones for a delta of -1
};

// ---- storing; the inverse of codebook_codes.h. Blocks begin as zeros.

void or_bits(std::uint8_t* bytes, std::size_t first_bit, unsigned value) {
  for (std::size_t byte = first_bit / 8; value != 0 || byte == first_bit / 8; ++byte) {
    const std::size_t shift = byte == first_bit / 8 ? first_bit % 8 : 0;
    bytes[byte] = static_cast<std::uint8_t>(bytes[byte] | value << shift);
    value >>= 8 - shift;
  }
}

void store_entry(BlockIQ3_S& b, std::size_t i, unsigned entry) {
  b.qs[i] = static_cast<std::uint8_t>(entry);
  or_bits(b.qh, i, entry >> 8);
}
void store_entry(BlockIQ3_XXS& b, std::size_t i, unsigned entry) {
  b.qs[i] = static_cast<std::uint8_t>(entry);
}
void store_entry(BlockIQ2_S& b, std::size_t i, unsigned entry) {
  b.qs[i] = static_cast<std::uint8_t>(entry);
  or_bits(b.qh, 2 * i, entry >> 8);
}
void store_entry(BlockIQ2_XS& b, std::size_t i, unsigned entry) { or_bits(b.qs, 16 * i, entry); }
void store_entry(BlockIQ2_XXS& b, std::size_t i, unsigned entry) {
  b.qs[8 * (i / 4) + i % 4] = static_cast<std::uint8_t>(entry);
}
void store_entry(BlockIQ1_S& b, std::size_t i, unsigned entry) {
  b.qs[i] = static_cast<std::uint8_t>(entry);
  or_bits(b.qh, 16 * (i / 4) + 3 * (i % 4), entry >> 8);
}
void store_entry(BlockIQ1_M& b, std::size_t i, unsigned entry) {
  b.qs[i] = static_cast<std::uint8_t>(entry);
  or_bits(b.qh, 4 * i, entry >> 8);
}

void store_marks(BlockIQ3_S& b, std::size_t i, unsigned marks) {
  b.signs[i] = static_cast<std::uint8_t>(marks);
}
void store_marks(BlockIQ3_XXS& b, std::size_t i, unsigned marks) {
  or_bits(b.scales, 32 * (i / 4) + 7 * (i % 4), marks & 127);
}
void store_marks(BlockIQ2_S& b, std::size_t i, unsigned marks) {
  b.signs[i] = static_cast<std::uint8_t>(marks);
}
void store_marks(BlockIQ2_XS& b, std::size_t i, unsigned marks) {
  or_bits(b.qs, 16 * i + 9, marks & 127);
}
void store_marks(BlockIQ2_XXS& b, std::size_t i, unsigned marks) {
  or_bits(b.qs, 64 * (i / 4) + 32 + 7 * (i % 4), marks & 127);
}
void store_marks(BlockIQ1_S& b, std::size_t i, unsigned marks) {
  or_bits(b.qh, 16 * (i / 4) + 15, marks & 1);
}
void store_marks(BlockIQ1_M& b, std::size_t i, unsigned marks) {
  or_bits(b.qh, 4 * i + 3, marks & 1);
}

template <typename Block>
void store_scale(Block& b, std::size_t s, unsigned scale) {
  or_bits(b.scales, 4 * s, scale);
}
void store_scale(BlockIQ3_XXS& b, std::size_t s, unsigned scale) {
  or_bits(b.scales, 32 * s + 28, scale);
}
void store_scale(BlockIQ2_XXS& b, std::size_t s, unsigned scale) {
  or_bits(b.qs, 64 * s + 60, scale);
}
void store_scale(BlockIQ1_S& b, std::size_t s, unsigned scale) {
  or_bits(b.qh, 16 * s + 12, scale);
}
void store_scale(BlockIQ1_M& b, std::size_t s, unsigned scale) {
  or_bits(b.scales, 16 * (s / 4) + 3 * (s % 4), scale);
}

template <typename Block>
void store_d(Block& b, std::uint16_t bits) {
  b.d = bits;
}
void store_d(BlockIQ1_M& b, std::uint16_t bits) { contract::set_iq1_m_scale_bits(b, bits); }

// ---- the search

template <typename Block>
class CodebookSearch {
 public:
  CodebookSearch(std::span<const float, 256> x, std::span<const float, 256> w)
      : x_(x.data()), w_(w.data()) {}

  void run(Block& out) {
    float steps[kSubBlocks];
    for (std::size_t s = 0; s < kSubBlocks; ++s) steps[s] = fit_real(s);
    const float largest = *std::max_element(steps, steps + kSubBlocks);
    std::uint16_t d = f32_to_f16(largest / (kUnit * (2 * kMaxScale + 1)));
    double best = 0;
    for (std::size_t s = 0; s < kSubBlocks; ++s) best += fit_integer(s, steps[s], step_of(d));
    store(d, out);
    for (int round = 1; round < kRounds; ++round) {
      const std::uint16_t next = solve(d);
      if (next == d) break;
      double error = 0;
      for (std::size_t s = 0; s < kSubBlocks; ++s) error += encode(s, scales_[s], step_of(next));
      if (!(error < best)) break;
      best = error;
      d = next;
      store(d, out);
    }
  }

 private:
  static constexpr Marks kMarks = kMarksOf<Block>;
  static constexpr std::size_t kEntry = Block::kEntryWeights;
  static constexpr std::size_t kEntries = 8 / kEntry;  // of eight weights
  static constexpr std::size_t kSize = Block::kSubBlock;
  static constexpr std::size_t kSubBlocks = 256 / kSize;
  static constexpr std::size_t kEights = kSize / 8;  // of a sub-block
  static constexpr unsigned kMaxScale = kMarks == Marks::kDelta ? 7 : 15;
  static constexpr float kUnit = [] {
    if constexpr (requires { Block::kScaleUnit; }) return Block::kScaleUnit;
    return 1.0F;
  }();
  static constexpr int kRounds = 4;
  // Of an entry in halves, and these in quarters, of one or two weights.
  static constexpr std::size_t kBits = kEntry == 8 ? 2 : 3;
  static constexpr std::size_t kLevels = std::size_t{1} << kBits;
  static constexpr std::size_t kQuarterBits = kBits * kEntry / 4;
  static constexpr std::size_t kQuarterPatterns = std::size_t{1} << kQuarterBits;
  static constexpr std::size_t kPatterns = kQuarterPatterns * kQuarterPatterns;
  static constexpr auto& kValues = Block::kBookValues;
  /// The largest level that the codebook uses: of two bits the fourth is not a value.
  static constexpr std::size_t kTop = kBits == 2 ? 2 : 7;

  /// The codebook by the low halves of its entries.
  struct Grouped {
    struct Group {
      std::uint16_t low;
      std::uint16_t begin;
      std::uint16_t end;
    };
    struct Entry {
      std::uint16_t high;
      std::uint16_t number;
    };
    std::vector<Group> groups;
    std::vector<Entry> entries;
    Grouped() {
      for (unsigned low = 0; low < kPatterns; ++low) {
        const auto begin = static_cast<std::uint16_t>(entries.size());
        for (std::size_t e = 0; e < std::size(Block::kBook); ++e) {
          if (Block::kBook[e] % kPatterns != low) continue;
          entries.push_back({static_cast<std::uint16_t>(Block::kBook[e] / kPatterns),
                             static_cast<std::uint16_t>(e)});
        }
        if (begin != entries.size())
          groups.push_back(
              {static_cast<std::uint16_t>(low), begin, static_cast<std::uint16_t>(entries.size())});
      }
    }
  };
  static const Grouped& grouped() {
    static const Grouped book;
    return book;
  }

  /// Errors of the halves of an entry, without the constant sum of w x x; odd: with one sign
  /// turned.
  struct Tables {
    float even[2][kPatterns];
    float odd[2][kPatterns];
    float least_even;  // of the second half
    float least_odd;
  };

  static float value_of(std::size_t level, float delta) {
    return static_cast<float>(kValues[std::min(level, kTop)]) + delta;
  }

  /// @param x  magnitudes, or with a delta the weights themselves
  static void fill(const float* x, const float* w, float step, float delta, bool odd,
                   Tables& tables) {
    for (std::size_t half = 0; half < 2; ++half) {
      float errors[2][kQuarterPatterns];
      float turns[2][kQuarterPatterns];
      for (std::size_t quarter = 0; quarter < 2; ++quarter) {
        const std::size_t first = (2 * half + quarter) * (kEntry / 4);
        for (std::size_t p = 0; p < kQuarterPatterns; ++p) {
          float error = 0;
          float turn = kInfinity;
          for (std::size_t i = 0; i < kEntry / 4; ++i) {
            const float t = step * value_of(p >> (kBits * i) & (kLevels - 1), delta);
            const float wt = w[first + i] * t;
            error += wt * (t - 2 * x[first + i]);
            turn = std::min(turn, 4 * wt * x[first + i]);
          }
          errors[quarter][p] = error;
          turns[quarter][p] = turn;
        }
      }
      for (std::size_t high = 0; high < kQuarterPatterns; ++high) {
        float* even = tables.even[half] + high * kQuarterPatterns;
        for (std::size_t low = 0; low < kQuarterPatterns; ++low)
          even[low] = errors[0][low] + errors[1][high];
        if (!odd) continue;
        float* turned = tables.odd[half] + high * kQuarterPatterns;
        for (std::size_t low = 0; low < kQuarterPatterns; ++low)
          turned[low] = even[low] + std::min(turns[0][low], turns[1][high]);
      }
    }
    tables.least_even = *std::min_element(tables.even[1], tables.even[1] + kPatterns);
    tables.least_odd =
        odd ? *std::min_element(tables.odd[1], tables.odd[1] + kPatterns) : kInfinity;
  }

  struct Found {
    float error = kInfinity;
    std::uint16_t entry = 0;
  };
  /// The entry of least error, the first of equal ones in the order of low halves.
  template <bool kOdd>
  static Found nearest(const Tables& t) {
    Found best;
    const Grouped& book = grouped();
    for (const auto& group : book.groups) {
      const float low = kOdd ? t.odd[0][group.low] : t.even[0][group.low];
      const float low_even = t.even[0][group.low];
      float bound = low + t.least_even;
      if constexpr (kOdd) bound = std::min(bound, low_even + t.least_odd);
      if (!(bound < best.error)) continue;
      for (std::size_t e = group.begin; e < group.end; ++e) {
        const auto& entry = book.entries[e];
        float error = low + t.even[1][entry.high];
        if constexpr (kOdd) error = std::min(error, low_even + t.odd[1][entry.high]);
        if (error < best.error) best = {error, entry.number};
      }
    }
    return best;
  }

  static float value_at(unsigned entry, std::size_t i) {
    return static_cast<float>(kValues[Block::kBook[entry] >> (kBits * i) & (kLevels - 1)]);
  }

  /// Eight weights at a step. Returns the error without the constant.
  static float encode_eight(const float* x, const float* w, float step, float delta, Eight& out) {
    float magnitudes[8];
    std::memcpy(magnitudes, x, sizeof(magnitudes));
    out = {};
    bool odd = false;
    if constexpr (kMarks == Marks::kDelta) {
      out.marks = delta < 0 ? 255 : 0;
    } else {
      for (std::size_t j = 0; j < 8; ++j) {
        magnitudes[j] = std::abs(x[j]);
        const unsigned negative = x[j] < 0 ? 1 : 0;
        out.marks = static_cast<std::uint8_t>(out.marks | negative << j);
        odd = odd != (negative != 0);
      }
    }
    const bool turns = kMarks == Marks::kEvenSigns && odd;
    float error = 0;
    Found turned[kEntries];
    float dearer[kEntries];
    for (std::size_t e = 0; e < kEntries; ++e) {
      Tables tables;
      fill(magnitudes + e * kEntry, w + e * kEntry, step, delta, turns, tables);
      Found found;
      if (turns) turned[e] = nearest<true>(tables);
      if (!turns || kEntries > 1) found = nearest<false>(tables);
      out.entries[e] = found.entry;
      dearer[e] = kEntries > 1 ? turned[e].error - found.error : turned[e].error;
      if (!turns || kEntries > 1) error += found.error;
    }
    if (!turns) return error;
    const std::size_t e = kEntries > 1 && dearer[kEntries - 1] < dearer[0] ? 1 : 0;
    out.entries[e] = turned[e].entry;
    std::size_t cheapest = 0;
    float least = kInfinity;
    for (std::size_t i = 0; i < kEntry; ++i) {
      const std::size_t j = e * kEntry + i;
      const float turn = 4 * (w[j] * (step * value_at(turned[e].entry, i))) * magnitudes[j];
      if (turn < least) {
        least = turn;
        cheapest = j;
      }
    }
    out.marks = static_cast<std::uint8_t>(out.marks ^ 1U << cheapest);
    return error + dearer[e];
  }

  /// A sub-block at a step, into eights_. Returns the error without the constant.
  float encode_at(std::size_t s, float step) {
    const std::size_t first = s * kSize;
    Eight* out = eights_[s];
    float total = 0;
    if constexpr (kMarks != Marks::kDelta) {
      for (std::size_t i = 0; i < kEights; ++i)
        total += encode_eight(x_ + first + 8 * i, w_ + first + 8 * i, step, 0, out[i]);
    } else {
      // A delta for all of a sub-block (IQ1_S), or for each eight (IQ1_M).
      constexpr std::size_t kShare = Block::kType == WeightType::kIQ1_S ? kEights : 1;
      for (std::size_t i = 0; i < kEights; i += kShare) {
        float error[2] = {};
        Eight found[2][kShare];
        for (std::size_t negative = 0; negative < 2; ++negative) {
          for (std::size_t k = 0; k < kShare; ++k) {
            const std::size_t at = first + 8 * (i + k);
            error[negative] += encode_eight(x_ + at, w_ + at, step, negative != 0 ? -1.0F : 1.0F,
                                            found[negative][k]);
          }
        }
        const std::size_t better = error[1] < error[0] ? 1 : 0;
        std::copy_n(found[better], kShare, out + i);
        total += error[better];
      }
    }
    return total;
  }

  /// With the codes of eights_: sum w x q and sum w q q.
  struct Sums {
    float xq = 0;
    float qq = 0;
  };
  Sums sums_of(std::size_t s) const {
    Sums sums;
    for (std::size_t j = 0; j < kSize; ++j) {
      const Eight& eight = eights_[s][j / 8];
      const bool marked = (eight.marks >> j % 8 & 1) != 0;
      float q = value_at(eight.entries[j % 8 / kEntry], j % kEntry);
      if constexpr (kMarks == Marks::kDelta) {
        q += marked ? -1.0F : 1.0F;
      } else {
        q = marked ? -q : q;
      }
      const float wq = w_[s * kSize + j] * q;
      sums.xq += x_[s * kSize + j] * wq;
      sums.qq += wq * q;
    }
    return sums;
  }

  /// Step 1: the real step. A start maps the largest magnitude `share` of the largest value.
  float fit_real(std::size_t s) {
    float largest = 0;
    for (std::size_t j = 0; j < kSize; ++j)
      largest = std::max(largest, std::abs(x_[s * kSize + j]));
    const auto top = static_cast<float>(kValues[kTop]);
    float step = 0;
    float best = 0;
    const auto consider = [&](float start) {
      encode_at(s, start);
      const Sums sums = sums_of(s);
      if (!(sums.xq > 0)) return;
      const float gain = sums.xq * (sums.xq / sums.qq);
      if (gain > best) {
        best = gain;
        step = sums.xq / sums.qq;
      }
    };
    constexpr std::array kShares = kMarks == Marks::kDelta
                                       ? std::array{1.1F, 1.4F, 1.7F, 2.0F, 2.4F, 2.9F}
                                       : std::array{0.75F, 0.9F, 1.05F, 1.2F, 1.4F, 1.65F};
    for (const float share : kShares) consider(largest / (top * share));
    if (step > 0) consider(step);
    return step;
  }

  float step_of(std::uint16_t d) const { return f16_to_f32(d) * kUnit; }

  /// The error of a sub-block with an integer scale, whose codes eights_ then has.
  double encode(std::size_t s, unsigned scale, float unit) {
    scales_[s] = scale;
    return static_cast<double>(encode_at(s, unit * static_cast<float>(2 * scale + 1)));
  }

  /// Step 2.
  double fit_integer(std::size_t s, float step, float unit) {
    const float real = unit > 0 ? (step / unit - 1) / 2 : 0;
    const auto nearest =
        static_cast<int>(std::clamp(real, 0.0F, static_cast<float>(kMaxScale)) + 0.5F);
    double best = std::numeric_limits<double>::infinity();
    unsigned chosen = 0;
    Eight eights[kEights];
    for (int scale = std::max(nearest - 1, 0);
         scale <= std::min(nearest + 1, static_cast<int>(kMaxScale)); ++scale) {
      const double error = encode(s, static_cast<unsigned>(scale), unit);
      if (!(error < best)) continue;
      best = error;
      chosen = static_cast<unsigned>(scale);
      std::copy_n(eights_[s], kEights, eights);
    }
    scales_[s] = chosen;
    std::copy_n(eights, kEights, eights_[s]);
    return best;
  }

  /// Step 3: with k = 2 scale + 1, d unit = sum(k xq) / sum(k k qq).
  std::uint16_t solve(std::uint16_t d) const {
    double products = 0;
    double squares = 0;
    for (std::size_t s = 0; s < kSubBlocks; ++s) {
      const Sums sums = sums_of(s);
      const double k = 2 * scales_[s] + 1;
      products += k * static_cast<double>(sums.xq);
      squares += k * k * static_cast<double>(sums.qq);
    }
    if (!(products > 0 && squares > 0)) return d;
    return f32_to_f16(static_cast<float>(products / squares) / kUnit);
  }

  void store(std::uint16_t d, Block& out) const {
    out = {};
    store_d(out, d);
    for (std::size_t s = 0; s < kSubBlocks; ++s) {
      store_scale(out, s, scales_[s]);
      for (std::size_t i = 0; i < kEights; ++i) {
        const std::size_t eight = s * kEights + i;
        for (std::size_t e = 0; e < kEntries; ++e)
          store_entry(out, eight * kEntries + e, eights_[s][i].entries[e]);
        store_marks(out, eight, eights_[s][i].marks);
      }
    }
  }

  const float* x_;
  const float* w_;
  Eight eights_[kSubBlocks][kEights];
  unsigned scales_[kSubBlocks] = {};
};

}  // namespace

void search_codebook(WeightType type, std::span<const float, 256> weights,
                     std::span<const float, 256> error_weights, std::span<std::byte> out) {
  LLM_CHECK(out.size() == row_bytes(type, 256));
  visit_block_format(type, [&]<typename Block>() {
    if constexpr (HasCodebook<Block>) {
      Block block;
      CodebookSearch<Block>(weights, error_weights).run(block);
      std::memcpy(out.data(), &block, sizeof(block));
    } else {
      LLM_CHECK(false && "without a codebook");
    }
  });
}

}  // namespace llm
