#include "tools/llmserve/model_loader.h"

#include <fmt/core.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <utility>

#include "engine/generation/assistant_proposer.h"
#include "engine/generation/draft_proposer.h"
#include "engine/generation/mtp_proposer.h"
#include "engine/generation/ngram_proposer.h"
#include "engine/model/model_file.h"
#include "engine/model/weight_store.h"
#include "tools/common/progress.h"
#include "tools/common/tool.h"

namespace llm {
namespace {

constexpr std::size_t kUsualKvMemory = 1 << 30;

/// What depends on the model's head.
struct Served {
  std::string id;
  std::string path;
  SchedulerOptions scheduler = {};
  bool quiet = false;
  std::shared_ptr<StateStore> store = nullptr;
  Progress progress = {};
};

Result<std::shared_ptr<const Model>> load_file(const ServeArguments& a, const Served& served) {
  ProgressBar bar(!served.quiet);
  LoadOptions options{.compute = a.compute, .isa = a.isa, .threads = a.threads, .strict = a.strict};
  options.hash_file = true;
  options.manifest = a.manifest;
  options.packed_cache = a.packed_cache;
  for (const AdapterOption& adapter : a.adapters) options.adapters.push_back(adapter.path);
  options.progress = served.progress ? served.progress : std::ref(bar);
  LLM_TRY(auto model, Model::load(served.path, options));
  bar.clear();
  for (const std::string& warning : model->warnings()) spdlog::warn("{}", warning);
  return model;
}

/// Context and pages.
Result<SchedulerOptions> complete(const ServeArguments& a, const HyperParameters& config,
                                  const KvPool& page) {
  SchedulerOptions scheduler = a.scheduler;
  if (scheduler.context == 0) scheduler.context = config.context;
  if (scheduler.context > config.context) {
    spdlog::warn("-c: found {}, the model was trained for {} positions", scheduler.context,
                 config.context);
  }
  scheduler.kv_groups = page.groups();
  const std::size_t full = Scheduler::pages_for(scheduler, scheduler.context);
  const std::size_t given = (a.kv_memory << 20) / page.page_bytes();
  const std::size_t least = Scheduler::pages_for(scheduler, 1);
  if (a.kv_memory > 0 && given < least) {
    return usage_error(
        "--kv-memory",
        fmt::format("found {} MiB, need {} of {} bytes or more", a.kv_memory,
                    least == 1 ? "one page" : fmt::format("{} pages", least), page.page_bytes()));
  }
  const std::size_t usual =
      std::max(full, std::min(kUsualKvMemory / page.page_bytes(), full * scheduler.parallel));
  scheduler.kv_pages = a.kv_memory > 0 ? given : usual;
  if (scheduler.kv_pages < full) {
    std::size_t held = KvPool::kPagePositions;
    while (Scheduler::pages_for(scheduler, held + 1) <= scheduler.kv_pages)
      held += KvPool::kPagePositions;
    spdlog::warn(
        "--kv-memory: found {} MiB, which hold {} of {} positions; the context is reduced to that",
        a.kv_memory, held, scheduler.context);
    scheduler.context = held;
  }
  return scheduler;
}

/// About: their files.
std::uint64_t adapter_bytes(const ServeArguments& a) {
  std::uint64_t bytes = 0;
  for (const AdapterOption& adapter : a.adapters) {
    std::error_code missing;  // what loading names
    const auto size = std::filesystem::file_size(adapter.path, missing);
    bytes += missing ? 0 : size;
  }
  return bytes;
}

/// The template of conversations; null where the file has none that is understood.
Result<std::shared_ptr<const ChatStyle>> chat_style(const ServeArguments& a, const Model& model,
                                                    bool quiet) {
  const bool is_auto = a.chat.chat_template == "auto";
  if (is_auto && model.chat_template().empty()) return std::shared_ptr<const ChatStyle>();
  auto style = ChatStyle::choose(a.chat.chat_template, model.chat_template(), model.tokenizer());
  if (!style.ok() && is_auto) {
    spdlog::warn("{}; chats are not available", style.error().to_string());
    return std::shared_ptr<const ChatStyle>();
  }
  if (!style.ok()) return style.error();
  LLM_TRY(const auto date, chat_date(a.chat, (*style)->needs_date(), "llmserve", quiet));
  if (date) (*style)->set_date(*date);
  return std::shared_ptr<const ChatStyle>(*style);
}

ServedModel facts_of(const ServeArguments& a, const Served& served,
                     std::shared_ptr<const Model> model, std::shared_ptr<const ChatStyle> style) {
  const SchedulerOptions& scheduler = served.scheduler;
  ServedModel facts;
  facts.id = served.id;
  facts.style = std::move(style);
  if (facts.style) {
    facts.reply_format = reply_format_of(*facts.style, model->tokenizer());
    facts.roles = chat_roles(*facts.style);
    facts.reply_shows_special = has_control_tokens(facts.reply_format, model->tokenizer());
  }
  facts.pooling = a.pooling;
  facts.kv = a.kv;
  facts.context = scheduler.context;
  facts.most_new_tokens = a.max_tokens > 0 ? a.max_tokens : scheduler.context;
  facts.most_texts = scheduler.parallel + scheduler.queue;
  facts.logs_receipts = !a.receipts.empty();
  facts.adapters = std::make_shared<ServedAdapters>(a.adapters, !a.lora_unapplied);
  facts.grammars = std::make_shared<GrammarCompiler>(model->tokenizer());
  facts.model = std::move(model);
  return facts;
}

GenerationService::Speculate speculate_by(std::function<std::unique_ptr<Proposer>()> make) {
  return [make = std::move(make)] { return std::make_unique<Speculation>(make()); };
}

/// The most requests of a full context whose tokens are proposed at once: those that the KV cache
/// holds. Beyond that a request goes on without proposals.
std::size_t most_proposed_for(const SchedulerOptions& scheduler) {
  const std::size_t full = Scheduler::pages_for(scheduler, scheduler.context);
  return std::clamp<std::size_t>(scheduler.kv_pages / full, 1, scheduler.parallel);
}

bool proposes_by_mtp(const ServeArguments& a, const HyperParameters& config) {
  return a.draft.empty() && (a.speculate == SpeculateKind::kMtp ||
                             (a.speculate == SpeculateKind::kAuto && config.n_mtp_layers > 0));
}

/// Of the draft, or of the model's own block: weights and KV cache.
Result<std::uint64_t> proposer_bytes(const ServeArguments& a, const ModelFile& file,
                                     const std::string& path, const SchedulerOptions& scheduler) {
  const bool is_mtp = proposes_by_mtp(a, file.config);
  if (!is_mtp && a.draft.empty()) return std::uint64_t{0};
  LLM_TRY(const ModelFile other,
          open_model_file(is_mtp ? path : a.draft,
                          {.strict = a.strict, .mtp = is_mtp, .trunk = &file.config}));
  LLM_TRY(const WeightPlan weights, plan_weights(other));
  if (other.config.has_trunk()) return std::uint64_t{weights.bytes};
  LLM_TRY(const auto page, KvPool::create(other.config, 1, a.kv));
  const std::size_t batch = is_mtp ? MtpDrafter::kBatch : scheduler.step_tokens;
  return weights.bytes +
         most_proposed_for(scheduler) *
             page->groups().most_pages(scheduler.context, std::min(batch, scheduler.context)) *
             page->page_bytes();
}

/// Each request has a sequence of the draft, but for one that reads the model's.
Result<GenerationService::Speculate> speculate_by_draft(const ServeArguments& a,
                                                        const SchedulerOptions& scheduler,
                                                        const Model& model) {
  LLM_TRY(auto draft, Model::load(a.draft, {.compute = a.compute,
                                            .isa = a.isa,
                                            .threads = a.threads,
                                            .strict = a.strict,
                                            .trunk = &model}));
  const Status same = check_same_vocabulary(draft->tokenizer(), model.tokenizer());
  if (!same.ok()) return in_file(same.error(), a.draft);
  if (draft->config().has_trunk()) {
    LLM_TRY(auto assistant, Assistant::create(std::move(draft), a.kv, scheduler.context));
    return speculate_by([assistant] { return std::make_unique<AssistantProposer>(assistant); });
  }
  ExecutorOptions options{.context = scheduler.context, .kv = a.kv, .batch = scheduler.step_tokens};
  options.kv_pages = most_proposed_for(scheduler) *
                     KvGroups(draft->config(), a.kv).most_pages(options.context, options.batch);
  LLM_TRY(auto executor, Executor::create(std::move(draft), options));
  return speculate_by([executor]() -> std::unique_ptr<Proposer> {
    auto sequence = Executor::open(executor, {.nonfinite = true});
    if (!sequence.ok()) return std::make_unique<NgramProposer>();
    return std::make_unique<DraftProposer>(std::move(*sequence));
  });
}

/// What proposes tokens of a request; empty: nothing does.
Result<GenerationService::Speculate> make_speculate(const ServeArguments& a, const Served& served,
                                                    const Model& model) {
  if (!a.draft.empty()) return speculate_by_draft(a, served.scheduler, model);
  if (a.speculate == SpeculateKind::kNgram)
    return speculate_by([] { return std::make_unique<NgramProposer>(); });
  if (!proposes_by_mtp(a, model.config())) return GenerationService::Speculate();
  auto drafter = MtpDrafter::load(served.path, model, a.kv, served.scheduler.context,
                                  most_proposed_for(served.scheduler));
  if (!drafter.ok() && a.speculate == SpeculateKind::kMtp) return drafter.error();
  if (!drafter.ok()) {
    spdlog::warn("{}; --speculate off", drafter.error().to_string());
    return GenerationService::Speculate();
  }
  return speculate_by([drafter = *drafter] { return std::make_unique<MtpProposer>(drafter); });
}

Result<Lease> load(const ServeArguments& a, const Served& served) {
  LLM_TRY(auto model, load_file(a, served));
  LLM_TRY(auto style, chat_style(a, *model, served.quiet));
  const SchedulerOptions& scheduler = served.scheduler;
  // A step is one pass.
  LLM_TRY(auto executor,
          Executor::create(model, {.context = std::max(scheduler.context, scheduler.step_tokens),
                                   .kv = a.kv,
                                   .batch = scheduler.step_tokens,
                                   .kv_pages = scheduler.kv_pages,
                                   .store = served.store}));
  LLM_TRY(auto speculate, make_speculate(a, served, *model));
  auto loaded = std::make_shared<LoadedModel>();
  loaded->facts = facts_of(a, served, std::move(model), std::move(style));
  LLM_TRY(loaded->service,
          GenerationService::start(std::move(executor), scheduler, std::move(speculate)));
  spdlog::info("{}: {}, {}, {} threads, {} KV pages", served.id, system_fingerprint(loaded->facts),
               isa_name(loaded->facts.model->isa()), loaded->facts.model->threads(),
               scheduler.kv_pages);
  return loaded;
}

}  // namespace

Result<LoadPlan> plan_model(const ServeArguments& a, const ModelManager::Model& model, bool quiet,
                            std::shared_ptr<StateStore> store, Progress progress) {
  Served served{.id = model.id(),
                .path = model.path,
                .quiet = quiet,
                .store = std::move(store),
                .progress = std::move(progress)};
  LLM_TRY(ModelFile file, open_model_file(model.path, {.strict = a.strict}));
  LLM_RETURN_IF_ERROR(check_runs_alone(file));
  LLM_TRY(const auto page, KvPool::create(file.config, 1, a.kv));
  LLM_TRY(served.scheduler, complete(a, file.config, *page));
  LLM_TRY(const WeightPlan weights, plan_weights(file));
  const auto proposer = proposer_bytes(a, file, model.path, served.scheduler);
  const bool may_do_without = a.draft.empty() && a.speculate == SpeculateKind::kAuto;
  if (!proposer.ok() && !may_do_without) return proposer.error();
  const std::uint64_t bytes =
      weights.bytes + served.scheduler.kv_pages * page->page_bytes() +
      activation_bytes(file.config, served.scheduler.step_tokens, served.scheduler.parallel) +
      adapter_bytes(a) + (proposer.ok() ? *proposer : 0);
  // The loads of the model and of its MTP block open the file anew: it must be the planned one.
  auto planned = std::make_shared<const MappedFile>(std::move(file.file));
  return LoadPlan{.bytes = bytes, .load = [&a, served, planned]() -> Result<Lease> {
                    auto lease = load(a, served);
                    LLM_RETURN_IF_ERROR(planned->check_unchanged());
                    return lease;
                  }};
}

}  // namespace llm
