#include "tokenizer/sentencepiece/bpe.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <queue>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/seeded_hash.h"
#include "base/utf8.h"

namespace llm {
namespace {

using Index = std::int32_t;
constexpr Index kNone = -1;

/// A run of the text. Linked by index, so a merge costs O(1); size 0 means merged into its left
/// neighbour.
struct Symbol {
  std::uint32_t begin = 0;
  std::uint32_t size = 0;
  bool frozen = false;  ///< a user-defined token: never merges
  Index previous = kNone;
  Index next = kNone;
};

/// Two neighbours whose joint spelling is a piece. An entry is stale once either of them changed,
/// which its size shows: symbols only grow or vanish.
struct Pair {
  float score = 0;
  Index left = kNone;
  Index right = kNone;
  std::uint32_t size = 0;
};

/// Orders the queue: higher score first, then further left.
struct LaterMerge {
  bool operator()(const Pair& a, const Pair& b) const {
    return a.score != b.score ? a.score < b.score : a.left > b.left;
  }
};

/// Follows the BPE encoder of SentencePiece (src/bpe_model.cc by T. Kudo, Apache-2.0): a priority
/// queue of candidate merges over linked symbols, stale entries told by their size, and a table
/// that takes unused pieces apart again. The algorithm is theirs; the code is written anew.
class PieceMerger {
 public:
  PieceMerger(const PieceTable& table, const BpeOptions& options, std::string_view text)
      : table_(table), options_(options), text_(text) {
    split();
    for (std::size_t i = 1; i < symbols_.size(); ++i) {
      offer(static_cast<Index>(i - 1), static_cast<Index>(i));
    }
  }

  void merge_all();
  void append_ids(std::vector<TokenId>& ids) const;

 private:
  void split();
  void offer(Index left, Index right);
  void merge(const Pair& pair);
  void append_whole(std::string_view spelling, std::optional<TokenId> id,
                    std::vector<TokenId>& ids) const;
  std::optional<TokenId> piece(std::string_view spelling) const;
  /// How soon a pair merges that joins to `joint`, a piece: the higher, the sooner.
  std::optional<float> score_of(std::string_view left, std::string_view right, TokenId joint) const;
  /// Bytes of the run of newlines that `text` begins with, if it is a piece, or 0.
  std::size_t whole_newlines(std::string_view text) const;

  static std::size_t to_size(Index i) { return static_cast<std::size_t>(i); }
  Symbol& at(Index i) { return symbols_[to_size(i)]; }
  std::string_view spelling(const Symbol& s) const { return text_.substr(s.begin, s.size); }

