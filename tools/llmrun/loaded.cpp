#include "tools/llmrun/loaded.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <functional>
#include <utility>

#include "engine/generation/assistant_proposer.h"
#include "engine/generation/draft_proposer.h"
#include "engine/generation/mtp_proposer.h"
#include "engine/generation/ngram_proposer.h"

namespace llm {

namespace {

/// Whether something is written or read that names the model by its hash; a chat may at any time.
bool needs_hash(const RunArguments& a) {
  return a.interactive || !a.receipt.empty() || !a.dump_layers.empty() || !a.cache_dir.empty();
}

LoadOptions load_options(const RunArguments& arguments, ProgressBar& progress) {
  LoadOptions options;
  options.compute = arguments.compute;
  options.isa = arguments.isa;
  options.threads = arguments.threads;
  options.strict = arguments.strict;
  options.progress = std::ref(progress);
  return options;
}

/// An assistant of the model, or a sequence of the draft that can hold all that it can.
Result<std::unique_ptr<Proposer>> load_draft(const RunArguments& arguments, const Sequence& session,
                                             ProgressBar& progress) {
  LoadOptions options = load_options(arguments, progress);
  options.trunk = &session.model();
  LLM_TRY(const auto draft, Model::load(arguments.draft, options));
  progress.clear();
  for (const std::string& warning : draft->warnings())
    spdlog::warn("{}: {}", arguments.draft, warning);
  const Status same = check_same_vocabulary(draft->tokenizer(), session.tokenizer());
  if (!same.ok()) return in_file(same.error(), arguments.draft);
  if (draft->config().has_trunk()) {
    LLM_TRY(auto assistant, Assistant::create(draft, arguments.kv, session.context()));
    return std::unique_ptr<Proposer>(std::make_unique<AssistantProposer>(std::move(assistant)));
  }
  LLM_TRY(auto sequence,
          open_sequence(
              draft, {.context = session.context(), .kv = arguments.kv, .batch = arguments.batch}));
  return std::unique_ptr<Proposer>(std::make_unique<DraftProposer>(std::move(sequence)));
}

/// The model's own block for further tokens; null where it has none that is computed.
Result<std::unique_ptr<Proposer>> load_mtp(const RunArguments& arguments, const Sequence& session) {
  auto drafter =
      MtpDrafter::load(arguments.model, session.model(), arguments.kv, session.context(), 1);
  if (drafter.ok()) return std::unique_ptr<Proposer>(std::make_unique<MtpProposer>(*drafter));
  if (arguments.speculate == SpeculateKind::kMtp) return drafter.error();
  spdlog::warn("{}; --speculate off", drafter.error().to_string());
  return std::unique_ptr<Proposer>();
}

Result<std::unique_ptr<Speculation>> make_speculation(const RunArguments& arguments,
                                                      Sequence& session, ProgressBar& progress) {
  std::unique_ptr<Proposer> proposer;
  const SpeculateKind kind = arguments.speculate_with(session.model().config().n_mtp_layers > 0);
  if (!arguments.draft.empty()) {
    LLM_TRY(proposer, load_draft(arguments, session, progress));
  } else if (kind == SpeculateKind::kNgram) {
    proposer = std::make_unique<NgramProposer>();
  } else if (kind == SpeculateKind::kMtp) {
    LLM_TRY(proposer, load_mtp(arguments, session));
  }
  if (proposer == nullptr) return std::unique_ptr<Speculation>();
  if (proposer->reads_rows()) {
    session.set_on_normed(
        [reader = proposer.get()](std::size_t first, std::span<const float> rows) {
          reader->take_rows(first, rows);
        });
  }
  std::optional<std::size_t> length;
  if (arguments.speculate_length > 0) length = arguments.speculate_length;
  return std::make_unique<Speculation>(std::move(proposer), length);
}

/// Where keys and values are kept on disk, or null.
Result<std::shared_ptr<StateStore>> open_store(const RunArguments& a) {
  const std::string directory =
      a.cache_dir.empty() && !a.session.empty() ? a.session + ".kv" : a.cache_dir;
  if (directory.empty()) return std::shared_ptr<StateStore>();
  return StateStore::open(
      {.directory = directory,
       .most_bytes = std::uint64_t{a.cache_size} << 30,
       .notice = [](const std::string& what) { spdlog::warn("--cache-dir: {}", what); }});
}

}  // namespace

void Loaded::report_speculation() const {
  if (speculation == nullptr) return;
  spdlog::info("{}: {}", speculation->proposer(), speculation->policy().describe());
}

Result<Loaded> load(const RunArguments& arguments, ProgressBar& progress) {
  const auto started = std::chrono::steady_clock::now();
  LoadOptions options = load_options(arguments, progress);
  options.hash_file = needs_hash(arguments);
  options.manifest = arguments.manifest;
  // A chat packs while its first message is typed.
  options.defer_packing = !arguments.interactive;
  options.packed_cache = arguments.packed_cache;
  std::vector<float> scales;
  for (const AdapterOption& adapter : arguments.adapters) {
    options.adapters.push_back(adapter.path);
    scales.push_back(adapter.scale);
  }
  Loaded loaded;
  LLM_TRY(loaded.model, Model::load(arguments.model, options));
  progress.clear();
  for (const std::string& warning : loaded.model->warnings()) spdlog::warn("{}", warning);
  if (arguments.context > loaded.model->config().context) {
    spdlog::warn("-c: found {}, the model was trained for {} positions", arguments.context,
                 loaded.model->config().context);
  }
  LLM_TRY(auto store, open_store(arguments));
  const auto passes = static_cast<std::uint64_t>(arguments.max_tokens);  // -1: very many
  LLM_TRY(loaded.session, open_sequence(loaded.model,
                                        {.context = arguments.context,
                                         .kv = arguments.kv,
                                         .batch = arguments.batch,
                                         .passes = passes,
                                         .store = store},
                                        {.use_cache = !arguments.no_cache,
                                         .share_prefix = arguments.interactive || store,
                                         .adapters = std::move(scales)}));
  LLM_TRY(loaded.speculation, make_speculation(arguments, *loaded.session, progress));
  loaded.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  spdlog::info("{}: {}, {} threads, seed {}", loaded.model->name(), isa_name(loaded.model->isa()),
               loaded.model->threads(), arguments.sampler.seed);
  return loaded;
}

}  // namespace llm
