// llmserve: models behind OpenAI's API.

#include <fmt/core.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/common/signals.h"
#include "tools/common/tool.h"
#include "tools/hub/hub_model.h"
#include "tools/llmserve/access_control.h"
#include "tools/llmserve/api.h"
#include "tools/llmserve/api/receipt_log_file.h"
#include "tools/llmserve/arguments.h"
#include "tools/llmserve/http/http_server.h"
#include "tools/llmserve/model_loader.h"
#include "tools/llmserve/models/model_folder.h"
#include "tools/llmserve/models/model_manager.h"

namespace llm {
namespace {

/// The models to serve: one, or those of a folder.
Result<std::vector<ModelManager::Model>> models_of(ServeArguments& a, const ToolContext& context) {
  const std::string& one = a.hub_model.empty() ? a.model : a.hub_model;
  if (one.empty() == a.models.empty()) {
    return usage_error("--models", fmt::format("found {}, need MODEL or --models, one of them",
                                               one.empty() ? "neither" : one + " as well"));
  }
  LLM_RETURN_IF_ERROR(fetch_hub_model(a.hub_model, context, a.model));
  if (a.models.empty()) return std::vector{one_model(a.model, a.aliases)};
  if (!a.aliases.empty())
    return usage_error("--alias", "found it with --models, need names of files there");
  if (a.manifest && !a.manifest->empty())
    return usage_error("--verify-model",
                       "found a manifest with --models, need none: each model's own");
  return find_models(a.models);
}

/// What --lora says, under names of their own; the models get a name with each.
Status read_adapters(ServeArguments& a, std::vector<ModelManager::Model>& models) {
  for (const auto& [option, given] :
       {std::pair("--models", !a.models.empty()), std::pair("--receipts", !a.receipts.empty())}) {
    if (given && !a.lora.empty())
      return usage_error("--lora", fmt::format("found with {}, need one of them", option));
  }
  for (const std::string& text : a.lora) {
    LLM_TRY(const AdapterOption adapter, AdapterOption::parse_named(text));
    if (std::ranges::find(a.adapters, adapter.name, &AdapterOption::name) != a.adapters.end())
      return usage_error(
          "--lora", fmt::format("found the name \"{}\" twice, need unlike ones", adapter.name));
    a.adapters.push_back(adapter);
  }
  for (ModelManager::Model& model : models) {
    const std::size_t n = model.ids.size();
    for (const AdapterOption& adapter : a.adapters)
      for (std::size_t i = 0; i < n; ++i)
        model.ids.push_back(fmt::format("{}:{}", model.ids[i], adapter.name));
  }
  return Ok{};
}

/// The log of --receipts, or null.
Result<std::unique_ptr<ReceiptLogFile>> open_receipts(const ServeArguments& a) {
  constexpr std::size_t kMostKeyBytes = 1 << 16;
  if (a.receipts.empty()) {
    if (!a.receipt_key.empty())
      return usage_error("--receipt-key", "found without --receipts, need a folder");
    return std::unique_ptr<ReceiptLogFile>();
  }
  std::optional<SigningKey> key;
  if (!a.receipt_key.empty()) {
    LLM_TRY(key, parse_file(a.receipt_key, kMostKeyBytes, SigningKey::parse));
  }
  return ReceiptLogFile::open(a.receipts, std::move(key));
}

/// The files of --cache-dir, or null.
Result<std::shared_ptr<StateStore>> open_store(const ServeArguments& a, bool sized) {
  if (a.cache_dir.empty()) {
    if (sized) return usage_error("--cache-size", "found without --cache-dir, need a folder");
    return std::shared_ptr<StateStore>();
  }
  return StateStore::open(
      {.directory = a.cache_dir,
       .most_bytes = std::uint64_t{a.cache_size} << 30,
       .notice = [](const std::string& what) { spdlog::warn("--cache-dir: {}", what); }});
}

void warn_of_no_key(const ServeArguments& a, const HttpServer& server, bool given) {
  if (!a.api_key.empty()) return;
  if (server.is_public()) {
    spdlog::warn(
        "--host: found {}, which other machines can reach, and no key is needed; need --api-key or "
        "LLM_API_KEY",
        a.host);
  } else if (given) {
    spdlog::warn("--api-key: found an empty key, so no key is needed");
  }
}

/// Serves until a signal has drained it.
/// @param server  outlives texts under way, which post to it
/// @param receipts  may be null
Result<int> serve(ModelManager& manager, AccessControl gate, HttpServer& server,
                  ReceiptLogFile* receipts, bool cache_by_key) {
  Api api(manager, std::move(gate), receipts, cache_by_key);
  LLM_RETURN_IF_ERROR(api.start());
  const auto log = [](const std::string& line) { spdlog::info("{}", line); };
  const auto fault = [](const std::string& what) { spdlog::error("internal error: {}", what); };
  LLM_RETURN_IF_ERROR(server.listen(api.handlers(log, fault)));
  api.attach(server);
  LLM_RETURN_IF_ERROR(write_stdout(server.url() + "\n"));
  const GracefulInterrupt graceful;
  server.run([&] {
    manager.proceed();
    if (!GracefulInterrupt::requested()) return;
    api.drain();
    server.drain();
  });
  return 0;
}

Result<int> run(ServeArguments& a, const ToolContext& context) {
  // The access log is what a server has to say; -q is still silent.
  if (context.verbosity == 0) spdlog::set_level(spdlog::level::info);
  a.limits.patience = std::chrono::seconds(a.timeout);
  outlive_mapped_files();
  const SchedulerOptions& scheduler = a.scheduler;
  if (scheduler.step_tokens < scheduler.parallel) {
    return usage_error("--chunk", fmt::format("found {}, need --parallel ({}) or more",
                                              scheduler.step_tokens, scheduler.parallel));
  }
  LLM_TRY(auto models, models_of(a, context));
  LLM_RETURN_IF_ERROR(read_adapters(a, models));
  LLM_TRY(AccessControl gate, AccessControl::create({.api_key = a.api_key,
                                                     .host = a.host,
                                                     .hosts = a.allow_hosts,
                                                     .origins = a.allow_origins}));
  LLM_TRY(const auto server, HttpServer::open(a.host, a.port, a.limits));
  warn_of_no_key(a, *server, context.options.given("api-key"));
  const bool is_one = a.models.empty();
  // A bar of progress would stand among the requests.
  const bool quiet = context.quiet() || !is_one;
  LLM_TRY(const auto store, open_store(a, context.options.given("cache-size")));
  ModelManager manager(
      std::move(models),
      [&](const ModelManager::Model& model) { return plan_model(a, model, quiet, store); },
      {.bytes = a.memory > 0 ? a.memory << 20 : UINT64_MAX,
       .waiting = scheduler.parallel + scheduler.queue,
       .patience = a.limits.patience});
  LLM_TRY(const auto receipts, open_receipts(a));
  if (is_one) LLM_RETURN_IF_ERROR(manager.load_first());
  return serve(manager, std::move(gate), *server, receipts.get(), a.cache_by_key);
}

}  // namespace
}  // namespace llm

int main(int argc, char** argv) {
  return llm::run_tool(argc, argv, llm::make_serve_table, llm::run);
}