  const PieceTable& table_;
  const BpeOptions& options_;
  std::string_view text_;
  std::vector<Symbol> symbols_;
  std::priority_queue<Pair, std::vector<Pair>, LaterMerge> queue_;
  /// How an unused piece was put together, so that it can be taken apart again.
  std::unordered_map<std::string_view, std::pair<std::string_view, std::string_view>, SeededHash>
      halves_;
};

void PieceMerger::split() {
  std::size_t begin = 0;
  while (begin < text_.size()) {
    const std::string_view rest = text_.substr(begin);
    const auto match = table_.user_defined().longest_prefix(rest, options_.literal);
    const Utf8Head head = utf8_head(rest);
    const std::size_t size = head.kind == Utf8Head::Kind::kCharacter ? head.size : 1;
    Symbol symbol;
    symbol.begin = static_cast<std::uint32_t>(begin);
    const bool begins_run = begin == 0 || text_[begin - 1] != '\n' || symbols_.back().frozen;
    const std::size_t newlines = match || !begins_run ? 0 : whole_newlines(rest);
    symbol.size = static_cast<std::uint32_t>(match ? match->size : std::max(size, newlines));
    symbol.frozen = match.has_value();
    symbol.previous = static_cast<Index>(symbols_.size()) - 1;
    begin += symbol.size;
    symbol.next = begin < text_.size() ? static_cast<Index>(symbols_.size()) + 1 : kNone;
    symbols_.push_back(symbol);
  }
}

/// PieceTable::piece without the literal user-defined tokens.
std::optional<TokenId> PieceMerger::piece(std::string_view spelling) const {
  const auto id = table_.piece(spelling);
  const bool hidden = id && table_.kind(*id) == TokenKind::kUserDefined &&
                      std::ranges::find(options_.literal, spelling) != options_.literal.end();
  return hidden ? std::nullopt : id;
}

void PieceMerger::offer(Index left, Index right) {
  if (left == kNone || right == kNone || at(left).frozen || at(right).frozen) return;
  const std::uint32_t size = at(left).size + at(right).size;
  const std::string_view joint = text_.substr(at(left).begin, size);
  const auto id = piece(joint);
  const auto score = id ? score_of(spelling(at(left)), spelling(at(right)), *id) : std::nullopt;
  if (!score) return;
  queue_.push({*score, left, right, size});
  if (table_.kind(*id) == TokenKind::kUnused) {
    halves_[joint] = {spelling(at(left)), spelling(at(right))};
  }
}

std::optional<float> PieceMerger::score_of(std::string_view left, std::string_view right,
                                           TokenId joint) const {
  const MergeTable* merges = table_.merges();
  if (merges == nullptr) return table_.score(joint);
  if ((left.back() == '\n') != (right.front() == '\n')) return std::nullopt;
  const auto left_id = piece(left);
  const auto right_id = piece(right);
  const auto* merge = left_id && right_id ? merges->find(*left_id, *right_id) : nullptr;
  if (merge == nullptr) return std::nullopt;
  return -static_cast<float>(merge->rank);  // exact: there are fewer than 2^24
}

std::size_t PieceMerger::whole_newlines(std::string_view text) const {
  if (table_.merges() == nullptr) return 0;
  const std::size_t size = std::min(text.find_first_not_of('\n'), text.size());
  return size > 0 && piece(text.substr(0, size)) ? size : 0;
}

void PieceMerger::merge(const Pair& pair) {
  Symbol& left = at(pair.left);
  Symbol& right = at(pair.right);
  left.size = pair.size;
  left.next = right.next;
  if (right.next != kNone) at(right.next).previous = pair.left;
  right.size = 0;
  offer(left.previous, pair.left);
  offer(pair.left, left.next);
}

void PieceMerger::merge_all() {
  while (!queue_.empty()) {
    const Pair pair = queue_.top();
    queue_.pop();
    const Symbol& left = at(pair.left);
    const Symbol& right = at(pair.right);
    const bool stale = left.size == 0 || right.size == 0 || left.size + right.size != pair.size;
    if (!stale) merge(pair);
  }
}

void PieceMerger::append_ids(std::vector<TokenId>& ids) const {
  bool in_unknown_run = false;
  std::vector<std::string_view> todo;  // a stack: how deep halves nest is the file's choice
  for (Index i = symbols_.empty() ? kNone : 0; i != kNone; i = symbols_[to_size(i)].next) {
    todo.push_back(spelling(symbols_[to_size(i)]));
    while (!todo.empty()) {
      const std::string_view part = todo.back();
      todo.pop_back();
      const auto halves = halves_.find(part);
      if (halves != halves_.end()) {
        todo.push_back(halves->second.second);
        todo.push_back(halves->second.first);
        continue;
      }
      auto id = piece(part);
      if (id && table_.kind(*id) == TokenKind::kUnused) id.reset();  // an unused character
      const bool is_unknown = !id && !table_.has_byte_tokens();
      if (!is_unknown || !in_unknown_run) append_whole(part, id, ids);
      in_unknown_run = is_unknown;
    }
  }
}

void PieceMerger::append_whole(std::string_view spelling, std::optional<TokenId> id,
                               std::vector<TokenId>& ids) const {
  if (id) {
    ids.push_back(*id);
  } else if (table_.has_byte_tokens()) {
    for (const char c : spelling) ids.push_back(table_.byte_token(static_cast<unsigned char>(c)));
  } else {
    ids.push_back(*options_.unknown);  // check_vocab(): one of the two exists
  }
}

}  // namespace

void append_bpe(const PieceTable& table, const BpeOptions& options, std::string_view text,
                std::vector<TokenId>& ids) {
  LLM_CHECK(text.size() < std::numeric_limits<Index>::max());
  PieceMerger merger(table, options, text);
  merger.merge_all();
  merger.append_ids(ids);
}

}  // namespace llm
