#include "tools/llmload/arguments.h"

#include <utility>

#include "tools/common/compute_options.h"
#include "tools/hub/hub_model.h"

namespace llm {
namespace {

void add_load_options(OptionTable& table, LoadArguments& a) {
  table.group("Load");
  table.real("rate", "R", &a.rate, 1e-3, 1e6, "requests a second in the long run")
      .shown_default("--load");
  table.real("load", "PERCENT", &a.load, 1, 1000,
             "rate as a share of the one at which all that are there at once are served");
  table.choice("arrivals", "KIND", &a.arrivals,
               {{"poisson", Arrivals::kPoisson}, {"burst", Arrivals::kBurst}},
               "one by one, or --burst at a moment; gaps are exponential");
  table.integer("burst", "N", &a.burst, 1, 1000000, "requests of a burst");
  table.integer("requests", "N", &a.requests, 1, kMostRequests, "requests in all");
  table
      .real("duration", "SECONDS", &a.duration, 1e-3, 86400,
            "send what arrives in SECONDS, instead of --requests")
      .shown_default("--requests");
  table.text("lengths", "CLASSES", &a.lengths,
             "classes of requests, WEIGHT:PROMPT:OUTPUT with lengths as N or LOWEST-HIGHEST");
  table.integer("s,seed", "N", &a.seed, 0, INT64_MAX, "seed of arrivals, lengths, prompts, draws");
  add_sampler_option(table, kSamplerFields[0], a.sampling);

  table.group("Scheduler");
  table.integer("parallel", "N", &a.scheduler.parallel, 1, 4096,
                "most requests that run at once; others wait");
  table.integer("chunk", "TOKENS", &a.scheduler.step_tokens, 1, 65536,
                "most tokens of a step; decoding requests come first, prompts fill the rest");
  table.integer("kv-pages", "N", &a.scheduler.kv_pages, 0, 1 << 24,
                "pages of 256 positions that all requests share; 0: enough for all that run");
  table.integer("queue", "N", &a.scheduler.queue, 1, 1000000,
                "most requests that wait; more are refused");
}

void add_run_options(OptionTable& table, LoadArguments& a) {
  table.group("Run");
  table.choice(
      "mode", "MODE", &a.mode,
      {{"real", LoadMode::kReal}, {"simulate", LoadMode::kSimulate}, {"both", LoadMode::kBoth}},
      "run the model, or only count time by step costs, or compare the two");
  table
      .integer("rounds", "N", &a.rounds, 1, 1000,
               "training loads and real runs, in turn; figures are medians over the rounds")
      .shown_default("5; 1 with --mode real");
  table.integer("training", "N", &a.training, 10, kMostRequests,
                "requests of a training load, which has other seeds than what is compared");
  table.real("agree", "PERCENT", &a.agree, 0, 1000,
             "most by which a simulated figure may differ from the real one");
  table.flag("check", &a.check,
             "make every text again, alone: tokens and logits must be the same bits");
  table.flag("json", &a.json, "print JSON");

  table.group("Engine");
  table.integer("t,threads", "N", &a.threads, 0, 1024, "threads; 0 for all")
      .shown_default("CPUs this process may use");
  add_compute_options(table, &a.isa, &a.kv, &a.compute);
}

}  // namespace

OptionTable make_load_table(LoadArguments& a) {
  OptionTable table("llmload",
                    "Send many requests at a model, or simulate it, and show how long they wait");
  table.positional("MODEL", &a.model, true, "GGUF file").file();
  add_hub_option(table, &a.hub_model);
  add_load_options(table, a);
  add_run_options(table, a);
  table.example("llmload model.gguf --requests 200",
                "half load, run and simulated, and whether both agree");
  table.example("llmload model.gguf --arrivals burst --rate 20 --mode simulate",
                "what bursts of 8 would meet");
  table.example("llmload model.gguf --kv-pages 8 --mode real --check",
                "run short of pages; every text must still be the one made alone");
  return table;
}

Status check_load_arguments(const LoadArguments& a, const OptionTable& table) {
  if (table.given("rate") && table.given("load"))
    return usage_error("--load", "found with --rate, need one of them");
  if (table.given("requests") && table.given("duration"))
    return usage_error("--duration", "found with --requests, need one of them");
  if (a.check && a.mode == LoadMode::kSimulate)
    return usage_error("--check", "found with --mode simulate, which makes no text");
  if (a.scheduler.step_tokens < a.scheduler.parallel)
    return usage_error("--chunk", "found " + std::to_string(a.scheduler.step_tokens) +
                                      ", need --parallel (" + std::to_string(a.scheduler.parallel) +
                                      ") or more");
  return Ok{};
}

}  // namespace llm
