// Any text, and any ids, through vocabularies of each kind and pre-tokenizer.

#include <memory>
#include <vector>

#include "engine/model/model_file.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/tokenizer_laws.h"
#include "tokenizer/tokenizer.h"

namespace llm::fuzz {
namespace {

const std::vector<Tokenizer>& tokenizers() {
  static const std::vector<Tokenizer> made = [] {
    std::vector<Tokenizer> all;
    for (const char* name : {"mistral", "llama-bpe", "qwen2", "gemma3", "gpt-oss", "granite",
                             "phi3", "smollm3", "qwen3"}) {
      std::vector<std::string> warnings;
      all.push_back(
          must(Tokenizer::create(must(open_vocab_file(tiny_model_path(name), warnings)))));
    }
    return all;
  }();
  return made;
}

}  // namespace
}  // namespace llm::fuzz

LLM_FUZZ(input) {
  using namespace llm;
  const auto& all = fuzz::tokenizers();
  const Tokenizer& tokenizer = all[input.byte() % all.size()];
  const std::string_view ids = input.text();
  fuzz::check_tokenizer(tokenizer, input.rest(), ids);
}
