#include "tools/common/compat_options.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

namespace llm {
namespace {

constexpr const char* kNoDownload =
    "-hf owner/repo is what is downloaded; of anything else download the GGUF and give its path";

/// What command lines of llama.cpp have for hardware that is not used here, and for what is always
/// so.
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
                       "attention always works in tiles, which changes no bit");
  table.without_effect("mlock", Operand::kNone, "weights are copied into memory at load");
  table.without_effect("mmap,no-mmap,dio,direct-io,no-direct-io", Operand::kNone,
                       "the file is mapped until its weights are packed in memory");
  table.without_effect("tb,threads-batch", Operand::kWord, "-t counts for prompts too");
  table.without_effect("warmup,no-warmup", Operand::kNone, "nothing is warmed up");
  table.without_effect("no-context-shift", Operand::kNone, "that is the default");
  table.without_effect("no-perf,perf,no-repack,swa-full,check-tensors", Operand::kNone,
                       "there is nothing like it here");
  table.without_effect("jinja,no-jinja", Operand::kNone, "templates are run always");
}

/// The same of llama-server and vLLM.
void add_server_options_without_effect(OptionTable& table) {
  using Operand = OptionTable::Operand;
  constexpr const char* kShared = "texts that begin alike share what is computed, always";
  table.without_effect("ub,ubatch-size", Operand::kWord,
                       "--chunk alone says how many tokens are evaluated at once");
  table.without_effect("cb,cont-batching", Operand::kNone, "always so");
  table.without_effect("metrics,props,slots,embedding,embeddings,rerank,reranking,webui",
                       Operand::kNone, "always there");
  table.without_effect("no-webui", Operand::kNone, "the page at / is always there");
  table.without_effect(
      "cache-prompt,no-cache-prompt,enable-prefix-caching,kv-unified,kvu,"
      "no-kv-unified",
      Operand::kNone, kShared);
  table.without_effect(
      "cache-reuse,cram,cache-ram,sps,slot-prompt-similarity,ctxcp,"
      "ctx-checkpoints,slot-save-path",
      Operand::kWord, kShared);
  table.without_effect("threads-http", Operand::kWord, "one thread does HTTP");
  table.without_effect("no-slots", Operand::kNone, "GET /slots is always there");
}

/// What llama-server and vLLM have, and what stands for it in a server here.
void add_server_options(OptionTable& table) {
  table.foreign("nocb,no-cont-batching", "--parallel 1 generates one text after another");
  table.foreign("n,predict,n-predict",
                "--max-tokens limits an answer; a request asks for its own max_tokens");
  table.foreign(
      "temp,temperature,top-k,top-p,min-p,s,seed,repeat-penalty,repeat-last-n,presence-penalty,"
      "frequency-penalty,dry-multiplier,dry-base,dry-allowed-length,dry-penalty-last-n,typical,"
      "typical-p,xtc-probability,xtc-threshold,dynatemp-range,dynatemp-exp,dynatemp-exponent,"
      "min-tokens,ignore-eos,r,reverse-prompt",
      "each request says that: temperature, top_k, top_p, min_p, seed, stop, ... "
      "(docs/serving.md); without, OpenAI's defaults hold");
  table.foreign("max-num-batched-tokens", "--chunk says how many tokens are evaluated at once");
  table.foreign("models-dir", "--models serves the models of a folder");
  table.foreign("models-max", "--memory says how much loaded models take");
  table.foreign("api-key-file", "the key is LLM_API_KEY or --api-key");
  table.foreign("ssl-key-file,ssl-cert-file,ssl-keyfile,ssl-certfile",
                "TLS is for a proxy in front (docs/serving.md)");
  table.foreign("gpu-memory-utilization", "--kv-memory is all memory for keys and values");
  table.foreign("context-shift", "a text ends where its context ends; leave it out");
  table.foreign("i,cnv,conversation,p,prompt,sys,system-prompt",
                "requests bring their texts; llmrun answers one of your own");
}

