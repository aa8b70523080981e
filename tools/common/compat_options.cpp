#include "tools/common/compat_options.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "engine/sampler/sampler_fields.h"

namespace llm {
namespace {

constexpr const char* kNoDownload =
    "-hf owner/repo downloads a model of the Hugging Face hub; download others yourself";

/// Options of llama.cpp for hardware that is not used here, and for what is always so.
void add_options_without_effect(OptionTable& table) {
  using Operand = OptionTable::Operand;
  constexpr const char* kNoGpu = "there is no GPU code, all layers run on the CPU";
  table.without_effect(
      "ngl,gpu-layers,n-gpu-layers,sm,split-mode,ts,tensor-split,mg,main-gpu,dev,device,ot,"
      "override-tensor,ncmoe,n-cpu-moe",
      Operand::kWord, kNoGpu);
  table.without_effect("nkvo,no-kv-offload,kvo,kv-offload,cmoe,cpu-moe,no-op-offload,op-offload",
                       Operand::kNone, kNoGpu);
  table.without_effect("fa,flash-attn", Operand::kSwitch,
                       "attention is always computed in tiles, which changes no bit");
  table.without_effect("mlock", Operand::kNone, "weights are copied into memory at load");
  table.without_effect("mmap,no-mmap,dio,direct-io,no-direct-io", Operand::kNone,
                       "the file is mapped until its weights are packed in memory");
  table.without_effect("tb,threads-batch", Operand::kWord, "-t is for prompts, too");
  table.without_effect("ub,ubatch-size", Operand::kWord,
                       "only -b sets the number of tokens in one pass");
  table.without_effect("warmup,no-warmup", Operand::kNone, "there is no warm-up");
  table.without_effect("no-context-shift", Operand::kNone, "this is the default");
  table.without_effect("no-display-prompt", Operand::kNone,
                       "the prompt is printed only with --echo");
  table.without_effect("no-perf,perf,no-repack,swa-full,check-tensors", Operand::kNone,
                       "there is no such setting");
  table.without_effect("jinja,no-jinja", Operand::kNone, "chat templates are always run");
  table.without_effect("cb,cont-batching", Operand::kNone, "it is always on in llmserve");
  table.without_effect("metrics,slots", Operand::kNone, "llmserve always has them");
  table.without_effect("log-disable,log-prefix,log-timestamps,no-log-prefix,no-log-timestamps",
                       Operand::kNone, "-q prints only errors");
  table.without_effect("lv,verbosity,log-verbosity,log-file,log-colors", Operand::kWord,
                       "-v and -q set what is printed");
  table.without_effect("numa,prio,prio-batch,poll,poll-batch,cpu-strict", Operand::kWord,
                       "start the program with numactl, nice or chrt");
  table.without_effect("draft-min,draft-p-min,draft-p-split", Operand::kWord,
                       "the number of proposed tokens is chosen automatically");
  table.without_effect("cd,ctx-size-draft", Operand::kWord,
                       "a draft model has the context of the model");
}

/// Options of llama-server and vLLM, for what llmserve always does.
void add_server_options_without_effect(OptionTable& table) {
  using Operand = OptionTable::Operand;
  constexpr const char* kShared = "requests with the same prefix always share its KV cache";
  table.without_effect("props,embedding,embeddings,rerank,reranking,webui", Operand::kNone,
                       "it is always on");
  table.without_effect("no-webui", Operand::kNone, "the page at / is always on");
  table.without_effect(
      "cache-prompt,no-cache-prompt,enable-prefix-caching,kv-unified,kvu,"
      "no-kv-unified",
      Operand::kNone, kShared);
  table.without_effect(
      "cache-reuse,cram,cache-ram,sps,slot-prompt-similarity,ctxcp,"
      "ctx-checkpoints,slot-save-path",
      Operand::kWord, kShared);
  table.without_effect("threads-http", Operand::kWord, "HTTP has one thread");
  table.without_effect("no-slots", Operand::kNone, "GET /slots is always on");
}

/// Options that requests set, not the server.
void add_request_options(OptionTable& table) {
  std::string names = "s,seed,ignore-eos,r,reverse-prompt";
  for (const SamplerField& field : kSamplerFields) names += fmt::format(",{}", field.option);
  table.foreign(names,
                "requests set it: temperature, top_k, top_p, min_p, seed, stop, ... "
                "(docs/serving.md); the defaults are OpenAI's");
}

/// Options of llama-server and vLLM, and what llmserve has instead.
void add_server_options(OptionTable& table) {
  add_request_options(table);
  table.foreign("rea,reasoning,reasoning-format,reasoning-budget",
                "requests set it: enable_thinking, reasoning_effort");
  table.foreign("nocb,no-cont-batching", "--parallel 1 runs one request after another");
  table.foreign("n,predict,n-predict",
                "--max-tokens limits a response; a request sets its own max_tokens");
  table.foreign("max-num-batched-tokens", "--chunk sets the number of tokens in one pass");
  table.foreign("models-dir", "--models serves the models of a folder");
  table.foreign("models-max", "--memory limits the memory of loaded models");
  table.foreign("api-key-file", "the key is LLM_API_KEY or --api-key");
  table.foreign("ssl-key-file,ssl-cert-file,ssl-keyfile,ssl-certfile",
                "TLS is for a proxy in front (docs/serving.md)");
  table.foreign("gpu-memory-utilization", "--kv-memory sets the memory of the KV cache");
  table.foreign("context-shift", "a response ends when the context is full; leave it out");
  table.foreign("i,cnv,conversation,p,prompt,sys,system-prompt",
                "prompts come in requests; llmrun answers one on the command line");
}

/// Options of llama-cli and `ollama run` for chats and prompts.
void add_chat_options(OptionTable& table) {
  table.without_effect("keepalive", OptionTable::Operand::kWord,
                       "the model is loaded for this run only");
  table.without_effect("no-cnv,no-conversation", OptionTable::Operand::kNone,
                       "a prompt is continued, unless --chat or -i is given");
  table.foreign("rea,reasoning,reasoning-format,reasoning-budget",
                "the chat template decides whether the model thinks");
  table.foreign("st,single-turn", "--chat with -p asks one question");
  table.foreign("mli,multiline-input",
                "pasted text is one message, as are lines between two lines of \"\"\"");
  table.foreign("in-prefix,in-suffix,in-prefix-bos",
                "the chat template sets the text around a message");
  table.foreign("simple-io", "TERM=dumb gives plain lines");
  table.foreign("nowordwrap", "lines are wrapped only on a terminal; pipe the output to cat");
  table.foreign("format", "use --json-object, or --json-schema with a schema");
  table.foreign("verbose-prompt", "llmtok prints the tokens of a text");
}

/// "owner/repo", "owner/repo:QUANT", "name:tag": what names a model elsewhere.
bool is_hub_name(std::string_view text) {
  const auto is_part = [](std::string_view part) {
    return !part.empty() && part.front() != '.' && std::ranges::all_of(part, [](unsigned char c) {
      return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
    });
  };
  const std::size_t colon = std::min(text.find(':'), text.size());
  const std::string_view name = text.substr(0, colon);
  if (colon < text.size() && !is_part(text.substr(colon + 1))) return false;
  const std::size_t slash = name.find('/');
  if (slash == std::string_view::npos) return colon < text.size() && is_part(name);
  return is_part(name.substr(0, slash)) && is_part(name.substr(slash + 1));
}

}  // namespace

Error with_download_hint(Error error) {
  if (error.code != ErrorCode::kIo || !error.hint.empty() || !is_hub_name(error.file)) return error;
  const std::filesystem::path path = error.file;
  std::error_code unknown;
  const bool is_here = exists(path, unknown) || exists(path.parent_path(), unknown);
  if (!is_here && path.extension() != ".gguf")
    error.hint = "-hf owner/repo:QUANT downloads a model of the Hugging Face hub";
  return error;
}

void add_foreign_options(OptionTable& table) {
  // The first advice for a name counts.
  add_options_without_effect(table);
  if (table.tool() == "llmserve") {
    add_server_options_without_effect(table);
    add_server_options(table);
  }
  if (table.tool() == "llmrun") add_chat_options(table);
  table.foreign("hf,hfr,hf-repo,mu,model-url,dr,docker-repo", kNoDownload);
  table.foreign("hff,hf-file", "-hf owner/repo:FILE names a file");
  table.foreign("hft,hf-token", "the token is in the environment variable HF_TOKEN");
  table.foreign("offline", "HF_HUB_OFFLINE=1 uses only the cache");
  table.foreign("ctk,cache-type-k,ctv,cache-type-v", "--kv sets the type of the KV cache");
  table.foreign("C,cpu-mask,Cr,cpu-range", "start the program with taskset");
  table.foreign("cml,chatml", "use --chat-template chatml");
  table.foreign("sp,special", "control tokens are not printed; llmtok shows the tokens of a text");
  table.foreign("keep", "--context-shift keeps BOS, and in a chat the system message");
  table.foreign("grammar,grammar-file,j,json-schema,jf,json-schema-file",
                "llmrun and the requests of llmserve have it (docs/structured_output.md)");
  table.foreign("lora,lora-scaled,lora-init-without-apply",
                "llmrun and llmserve have it; llmgguf merge-lora makes a model for other tools");
  table.foreign("control-vector,control-vector-scaled", "control vectors are not supported");
  table.foreign("draft-max", "--speculate-length");
  table.foreign("cd,ctx-size-draft", "a draft model has the context size of the model");
  table.foreign("mm,mmproj,mmproj-url,image", "only text models are supported");
  table.foreign("rope-scaling,rope-scale,rope-freq-base,rope-freq-scale",
                "RoPE is as the model file says; leave it out");
  table.foreign(
      "samplers,sampling-seq,mirostat,mirostat-lr,mirostat-ent,dry-sequence-breaker,logit-bias,l",
      "docs/sampling.md lists the samplers");
  table.foreign("np,parallel", "only llmserve runs several requests at once");
  table.foreign("prompt-cache,prompt-cache-all,prompt-cache-ro",
                "--cache-dir keeps the KV cache on disk");
  table.foreign("co", "use --color always");
}

}  // namespace llm
