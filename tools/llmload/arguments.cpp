#include "tools/llmload/arguments.h"

#include <utility>

#include "tools/common/compute_options.h"
#include "tools/hub/hub_model.h"

namespace llm {
namespace {

void add_load_options(OptionTable& table, LoadArguments& a) {
  table.group("Load");
  table.real("rate", "R", &a.rate, 1e-3, 1e6, "average number of requests per second")
      .shown_default("set by --load");
  table.real("load", "PERCENT", &a.load, 1, 1000,
             "average request rate in percent of the maximum throughput, which llmload measures "
             "first with 200 simultaneous requests");
  table.choice("arrivals", "KIND", &a.arrivals,
               {{"poisson", Arrivals::kPoisson}, {"burst", Arrivals::kBurst}},
               "how requests arrive; poisson: one at a time; burst: --burst requests at the same "
               "time. The times between arrivals are exponentially distributed");
  table.integer("burst", "N", &a.burst, 1, 1000000, "number of requests in a burst");
  table.integer("requests", "N", &a.requests, 1, kMostRequests, "total number of requests");
  table
      .real("duration", "SECONDS", &a.duration, 1e-3, 86400,
            "send requests for SECONDS, instead of a fixed number")
      .shown_default("set by --requests");
  table.text("lengths", "CLASSES", &a.lengths,
             "classes of requests, separated by commas, each as WEIGHT:PROMPT:OUTPUT. WEIGHT: "
             "relative frequency; PROMPT and OUTPUT: length in tokens, as N or LOWEST-HIGHEST");
  table.integer("s,seed", "N", &a.seed, 0, INT64_MAX,
                "seed for arrivals, lengths, prompts and sampling");
  add_sampler_option(table, kSamplerFields[0], a.sampling);

  table.group("Scheduler");
  table.integer("parallel", "N", &a.scheduler.parallel, 1, 4096,
                "maximum number of requests that run at once; others wait");
  table.integer(
      "chunk", "TOKENS", &a.scheduler.step_tokens, 1, 65536,
      "maximum number of tokens in one forward pass; each request that is decoding gets one "
      "token, prompt tokens fill the rest");
  table.integer("kv-pages", "N", &a.scheduler.kv_pages, 0, 1 << 24,
                "number of KV cache pages (256 positions each) for all requests; 0: enough for "
                "--parallel requests");
  table.integer("queue", "N", &a.scheduler.queue, 1, 1000000,
                "maximum number of waiting requests; further ones are refused");
}

void add_run_options(OptionTable& table, LoadArguments& a) {
  table.group("Run");
  table.choice(
      "mode", "MODE", &a.mode,
      {{"real", LoadMode::kReal}, {"simulate", LoadMode::kSimulate}, {"both", LoadMode::kBoth}},
      "real: run the model; simulate: predict the times with a cost model; both: do both and "
      "compare");
  table
      .integer("rounds", "N", &a.rounds, 1, 1000,
               "number of rounds; each round has one run to fit the cost model and one run that is "
               "compared with the simulation. Results are medians over the rounds")
      .shown_default("5; 1 with --mode real");
  table.integer("training", "N", &a.training, 10, kMostRequests,
                "number of requests in a run that fits the cost model; such a run has a different "
                "seed from the compared run");
  table.real("agree", "PERCENT", &a.agree, 0, 1000,
             "with --mode both: exit code 1 if a simulated result differs from the measured one by "
             "more than PERCENT. Only results that the report marks with * count (docs/load.md)");
  table.flag(
      "check", &a.check,
      "afterwards, run every request again by itself; tokens and logits must be bit-identical");
  table.flag("json", &a.json, "print JSON");

  table.group("Engine");
  table
      .integer("t,threads", "N", &a.threads, 0, 1024,
               "number of threads; 0: all CPUs that this process may use")
      .shown_default("the number of CPUs this process may use");
  add_compute_options(table, &a.isa, &a.kv, &a.compute);
}

}  // namespace

OptionTable make_load_table(LoadArguments& a) {
  OptionTable table("llmload",
                    "Run or simulate many requests to a model, and report their latencies");
  table.positional("MODEL", &a.model, true, "GGUF file").file();
  table.group("Model");
  add_hub_option(table, &a.hub_model);
  add_load_options(table, a);
  add_run_options(table, a);
  table.example("llmload model.gguf --requests 200",
                "run and simulate 200 requests at 50 % load, and compare");
  table.example("llmload model.gguf --arrivals burst --rate 20 --mode simulate",
                "simulate the latencies with bursts of 8 requests");
  table.example(
      "llmload model.gguf --kv-pages 8 --mode real --check",
      "run with too few KV cache pages for all requests, and check that the outputs do not change");
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
