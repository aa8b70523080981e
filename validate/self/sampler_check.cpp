#include "validate/self/sampler_check.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>

#include "base/float_environment.h"
#include "engine/sampler/sampler_fields.h"
#include "validate/self/tally.h"
#include "validate/self/text_path.h"

namespace llm {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr std::size_t kSmallRow = 200;    ///< logits; longer ones get fewer options
constexpr std::size_t kBoundaries = 3;    ///< of a filter in a long row
constexpr std::size_t kMixes = 400;       ///< drawn options of a short row
constexpr std::size_t kMixesOfLong = 12;  ///< of a long one
constexpr std::size_t kShownTokens = 6;

/// How far a probability in f32 may be off, relative to it, by a sum of n weights over 16 lanes: a
/// rounding for each addition to a lane, and a few for exp, lanes and quotient.
double sum_error(std::size_t n) { return (static_cast<double>(n) / 16 + 16) * 0x1p-24; }

/// Natural log of each token's softmax, in f64, by distances to the largest.
std::vector<double> log_softmax(std::span<const float> logits) {
  const auto largest = static_cast<double>(std::ranges::max(logits));
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  std::vector<double> values;
  for (const float logit : logits)
    values.push_back(static_cast<double>(logit) - largest - std::log(sum));
  return values;
}

std::string text_of(const SamplerOptions& o) {
  const SamplerOptions usual;
  std::string text = o.temperature == 0 ? "greedy" : fmt::format("temperature {}", o.temperature);
  if (o.top_k != usual.top_k) text += fmt::format(", top-k {}", o.top_k);
  if (o.top_p != usual.top_p) text += fmt::format(", top-p {}", o.top_p);
  if (o.min_p != usual.min_p) text += fmt::format(", min-p {}", o.min_p);
  if (o.repeat_penalty != usual.repeat_penalty)
    text += fmt::format(", repeat penalty {} over {}", o.repeat_penalty, o.repeat_last_n);
  const SamplerOptions off;
  for (const SamplerField& field : kSamplerFields) {
    if (!field.may_be_absent) continue;
    field.visit(o, [&](auto value) {
      if (value != field.visit(off, [](auto one) { return static_cast<decltype(value)>(one); }))
        text += fmt::format(", {} {}", field.name, value);
    });
  }
  if (o.order == SamplerOrder::kLlamaCpp) text += ", temperature last";
  return text;
}

std::string text_of(std::span<const Candidate> candidates) {
  std::string text = fmt::format("{} tokens:", candidates.size());
  for (const Candidate& c : candidates.first(std::min(kShownTokens, candidates.size())))
    text += fmt::format(" {} ({:.9g})", c.id, c.probability);
  return candidates.size() > kShownTokens ? text + " ..." : text;
}

/// A token in the order of docs/sampling.md, while filters are applied.
struct Scored {
  TokenId id;
  float logit;
  double weight = 0;  ///< exp of the distance to the largest
};

/// Weights of an ordered row, in f64, and their sum.
double weigh(std::vector<Scored>& row) {
  double sum = 0;
  for (Scored& token : row)
    sum += token.weight = std::exp(static_cast<double>(token.logit - row[0].logit));
  return sum;
}

void divide_distances(std::vector<Scored>& row, float temperature) {
  if (temperature == 1 || row.empty()) return;
  const float largest = std::ranges::max(row, {}, &Scored::logit).logit;
  for (Scored& token : row) token.logit = (token.logit - largest) / temperature;
}

/// Keeps leading tokens. @return false: the limit is so near a token that f32 may see it otherwise
bool keep_top_p(std::vector<Scored>& row, double p) {
  const double sum = weigh(row);
  const double error = 2 * sum_error(row.size()) * sum;
  double before = row[0].weight;
  std::size_t kept = 1;
  for (; kept < row.size(); before += row[kept++].weight) {
    if (std::abs(before - p * sum) <= error) return false;
    if (before >= p * sum) break;
  }
  row.resize(kept);
  return true;
}
bool keep_min_p(std::vector<Scored>& row, double p) {
  weigh(row);
  std::size_t kept = 1;
  for (; kept < row.size() && row[kept].weight >= p; ++kept) {
  }
  for (const std::size_t i : {kept - 1, kept})
    if (i < row.size() && std::abs(row[i].weight - p) <= p * 0x1p-20) return false;
  row.resize(kept);
  return true;
}

/// Entropy of an ordered row, and each token's surprise less it.
double entropy_of(std::vector<Scored>& row, std::vector<double>& surprises) {
  const double sum = weigh(row);
  double entropy = 0;
  for (const Scored& token : row) {
    surprises.push_back(std::log(sum) - static_cast<double>(token.logit - row[0].logit));
    if (token.weight > 0) entropy += token.weight / sum * surprises.back();
  }
  for (double& surprise : surprises) surprise -= entropy;
  return entropy;
}

/// @return false: two tokens, or the limit and a sum, are too near each other
bool keep_typical(std::vector<Scored>& row, double p) {
  std::vector<double> surprises;
  entropy_of(row, surprises);
  const double sum = weigh(row);
  std::vector<std::size_t> order(row.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto difference = [&](std::size_t i) { return std::abs(surprises[i]); };
  std::ranges::stable_sort(order, std::less<>(), difference);
  double before = 0;
  std::size_t kept = 0;
  for (; kept < order.size(); ++kept) {
    const std::size_t i = order[kept];
    if (kept > 0 && std::abs(before - p) <= 2 * sum_error(row.size())) return false;
    if (kept > 0 && before > p) break;
    before += row[i].weight / sum;
  }
  const bool is_near =
      kept < order.size() &&
      difference(order[kept]) - difference(order[kept - 1]) <= 1e-5 * (1 + difference(order[kept]));
  if (is_near) return false;
  order.resize(kept);
  std::ranges::sort(order);
  std::vector<Scored> typical;
  for (const std::size_t i : order) typical.push_back(row[i]);
  row = std::move(typical);
  return true;
}

bool exclude_top_choices(std::vector<Scored>& row, double threshold) {
  const double sum = weigh(row);
  std::size_t n = 0;
  for (const Scored& token : row) {
    const double p = token.weight / sum;
    if (std::abs(p - threshold) <= 2 * sum_error(row.size()) * p) return false;
    if (p < threshold) break;
    ++n;
  }
  if (n > 1) row.erase(row.begin(), row.begin() + static_cast<std::ptrdiff_t>(n) - 1);
  return true;
}

float temperature_of(const SamplerOptions& o, std::vector<Scored> row) {
  if (o.dynatemp_range == 0 || row.size() < 2) return o.temperature;
  std::ranges::stable_sort(row, std::greater<>(), &Scored::logit);
  std::vector<double> surprises;
  const double entropy = entropy_of(row, surprises);
  const double share = std::clamp(entropy / std::log(static_cast<double>(row.size())), 0.0, 1.0);
  const auto middle = static_cast<double>(o.temperature);
  const auto range = static_cast<double>(o.dynatemp_range);
  const double low = std::max(middle - range, 0.0);
  const double part = std::pow(share, static_cast<double>(o.dynatemp_exponent));
  return static_cast<float>(std::max(low + (middle + range - low) * part, 0x1p-100));
}

/// What goes on a repetition of the past's end loses by its length, one place after the other.
void penalize_repetitions(std::vector<Scored>& row, std::span<const TokenId> past,
                          const SamplerOptions& o) {
  if (o.dry_penalty_last_n >= 0)
    past = past.last(std::min(past.size(), static_cast<std::size_t>(o.dry_penalty_last_n)));
  std::map<TokenId, std::size_t> lengths;
  for (std::size_t i = 1; i < past.size() && past.size() > o.dry_allowed_length; ++i) {
    std::size_t n = 0;
    while (n < i && past[i - 1 - n] == past[past.size() - 1 - n]) ++n;
    if (n >= o.dry_allowed_length) lengths[past[i]] = std::max(lengths[past[i]], n);
  }
  for (const auto& [id, length] : lengths) {
    float lost = o.dry_multiplier;
    for (std::size_t n = o.dry_allowed_length; n < length && lost < 1e30F; ++n) lost *= o.dry_base;
    row[static_cast<std::size_t>(id)].logit -= lost;
  }
}

/// How many tokens of a row's past are taken for generated ones.
std::size_t generated_of(const SamplerRow& row) { return row.past.size() * 2 / 3; }

/// The steps of docs/sampling.md on a row in order. @return nothing: a filter cannot be judged
std::optional<std::vector<Scored>> kept_by_rule(const SamplerOptions& o, const SamplerRow& of) {
  std::vector<Scored> row;
  for (const float logit : of.logits) row.push_back({static_cast<TokenId>(row.size()), logit});
  const auto wanted =
      o.repeat_last_n < 0 ? of.past.size() : static_cast<std::size_t>(o.repeat_last_n);
  const auto recent = std::span(of.past).last(std::min(wanted, of.past.size()));
  for (const TokenId id : std::set<TokenId>(recent.begin(), recent.end())) {
    float& logit = row[static_cast<std::size_t>(id)].logit;
    logit = logit > 0 ? logit / o.repeat_penalty : logit * o.repeat_penalty;
  }
  for (const TokenId id : std::set<TokenId>(of.past.begin(), of.past.end())) {
    const auto own = std::span(of.past).last(generated_of(of));
    const auto count = std::ranges::count(own, id);
    // A product and a sum in f32, as the contract has them.
    if (count > 0)
      row[static_cast<std::size_t>(id)].logit -=
          static_cast<float>(count) * o.frequency_penalty + o.presence_penalty;
  }
  if (o.dry_multiplier > 0) penalize_repetitions(row, of.past, o);
  const bool greedy = o.temperature == 0;
  if (!greedy && o.order == SamplerOrder::kHf) divide_distances(row, temperature_of(o, row));
  std::ranges::stable_sort(row, std::greater<>(), &Scored::logit);  // equal ones stay by id
  if (greedy) row.resize(1);
  if (o.top_k > 0 && o.top_k < row.size()) row.resize(o.top_k);
  if (!greedy && o.typical_p < 1 && !keep_typical(row, static_cast<double>(o.typical_p)))
    return std::nullopt;
  if (o.top_p < 1 && !keep_top_p(row, static_cast<double>(o.top_p))) return std::nullopt;
  if (o.min_p > 0 && !keep_min_p(row, static_cast<double>(o.min_p))) return std::nullopt;
  const bool excludes =
      !greedy && o.xtc_threshold <= 0.5F &&
      uniform_draw(o.seed, kXtcSequence, 0) < static_cast<double>(o.xtc_probability);
  if (excludes && !exclude_top_choices(row, static_cast<double>(o.xtc_threshold)))
    return std::nullopt;
  if (!greedy && o.order == SamplerOrder::kLlamaCpp) divide_distances(row, temperature_of(o, row));
  weigh(row);
  return row;
}

/// Where a uniform number falls. @pre not empty
TokenId drawn(std::span<const Candidate> candidates, double uniform) {
  double mass = 0;
  for (const Candidate& candidate : candidates)
    if ((mass += static_cast<double>(candidate.probability)) > uniform) return candidate.id;
  return candidates[0].id;
}

class SamplerCheck {
 public:
  explicit SamplerCheck(const SamplerFunctions& functions) : functions_(functions) {}

  std::vector<CheckResult> run(std::span<const SamplerRow> more) {
    const std::vector<SamplerRow> generated = generated_sampler_rows();
    std::vector<const SamplerRow*> rows;
    for (const SamplerRow& row : generated) rows.push_back(&row);
    for (const SamplerRow& row : more) rows.push_back(&row);
    std::vector<CheckResult> results;
    const auto each = [&](const char* name, void (SamplerCheck::*check)(const SamplerRow&)) {
      tally_ = {};
      for (const SamplerRow* row : rows) (this->*check)(*row);
      results.push_back(tally_.result(std::string("sampler: ") + name));
    };
    each("greedy takes the largest, the lower id among equals", &SamplerCheck::greedy);
    each("temperature", &SamplerCheck::temperature);
    each("top-k keeps what it must", &SamplerCheck::top_k);
    each("top-p keeps what it must", &SamplerCheck::top_p);
    each("min-p keeps what it must", &SamplerCheck::min_p);
    each("repeat penalty", &SamplerCheck::penalty);
    each("presence and frequency penalty", &SamplerCheck::penalties_of_generated);
    each("typical-p", &SamplerCheck::typical);
    each("XTC", &SamplerCheck::excluded);
    each("DRY", &SamplerCheck::repetitions);
    each("dynamic temperature", &SamplerCheck::dynamic_temperature);
    each("all steps together, in both orders", &SamplerCheck::together);
    each("draws over seeds, sequences and positions", &SamplerCheck::draws);
    each("what must be refused", &SamplerCheck::refusals);
    each("log probabilities against f64", &SamplerCheck::log_probabilities);
    return results;
  }

 private:
  static bool is_short(const SamplerRow& row) { return row.logits.size() <= kSmallRow; }

  void compare(const SamplerRow& row, const SamplerOptions& options) {
    const FloatEnvironment contract;
    auto expected = kept_by_rule(options, row);
    if (!expected) return;
    auto actual =
        functions_.distribution(Sampler(options, 0, generated_of(row)), row.logits, row.past);
    if (options.dynatemp_range > 0 && actual.ok()) {
      // Logits that are nearly equal may become equal by one temperature and not by the other.
      std::ranges::sort(*expected, {}, &Scored::id);
      std::ranges::sort(*actual, {}, &Candidate::id);
    }
    double sum = 0;
    for (const Scored& token : *expected) sum += token.weight;
    const double error = sum_error(row.logits.size());
    // A dynamic temperature has the error of the entropy's sums and of its own roundings, an
    // exponent of that much of itself.
    const double of_exponent = options.dynatemp_range > 0 ? error + 0x1p-21 : 0.0;
    const bool same =
        actual.ok() && std::ranges::equal(*actual, *expected, [&](const auto& a, const auto& e) {
          const double allowed =
              error + of_exponent * std::abs(std::log(std::max(e.weight, 0x1p-1000)));
          return a.id == e.id && std::abs(static_cast<double>(a.probability) - e.weight / sum) <=
                                     allowed * (e.weight / sum) + 0x1p-126;
        });
    tally_.add(same, [&] {
      std::vector<Candidate> rule;
      for (const Scored& token : *expected)
        rule.push_back({token.id, static_cast<float>(token.weight / sum)});
      return fmt::format("{}, {}: {}, the rule gives {}", row.name, text_of(options),
                         actual.ok() ? text_of(*actual) : actual.error().to_string(),
                         text_of(rule));
    });
  }

  void greedy(const SamplerRow& row) {
    compare(row, {.temperature = 0});
    compare(row, {.temperature = 0, .top_k = 5, .top_p = 0.5F, .min_p = 0.5F});
  }

  void temperature(const SamplerRow& row) {
    for (const float t : {0.1F, 0.8F, 2.0F, 1e-3F, 0.5F, 1.0F, 1.5F, 10.0F}) {
      if (!is_short(row) && t < 0.1F) break;
      compare(row, {.temperature = t});
      compare(row, {.temperature = t, .order = SamplerOrder::kLlamaCpp});
    }
  }

  void top_k(const SamplerRow& row) {
    const std::size_t n = row.logits.size();
    for (std::size_t k = 0; is_short(row) && k <= n + 2; ++k) compare(row, {.top_k = k});
    for (const std::size_t k : {std::size_t{1}, std::size_t{2}, std::size_t{40}, n - 1, n})
      compare(row, {.top_k = k});
  }

  /// A limit between any two neighbours, so that one token more or fewer shows.
  void top_p(const SamplerRow& row) {
    double before = 0;
    each_leading(row, [&](const Scored& token, double sum) {
      const double limit = (before + token.weight / 2) / sum;
      before += token.weight;
      compare(row, {.top_p = static_cast<float>(limit)});
    });
    for (const float p : {0.0F, 0.05F, 0.5F, 0.9F, 0.95F, 1.0F}) compare(row, {.top_p = p});
  }

  void min_p(const SamplerRow& row) {
    double last = 1;
    each_leading(row, [&](const Scored& token, double) {
      compare(row, {.min_p = static_cast<float>((last + token.weight) / 2)});
      last = token.weight;
    });
    for (const float p : {0.0F, 0.05F, 0.5F, 0.9F, 0.95F, 1.0F}) compare(row, {.min_p = p});
  }

  void each_leading(const SamplerRow& row, auto visit) {
    std::vector<Scored> all = *kept_by_rule({}, row);
    const double sum = weigh(all);
    all.resize(std::min(all.size(), is_short(row) ? kSmallRow : kBoundaries));
    for (const Scored& token : all) visit(token, sum);
  }

  void penalty(const SamplerRow& row) {
    for (const float penalty : {0.8F, 1.1F, 0.5F, 1.5F, 2.0F}) {
      if (!is_short(row) && penalty == 0.5F) break;
      for (const std::int64_t last_n : {0, 1, 5, 64, 90, 1000, -1}) {
        if (!is_short(row) && last_n != 5 && last_n != -1) continue;
        compare(row, {.repeat_penalty = penalty, .repeat_last_n = last_n});
        compare(row, {.temperature = 0, .repeat_penalty = penalty, .repeat_last_n = last_n});
      }
    }
  }

  void penalties_of_generated(const SamplerRow& row) {
    for (const float presence : {0.0F, 1.5F, -0.7F, 2.0F}) {
      for (const float frequency : {0.0F, 0.3F, -2.0F}) {
        if (!is_short(row) && presence != 1.5F) continue;
        compare(row, {.presence_penalty = presence, .frequency_penalty = frequency});
        compare(row,
                {.temperature = 0, .presence_penalty = presence, .frequency_penalty = frequency});
      }
    }
  }

  void typical(const SamplerRow& row) {
    for (const float p : {0.0F, 0.2F, 0.5F, 0.9F, 0.95F}) {
      compare(row, {.typical_p = p});
      compare(row, {.temperature = 1.5F, .top_k = 20, .typical_p = p});
    }
  }

  void excluded(const SamplerRow& row) {
    for (const float threshold : {0.0F, 0.01F, 0.1F, 0.3F, 0.5F, 0.6F}) {
      compare(row, {.xtc_probability = 1, .xtc_threshold = threshold});
      compare(row, {.top_k = 10, .xtc_probability = 0.5F, .xtc_threshold = threshold, .seed = 3});
    }
  }

  void repetitions(const SamplerRow& row) {
    for (const std::size_t allowed : {std::size_t{0}, std::size_t{1}, std::size_t{2}})
      for (const std::int64_t last_n : {-1, 0, 7})
        compare(
            row,
            {.dry_multiplier = 0.8F, .dry_allowed_length = allowed, .dry_penalty_last_n = last_n});
  }

  void dynamic_temperature(const SamplerRow& row) {
    for (const float range : {0.3F, 1.0F}) {
      for (const float exponent : {0.0F, 1.0F, 2.5F}) {
        compare(row, {.dynatemp_range = range, .dynatemp_exponent = exponent});
        compare(row, {.top_k = 9,
                      .dynatemp_range = range,
                      .dynatemp_exponent = exponent,
                      .order = SamplerOrder::kLlamaCpp});
      }
    }
  }

  /// The i-th of ever the same drawn options.
  static SamplerOptions drawn_options(std::mt19937& random) {
    const auto of = [&random](std::initializer_list<float> values) {
      return values.begin()[random() % values.size()];
    };
    SamplerOptions options;
    options.temperature = of({0.3F, 0.8F, 1, 2});
    options.top_k = static_cast<std::size_t>(of({0, 1, 3, 10, 40}));
    options.top_p = of({0.1F, 0.5F, 0.8F, 0.95F, 1});
    options.min_p = of({0, 0.05F, 0.2F});
    options.repeat_penalty = of({1, 1, 1.1F, 0.9F});
    options.repeat_last_n = static_cast<std::int64_t>(of({-1, 3, 64}));
    options.order = random() % 2 == 0 ? SamplerOrder::kHf : SamplerOrder::kLlamaCpp;
    options.presence_penalty = of({0, 0, 0, 1.5F});
    options.frequency_penalty = of({0, 0, 0, 0.4F});
    options.dry_multiplier = of({0, 0, 0.8F});
    options.dry_allowed_length = 1;
    options.typical_p = of({1, 1, 1, 0.9F});
    return options;
  }

  void together(const SamplerRow& row) {
    std::mt19937 random(2);
    for (std::size_t i = 0; i < (is_short(row) ? kMixes : kMixesOfLong); ++i)
      compare(row, drawn_options(random));
  }

  void draws(const SamplerRow& row) {
    constexpr std::uint64_t kWords[] = {0, 1, 7, 0xFFFFFFFF, 0x100000000, 0xFFFFFFFFFFFFFFFF};
    std::mt19937 random(3);
    for (std::size_t i = 0; i < (is_short(row) ? std::size_t{20} : std::size_t{1}); ++i) {
      SamplerOptions options = drawn_options(random);
      const auto candidates =
          functions_.distribution(Sampler(options, 0, generated_of(row)), row.logits, row.past);
      if (!candidates.ok())
        return tally_.add(false, [&] { return candidates.error().to_string(); });
      for (std::size_t k = 0; k < (is_short(row) ? std::size_t{60} : std::size_t{8}); ++k) {
        options.seed = k < 6 ? kWords[k] : random();
        const std::uint64_t sequence = k % 7 == 6 ? kWords[k % 6] : k % 3;
        const std::uint64_t position = k % 11 == 10 ? kWords[k % 6] : k;
        const TokenId expected = drawn(*candidates, uniform_draw(options.seed, sequence, position));
        const auto actual = functions_.sample(Sampler(options, sequence, generated_of(row)),
                                              row.logits, row.past, position);
        tally_.add(actual.ok() && *actual == expected, [&] {
          return fmt::format("{}, {}, seed {}, sequence {}, position {}: {}, the rule gives {}",
                             row.name, text_of(options), options.seed, sequence, position,
                             actual.ok() ? std::to_string(*actual) : actual.error().to_string(),
                             expected);
        });
      }
    }
  }

  void refusals(const SamplerRow& row) {
    const auto refused = [&](std::vector<float> logits, const char* what) {
      for (const float t : {0.0F, 0.8F}) {
        const auto actual = functions_.sample(Sampler({.temperature = t}), logits, row.past, 12345);
        const bool right = !actual.ok() && actual.error().code == ErrorCode::kNonFinite &&
                           actual.error().message.find("12345") != std::string::npos;
        tally_.add(right, [&] { return fmt::format("{} with {}: drawn from", row.name, what); });
      }
    };
    if (!is_short(row)) return;
    for (std::size_t i = 0; i < row.logits.size(); ++i) {
      std::vector<float> logits = row.logits;
      logits[i] = std::numeric_limits<float>::quiet_NaN();
      refused(logits, "NaN");
      logits[i] = kInf;
      refused(logits, "+Inf");
    }
    refused(std::vector<float>(row.logits.size(), -kInf), "-Inf alone");
  }

  void log_probabilities(const SamplerRow& row) {
    const std::vector<double> exact = log_softmax(row.logits);
    const auto n = static_cast<double>(row.logits.size());
    const auto largest = static_cast<double>(std::ranges::max(row.logits));
    const auto close = [&](const TokenLogprob& found, TokenId id) {
      const double expected = exact[static_cast<std::size_t>(id)];
      // n additions and exps, then log(sum exp) and its difference from the logit, each rounded.
      const double limit = (n + 2 * std::abs(largest) + 2 * std::abs(expected)) * 0x1p-52;
      return found.id == id &&
             (found.logprob == expected || std::abs(found.logprob - expected) <= limit);
    };
    const std::vector<Scored> order = *kept_by_rule({}, row);
    const TokenId chosen = order.back().id;
    for (const std::size_t n_top : {std::size_t{0}, std::size_t{1}, std::size_t{5}, order.size()}) {
      const Logprobs actual = functions_.logprobs(row.logits, chosen, n_top);
      bool same =
          close(actual.chosen, chosen) && actual.top.size() == std::min(n_top, order.size());
      for (std::size_t i = 0; same && i < actual.top.size(); ++i)
        same = close(actual.top[i], order[i].id);
      tally_.add(same, [&] { return fmt::format("{}, the {} most likely", row.name, n_top); });
    }
  }

  const SamplerFunctions& functions_;
  Tally tally_;
};

}  // namespace

SamplerFunctions sampler_functions() {
  return {.distribution =
              [](const Sampler& sampler, std::span<const float> logits,
                 std::span<const TokenId> past) { return sampler.distribution(logits, past, 0); },
          .sample = [](const Sampler& sampler, std::span<const float> logits,
                       std::span<const TokenId> past,
                       std::uint64_t position) { return sampler.sample(logits, past, position); },
          .logprobs = logprobs_of};
}

std::vector<CheckResult> check_sampler_rows(std::span<const SamplerRow> more,
                                            const SamplerFunctions& functions) {
  return SamplerCheck(functions).run(more);
}

Result<std::vector<CheckResult>> check_sampler(const std::shared_ptr<const Model>& model) {
  constexpr std::size_t kRows = 2;
  const auto& spec = model->tokenizer().spec();
  const std::size_t n_vocab = model->config().n_vocab;
  std::mt19937 random(1);
  std::vector<TokenId> tokens;
  if (spec.bos) tokens.push_back(*spec.bos);
  draw_tokens(tokens, std::min(kRows, model->config().context), n_vocab, random);
  LLM_TRY(const auto session, open_sequence(model, {.context = tokens.size()}));
  LLM_TRY(const auto logits, session->evaluate(tokens, LogitRows::kAll));
  std::vector<SamplerRow> rows;
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const auto row = logits.subspan(t * n_vocab, n_vocab);
    rows.push_back({fmt::format("the model's logits at position {}", t),
                    {row.begin(), row.end()},
                    {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(t) + 1}});
  }
  return check_sampler_rows(rows);
}

}  // namespace llm
