#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/batching/scheduler.h"
#include "engine/engine.h"
#include "engine/generation/embedding.h"
#include "engine/generation/speculation.h"
#include "tools/common/adapter_option.h"
#include "tools/common/chat_date.h"
#include "tools/common/options.h"
#include "tools/llmserve/http/http_server.h"

namespace llm {

/// llmserve's command line, with its defaults.
struct ServeArguments {
  std::string model;                 ///< empty: models
  std::string models;                ///< a folder
  std::size_t memory = 0;            ///< MiB of all loaded models; 0: without bound
  std::string hub_model;             ///< of the Hugging Face hub; empty: model, or models
  std::vector<std::string> aliases;  ///< each a name, or several with commas
  ChatOptions chat;
  bool strict = false;
  std::optional<std::string> manifest;
  std::string packed_cache;
  std::vector<std::string> lora;        ///< as typed
  std::vector<AdapterOption> adapters;  ///< what it says
  bool lora_unapplied = false;          ///< requests that ask for none have none
  std::optional<Pooling> pooling;       ///< of embeddings; none: as the file says

  std::string host = "127.0.0.1";
  std::uint16_t port = 8080;
  std::string api_key;
  std::vector<std::string> allow_hosts;
  std::vector<std::string> allow_origins;
  HttpLimits limits;
  std::int64_t timeout = 30;  ///< seconds

  SchedulerOptions scheduler;   ///< kv_pages from kv_memory, context 0: the model's
  std::size_t kv_memory = 0;    ///< MiB; 0: by usual_kv_pages()
  std::size_t max_tokens = 0;   ///< of an answer; 0: the context
  std::string cache_dir;        ///< empty: nothing is kept on disk
  std::size_t cache_size = 32;  ///< GiB
  bool cache_by_key = false;    ///< clients share only with those that send the same key
  SpeculateKind speculate = SpeculateKind::kAuto;  ///< without a draft
  std::string draft;        ///< a smaller model that proposes tokens; empty: none
  std::string receipts;     ///< a folder; empty: no log
  std::string receipt_key;  ///< PEM; empty: it is not signed

  int threads = 0;
  std::optional<Isa> isa;
  KvType kv = KvType::kF16;
  Compute compute = Compute::kInt8;
};

OptionTable make_serve_table(ServeArguments& arguments);

}  // namespace llm
