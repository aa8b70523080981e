// llmserve: a model behind OpenAI's API.

#include <fmt/core.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "engine/generate/ngram_proposer.h"
#include "engine/serve/text_service.h"
#include "tools/common/progress.h"
#include "tools/common/signals.h"
#include "tools/common/tool.h"
#include "tools/llmserve/api.h"
#include "tools/llmserve/arguments.h"
#include "tools/llmserve/gate.h"
#include "tools/llmserve/http_server.h"
#include "tools/llmserve/served_model.h"

namespace llm {
namespace {

constexpr std::size_t kMebibyte = 1 << 20;
constexpr std::size_t kUsualKvMemory = 1024;  // MiB

Result<std::shared_ptr<const Model>> load_model(const ServeArguments& a,
                                                const ToolContext& context) {
  guard_mapped_file(a.model);
  ProgressBar bar(!context.quiet());
  LoadOptions options{.compute = a.compute, .isa = a.isa, .threads = a.threads, .strict = a.strict};
  options.hash_file = true;
  options.manifest = a.manifest;
  options.packed_cache = a.packed_cache;
  options.progress = std::ref(bar);
  LLM_TRY(auto model, Model::load(a.model, options));
  bar.clear();
  if (!model->packed_cache().empty()) guard_mapped_file(model->packed_cache());
  for (const std::string& warning : model->warnings()) spdlog::warn("{}", warning);
  return model;
}

/// Fills in what depends on the model: context and pages.
Status complete(ServeArguments& a, const Model& model) {
  SchedulerOptions& scheduler = a.scheduler;
  const std::size_t trained = model.config().context;
  if (scheduler.context == 0) scheduler.context = trained;
  if (scheduler.context > trained) {
    spdlog::warn("-c: found {}, the model was trained for {} positions", scheduler.context,
                 trained);
  }
  if (scheduler.step_tokens < scheduler.parallel) {
    return usage_error("--chunk", fmt::format("found {}, need --parallel ({}) or more",
                                              scheduler.step_tokens, scheduler.parallel));
  }
  LLM_TRY(const auto page, KvPool::create(model.config(), 1, a.kv));
  scheduler.kv_groups = page->groups();
  const std::size_t full = Scheduler::pages_for(scheduler, scheduler.context);
  const std::size_t given = a.kv_memory * kMebibyte / page->page_bytes();
  const std::size_t least = Scheduler::pages_for(scheduler, 1);
  if (a.kv_memory > 0 && given < least) {
    return usage_error(
        "--kv-memory",
        fmt::format("found {} MiB, need {} of {} bytes or more", a.kv_memory,
                    least == 1 ? "one page" : fmt::format("{} pages", least), page->page_bytes()));
  }
  const std::size_t usual = std::max(
      full, std::min(kUsualKvMemory * kMebibyte / page->page_bytes(), full * scheduler.parallel));
  scheduler.kv_pages = a.kv_memory > 0 ? given : usual;
  if (scheduler.kv_pages < full) {
    std::size_t held = KvPool::kPagePositions;
    while (Scheduler::pages_for(scheduler, held + 1) <= scheduler.kv_pages)
      held += KvPool::kPagePositions;
    spdlog::warn("--kv-memory: found {} MiB, which hold {} of {} positions; that is the context",
                 a.kv_memory, held, scheduler.context);
    scheduler.context = held;
  }
  return Ok{};
}

/// What clients may call the model, its name first.
std::vector<std::string> names_of(const ServeArguments& a) {
  std::vector<std::string> names;
  for (const std::string& list : a.aliases) {
    for (std::size_t begin = 0; begin <= list.size();) {
      const std::size_t end = std::min(list.find(',', begin), list.size());
      if (end > begin) names.push_back(list.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  if (names.empty()) names.push_back(std::filesystem::path(a.model).stem().string());
  return names;
}

/// The template of conversations; null where the file has none that is understood.
Result<std::shared_ptr<const ChatStyle>> chat_style(const ServeArguments& a, const Model& model,
                                                    const ToolContext& context) {
  const bool is_auto = a.chat.chat_template == "auto";
  if (is_auto && model.chat_template().empty()) return std::shared_ptr<const ChatStyle>();
  auto style = ChatStyle::choose(a.chat.chat_template, model.chat_template(), model.tokenizer());
  if (!style.ok() && is_auto) {
    spdlog::warn("{}; there is no chat", style.error().to_string());
    return std::shared_ptr<const ChatStyle>();
  }
  if (!style.ok()) return style.error();
  LLM_TRY(const auto date, chat_date(a.chat, (*style)->needs_date(), "llmserve", context.quiet()));
  if (date) (*style)->set_date(*date);
  return std::shared_ptr<const ChatStyle>(*style);
}

ServedModel serve_model(const ServeArguments& a, std::shared_ptr<const Model> model,
                        std::shared_ptr<const ChatStyle> style) {
  ServedModel served;
  served.style = std::move(style);
  for (const std::string& name : names_of(a))  // JSON has names in UTF-8 only
    append_valid_utf8(name, served.ids.emplace_back());
  if (served.style) {
    served.reply_format = reply_format_of(*served.style, model->tokenizer());
    served.reply_shows_special = has_control_tokens(served.reply_format, model->tokenizer());
  }
  served.pooling = a.pooling;
  served.kv = a.kv;
  served.context = a.scheduler.context;
  served.most_new_tokens = a.max_tokens > 0 ? a.max_tokens : a.scheduler.context;
  served.most_texts = a.scheduler.parallel + a.scheduler.queue;
  served.loaded_at = std::time(nullptr);
  served.grammars = std::make_shared<GrammarCompiler>(model->tokenizer());
  served.model = std::move(model);
  return served;
}

void warn_of_no_key(const ServeArguments& a, const HttpServer& server, bool given) {
  if (!a.api_key.empty()) return;
  if (server.is_public()) {
    spdlog::warn(
        "--host: found {}, which other machines reach, and nobody is asked for a key; "
        "need --api-key or LLM_API_KEY",
        a.host);
  } else if (given) {
    spdlog::warn("--api-key: found an empty key, so nobody is asked for one");
  }
}

/// Serves until a signal has drained it.
/// @param server  outlives texts under way, which post to it
Result<int> serve(const ServeArguments& a, const ServedModel& served,
                  std::shared_ptr<Executor> executor, Gate gate, HttpServer& server) {
  TextService::Speculate speculate;
  if (a.speculate)
    speculate = [] { return std::make_unique<Speculation>(std::make_unique<NgramProposer>()); };
  LLM_TRY(const auto service,
          TextService::start(std::move(executor), a.scheduler, std::move(speculate)));
  Api api(served, *service, std::move(gate));
  const auto log = [](const std::string& line) { spdlog::info("{}", line); };
  const auto fault = [](const std::string& what) { spdlog::error("found a fault: {}", what); };
  LLM_RETURN_IF_ERROR(server.listen(api.handlers(log, fault)));
  api.attach(server);
  LLM_RETURN_IF_ERROR(write_stdout(server.url() + "\n"));
  const GracefulInterrupt graceful;
  server.run([&] {
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
  LLM_TRY(Gate gate, Gate::create({.api_key = a.api_key,
                                   .host = a.host,
                                   .hosts = a.allow_hosts,
                                   .origins = a.allow_origins}));
  LLM_TRY(const auto server, HttpServer::open(a.host, a.port, a.limits));
  warn_of_no_key(a, *server, context.options.given("api-key"));
  LLM_TRY(auto model, load_model(a, context));
  LLM_RETURN_IF_ERROR(complete(a, *model));
  LLM_TRY(auto style, chat_style(a, *model, context));
  const SchedulerOptions& scheduler = a.scheduler;
  // A step is one pass.
  LLM_TRY(auto executor,
          Executor::create(model, {.context = std::max(scheduler.context, scheduler.step_tokens),
                                   .kv = a.kv,
                                   .batch = scheduler.step_tokens,
                                   .kv_pages = scheduler.kv_pages}));
  const ServedModel served = serve_model(a, std::move(model), std::move(style));
  spdlog::info("{}: {}, {}, {} threads, {} KV pages", served.id(), system_fingerprint(served),
               isa_name(served.model->isa()), served.model->threads(), scheduler.kv_pages);
  return serve(a, served, std::move(executor), std::move(gate), *server);
}

}  // namespace
}  // namespace llm

int main(int argc, char** argv) {
  std::optional<llm::ServeArguments> arguments;  // strings need memory, which may be refused
  return llm::run_tool(
      argc, argv, [&] { return llm::make_serve_table(arguments.emplace()); },
      [&](const llm::ToolContext& context) { return llm::run(*arguments, context); });
}
