// The entry attend of KernelTable, on caches of random keys and values.

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "engine/forward/reference/ops.h"
#include "engine/model/precision.h"
#include "engine/state/kv_row.h"
#include "quant/numerics/contract.h"
#include "validate/selftest/kernel_case.h"

namespace llm {
namespace {

using Floats = Guarded<float>;

constexpr std::size_t kChunk = contract::kAttentionChunk;
/// Tokens of the largest task of prefill, and one more.
constexpr std::size_t kMostTokens = 33;

std::size_t chunks_of(std::size_t n_keys) { return (n_keys + kChunk - 1) / kChunk; }

/// Where queries, keys and values come from.
struct Feed {
  Values queries;
  float query_factor;  ///< of all queries: how far apart the scores are
  Values keys;
  Values values;
};
constexpr Feed kPlain = {Values::kPlain, 4.0F, Values::kPlain, Values::kPlain};
constexpr Feed kFeeds[] = {
    {Values::kPlain, 200.0F, Values::kPlain, Values::kOutliers},  // most weights are 0
    {Values::kOutliers, 1.0F, Values::kOutliers, Values::kWide},
    {Values::kTiny, 1.0F, Values::kTiny, Values::kTiny},
    {Values::kPlain, 1.0F, Values::kPlain, Values::kSpecial},
    {Values::kSpecial, 1.0F, Values::kGates, Values::kPlain},
};

/// Keys and values of one KV head: in pages of the cache's type and layout (KvLayout), and as they
/// are read back from there.
class CachedHead {
 public:
  CachedHead(std::size_t n_keys, const KvLayout& layout, const Feed& feed)
      : layout_(layout),
        keys_(draw(feed.keys, n_keys * layout.head_dim, 1)),
        values_(draw(feed.values, n_keys * layout.head_dim, 2)),
        memory_(chunks_of(n_keys) * page_bytes(), 0, Guarded<std::byte>::kRead) {
    // Neighbouring pages lie anywhere; here, the last one first.
    for (std::size_t c = chunks_of(n_keys); c-- > 0;) {
      pages_.push_back(memory_.data() + c * page_bytes());
    }
    const std::size_t dim = layout.head_dim;
    for (std::size_t position = 0; position < n_keys; ++position) {
      const auto keys = std::span(keys_).subspan(position * dim, dim);
      const auto values = std::span(values_).subspan(position * dim, dim);
      // Dims without NaN and infinities are left to compare; of q8, where a group shares a fault,
      // whole heads.
      const bool whole = layout.type != KvType::kQ8 || position % 64 != 5;
      for (std::size_t d = 0; d < dim; ++d)
        if (feed.values == Values::kSpecial && d % 8 != 3 && whole) values[d] = 1.0F;
      // Chunks whose largest scores lie far apart make merging count.
      for (float& k : keys) k *= kChunkFactors[position / kChunk % std::size(kChunkFactors)];
      const KvRow row = row_of(position);
      row.store(0, keys, values, KvRounding::kDefinition);
      if (layout.type == KvType::kQ8) reference::read_row(row, coded_keys_, coded_values_);
      for (std::size_t d = 0; d < dim; ++d) {
        keys[d] = row.key(d);
        values[d] = row.value(d);
      }
    }
  }

  const KvLayout& layout() const { return layout_; }
  std::size_t head_dim() const { return layout_.head_dim; }
  std::size_t n_keys() const { return keys_.size() / head_dim(); }
  /// Of scores: any number will do, and one that is no power of two shows where it is left out.
  float scale() const { return 1.1F / std::sqrt(static_cast<float>(head_dim())); }
  /// The definition over keys [begin, end) of one chunk.
  reference::AttentionPartial attend(std::span<const float> q, float cap, std::size_t begin,
                                     std::size_t end) const {
    if (layout_.type == KvType::kQ8) return attend_coded(q, cap, begin, end);
    const auto rows = [&](const std::vector<float>& all) {
      return std::span(all).subspan(begin * head_dim(), (end - begin) * head_dim());
    };
    return reference::attend_chunk(q, {scale(), cap}, begin % kChunk, rows(keys_), rows(values_));
  }
  const std::byte* const* pages() const { return pages_.data(); }
  std::size_t keys_offset() const { return kGap; }
  std::size_t values_offset() const { return kGap + layout_.keys_bytes() + kGap; }

