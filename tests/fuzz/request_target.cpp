// Bodies of requests, each path's, from their bytes to what is generated of them.

#include "engine/batching/generation_service.h"
#include "tests/fuzz/tiny_model.h"
#include "tools/llmserve/api/answer_request.h"
#include "tools/llmserve/api/embeddings.h"
#include "tools/llmserve/api/rerank.h"

namespace llm::fuzz {
namespace {

ServedModel made_facts() {
  ServedModel facts;
  facts.model = tiny_model("qwen2");
  facts.id = "tiny";
  facts.style = chatml_style(*facts.model);
  facts.reply_format = reply_format_of(*facts.style, facts.model->tokenizer());
  facts.roles = chat_roles(*facts.style);
  facts.context = facts.most_new_tokens = 256;
  facts.most_texts = 8;
  facts.grammars = std::make_shared<GrammarCompiler>(facts.model->tokenizer());
  return facts;
}

template <typename T>
using Parse = Result<T> (*)(const OrderedJson& body, const ServedModel& served);

constexpr Parse<AnswerRequest> kTexts[] = {
    parse_completion,   parse_infill,           parse_chat,        parse_responses,
    parse_messages,     parse_ollama_chat,      parse_ollama_text, parse_embeddings,
    parse_ollama_embed, parse_ollama_embedding, parse_llama,       parse_rerank};
constexpr Parse<FactsAnswer> kFacts[] = {count_answer, tokenize_answer, detokenize_answer,
                                         template_answer, show_answer};

/// A request that cannot be read is its client's fault, and says so.
void check_refusal(const Error& error) {
  const bool is_clients = error.code == ErrorCode::kUsage || error.code == ErrorCode::kResource ||
                          error.code == ErrorCode::kUnsupported;
  require(is_clients, "what is wrong with a request is its client's fault", error.to_string());
  require(!error.message.empty(), "a refusal has words");
}

void check_texts(const AnswerRequest& request, const ServedModel& served) {
  require(request.at_once || (request.writer && !request.prompts.empty()),
          "a request has prompts and a writer, or its answer");
  for (const Prompt& prompt : request.prompts) {
    require(prompt.ids.size() <= served.context, "a prompt fits");
    for (const TokenId id : prompt.ids)
      require(served.tokenizer().contains(id), "a prompt's ids are tokens");
  }
  for (std::size_t i = 0; i < request.n_choices(); ++i) (void)request.choice(i, served);
  if (request.is_chat) (void)request.reply_parser();
}

}  // namespace
}  // namespace llm::fuzz

LLM_FUZZ(input) {
  using namespace llm;
  static const ServedModel served = fuzz::made_facts();
  const std::size_t path = input.byte() % (std::size(fuzz::kTexts) + std::size(fuzz::kFacts));
  const auto read = parse_body(input.rest());
  if (!read.ok()) return fuzz::check_refusal(read.error());
  const OrderedJson& body = *read;
  if (path < std::size(fuzz::kTexts)) {
    const auto request = fuzz::kTexts[path](body, served);
    if (!request.ok()) return fuzz::check_refusal(request.error());
    fuzz::check_texts(*request, served);
  } else {
    const auto answer = fuzz::kFacts[path - std::size(fuzz::kTexts)](body, served);
    if (!answer.ok()) return fuzz::check_refusal(answer.error());
    (void)json_text(answer->json);
  }
}
