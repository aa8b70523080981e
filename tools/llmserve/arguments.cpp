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
  table.file("m,model", "FILE", &a.model, "the same as MODEL").in_place_of("MODEL");
  add_hub_option(table, &a.hub_model);
  table.file("models", "DIR", &a.models,
             "instead of MODEL: serve all GGUF files in DIR and its subfolders under their names; "
             "each is loaded at the first request for it");
  table.integer("memory", "MIB", &a.memory, 0, 1 << 24,
                "maximum memory of all loaded models together (weights, KV cache, activations). To "
                "stay below it, llmserve unloads the least recently requested model. 0: no limit");
  table
      .texts("a,alias,served-model-name", "NAME,...", &a.aliases,
             "names by which clients may request the model; responses contain the first one")
      .shown_default("the file's name without .gguf");
  add_chat_options(table, &a.chat, fmt::format("{}", fmt::join(ChatStyle::built_in(), ", ")));
  table.choice("pooling", "KIND", &a.pooling,
               {{"auto", std::nullopt}, {"mean", Pooling::kMean}, {"last", Pooling::kLast}},
               "how the embedding of a text is computed; mean: the mean of the embeddings of its "
               "tokens; last: the embedding of its last token; auto: as the model file says, or "
               "last if it says nothing");
  table.flag("strict", &a.strict, "treat warnings about the model file as errors");
  table
      .optional_text(
          "verify-model", "MANIFEST", &a.manifest,
          "serve the model only if it matches a manifest that llmgguf hash -o wrote; without a "
          "value, the manifest MODEL.manifest")
      .file();
  table.file("packed-cache", "DIR", &a.packed_cache,
             "keep the packed weights in a file in DIR and map it into memory: later starts are "
             "faster, and processes share the memory");
  table
      .texts(
          "lora,lora-scaled", "[NAME=]FILE[:SCALE]", &a.lora,
          "load this LoRA adapter; requests that do not choose adapters get it at SCALE times its "
          "strength; may be repeated")
      .file();
  table.flag("lora-init-without-apply", &a.lora_unapplied,
             "requests that do not choose adapters get none");
}

void add_network_options(OptionTable& table, ServeArguments& a) {
  table.group("Network");
  table.text("host", "ADDRESS", &a.host, "address to listen on; 0.0.0.0: all IPv4 addresses")
      .shown_default("127.0.0.1, only this machine");
  table.integer("port", "N", &a.port, 0, 65535,
                "port to listen on; 0: any free port, which is printed");
  table.text("api-key", "KEY", &a.api_key, "clients must send `Authorization: Bearer KEY`")
      .from_env("LLM_API_KEY");
  table.texts("allow-host", "NAME[:PORT]", &a.allow_hosts,
              "also accept requests with this name in the Host header; without PORT: with any "
              "port; may be repeated");
  table.texts("allow-origin", "ORIGIN", &a.allow_origins,
              "allow cross-origin requests (CORS) from this origin (https://NAME, null, or * for "
              "all); may be repeated");
  table.integer("connections", "N", &a.limits.connections, 1, 100000,
                "maximum number of connections; further ones get HTTP status 503");
  table.integer("timeout,to", "SECONDS", &a.timeout, 1, 86400,
                "disconnect clients that take longer to send a request or to read a response");
}