 private:
  // Gaps and positions after the last are NaN in any type: scores of whole registers are
  // computed, and those of absent keys must not be used.
  static constexpr std::size_t kGap = 64;
  static constexpr float kChunkFactors[] = {1.0F, 0.25F, 3.0F, 0.5F};

  std::size_t page_bytes() const {
    return 2 * kGap + layout_.keys_bytes() + layout_.values_bytes();
  }
  KvRow row_of(std::size_t position) const {
    std::byte* page = pages_[position / kChunk];
    return {layout_, page + keys_offset(), page + values_offset(), position % kChunk};
  }
  reference::AttentionPartial attend_coded(std::span<const float> q, float cap, std::size_t begin,
                                           std::size_t end) const {
    const auto rows = [&](const reference::CodedRows& all) {
      const auto part = [&](const auto& values, std::size_t n) {
        const auto first = values.begin() + static_cast<std::ptrdiff_t>(begin * n);
        return std::vector(first, first + static_cast<std::ptrdiff_t>((end - begin) * n));
      };
      return reference::CodedRows{head_dim(), part(all.codes, head_dim()),
                                  part(all.scales, all.n_groups())};
    };
    return reference::attend_chunk(q, {scale(), cap}, begin % kChunk, rows(coded_keys_),
                                   rows(coded_values_));
  }

