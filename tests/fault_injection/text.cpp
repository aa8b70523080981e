// From text to ids, from logits to a token, and a text that is made of them, with faults.

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/generation/draw.h"
#include "engine/generation/speculative_session.h"
#include "engine/sampler/filtered_row.h"
#include "engine/sampler/sampler.h"
#include "tests/fault_injection/fault.h"
#include "tokenizer/byte_bpe/byte_alphabet.h"
#include "tokenizer/byte_bpe/merges.h"
#include "tokenizer/byte_bpe/splitter.h"
#include "tokenizer/sentencepiece/bpe.h"
#include "tokenizer/tokenizer.h"

namespace llm::faults {
namespace {

using Ids = std::vector<TokenId>;
using Logits = std::span<const float>;
using Past = std::span<const TokenId>;

/// A merge that a pair of neighbours may have: the lower rank comes first.
struct Merge {
  double rank;
  TokenId joined;
};

/// Merges pieces in plain loops, and wrongly: which merge is taken, which pairs are looked at.
/// @param merge_of  of symbols [i] and [i + 1]
template <typename Symbol, typename MergeOf, typename Join>
void merge_wrongly(std::vector<Symbol>& symbols, const Fault& fault, MergeOf merge_of, Join join) {
  std::vector<bool> offered(symbols.size(), true);  // the pair that begins here
  while (true) {
    std::optional<std::size_t> best;
    double least = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto merge = offered[i] ? merge_of(symbols[i], symbols[i + 1]) : std::nullopt;
      if (!merge) continue;
      if (best && merge->rank >= least && !(fault.is("rightmost") && merge->rank == least))
        continue;
      best = i;
      least = merge->rank;
    }
    if (!best) return;
    const std::size_t i = *best;
    join(symbols[i], symbols[i + 1]);
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    offered.erase(offered.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    offered[i] = !fault.is("right_not_offered");
    if (i > 0) offered[i - 1] = !fault.is("left_not_offered");
  }
}

bool merges_wrongly(const Fault* fault) {
  constexpr std::string_view kEffects[] = {"rightmost", "left_not_offered", "right_not_offered",
                                           "longest"};
  return fault != nullptr && std::ranges::any_of(kEffects, [&](auto e) { return fault->is(e); });
}

}  // namespace

// ---- SentencePiece

LLM_WRAP(append_bpe,
         "_ZN3llm10append_bpeERKNS_10PieceTableERKNS_10BpeOptionsESt17basic_string_viewIcSt11char_"
         "traitsIcEERSt6vectorIiSaIiEE",
         void, const PieceTable& table, const BpeOptions& options, std::string_view text,
         Ids& ids) {
  const std::size_t before = ids.size();
  const Fault* fault = planted("tokenizer");
  std::string changed(text);
  const std::string two = std::string(kSpaceMark) + std::string(kSpaceMark);
  while (changed.find(two) != std::string::npos && takes_effect("tokenizer", "spaces_joined"))
    changed.erase(changed.find(two), kSpaceMark.size());
  if ((takes_effect("tokenizer", "prefix_lost") && changed.starts_with(kSpaceMark)) ||
      (takes_effect("tokenizer", "prefix_shared") && changed.starts_with(two)))
    changed.erase(0, kSpaceMark.size());
  real_append_bpe(table, options, changed, ids);
  const auto first = ids.begin() + static_cast<std::ptrdiff_t>(before);
  if (takes_effect("tokenizer", "bytes_reversed")) {
    for (auto begin = first; begin != ids.end();) {
      const auto is_byte = [&](TokenId id) { return table.kind(id) == TokenKind::kByte; };
      begin = std::find_if(begin, ids.end(), is_byte);
      const auto end = std::find_if_not(begin, ids.end(), is_byte);
      std::reverse(begin, end);
      begin = end;
    }
  }
  if (!merges_wrongly(fault)) return;
  note_struck();
  // The right ids' pieces taken apart into characters, and merged anew.
  ids.resize(before);
  std::vector<std::string> symbols;
  for (std::size_t at = 0; at < changed.size();) {
    std::size_t end = at + 1;
    while (end < changed.size() && (static_cast<unsigned char>(changed[end]) & 0xC0U) == 0x80U)
      ++end;
    symbols.push_back(changed.substr(at, end - at));
    at = end;
  }
  merge_wrongly(
      symbols, *fault,
      [&](const std::string& a, const std::string& b) -> std::optional<Merge> {
        const auto id = table.piece(a + b);
        if (!id || table.kind(*id) != TokenKind::kNormal) return std::nullopt;
        const double rank = fault->is("longest") ? -static_cast<double>(a.size() + b.size())
                                                 : -static_cast<double>(table.score(*id));
        return Merge{rank, *id};
      },
      [](std::string& a, const std::string& b) { a += b; });
  for (const std::string& symbol : symbols) {
    if (const auto id = table.piece(symbol)) {
      ids.push_back(*id);
    } else if (table.has_byte_tokens()) {
      for (const char c : symbol) ids.push_back(table.byte_token(static_cast<unsigned char>(c)));
    }
  }
}

LLM_WRAP(piece, "_ZNK3llm10PieceTable5pieceESt17basic_string_viewIcSt11char_traitsIcEE",
         std::optional<TokenId>, const PieceTable* self, std::string_view text) {
  const auto id = real_piece(self, text);
  return id && text.size() > 8 && takes_effect("tokenizer", "longest_lost") ? std::nullopt : id;
}

LLM_WRAP(encode,
         "_ZNK3llm9Tokenizer6encodeESt17basic_string_viewIcSt11char_traitsIcEERKNS_"
         "13EncodeOptionsE",
         Ids, const Tokenizer* self, std::string_view text, const EncodeOptions& options) {
  Ids ids = real_encode(self, text, options);
  const auto& spec = self->spec();
  if (spec.bos && !ids.empty() && ids.front() == *spec.bos &&
      takes_effect("tokenizer", "bos_missing"))
    ids.erase(ids.begin());
  if (spec.eos && takes_effect("tokenizer", "eos_added")) ids.push_back(*spec.eos);
  return ids;
}

// ---- byte-level BPE

LLM_WRAP(append_piece,
         "_ZN3llm6Merger6appendESt17basic_string_viewIcSt11char_traitsIcEERSt6vectorIiSaIiEE", void,
         Merger* self, std::string_view piece, Ids& ids) {
  // What a Merger has first.
  const auto& [merges, byte_tokens] =
      *reinterpret_cast<const std::pair<const MergeTable*, const std::array<TokenId, 256>*>*>(self);
  const Fault* fault = planted("byte_bpe");
  if (fault != nullptr && fault->is("false_hit")) {
    // A cache of pieces that takes one of the same length, beginning and end for the same.
    thread_local std::map<std::string, Ids> recent;
    if (recent.size() > 8) recent.clear();
    const std::string key =
        std::to_string(piece.size()) + std::string(piece.substr(0, 1)) + piece.back();
    const auto [at, is_new] = recent.try_emplace(piece.size() > 4 ? key : std::string(piece));
    if (is_new) real_append_piece(self, piece, at->second);
    Ids right;
    real_append_piece(self, piece, right);
    if (right != at->second) note_struck();
    ids.insert(ids.end(), at->second.begin(), at->second.end());
    return;
  }
  if (!merges_wrongly(fault)) return real_append_piece(self, piece, ids);
  note_struck();
  struct Symbol {
    TokenId id;
    std::size_t size;
  };
  std::vector<Symbol> symbols;
  for (const char c : piece) {
    const TokenId id = (*byte_tokens)[static_cast<unsigned char>(c)];
    if (id != Merger::kNoToken) symbols.push_back({id, 1});
  }
  const auto merge_of = [&](const Symbol& a, const Symbol& b) -> std::optional<Merge> {
    const MergeTable::Merge* merge = merges->find(a.id, b.id);
    if (merge == nullptr) return std::nullopt;
    const double rank = fault->is("longest") ? -static_cast<double>(a.size + b.size) : merge->rank;
    return Merge{rank, merge->joined};
  };
  merge_wrongly(symbols, *fault, merge_of, [&](Symbol& a, const Symbol& b) {
    a = {merge_of(a, b)->joined, a.size + b.size};
  });
  for (const Symbol& symbol : symbols) ids.push_back(symbol.id);
}

LLM_WRAP(split, "_ZNK3llm8Splitter5splitESt17basic_string_viewIcSt11char_traitsIcEE",
         std::vector<std::uint32_t>, const Splitter* self, std::string_view text) {
  std::vector<std::uint32_t> ends = real_split(self, text);
  const Fault* fault = planted("split");
  if (fault == nullptr) return ends;
  const auto lost = [&](std::uint32_t end) {
    return end < text.size() && text[end - 1] == '\n' && fault->is("newline_joined");
  };
  if (std::erase_if(ends, lost) > 0) note_struck();
  for (std::size_t i = 0, begin = 0; i < ends.size(); begin = ends[i++]) {
    const std::size_t size = ends[i] - begin;
    const bool space = fault->is("space_apart") && text[begin] == ' ' && size > 1;
    const bool long_word = fault->is("cut_in_two") && size > 3 && text[begin + 2] >= 'a';
    if (!space && !long_word) continue;
    note_struck();
    ends.insert(ends.begin() + static_cast<std::ptrdiff_t>(i++),
                static_cast<std::uint32_t>(begin + (space ? 1 : 2)));
  }
  return ends;
}

LLM_WRAP(bytes_of_spelling,
         "_ZN3llm17bytes_of_spellingB5cxx11ESt17basic_string_viewIcSt11char_traitsIcEE",
         std::optional<std::string>, std::string_view spelling) {
  auto bytes = real_bytes_of_spelling(spelling);
  if (!bytes || !takes_effect("alphabet", "exchanged")) return bytes;
  for (char& c : *bytes) {
    if ((static_cast<unsigned char>(c) & 0xE0U) == 0x80U) c = static_cast<char>(c ^ 1);
  }
  return bytes;
}

// ---- the sampler

namespace {

/// What a Sampler has.
struct Members {
  SamplerOptions options;
  std::uint64_t sequence;
  std::size_t n_generated;
  std::size_t n_unbroken;
};
static_assert(sizeof(Members) == sizeof(Sampler));

/// A sampler with other options, or another sequence.
Members changed(const Sampler& sampler) {
  Members c = reinterpret_cast<const Members&>(sampler);
  if (takes_effect("sampler", "seed_16")) c.options.seed &= 0xFFFFU;
  if (takes_effect("sampler", "one_sequence")) c.sequence = 0;
  if (takes_effect("sampler", "temperature_late")) c.options.order = SamplerOrder::kLlamaCpp;
  if (c.options.repeat_last_n > 1 && takes_effect("sampler", "penalty_not_oldest"))
    --c.options.repeat_last_n;
  return c;
}

Past changed(Past past) {
  return past.size() > 1 && takes_effect("sampler", "penalty_not_newest")
             ? past.first(past.size() - 1)
             : past;
}

/// Logits that the right penalty makes what a wrong one would.
std::vector<float> changed(Logits logits, Past past, const SamplerOptions& options) {
  std::vector<float> row(logits.begin(), logits.end());
  const float penalty = options.repeat_penalty;
  const bool sign = penalty != 1 && takes_effect("sampler", "penalty_sign");
  const bool repeats = penalty != 1 && takes_effect("sampler", "penalty_repeats");
  if (!sign && !repeats) return row;
  const std::size_t n =
      options.repeat_last_n < 0 ? past.size() : static_cast<std::size_t>(options.repeat_last_n);
  const Past recent = past.last(std::min(n, past.size()));
  std::map<TokenId, int> counts;
  for (const TokenId id : recent) ++counts[id];
  for (const auto& [id, count] : counts) {
    float& x = row[static_cast<std::size_t>(id)];
    if (sign && x < 0) x /= penalty * penalty;
    for (int i = 1; repeats && i < count; ++i) x = x > 0 ? x / penalty : x * penalty;
  }
  return row;
}

}  // namespace

LLM_WRAP(
    sample,
    "_ZNK3llm7Sampler6sampleESt4spanIKfLm18446744073709551615EES1_IKiLm18446744073709551615EEm",
    Result<TokenId>, const Sampler* self, Logits logits, Past past, std::uint64_t position) {
  if (planted("sampler") == nullptr) return real_sample(self, logits, past, position);
  const Members c = changed(*self);
  const Sampler sampler(c.options, c.sequence, c.n_generated, c.n_unbroken);
  if (takes_effect("sampler", "position_late")) ++position;
  return real_sample(&sampler, changed(logits, past, c.options), changed(past), position);
}

LLM_WRAP(distribution,
         "_ZNK3llm7Sampler12distributionESt4spanIKfLm18446744073709551615EES1_IKiLm"
         "18446744073709551615EEm",
         Result<std::vector<Candidate>>, const Sampler* self, Logits logits, Past past,
         std::uint64_t position) {
  if (planted("sampler") == nullptr) return real_distribution(self, logits, past, position);
  const Members c = changed(*self);
  const Sampler sampler(c.options, c.sequence, c.n_generated, c.n_unbroken);
  return real_distribution(&sampler, changed(logits, past, c.options), changed(past), position);
}

LLM_WRAP(filter,
         "_ZN3llm11FilteredRowC1ESt4spanIKfLm18446744073709551615EEfRKNS_14SamplerOptionsEbRN"
         "S_10DrawMemoryE",
         void, FilteredRow* self, Logits logits, float largest, const SamplerOptions& options,
         bool excludes, DrawMemory& memory);
LLM_WRAP(candidates, "_ZNK3llm11FilteredRow10candidatesEv", std::vector<Candidate>,
         const FilteredRow* self) {
  std::vector<Candidate> row = real_candidates(self);
  for (std::size_t i = 0; i + 1 < row.size(); ++i) {
    if (row[i].probability == row[i + 1].probability && takes_effect("sampler", "ties_to_higher"))
      std::swap(row[i].id, row[i + 1].id), ++i;
  }
  return row;
}

namespace {

/// How many tokens, in order, `options` leave.
std::size_t left_by(Logits logits, float largest, const SamplerOptions& options, bool excludes,
                    DrawMemory& memory, float min_share_of_all = 0) {
  alignas(FilteredRow) std::byte place[sizeof(FilteredRow)];
  auto* row = reinterpret_cast<FilteredRow*>(place);
  real_filter(row, logits, largest, options, excludes, memory);
  const auto all = real_candidates(row);
  row->~FilteredRow();
  return static_cast<std::size_t>(std::ranges::count_if(
      all, [&](const Candidate& c) { return c.probability >= min_share_of_all; }));
}

}  // namespace

void wrap_filter(FilteredRow* self, Logits logits, float largest, const SamplerOptions& options,
                 bool excludes, DrawMemory& memory) {
  const Fault* fault = planted("sampler");
  if (fault == nullptr) return real_filter(self, logits, largest, options, excludes, memory);
  std::size_t n = left_by(logits, largest, options, excludes, memory);
  const std::size_t right = n;
  const bool top_p = options.top_p < 1;
  const bool min_p = options.min_p > 0;
  const bool is_short = (fault->is("top_k_short") && n == options.top_k) ||
                        (fault->is("top_p_short") && top_p && !min_p) ||
                        (fault->is("min_p_short") && min_p);
  if (is_short && n > 1) --n;
  if (fault->is("top_p_long") && top_p && !min_p && n < logits.size()) ++n;
  SamplerOptions others = options;
  if (fault->is("min_p_of_sum") && min_p) {
    others.min_p = 0;
    n = std::max<std::size_t>(1, left_by(logits, largest, others, excludes, memory, options.min_p));
  }
  if (fault->is("min_p_first") && min_p && top_p) {
    others.top_p = 1;
    others.top_k = left_by(logits, largest, others, excludes, memory);
    others.top_p = options.top_p;
    others.min_p = 0;
    n = left_by(logits, largest, others, excludes, memory);
  }
  if (n == right) return real_filter(self, logits, largest, options, excludes, memory);
  note_struck();
  others = options;
  others.top_k = n;
  others.top_p = 1;
  others.min_p = 0;
  real_filter(self, logits, largest, others, excludes, memory);
}

// ---- texts

namespace {
/// What the last evaluation of a SpeculativeSession was.
struct Ahead {
  bool served = false;   ///< the row was there
  bool shifted = false;  ///< everything was forgotten before
  Ids proposal;
  std::size_t n_used = 0;
};
thread_local Ahead ahead;
}  // namespace

LLM_WRAP(draw_token,
         "_ZN3llm10draw_tokenERKNS_9TokenizerESt4spanIKfLm18446744073709551615EES3_IKiLm"
         "18446744073709551615EEmmRKNS_15GenerateOptionsEPNS_10NextTokensE",
         Result<TokenId>, const Tokenizer& tokenizer, Logits logits, Past past,
         std::uint64_t position, std::size_t n_generated, const GenerateOptions& options,
         NextTokens* next) {
  if (position != past.size() && takes_effect("shift", "draws_repeat")) position = past.size();
  if (ahead.served && takes_effect("proposals", "draw_position")) --position;
  return real_draw_token(tokenizer, logits, past, position, n_generated, options, next);
}

LLM_WRAP(set_hooks,
         "_ZN3llm18SpeculativeSession9set_hooksESt8functionIFSt6vectorIiSaIiEEmEES1_IFvRKNS_"
         "13LookaheadPassEEE",
         void, SpeculativeSession* self, SpeculativeSession::Propose propose,
         SpeculativeSession::Note note) {
  if (planted("proposals") == nullptr || !propose)
    return real_set_hooks(self, std::move(propose), std::move(note));
  real_set_hooks(
      self,
      [propose = std::move(propose)](std::size_t most) {
        ahead.proposal = propose(most);
        ahead.n_used = 0;
        return ahead.proposal;
      },
      std::move(note));
}

LLM_WRAP(forget, "_ZN3llm18SpeculativeSession8truncateEm", void, SpeculativeSession* self,
         std::size_t n_positions) {
  ahead.shifted = n_positions == 0 && self->position() > 1;
  if (ahead.shifted && takes_effect("shift", "stale_rows"))
    return real_forget(self, self->position() / 2);
  real_forget(self, n_positions);
}

LLM_WRAP(evaluate,
         "_ZN3llm18SpeculativeSession8evaluateESt4spanIKiLm18446744073709551615EENS_9LogitRowsE",
         Result<Logits>, SpeculativeSession* self, Past tokens, LogitRows rows) {
  Ids fed(tokens.begin(), tokens.end());
  const bool shifted = std::exchange(ahead.shifted, false);
  if (shifted && fed.size() > 2) {
    if (takes_effect("shift", "bos_dropped")) fed.front() = fed[1];
    if (takes_effect("shift", "drop_one_more")) fed[1] = fed[2];
  }
  const bool single = fed.size() == 1 && rows != LogitRows::kNone;
  if (single && ahead.n_used > 0 && ahead.n_used < ahead.proposal.size() &&
      fed[0] != ahead.proposal[ahead.n_used] && takes_effect("proposals", "accepted_unseen"))
    fed[0] = ahead.proposal[ahead.n_used];
  const std::size_t passes = self->passes();
  auto logits = real_evaluate(self, fed, rows);
  ahead.served = single && logits.ok() && self->passes() == passes;
  if (ahead.served) ++ahead.n_used;
  const std::size_t n = self->n_vocab();
  if (ahead.served && takes_effect("proposals", "row_before")) return Logits(logits->data() - n, n);
  if (single && !ahead.served && logits.ok() && !ahead.proposal.empty() &&
      takes_effect("proposals", "rows_given_out"))
    return Logits(logits->data(), 2 * n);
  return logits;
}

}  // namespace llm::faults