void add_scheduler_options(OptionTable& table, ServeArguments& a) {
  table.group("Requests");
  table.integer("parallel,np,max-num-seqs", "N", &a.scheduler.parallel, 1, 4096,
                "maximum number of requests that run at once; others wait");
  table.integer("queue", "N", &a.scheduler.queue, 1, 1000000,
                "maximum number of waiting requests; further ones get HTTP status 429");
  table.integer("max-tokens", "N", &a.max_tokens, 0, INT32_MAX,
                "maximum number of tokens in a response; 0: as many as fit into the context");
  table.integer(
      "chunk,b,batch-size", "TOKENS", &a.scheduler.step_tokens, 1, 65536,
      "maximum number of tokens in one forward pass; each request that is decoding gets one "
      "token, prompt tokens fill the rest (of long prompts fewer, so that others need not wait)");
  table.choice(
      "speculate", "KIND", &a.speculate,
      {{"auto", SpeculateKind::kAuto},
       {"off", SpeculateKind::kOff},
       {"ngram", SpeculateKind::kNgram},
       {"mtp", SpeculateKind::kMtp}},
      "how speculative decoding proposes tokens; ngram: from n-grams of the prompt and output of "
      "the same request; mtp: with the model's block for multi-token prediction; auto: mtp if the "
      "model has such a block, else off. Never changes a result");
  table.file("draft,model-draft,md", "FILE", &a.draft,
             "use speculative decoding with this draft model, which must have the same vocabulary, "
             "or with Gemma 4's assistant of the model; never changes a result");
  table
      .integer("kv-memory", "MIB", &a.kv_memory, 0, 1 << 24,
               "memory for the KV cache of all requests together. If one full context (-c) does "
               "not fit, -c is reduced; apart from this, never changes a result")
      .shown_default(
          "enough for --parallel full contexts, but not more than 1024 MiB, and never less than "
          "one full context needs");
  table.file("cache-dir", "DIR", &a.cache_dir,
             "keep the KV cache of prompts and responses in files in DIR, so that a later start "
             "can reuse it; servers may share DIR");
  table.integer("cache-size", "GIB", &a.cache_size, 1, 1 << 20,
                "size limit of --cache-dir; the least recently used entries are deleted");
  table.choice(
      "cache-scope", "SCOPE", &a.cache_by_key, {{"shared", false}, {"key", true}},
      "which requests may reuse the KV cache of another request; shared: all requests; key: "
      "requests with the same API key. With shared, the response time tells a client "
      "whether anybody has sent a prompt with the same prefix");
  table
      .integer("c,ctx-size,max-model-len", "N", &a.scheduler.context, 0, INT32_MAX,
               "context size of each request in tokens; 0: from the model file")
      .shown_default("from the model file");
}

}  // namespace

OptionTable make_serve_table(ServeArguments& a) {
  OptionTable table(
      "llmserve", "Serve a model over the OpenAI API; a response never depends on other requests");
  table.positional("MODEL", &a.model, false, "GGUF file").file();
  add_model_options(table, a);
  add_network_options(table, a);
  add_scheduler_options(table, a);
  table.group("Receipts");
  table.file("receipts", "DIR", &a.receipts,
             "append a receipt of every complete output to the log DIR/receipts.jsonl, which "
             "llmcheck --receipt-log and --replay check. Hashing the logits takes time, and "
             "--speculate is disabled");
  table.file(
      "receipt-key", "KEY.pem", &a.receipt_key,
      "sign each line of the log with this key (openssl genpkey -algorithm ed25519 makes one)");
  table.group("Engine");
  table
      .integer("t,threads", "N", &a.threads, 0, 256,
               "number of threads; 0: all CPUs that this process may use")
      .shown_default("the number of CPUs this process may use");
  add_compute_options(table, &a.isa, &a.kv, &a.compute);
  table.group("Messages and help");
  table.page("openapi", Api::description,
             "print the OpenAPI description, the same as /openapi.json");
  table.page("fields", Api::fields, "print a description of every request field, as Markdown");
  table.example("llmserve model.gguf",
                "serve on this machine; open the address in a browser for a chat page");
  table.example(
      "llmserve --models ~/models --memory 16384",
      "serve all models of a folder; they are loaded on demand and kept while they fit in 16 GiB");
  table.example("LLM_API_KEY=secret llmserve model.gguf --host 0.0.0.0 --parallel 32",
                "listen on all interfaces, with an API key");
  return table;
}

}  // namespace llm