  KvLayout layout_;
  std::vector<float> keys_;
  std::vector<float> values_;
  reference::CodedRows coded_keys_{layout_.head_dim};
  reference::CodedRows coded_values_{layout_.head_dim};
  Guarded<std::byte> memory_;
  std::vector<std::byte*> pages_;
};

/// Query heads and tokens of one call, and the chunks it covers.
struct Call {
  std::size_t n_heads;
  std::size_t n_tokens;
  std::size_t first_position;
  std::size_t chunk_begin;
  std::size_t chunk_end;
  std::size_t window = 0;  ///< 0: all keys
  float cap = 0;           ///< of scores; 0: none
};

/// The one place that knows how a kernel is told where keys and values are.
AttendArgs attend_args(const CachedHead& head, const Call& call, const float* q,
                       std::size_t q_stride, float* partial, std::byte* workspace) {
  return {.q = q,
          .q_stride = q_stride,
          .pages = head.pages(),
          .keys_offset = head.keys_offset(),
          .values_offset = head.values_offset(),
          .layout = head.layout(),
          .n_heads = call.n_heads,
          .n_tokens = call.n_tokens,
          .first_position = call.first_position,
          .window = call.window,
          .chunk_begin = call.chunk_begin,
          .chunk_end = call.chunk_end,
          .scale = head.scale(),
          .cap = call.cap,
          .partial = partial,
          .workspace = workspace};
}

/// Overwrites the partial results, {m, l, o[head_dim]} a row, of tokens that see one of the chunks.
void define_partials(const CachedHead& head, const Call& call, const float* q, std::size_t q_stride,
                     std::span<float> partials) {
  const std::size_t dim = head.head_dim();
  for (std::size_t row = 0; row < call.n_tokens * call.n_heads; ++row) {
    const std::size_t token = row / call.n_heads;
    const std::size_t n_keys = call.first_position + token + 1;
    const std::size_t first = call.window == 0 ? 0 : n_keys - std::min(call.window, n_keys);
    std::size_t c = std::max(call.chunk_begin, first / kChunk);
    if (c >= call.chunk_end || c * kChunk >= n_keys) continue;
    const std::span query(q + token * q_stride + row % call.n_heads * dim, dim);
    const auto chunk = [&] {
      return head.attend(query, call.cap, std::max(first, c * kChunk),
                         std::min((c + 1) * kChunk, n_keys));
    };
    reference::AttentionPartial sum = chunk();
    while (++c < call.chunk_end && c * kChunk < n_keys) reference::merge(sum, chunk());
    const std::span out = partials.subspan(row * (2 + dim), 2 + dim);
    out[0] = sum.m;
    out[1] = sum.l;
    std::ranges::copy(sum.o, out.begin() + 2);
  }
}

/// Makes m equal where the contract leaves it open: m is only ever subtracted, so that the sign of
/// a zero changes nothing; and where l is NaN, so is the result whatever m is.
void settle_maxima(std::span<float> actual, std::span<const float> expected, std::size_t dim) {
  for (std::size_t at = 0; at < actual.size(); at += 2 + dim) {
    if (actual[at] == expected[at] || std::isnan(expected[at + 1])) actual[at] = expected[at];
  }
}

void check_call(EntryCheck& check, const CachedHead& head, const Call& call, const Feed& feed) {
  const std::size_t dim = head.head_dim();
  const std::size_t gap = call.n_tokens % 5;
  const std::size_t q_stride = call.n_heads * dim + gap;
  const std::size_t shift = (call.first_position + call.n_tokens) % 16 * sizeof(float);
  std::vector<float> drawn = draw(feed.queries, call.n_tokens * q_stride, 3);
  for (float& x : drawn) x *= feed.query_factor;
  const Floats q(drawn, shift, Floats::kRead);
  const auto before = untouched<float>(call.n_tokens * call.n_heads * (2 + dim));
  std::vector<float> expected = before;
  define_partials(head, call, q.data(), q_stride, expected);
  check.compare(
      fmt::format("head_dim {}, {} heads, {} cache, {} tokens from position {}, chunks {} .. {}, "
                  "window {}, cap {}, {} queries, {} keys, {} values",
                  dim, call.n_heads, kv_name(head.layout().type), call.n_tokens,
                  call.first_position, call.chunk_begin, call.chunk_end, call.window, call.cap,
                  name_of(feed.queries), name_of(feed.keys), name_of(feed.values)),
      expected, before, shift, [&](auto& table, float* partial) {
        Guarded<std::byte> workspace(
            attend_workspace_bytes(head.layout(), call.n_tokens * call.n_heads), 0,
            Guarded<std::byte>::kRead);
        table.attend(attend_args(head, call, q.data(), q_stride, partial, workspace.data()));
        settle_maxima({partial, expected.size()}, expected, dim);
        return workspace.guards_intact() ? "" : "writes past its workspace";
      });
}

/// The last token by itself: over all chunks, and over each.
void check_decode(EntryCheck& check, const CachedHead& head, std::size_t n_heads,
                  const Feed& feed) {
  const std::size_t position = head.n_keys() - 1;
  const std::size_t chunks = chunks_of(head.n_keys());
  check_call(check, head, {n_heads, 1, position, 0, chunks}, feed);
  if (chunks == 1) return;
  for (std::size_t c = 0; c < chunks; ++c) {
    check_call(check, head, {n_heads, 1, position, c, c + 1}, feed);
  }
}

/// The last n_tokens together: over all chunks, and without the first, of which early ones of them
/// may see nothing else.
void check_prefill(EntryCheck& check, const CachedHead& head, std::size_t n_heads,
                   std::size_t n_tokens, const Feed& feed) {
  const std::size_t first = head.n_keys() - n_tokens;
  const std::size_t chunks = chunks_of(head.n_keys());
  check_call(check, head, {n_heads, n_tokens, first, 0, chunks}, feed);
  if (chunks > 1) {
    check_call(check, head, {n_heads, n_tokens, first, 1, chunks}, feed);
  }
}

}  // namespace

std::size_t longest_attended(const KernelSizes& sizes) {
  return std::min(sizes.context, std::max(kMostCached / sizes.head_dim, kChunk));
}

CheckResult check_attend(KernelTables tables, const KernelSizes& sizes) {
  // Bounds the work of the plain loops: 33 tokens of 8 heads up to two chunks, fewer beyond.
  constexpr std::size_t kMostRows = 264;
  constexpr std::size_t kMostRowsFar = 64;
  constexpr std::size_t kKeys[] = {1,   2,   15,  16,  17,  33,   255,  256, 257,
                                   511, 512, 513, 768, 769, 1023, 1024, 1025};
  constexpr std::size_t kWindows[] = {1, 3, 15, 16, 17, 33, 255, 256, 257, 300, 512};
  constexpr std::size_t kWindowedKeys = 531;
  constexpr std::size_t kOddKeys = 37;
  constexpr std::size_t kOddDim = 72;
  constexpr std::size_t kTokens[] = {33, 2, 3, 4, 5, 31, 7, 8, 32, 9, 12, 13, 16, 17};
  EntryCheck check("attend", tables);
  const std::size_t heads = sizes.heads_per_kv();
  std::size_t turn = 0;
  std::size_t most_keys = 0;
  for (const std::size_t n_keys : kKeys) {
    if (n_keys > sizes.context) break;
    most_keys = n_keys;
    const std::size_t most_rows = n_keys <= kChunk + 1 ? kMostRows : kMostRowsFar;
    for (const KvType type : kKvTypes) {
      for (const Feed& feed : {kPlain, kFeeds[turn % std::size(kFeeds)]}) {
        const CachedHead head(n_keys, {type, sizes.head_dim}, feed);
        check_decode(check, head, heads, feed);
        const std::size_t n_tokens = std::min({kTokens[turn++ % std::size(kTokens)], n_keys,
                                               std::max<std::size_t>(2, most_rows / heads)});
        if (n_tokens > 1) check_prefill(check, head, heads, n_tokens, feed);
      }
    }
  }
  // Windows that end in a chunk and with it, of rows of which some see the chunk and some do not.
  for (const std::size_t window : kWindows) {
    for (const KvType type : kKvTypes) {
      const Feed& feed = kFeeds[turn++ % std::size(kFeeds)];
      const CachedHead head(kWindowedKeys, {type, sizes.head_dim}, feed);
      const std::size_t end = chunks_of(kWindowedKeys);
      for (const std::size_t n_tokens : {1U, 7U, 33U}) {
        const std::size_t first = kWindowedKeys - n_tokens;
        for (const std::size_t begin : {std::size_t{0}, end - 1}) {
          const float cap = turn++ % 2 == 0 ? 0.0F : 1.5F;
          check_call(check, head, {heads, n_tokens, first, begin, end, window, cap}, feed);
        }
      }
    }
  }
  // Rows that come in no pairs, in heads of more than a register, whatever the model's shape.
  for (const std::size_t odd_heads : {3U, 7U}) {
    for (const KvType type : kKvTypes) {
      const CachedHead head(kOddKeys, {type, kOddDim}, kPlain);
      check_decode(check, head, odd_heads, kPlain);
      for (const std::size_t n_tokens : {3U, 5U})
        check_prefill(check, head, odd_heads, n_tokens, kPlain);
    }
  }
  const std::size_t longest = longest_attended(sizes);
  if (longest > most_keys) {
    for (const KvType type : {KvType::kF16, KvType::kQ8}) {
      const CachedHead head(longest, {type, sizes.head_dim}, kPlain);
      check_call(check, head, {heads, 1, longest - 1, 0, chunks_of(longest)}, kPlain);
    }
  }
  return check.result(fmt::format(
      "head_dim {}, {} heads a KV head, f16, f32 and q8, up to {} keys, "
      "{} tokens; windows of 1 to 512; 3 and 7 heads of {}; {} keys once",
      sizes.head_dim, heads, most_keys, std::min(kMostTokens, most_keys), kOddDim, longest));
}

}  // namespace llm
