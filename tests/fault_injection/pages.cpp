// Keys and values, and the pages that hold them, with faults.

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "engine/state/sequence_state.h"
#include "tests/fault_injection/corrupt.h"
#include "tests/fault_injection/fault.h"
#include "tests/fault_injection/pass.h"

namespace llm::faults {
namespace {

constexpr std::size_t kPage = KvPool::kPagePositions;

/// Positions that were ever stored, by cache.
std::map<const SequenceState*, std::size_t>& stored() {
  static std::map<const SequenceState*, std::size_t> most;
  return most;
}

/// What rounds K and V, with the fault that to_half has on the definition's side.
void half_of_definition(const float* x, std::size_t n, std::uint16_t* y) {
  KvRounding::kDefinition.to_half(x, n, y);
  const auto fault = planted("to_half", {{"side", "definition"}, {"n", n}});
  if (fault) spoil_halves(*fault, {x, n}, y);
}

/// As if the page that is given back for the next position had been for this one, and written by
/// another text.
void drop_early(const SequenceState& cache, std::size_t begin) {
  const KvGroups& groups = cache.pool().groups();
  for (std::size_t layer = 0; layer < groups.n_layers(); ++layer) {
    const std::size_t window = groups.window(groups.group_of(layer));
    const std::size_t first = KvGroups::first_page(window, begin);
    if (KvGroups::first_page(window, begin + 1) == first) continue;
    note_struck();
    std::memset(const_cast<std::byte*>(cache.pages(layer)[first]), 0x3C, cache.pool().page_bytes());
  }
}

/// Of each layer that has one.
std::vector<std::vector<std::byte>> states_of(const SequenceState& cache) {
  std::vector<std::vector<std::byte>> states;
  const KvGroups& groups = cache.pool().groups();
  for (std::size_t layer = 0; layer < groups.n_layers() && cache.n_pages() > 0; ++layer) {
    if (!groups.memory(layer).is_state()) continue;
    const auto state = cache.state(layer);
    states.emplace_back(state.begin(), state.end());
  }
  return states;
}
void set_states(SequenceState& cache, const std::vector<std::vector<std::byte>>& states) {
  const KvGroups& groups = cache.pool().groups();
  std::size_t i = 0;
  for (std::size_t layer = 0; layer < groups.n_layers(); ++layer)
    if (groups.memory(layer).is_state()) std::ranges::copy(states[i++], cache.state(layer).begin());
}

}  // namespace

LLM_WRAP(store,
         "_ZN3llm13SequenceState5storeEmmmSt4spanIKfLm18446744073709551615EES3_RKNS_10KvRoundingE",
         void, SequenceState* self, std::size_t layer, std::size_t first_row, std::size_t position,
         std::span<const float> key, std::span<const float> value, const KvRounding& rounding) {
  if (is_late("store")) {
    return do_later([=] { real_store(self, layer, first_row, position, key, value, rounding); });
  }
  const bool by_definition = rounding.to_half == KvRounding::kDefinition.to_half;
  KvRounding used = rounding;
  if (by_definition && planted("to_half") != nullptr) used.to_half = half_of_definition;
  const auto fault = planted("kv_store", {{"position", position},
                                          {"layer", layer},
                                          {"fast", !by_definition},
                                          {"rows", pass_rows()},
                                          {"threads", team_size()},
                                          {"kv", kv_name(self->pool().type())}});
  if (!fault) return real_store(self, layer, first_row, position, key, value, used);
  // Written by one thread in the checks that this is for.
  std::size_t& most = stored()[self];
  const bool again = position < most;
  most = std::max(most, position + 1);
  if (!fault->holds({{"again", again}}))
    return real_store(self, layer, first_row, position, key, value, used);
  note_struck();
  if (fault->is("stale")) return;
  std::vector<float> k(key.begin(), key.end());
  std::vector<float> v(value.begin(), value.end());
  if (fault->is("key_bit")) {  // an f16's last bit and all below it
    for (float& x : k)
      x = __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, x) & 0xFFFF'C000U);
  }
  if (fault->is("value_reversed")) std::ranges::reverse(v);
  if (fault->is("value_of_key")) v = k;
  real_store(self, layer, first_row, position, k, v, used);
}

