#include "tools/llmserve/arguments.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "engine/generate/chat_style.h"
#include "tools/common/compute_options.h"
#include "tools/hub/hub_model.h"
#include "tools/llmserve/api.h"

namespace llm {
namespace {

void add_model_options(OptionTable& table, ServeArguments& a) {
  table.group("Model");
  table.file("m,model", "FILE", &a.model, "MODEL as an option").in_place_of("MODEL");
  add_hub_option(table, &a.hub_model);
  table.file("models", "DIR", &a.models,
             "in place of MODEL: serve all GGUF files of DIR, and of the folders in it, by their "
             "names; each is loaded when it is asked for");
  table.integer("memory", "MIB", &a.memory, 0, 1 << 24,
                "most memory that loaded models take (weights, keys and values, activations); the "
                "one that was asked for the longest ago gives way; 0: no limit");
  table
      .texts("a,alias,served-model-name", "NAME,...", &a.aliases,
             "what clients may call the model; the first is its name in answers")
      .shown_default("the file's name without .gguf");
  add_chat_options(table, &a.chat, fmt::format("{}", fmt::join(ChatStyle::built_in(), ", ")));
  table.choice(
      "pooling", "KIND", &a.pooling,
      {{"auto", std::nullopt}, {"mean", Pooling::kMean}, {"last", Pooling::kLast}},
      "what becomes the embedding of a text: the mean of its tokens' rows, or the last one; "
      "auto: as the file says, else the last");
  table.flag("strict", &a.strict, "refuse a model file that gives a warning");
  table
      .optional_text("verify-model", "MANIFEST", &a.manifest,
                     "serve nothing but the bytes that a manifest of llmgguf hash -o promises")
      .file()
      .shown_default("the model's path and .manifest");
  table.file("packed-cache", "DIR", &a.packed_cache,
             "keep the packed weights in DIR and map them from there: a later start is faster, and "
             "processes share them");
}

void add_network_options(OptionTable& table, ServeArguments& a) {
  table.group("Network");
  table.text("host", "ADDRESS", &a.host, "address to listen on; 0.0.0.0 is all of IPv4")
      .shown_default("127.0.0.1, this machine alone");
  table.integer("port", "N", &a.port, 0, 65535, "port to listen on; 0: any free one, printed");
  table.text("api-key", "KEY", &a.api_key, "ask clients for `Authorization: Bearer KEY`")
      .from_env("LLM_API_KEY");
  table.texts("allow-host", "NAME[:PORT]", &a.allow_hosts,
              "answer requests to this name (Host) as well, with any port or this one; may be "
              "given again");
  table.texts("allow-origin", "ORIGIN", &a.allow_origins,
              "answer pages of this site (https://NAME, null, or * for all); may be given again");
  table.integer("connections", "N", &a.limits.connections, 1, 100000,
                "most connections; further ones are answered with 503");
  table.integer("timeout,to", "SECONDS", &a.timeout, 1, 86400,
                "disconnect who sends a request, or takes what is sent, more slowly");
}

void add_scheduler_options(OptionTable& table, ServeArguments& a) {
  table.group("Requests");
  table.integer("parallel,np,max-num-seqs", "N", &a.scheduler.parallel, 1, 4096,
                "most texts that are generated at once; others wait");
  table.integer("queue", "N", &a.scheduler.queue, 1, 1000000,
                "most texts that wait; more are refused with 429");
  table.integer("max-tokens", "N", &a.max_tokens, 0, INT32_MAX,
                "most tokens of an answer; 0: what the context holds");
  table.integer("chunk,b,batch-size", "TOKENS", &a.scheduler.step_tokens, 1, 65536,
                "most tokens of a step; what decoding leaves goes to prompts");
  table.choice("speculate", "KIND", &a.speculate, {{"off", false}, {"ngram", true}},
               "guess tokens from what stands in each text already and check several in one step; "
               "never changes a result");
  table
      .integer(
          "kv-memory", "MIB", &a.kv_memory, 0, 1 << 24,
          "memory for keys and values of all texts; never changes a result, but cuts a context "
          "that it cannot hold")
      .shown_default(
          "1024, or one full context if that is more, or less where --parallel needs less");
  table.file(
      "cache-dir", "DIR", &a.cache_dir,
      "keep keys and values of prompts and answers in DIR, so that a later start goes on from "
      "them; several servers may share it");
  table.integer("cache-size", "GIB", &a.cache_size, 1, 1 << 20,
                "most that --cache-dir holds; what was used the longest ago is deleted");
  table.choice("cache-scope", "SCOPE", &a.cache_by_key, {{"shared", false}, {"key", true}},
               "whose requests may reuse what a request has computed: everybody's, which its time "
               "tells, or those with the same API key");
  table
      .integer("c,ctx-size,max-model-len", "N", &a.scheduler.context, 0, INT32_MAX,
               "positions of context of each text")
      .shown_default("the model's");
}

}  // namespace

OptionTable make_serve_table(ServeArguments& a) {
  OptionTable table("llmserve", "Serve a model by OpenAI's API, with bits that load never changes");
  table.positional("MODEL", &a.model, false, "GGUF file").file();
  add_model_options(table, a);
  add_network_options(table, a);
  add_scheduler_options(table, a);
  table.group("Receipts");
  table.file(
      "receipts", "DIR", &a.receipts,
      "append a receipt of every text that is generated to its end to the log "
      "DIR/receipts.jsonl, for llmcheck --receipt-log and --replay; costs a hash of each row "
      "of "
      "logits, and --speculate");
  table.file("receipt-key", "KEY.pem", &a.receipt_key,
             "sign each line of the log with this key (openssl genpkey -algorithm ed25519)");
  table.group("Engine");
  table.integer("t,threads", "N", &a.threads, 0, 256, "threads")
      .shown_default("CPUs this process may use");
  add_compute_options(table, &a.isa, &a.kv, &a.compute);
  table.page("openapi", Api::description, "print the API's description, as /openapi.json gives it");
  table.page("fields", Api::fields, "print what fields of requests do, a page in Markdown");
  table.example("llmserve model.gguf", "serve this machine; a page to chat with is at its address");
  table.example("llmserve --models ~/models --memory 16384",
                "serve all models of a folder, as many at once as fit");
  table.example("LLM_API_KEY=secret llmserve model.gguf --host 0.0.0.0 --parallel 32",
                "serve others, who need the key");
  return table;
}

}  // namespace llm
