#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>

#include "engine/generate/draft_proposer.h"
#include "engine/generate/generate.h"
#include "engine/generate/ngram_proposer.h"
#include "validate/self/text_checks.h"
#include "validate/self/text_path.h"

namespace llm {
namespace {

constexpr std::size_t kNgramLength = 4;
constexpr std::size_t kDraftLength = 3;
constexpr std::size_t kFurther = 3;  ///< tokens fed after a text
constexpr SamplerOptions kSampled = {
    .temperature = 0.8F, .top_p = 0.95F, .repeat_penalty = 1.1F, .repeat_last_n = 8, .seed = 1};

constexpr std::size_t kLongest = 7;  ///< proposal that is partly right

/// What came of a text, for a proposer that knows it: the last tokens of the texts that proposals
/// were asked for, in order, and the index of a text, by its hash, among them.
struct Heard {
  std::unordered_map<std::size_t, std::size_t> index;
  std::vector<TokenId> tokens;
};

std::size_t hash_of(std::span<const TokenId> text) {
  return std::hash<std::string_view>()(
      {reinterpret_cast<const char*>(text.data()), text.size_bytes()});
}

/// Proposes nothing and remembers the text.
class Listener final : public Proposer {
 public:
  explicit Listener(Heard& heard) : heard_(heard) {}

  std::string_view name() const override { return "none"; }
  Proposal propose(const ProposalRequest& request, const Worth&) override {
    heard_.index[hash_of(request.text)] = heard_.tokens.size();
    heard_.tokens.push_back(request.text.back());
    return {};
  }

 private:
  Heard& heard_;
};

/// Proposes for the same text 1 to 7 tokens in turn, with every number of leading right ones and
/// then a wrong one, so that everything happens to proposals that can, whatever the model is like.
class Prompter final : public Proposer {
 public:
  Prompter(const Heard& heard, std::size_t n_vocab) : heard_(heard), n_vocab_(n_vocab) {}

  std::string_view name() const override { return "right and wrong ones"; }
  Proposal propose(const ProposalRequest& request, const Worth&) override {
    Proposal proposal;
    const auto found = heard_.index.find(hash_of(request.text));
    if (found == heard_.index.end()) return proposal;
    const std::size_t length = 1 + n_asked_ % kLongest;
    const std::size_t n_right = n_asked_ / kLongest % (kLongest + 1);
    ++n_asked_;
    for (std::size_t i = 0; i < length; ++i) {
      const std::size_t at = found->second + 1 + i;
      const TokenId right = at < heard_.tokens.size() ? heard_.tokens[at] : 0;
      const auto wrong = static_cast<TokenId>((static_cast<std::size_t>(right) + 1) % n_vocab_);
      proposal.tokens.push_back(i == n_right ? wrong : right);
    }
    return proposal;
  }

 private:
  const Heard& heard_;
  std::size_t n_vocab_;
  std::size_t n_asked_ = 0;
};

/// How texts are made.
struct Way {
  const char* name;
  SamplerOptions sampler;
  std::size_t n_room;  ///< positions for new tokens; 0: for all
};
constexpr Way kWays[] = {{"sampled with a penalty", kSampled, 0},
                         {"greedy", {.temperature = 0}, 0},
                         {"past a full context", kSampled, 12}};

/// All that a run gives.
struct Made {
  std::vector<TokenId> ids;
  std::vector<float> rows;     ///< given to on_logits
  std::vector<float> further;  ///< of tokens after the text
  std::size_t position = 0;
  std::size_t proposed = 0;
  std::size_t accepted = 0;
  std::size_t passes = 0;
};

/// The first logit that differs, in words; empty for equal bits.
std::string row_difference(std::string_view what, std::span<const float> actual,
                           std::span<const float> expected, std::size_t n_vocab) {
  if (actual.size() != expected.size()) {
    return fmt::format("{} rows {}, {} without proposals", actual.size() / n_vocab, what,
                       expected.size() / n_vocab);
  }
  const std::size_t at = first_unequal(actual, expected);
  if (at == actual.size()) return {};
  return fmt::format("row {} {}, logit of token {}: {} and {} without proposals", at / n_vocab,
                     what, at % n_vocab, actual[at], expected[at]);
}

std::string difference(const Made& actual, const Made& expected, std::size_t n_vocab) {
  const auto [a, b] = std::ranges::mismatch(actual.ids, expected.ids);
  if (a != actual.ids.end() || b != expected.ids.end()) {
    const auto shown = [](auto at, const std::vector<TokenId>& ids) {
      return at == ids.end() ? std::string("none") : std::to_string(*at);
    };
    return fmt::format("token {}: {} and {} without proposals", a - actual.ids.begin(),
                       shown(a, actual.ids), shown(b, expected.ids));
  }
  std::string words = row_difference("of the text", actual.rows, expected.rows, n_vocab);
  if (!words.empty()) return words;
  if (actual.position != expected.position) {
    return fmt::format("the session ends at position {}, at {} without proposals", actual.position,
                       expected.position);
  }
  return row_difference("after the text", actual.further, expected.further, n_vocab);
}

class SpeculationCheck {
 public:
  SpeculationCheck(const std::shared_ptr<const Model>& model, KvType kv,
                   std::span<const TokenId> prompt, const SpeculationCheckOptions& options)
      : model_(model), kv_(kv), prompt_(prompt), options_(options) {}

