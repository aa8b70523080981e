// llmcheck --self --packed-cache: the weights that llmrun would map are the file's.

#include "base/xxh3.h"
#include "tests/tools/llmcheck_process.h"

namespace llm::test {
namespace {

std::string xxh3(std::string_view text) { return xxh3_hex(std::as_bytes(std::span(text))); }

/// Exchanges the first two panels of a packed cache, whose hashes all become those of that.
void exchange_panels(const std::string& path, std::size_t panel_bytes) {
  const std::string whole = read_file(path);
  std::string panels = whole.substr(std::size_t{2} << 20);
  std::swap_ranges(panels.begin(), panels.begin() + static_cast<std::ptrdiff_t>(panel_bytes),
                   panels.begin() + static_cast<std::ptrdiff_t>(panel_bytes));
  std::string head = whole.substr(0, whole.find("chunk "));
  head += "chunk " + xxh3(panels) + "\n";
  head += "end " + xxh3(head) + "\n";
  head.resize(std::size_t{2} << 20);
  std::ofstream(path, std::ios::binary) << head << panels;
}

}  // namespace

TEST_CASE("--self checks the weights of a packed cache, which it makes", "[llmcheck]") {
  const LlmcheckFolder folder;
  const std::string run = "tiny.gguf --self --fail-fast --packed-cache cache --report r.json";
  folder.shell("llmrun tiny.gguf -n 1 --packed-cache cache").must_end(0);
  const auto files = std::filesystem::directory_iterator(folder.path("cache"));
  const std::string file = begin(files)->path().string();
  exchange_panels(file, 16 * 34);  // token_embd: Q8_0, 32 columns
  folder.llmcheck(run).must_end(
      1, {},
      {"FAIL", "packed weights give back the file's bytes", "token_embd.weight (Q8_0), row 0"});
  // One that is refused is made anew, and one that cannot be made is no fault of the weights.
  std::filesystem::resize_file(file, 10);
  folder.llmcheck(run).must_end(0, {"packed cache: ", "; packing anew"});
  // --self is asked beside another question.
  folder.llmcheck("tiny.gguf -p ab --compute f32 --dump own.npz").must_end(0);
  const std::string diff = "tiny.gguf --layer-diff own.npz ";
  CHECK_THAT(folder.llmcheck(diff).must_end(0).out, !Contains("kernel"));
  folder.llmcheck(diff + "--self --packed-cache tiny.gguf")
      .must_end(0, {}, {"weights of a packed cache: packed cache: tiny.gguf/tiny-", "kernel"});
}

}  // namespace llm::test
