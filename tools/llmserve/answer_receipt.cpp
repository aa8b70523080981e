#include "tools/llmserve/answer_receipt.h"

#include "quant/contract/contract.h"
#include "tools/common/option_pages.h"

namespace llm {

Receipt receipt_of(const ServedModel& served, const AnswerRequest& request, std::size_t index,
                   const ServedText& text) {
  const Prompt& prompt = request.prompt_of(index);
  const GenerateOptions& options = request.options;
  Receipt receipt;
  receipt.contract_version = contract::kContractVersion;
  receipt.engine_version = version();
  receipt.model_name = served.model->name();
  receipt.model_sha256 = served.model->file_sha256();
  receipt.prompt = prompt.text;
  receipt.system = prompt.system;
  if (request.is_chat) receipt.chat_format = served.chat_format;
  receipt.parse_special = request.parse_special;
  receipt.sampler = options.sampler;
  receipt.sequence = request.sequence_of(index);
  receipt.max_tokens = options.max_tokens;
  receipt.stop = options.stop;
  receipt.ignore_eos = options.ignore_eos;
  if (options.logit_bias != nullptr) receipt.logit_bias = *options.logit_bias;
  receipt.context = served.context;
  receipt.kv = served.kv;
  receipt.compute = served.model->compute();
  receipt.prompt_ids = prompt.ids;
  receipt.ids = text.result.ids;
  receipt.text = text.result.text;
  receipt.stop_reason = text.result.stop_reason;
  receipt.logits_sha256 = text.logits_sha256;
  receipt.drawn_logits_sha256 = text.drawn_logits_sha256;
  return receipt;
}

}  // namespace llm