/// What llama-cli and `ollama run` have for chats and prompts.
void add_chat_options(OptionTable& table) {
  table.foreign("no-cnv,no-conversation",
                "a prompt is continued, unless --chat or -i is given; leave it out");
  table.foreign("st,single-turn", "--chat with -p asks one question");
  table.foreign("jinja,chat-template-file",
                "templates are run always: --chat takes the file's, --chat-template another or a "
                "file's text");
  table.foreign("mli,multiline-input",
                "a pasted text is one message, as are lines between two lines of \"\"\"");
  table.foreign("in-prefix,in-suffix,in-prefix-bos",
                "what stands around a message is the chat template's");
  table.foreign("simple-io", "TERM=dumb gives plain lines");
  table.foreign("nowordwrap", "words wrap on a terminal alone; | cat shows lines as they are");
  table.foreign("format", "--json-object, or --json-schema with a schema");
  table.foreign("keepalive", "the model is loaded for this run alone; leave it out");
  table.foreign("verbose-prompt", "llmtok shows the tokens of a text");
  table.foreign("log-disable", "-q leaves errors only");
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
    error.hint = "-hf owner/repo:QUANT fetches a model of the Hugging Face hub";
  return error;
}

void add_foreign_options(OptionTable& table) {
  // The first advice for a name counts.
  if (table.tool() == "llmserve" || table.tool() == "llmrun") add_options_without_effect(table);
  if (table.tool() == "llmserve") add_server_options_without_effect(table);
  if (table.tool() == "llmserve") add_server_options(table);
  if (table.tool() == "llmrun") add_chat_options(table);
  table.foreign(
      "ngl,gpu-layers,n-gpu-layers,sm,split-mode,ts,tensor-split,mg,main-gpu,dev,device,"
      "nkvo,no-kv-offload,ot,override-tensor,cmoe,cpu-moe,ncmoe,n-cpu-moe",
      "there is no GPU code, all layers run on the CPU; leave it out");
  table.foreign("fa,flash-attn",
                "attention always works in tiles, which changes no bit; leave it out");
  table.foreign("mlock", "weights are copied into memory at load; leave it out");
  table.foreign("mmap,no-mmap,dio,direct-io",
                "the file is mapped until its weights are packed in memory; leave it out");
  table.foreign("hf,hfr,hf-repo,mu,model-url,dr,docker-repo", kNoDownload);
  table.foreign("hff,hf-file", "-hf owner/repo:FILE names a file");
  table.foreign("hft,hf-token", "the token is HF_TOKEN of the environment");
  table.foreign("offline", "HF_HUB_OFFLINE=1 asks no hub");
  table.foreign("ctk,cache-type-k,ctv,cache-type-v", "the type of keys and values is --kv");
  table.foreign("tb,threads-batch", "-t counts for prompts too; leave it out");
  table.foreign("ub,ubatch-size", "-b alone says how many tokens are evaluated at once");
  table.foreign("numa", "start the program under numactl instead");
  table.foreign("C,cpu-mask,Cr,cpu-range,cpu-strict,prio,poll",
                "start the program under taskset, nice or chrt instead");
  table.foreign("jinja,chat-template-file",
                "templates are run always; --chat-template takes a file, too");
  table.foreign("no-display-prompt", "the prompt is printed only with --echo; leave it out");
  table.foreign("warmup,no-warmup", "nothing is warmed up; leave it out");
  table.foreign("no-context-shift", "that is the default; leave it out");
  table.foreign("keep", "with --context-shift BOS is kept, in a chat the system message too");
  table.foreign("grammar,grammar-file,j,json-schema,jf,json-schema-file",
                "llmrun has it, and so have the requests of llmserve (docs/structured_output.md)");
  table.foreign("lora,lora-scaled,control-vector,control-vector-scaled",
                "adapters are not read; merge them into the model before converting it");
  table.foreign("draft-max", "llmrun has --speculate-length");
  table.foreign("draft-min,draft-p-min,draft-p-split",
                "llmrun proposes as many tokens as pay; leave it out");
  table.foreign("cd,ctx-size-draft", "a draft has the context of the model; leave it out");
  table.foreign("mm,mmproj,mmproj-url,image", "models here read text only");
  table.foreign("rope-scaling,rope-scale,rope-freq-base,rope-freq-scale",
                "taken from the model file; leave it out");
  table.foreign(
      "samplers,sampling-seq,mirostat,mirostat-lr,mirostat-ent,dry-sequence-breaker,top-nsigma,"
      "logit-bias,l",
      "docs/sampling.md says what there is");
  table.foreign("np,parallel,cb,cont-batching", "one text at a time; leave it out");
  table.foreign("prompt-cache,prompt-cache-all,prompt-cache-ro",
                "keys and values are kept by --cache-dir");
  table.foreign("co", "it is --color always here, or nothing on a terminal");
}

}  // namespace llm
