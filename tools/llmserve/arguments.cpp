#include "tools/llmserve/arguments.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "engine/generation/chat_style.h"
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
             "instead of MODEL: serve all GGUF files in DIR and its subfolders by their names; "
             "each is loaded by the first request for it");
  table.integer("memory", "MIB", &a.memory, 0, 1 << 24,
                "most memory of loaded models (weights, KV cache, activations); the least recently "
                "requested one is unloaded; 0: no limit");
  table
      .texts("a,alias,served-model-name", "NAME,...", &a.aliases,
             "names of the model for clients; answers use the first")
      .shown_default("the file's name without .gguf");
  add_chat_options(table, &a.chat, fmt::format("{}", fmt::join(ChatStyle::built_in(), ", ")));
  table.choice("pooling", "KIND", &a.pooling,
               {{"auto", std::nullopt}, {"mean", Pooling::kMean}, {"last", Pooling::kLast}},
               "embedding of a text: the mean of its tokens' rows, or the last row; auto: as the "
               "file says, else the last");
  table.flag("strict", &a.strict, "refuse a model file that gives a warning");
  table
      .optional_text("verify-model", "MANIFEST", &a.manifest,
                     "serve the model only if it matches a manifest of llmgguf hash -o")
      .file()
      .shown_default("the model's path and .manifest");
  table.file("packed-cache", "DIR", &a.packed_cache,
             "keep the packed weights in DIR and map them from there: a later start is faster, and "
             "processes share them");
}

void add_network_options(OptionTable& table, ServeArguments& a) {
  table.group("Network");
  table.text("host", "ADDRESS", &a.host, "address to listen on; 0.0.0.0: all IPv4 addresses")
      .shown_default("127.0.0.1, only this machine");
  table.integer("port", "N", &a.port, 0, 65535, "port to listen on; 0: any free one, printed");
  table.text("api-key", "KEY", &a.api_key, "clients must send `Authorization: Bearer KEY`")
      .from_env("LLM_API_KEY");
  table.texts("allow-host", "NAME[:PORT]", &a.allow_hosts,
              "also answer requests with this name in Host, with any port or only this one; may be "
              "repeated");
  table.texts("allow-origin", "ORIGIN", &a.allow_origins,
              "answer pages of this site (https://NAME, null, or * for all); may be repeated");
  table.integer("connections", "N", &a.limits.connections, 1, 100000,
                "most connections; more get 503");
  table.integer("timeout,to", "SECONDS", &a.timeout, 1, 86400,
                "disconnect clients that take longer to send a request or to read an answer");
}

void add_scheduler_options(OptionTable& table, ServeArguments& a) {
  table.group("Requests");
  table.integer("parallel,np,max-num-seqs", "N", &a.scheduler.parallel, 1, 4096,
                "most requests that run at once; others wait");
  table.integer("queue", "N", &a.scheduler.queue, 1, 1000000,
                "most requests that wait; more get 429");
  table.integer("max-tokens", "N", &a.max_tokens, 0, INT32_MAX,
                "most tokens of an answer; 0: as many as the context holds");
  table.integer("chunk,b,batch-size", "TOKENS", &a.scheduler.step_tokens, 1, 65536,
                "most tokens of a step; decoding requests come first, prompts fill the rest");
  table.choice("speculate", "KIND", &a.speculate,
               {{"auto", SpeculateKind::kAuto},
                {"off", SpeculateKind::kOff},
                {"ngram", SpeculateKind::kNgram},
                {"mtp", SpeculateKind::kMtp}},
               "guess tokens of each request and check several in one step: from its text so far "
               "(ngram), by the model's own block for further tokens (mtp), by that where it has "
               "one (auto); never changes a result");
  table.file("draft,model-draft,md", "FILE", &a.draft,
             "guess them with this smaller model of the same vocabulary; never changes a result");
  table
      .integer("kv-memory", "MIB", &a.kv_memory, 0, 1 << 24,
               "memory of the KV cache for all requests; never changes a result, but limits the "
               "context to what it can hold")
      .shown_default("1024, or one full context if that is more, or less if --parallel needs less");
  table.file("cache-dir", "DIR", &a.cache_dir,
             "keep the KV cache of prompts and answers in DIR, so that a later start can reuse it; "
             "several servers may share it");
  table.integer("cache-size", "GIB", &a.cache_size, 1, 1 << 20,
                "size limit of --cache-dir; the least recently used entries are deleted");
  table.choice("cache-scope", "SCOPE", &a.cache_by_key, {{"shared", false}, {"key", true}},
               "which requests may reuse what a request has computed: all (response times can "
               "reveal it), or only those with the same API key");
  table
      .integer("c,ctx-size,max-model-len", "N", &a.scheduler.context, 0, INT32_MAX,
               "positions of context of each request")
      .shown_default("the model's");
}

}  // namespace

OptionTable make_serve_table(ServeArguments& a) {
  OptionTable table("llmserve", "Serve a model by OpenAI's API; the load never changes an answer");
  table.positional("MODEL", &a.model, false, "GGUF file").file();
  add_model_options(table, a);
  add_network_options(table, a);
  add_scheduler_options(table, a);
  table.group("Receipts");
  table.file(
      "receipts", "DIR", &a.receipts,
      "append a receipt of every complete output to the log DIR/receipts.jsonl, for llmcheck "
      "--receipt-log and --replay; hashes each row of logits and turns --speculate off");
  table.file("receipt-key", "KEY.pem", &a.receipt_key,
             "sign each line of the log with this key (openssl genpkey -algorithm ed25519)");
  table.group("Engine");
  table.integer("t,threads", "N", &a.threads, 0, 256, "threads")
      .shown_default("CPUs this process may use");
  add_compute_options(table, &a.isa, &a.kv, &a.compute);
  table.page("openapi", Api::description,
             "print the description of the API, the same as /openapi.json");
  table.page("fields", Api::fields, "print what every field of requests does, as Markdown");
  table.example("llmserve model.gguf", "serve this machine; its address shows a chat page");
  table.example("llmserve --models ~/models --memory 16384",
                "serve all models of a folder; as many as fit are loaded at once");
  table.example("LLM_API_KEY=secret llmserve model.gguf --host 0.0.0.0 --parallel 32",
                "serve other machines, with a key");
  return table;
}

}  // namespace llm
