// A chat's session: the conversation in a prompt cache that is right otherwise.

#include "engine/generate/conversation.h"
#include "tests/fuzz/cache_file.h"
#include "tools/llmrun/session_file.h"

namespace llm::fuzz {
namespace {

void append(std::string& content, std::string_view text) {
  const std::uint64_t size = text.size();
  content.append(reinterpret_cast<const char*>(&size), sizeof size);
  content += text;
}

/// Without keys and values.
std::string session(std::string_view note, const std::vector<TokenId>& ids) {
  std::string content;
  append(content, cache_file_identity().model_sha256);
  const std::uint32_t contract = contract::kContractVersion;
  content.append(reinterpret_cast<const char*>(&contract), sizeof contract);
  append(content, "f16");
  append(content, "int8");
  append(content, note);
  const std::uint64_t sizes[] = {ids.size(), 0};
  content.append(reinterpret_cast<const char*>(sizes), sizeof sizes[0]);
  content.append(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(TokenId));
  content.append(reinterpret_cast<const char*>(sizes + 1), sizeof sizes[1]);
  return sealed(content);
}

}  // namespace
}  // namespace llm::fuzz

LLM_FUZZ(input) {
  using namespace llm;
  static auto sequence = fuzz::cache_sequence();
  static const auto style = fuzz::chatml_style(sequence->model());
  std::vector<TokenId> ids;
  for (const char byte : input.text()) ids.push_back(static_cast<unsigned char>(byte));
  const fuzz::MemoryFile file(fuzz::session(input.rest(), ids));
  auto loaded = load_session(file.path(), style, *sequence, fuzz::cache_file_identity());
  if (!loaded.ok()) return;
  (void)(*loaded)->text();
  (void)(*loaded)->ask("So?", true);
}
