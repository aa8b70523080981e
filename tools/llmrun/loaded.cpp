#include "tools/llmrun/loaded.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <functional>
#include <utility>

#include "tools/common/signals.h"

namespace llm {

namespace {

/// Whether something is written or read that names the model by its hash; a chat may at any time.
bool needs_hash(const RunArguments& a) {
  return a.interactive || !a.receipt.empty() || !a.dump_layers.empty() || !a.cache_save.empty() ||
         !a.cache_load.empty();
}

}  // namespace

CacheIdentity Loaded::identity() const {
  return cache_identity(*session, session->model().file_sha256());
}

Result<Loaded> load(const RunArguments& arguments, ProgressBar& progress) {
  const auto started = std::chrono::steady_clock::now();
  guard_mapped_file(arguments.model);
  LoadOptions options;
  options.compute = arguments.compute;
  options.isa = arguments.isa;
  options.threads = arguments.threads;
  options.strict = arguments.strict;
  options.hash_file = needs_hash(arguments);
  options.manifest = arguments.manifest;
  options.progress = std::ref(progress);
  Loaded loaded;
  LLM_TRY(loaded.model, Model::load(arguments.model, options));
  progress.clear();
  for (const std::string& warning : loaded.model->warnings()) spdlog::warn("{}", warning);
  if (arguments.context > loaded.model->config().context) {
    spdlog::warn("-c: found {}, the model was trained for {} positions", arguments.context,
                 loaded.model->config().context);
  }
  LLM_TRY(
      loaded.session,
      open_sequence(loaded.model,
                    {.context = arguments.context, .kv = arguments.kv, .batch = arguments.batch},
                    {.use_cache = !arguments.no_cache}));
  loaded.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  spdlog::info("{}: {}, {} threads, seed {}", loaded.model->name(), isa_name(loaded.model->isa()),
               loaded.model->threads(), arguments.sampler.seed);
  return loaded;
}

}  // namespace llm
