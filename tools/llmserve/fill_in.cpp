#include "tools/llmserve/fill_in.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace llm {
namespace {

using Ids = std::vector<TokenId>;

/// What follows another token: no BOS.
Ids encode_inside(const Tokenizer& tokenizer, std::string_view text, const Gap& gap,
                  bool add_space_prefix) {
  EncodeOptions options{.add_bos = false, .add_eos = false, .parse_special = gap.parse_special};
  // SentencePiece's dummy prefix: the text after a gap does not begin a word.
  if (!add_space_prefix) options.add_space_prefix = false;
  return tokenizer.encode(text, options);
}

void append(Ids& ids, const Ids& more) { ids.insert(ids.end(), more.begin(), more.end()); }

/// Of one file, with what sets it off.
Ids encode_file(const Tokenizer& tokenizer, const Gap& gap, const Gap::File& file) {
  const auto separator = tokenizer.spec().fim.file_separator;
  if (!separator) {
    return encode_inside(tokenizer, "\n\n--- " + file.name + " ---\n\n" + file.text, gap, false);
  }
  Ids ids = {*separator};
  append(ids, encode_inside(tokenizer, file.name + "\n" + file.text, gap, false));
  return ids;
}

/// The last files that `most` tokens hold, with what stands before and after them.
Ids encode_files(const Tokenizer& tokenizer, const Gap& gap, std::size_t most) {
  if (gap.files.empty()) return {};
  const auto& fim = tokenizer.spec().fim;
  Ids before;
  if (fim.repository) {
    before = {*fim.repository};
    append(before, encode_inside(tokenizer, "myproject\n", gap, false));
  }
  // The file of the gap has a name as well.
  Ids last = fim.file_separator ? encode_file(tokenizer, gap, {"filename", ""}) : Ids{};
  std::vector<Ids> files;
  std::size_t n = before.size() + last.size();
  for (auto file = gap.files.rbegin(); file != gap.files.rend(); ++file) {
    files.push_back(encode_file(tokenizer, gap, *file));
    n += files.back().size();
    if (n > most) {
      files.pop_back();
      break;
    }
  }
  if (files.empty()) return {};
  Ids ids = std::move(before);
  for (auto file = files.rbegin(); file != files.rend(); ++file) append(ids, *file);
  append(ids, last);
  return ids;
}

}  // namespace

Result<Ids> fill_in_prompt(const Tokenizer& tokenizer, const Gap& gap, std::size_t most,
                           const std::string& field) {
  const auto& fim = tokenizer.spec().fim;
  if (!fim.prefix || !fim.suffix || !fim.middle) {
    return Error{.code = ErrorCode::kUsage,
                 .field = field,
                 .message =
                     "found a model whose vocabulary has no tokens for a text's prefix, "
                     "suffix and middle, need one that was trained to fill in"};
  }
  Ids ids = tokenizer.encode("", {.add_eos = false});  // BOS, where the vocabulary wants it
  Ids core = {*fim.prefix};
  append(core, encode_inside(tokenizer, gap.before, gap, true));
  core.push_back(*fim.suffix);
  append(core, encode_inside(tokenizer, gap.after, gap, false));
  core.push_back(*fim.middle);
  const std::size_t taken = ids.size() + core.size();
  append(ids, encode_files(tokenizer, gap, most - std::min(most, taken)));
  append(ids, core);
  return ids;
}

}  // namespace llm