  Result<CheckResult> run(const Way& way) {
    const std::size_t n_room = way.n_room > 0 ? way.n_room : options_.n_tokens;
    const std::size_t context = prompt_.size() + n_room + kFurther;
    Made expected;
    Made all;
    std::string failure;
    LLM_RETURN_IF_ERROR(with_every_proposer(
        model_, kv_, context, [&](Speculation* speculation, std::string_view name) -> Status {
          LLM_TRY(Made made, make(way, context, speculation));
          if (speculation == nullptr) {
            expected = std::move(made);
            return Ok{};
          }
          all.passes += made.passes;
          all.proposed += made.proposed;
          all.accepted += made.accepted;
          const std::string words = difference(made, expected, model_->config().n_vocab);
          if (!words.empty() && failure.empty()) failure = fmt::format("{}: {}", name, words);
          return Ok{};
        }));
    return CheckResult{
        fmt::format("{}, {}: text with proposals, {}",
                    model_->compute() == Compute::kInt8 ? "int8" : "f32", isa_name(model_->isa()),
                    way.name),
        failure.empty(),
        !failure.empty()
            ? failure
            : fmt::format("{} tokens each; {} of {} proposed tokens accepted, {} passes",
                          expected.ids.size(), all.accepted, all.proposed, all.passes)};
  }

 private:
  Result<Made> make(const Way& way, std::size_t context, Speculation* speculation) {
    LLM_TRY(const auto session, open_sequence(model_, {.context = context, .kv = kv_}));
    Made made;
    GenerateOptions options;
    options.sampler = way.sampler;
    options.max_tokens = options_.n_tokens;
    options.ignore_eos = true;
    options.context_shift = true;
    options.speculation = speculation;
    options.on_logits = [&](std::span<const float> rows) {
      made.rows.insert(made.rows.end(), rows.begin(), rows.end());
    };
    LLM_TRY(GenerateResult result, generate(*session, prompt_, options));
    made.ids = std::move(result.ids);
    made.proposed = result.proposed;
    made.accepted = result.accepted;
    made.passes = result.decode_passes;
    made.position = session->position();
    const auto n_vocab = static_cast<TokenId>(model_->config().n_vocab);
    for (std::size_t i = 0; i < kFurther && session->position() < context; ++i) {
      const auto id = static_cast<TokenId>((100 + 7 * i) % static_cast<std::size_t>(n_vocab));
      LLM_TRY(const auto row, session->evaluate({&id, 1}, LogitRows::kLast));
      made.further.insert(made.further.end(), row.begin(), row.end());
    }
    return made;
  }

  const std::shared_ptr<const Model>& model_;
  KvType kv_;
  std::span<const TokenId> prompt_;
  const SpeculationCheckOptions& options_;
};

}  // namespace

Status with_every_proposer(
    const std::shared_ptr<const Model>& model, KvType kv, std::size_t context,
    const std::function<Status(Speculation* speculation, std::string_view proposer)>& run) {
  LLM_RETURN_IF_ERROR(run(nullptr, ""));
  const auto run_with = [&](std::unique_ptr<Proposer> proposer, std::size_t length) {
    Speculation speculation(std::move(proposer), length);
    return run(&speculation, speculation.proposer());
  };
  Heard heard;
  LLM_RETURN_IF_ERROR(run_with(std::make_unique<Listener>(heard), 0));
  LLM_RETURN_IF_ERROR(run_with(std::make_unique<Prompter>(heard, model->config().n_vocab),
                               SpeculationPolicy::kMost));
  LLM_RETURN_IF_ERROR(run_with(std::make_unique<NgramProposer>(), kNgramLength));
  const auto layers = std::max<std::size_t>(1, model->config().n_layers / 2);
  LLM_TRY(auto draft, open_sequence(model->first_layers(layers), {.context = context, .kv = kv}));
  return run_with(std::make_unique<DraftProposer>(std::move(draft)), kDraftLength);
}

Result<std::vector<CheckResult>> check_speculation(const std::shared_ptr<const Model>& model,
                                                   KvType kv, std::span<const TokenId> prompt,
                                                   const SpeculationCheckOptions& options) {
  SpeculationCheck check(model, kv, prompt, options);
  std::vector<CheckResult> results;
  for (const Way& way : kWays) {
    if (!options.every_way && &way != &kWays[0]) break;
    LLM_TRY(CheckResult result, check.run(way));
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace llm