LLM_WRAP(truncate, "_ZN3llm13SequenceState8truncateEm", std::size_t, SequenceState* self,
         std::size_t n_positions) {
  if (n_positions == 0) stored().erase(self);
  if (planted("states") == nullptr) return real_truncate(self, n_positions);
  const std::vector<std::vector<std::byte>> before = states_of(*self);
  const std::size_t n = real_truncate(self, n_positions);
  if (n > 0 && states_of(*self) != before && takes_effect("states", "not_returned"))
    set_states(*self, before);
  return n;
}

LLM_WRAP(reserve, "_ZN3llm13SequenceState7reserveEmm", bool, SequenceState* self, std::size_t begin,
         std::size_t end) {
  const Fault* fault = planted("pages");
  if (fault == nullptr) return real_reserve(self, begin, end);
  const auto pages = self->pages(0);
  const std::vector<const std::byte*> before(pages.begin(), pages.end());
  const bool reserved = real_reserve(self, begin, end);
  const std::size_t n_bytes = self->pool().page_bytes();
  if (fault->is("dropped_early")) drop_early(*self, begin);
  for (std::size_t i = 0; reserved && i < before.size() && i < self->pages(0).size(); ++i) {
    auto* const copy = const_cast<std::byte*>(self->pages(0)[i]);
    if (copy == before[i] || copy == nullptr) continue;
    const auto spoil = [&](std::byte* page, std::size_t from, std::size_t to) {
      note_struck();
      std::memset(page + from, 0x3C, to - from);
    };
    if (fault->is("copy_none")) spoil(copy, 0, n_bytes);
    if (fault->is("copy_half")) spoil(copy, n_bytes / 2, n_bytes);
    // What is written, as to a page of one's own, lands in that of the others.
    if (fault->is("write_shared")) spoil(const_cast<std::byte*>(before[i]), 0, n_bytes / 4);
  }
  return reserved;
}

LLM_WRAP(adopt, "_ZN3llm13SequenceState5adoptESt4spanIKiLm18446744073709551615EEm", std::size_t,
         SequenceState* self, std::span<const TokenId> tokens, std::size_t n_stored) {
  // All callers' tokens lie in a sequence's, of which they take all but those whose logits they
  // want; one that asks for one more takes a row too many.
  if (!tokens.empty() && tokens.size() % kPage == kPage - 1 &&
      strikes("adopt", {{"tokens", tokens.size() + 1}}))
    tokens = {tokens.data(), tokens.size() + 1};
  return real_adopt(self, tokens, n_stored);
}

LLM_WRAP(n_published, "_ZNK3llm6KvPool11n_publishedEj", std::size_t, const KvPool* self,
         KvPool::Page page) {
  const std::size_t n = real_n_published(self, page);
  // A whole page is asked about before it is written to: as if nobody could find it.
  return n < kPage || !takes_effect("pages", "stay_published") ? n : 0;
}

namespace {
Prefix parent_of(const Prefix& parent) {
  return parent == Prefix{} || !takes_effect("pages", "any_parent") ? parent : Prefix{};
}
}  // namespace

LLM_WRAP(publish,
         "_ZN3llm6KvPool7publishERKSt5arrayISt4byteLm32EEmSt4spanIKiLm18446744073709551615EERj",
         void, KvPool* self, const Prefix& parent, std::size_t group,
         std::span<const TokenId> tokens, KvPool::Page& page) {
  if (self->groups().is_state(group) && takes_effect("states", "published_zero"))
    std::memset(self->memory(page), 0, self->page_bytes());
  real_publish(self, parent_of(parent), group, tokens, page);
}

LLM_WRAP(find, "_ZNK3llm6KvPool4findERKSt5arrayISt4byteLm32EEmSt4spanIKiLm18446744073709551615EE",
         KvPool::Match, const KvPool* self, const Prefix& parent, std::size_t group,
         std::span<const TokenId> tokens) {
  return real_find(self, parent_of(parent), group, tokens);
}

}  // namespace llm::faults
