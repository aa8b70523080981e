#include "tools/common/foreign_options.h"

namespace llm {

void add_foreign_options(OptionTable& table) {
  table.foreign(
      "ngl,gpu-layers,n-gpu-layers,sm,split-mode,ts,tensor-split,mg,main-gpu,dev,device,"
      "nkvo,no-kv-offload,ot,override-tensor,cmoe,cpu-moe,ncmoe,n-cpu-moe",
      "there is no GPU code, all layers run on the CPU; leave it out");
  table.foreign("fa,flash-attn",
                "attention always works in tiles, which changes no bit; leave it out");
  table.foreign("mlock", "weights are copied into memory at load; leave it out");
  table.foreign("mmap,no-mmap,dio,direct-io",
                "the file is mapped while it is loaded and not needed afterwards; leave it out");
  table.foreign("hf,hfr,hf-repo,hff,hf-file,hft,hf-token,mu,model-url,dr,docker-repo",
                "nothing is downloaded; download the GGUF first and give its path");
  table.foreign("ctk,cache-type-k,ctv,cache-type-v", "the type of keys and values is --kv");
  table.foreign("tb,threads-batch", "-t counts for prompts too; leave it out");
  table.foreign("ub,ubatch-size", "-b alone says how many tokens are evaluated at once");
  table.foreign("numa", "start the program under numactl instead");
  table.foreign("C,cpu-mask,Cr,cpu-range,cpu-strict,prio,poll",
                "start the program under taskset, nice or chrt instead");
  table.foreign("no-cnv,no-conversation", "a text is continued unless -i is given; leave it out");
  table.foreign("st,single-turn", "--chat-template NAME with -p asks one question");
  table.foreign("jinja,chat-template-file",
                "templates are recognized and not run; --chat-template names one");
  table.foreign("no-display-prompt", "the prompt is printed only with --echo; leave it out");
  table.foreign("warmup,no-warmup", "nothing is warmed up; leave it out");
  table.foreign("no-context-shift", "that is the default; leave it out");
  table.foreign("keep", "with --context-shift BOS is kept, in a chat the system message too");
  table.foreign("grammar,grammar-file,j,json-schema,jf,json-schema-file",
                "constrained output is not there yet");
  table.foreign("lora,lora-scaled,control-vector,control-vector-scaled",
                "adapters are not read; merge them into the model before converting it");
  table.foreign("md,model-draft,draft,draft-max", "llmrun has --draft and --speculate-length");
  table.foreign("draft-min,draft-p-min,draft-p-split",
                "llmrun proposes as many tokens as pay; leave it out");
  table.foreign("cd,ctx-size-draft", "a draft has the context of the model; leave it out");
  table.foreign("mm,mmproj,mmproj-url,image", "models here read text only");
  table.foreign("rope-scaling,rope-scale,rope-freq-base,rope-freq-scale",
                "taken from the model file; leave it out");
  table.foreign(
      "samplers,sampling-seq,mirostat,mirostat-lr,mirostat-ent,typical,xtc-probability,"
      "xtc-threshold,dry-multiplier,dry-base,presence-penalty,frequency-penalty,"
      "dynatemp-range,dynatemp-exp,top-nsigma,logit-bias,l",
      "there are temperature, top-k, top-p, min-p and the repeat penalty (docs/sampling.md)");
  table.foreign("np,parallel,cb,cont-batching", "one text at a time; leave it out");
  table.foreign("prompt-cache,prompt-cache-all,prompt-cache-ro",
                "llmrun has --cache-save and --cache-load");
  table.foreign("co", "it is --color always here, or nothing on a terminal");
}

}  // namespace llm
