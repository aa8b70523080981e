#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "engine/chat/jinja/meter.h"

namespace llm::jinja {

/// Places of keys by their hashes: a table with open addressing, never more than half full. Every
/// slot that is looked at counts, so that keys whose hashes collide cost who wrote them.
class HashIndex {
 public:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  /// The place of a key with that hash for which same(place); kNone if there is none.
  template <typename Same>
  std::size_t find(std::uint32_t hash, Same same) const {
    if (slots_.empty()) return kNone;
    for (std::size_t at = hash & mask();; at = (at + 1) & mask()) {
      touch(8);
      const Slot slot = slots_[at];
      if (slot.place == 0) return kNone;
      if (slot.hash == hash && same(std::size_t{slot.place} - 1)) return slot.place - 1;
    }
  }
  void add(std::uint32_t hash, std::size_t place) {
    if (2 * (n_ + 1) > slots_.size()) grow();
    put({hash, static_cast<std::uint32_t>(place + 1)});
    ++n_;
  }

 private:
  struct Slot {
    std::uint32_t hash = 0;
    std::uint32_t place = 0;  ///< + 1; 0: free
  };

  std::size_t mask() const { return slots_.size() - 1; }
  void put(Slot slot) {
    std::size_t at = slot.hash & mask();
    for (; slots_[at].place != 0; at = (at + 1) & mask()) touch(8);
    slots_[at] = slot;
  }
  void grow() {
    Vector<Slot> old(slots_.empty() ? 32 : 2 * slots_.size());
    touch(8 * old.size());
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.place != 0) put(slot);
    }
  }

  Vector<Slot> slots_;
  std::size_t n_ = 0;
};

/// Values by keys, in the order in which the keys came. A key is found in constant time.
/// @tparam Keys  hash(key) and same(stored, key), for stored keys and what they are sought by
template <typename Key, typename Mapped, typename Keys>
class Table {
 public:
  using Pair = std::pair<Key, Mapped>;

  std::size_t size() const { return pairs_.size(); }
  bool empty() const { return pairs_.empty(); }
  auto begin() const { return pairs_.begin(); }
  auto end() const { return pairs_.end(); }
  const Pair& operator[](std::size_t i) const { return pairs_[i]; }

  const Mapped* find(const auto& key) const {
    const std::size_t at = place_of(key);
    return at == HashIndex::kNone ? nullptr : &pairs_[at].second;
  }
  /// Replaces what stands with the key, or appends it.
  void set(Key key, Mapped value) {
    const std::size_t at = place_of(key);
    if (at != HashIndex::kNone) {
      pairs_[at].second = std::move(value);
      return;
    }
    touch(sizeof(Pair));
    pairs_.emplace_back(std::move(key), std::move(value));
    if (pairs_.size() == kFew + 1) {
      for (std::size_t i = 0; i < pairs_.size(); ++i) index_.add(Keys::hash(pairs_[i].first), i);
    } else if (pairs_.size() > kFew) {
      index_.add(Keys::hash(pairs_.back().first), pairs_.size() - 1);
    }
  }

 private:
  static constexpr std::size_t kFew = 8;  // among so many, comparing is quicker

  std::size_t place_of(const auto& key) const {
    const auto same = [&](std::size_t i) { return Keys::same(pairs_[i].first, key); };
    if (pairs_.size() > kFew) return index_.find(Keys::hash(key), same);
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      if (same(i)) return i;
    }
    return HashIndex::kNone;
  }

  Vector<Pair> pairs_;
  HashIndex index_;
};

/// Of tables by name.
struct NameKeys {
  static std::uint32_t hash(std::string_view name);
  static bool same(std::string_view stored, std::string_view name) {
    touch(4);
    if (stored.size() != name.size()) return false;
    touch(name.size());
    return stored == name;
  }
};

}  // namespace llm::jinja
