#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "engine/gguf/gguf_file.h"
#include "engine/gguf/gguf_split.h"
#include "engine/gguf/gguf_writer.h"
#include "engine/model/architecture.h"
#include "tokenizer/tokenizer.h"
#include "validate/gguf_lint/finding.h"

namespace llm {

/// A file while it is examined: what it says, and what was found so far. A mend takes effect at
/// once, so that each check sees the file as the mends before it leave it, and one fault does not
/// hide the next.
class LintContext {
 public:
  LintContext(OpenGguf open, std::string path);

  /// Metadata with the mends so far.
  const GgufFile& gguf() const { return gguf_; }
  const MappedFile& file() const { return file_; }
  /// Not an adapter, a projector of images or the like.
  bool is_model() const { return text("general.type").empty() || text("general.type") == "model"; }
  bool has_weights() const { return !gguf_.tensors().empty(); }
  /// The row of general.architecture, or nullptr.
  const Architecture* architecture() const;
  /// "llama.block_count" of "block_count", whether the architecture is known or not.
  std::string key(std::string_view suffix) const;

  /// The value of a key as an integer or a number; nothing where it is absent or something else.
  std::optional<std::int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::string_view text(std::string_view key) const;

  /// Tokens and their kinds as the file has them; empty where it has none. A kind that is no
  /// TokenKind, or is not there, is kNormal.
  const std::vector<VocabSpec::Token>& tokens() const { return tokens_; }
  std::size_t n_tokens() const { return tokens_.size(); }
  /// The id of the control token of that spelling. Others may spell the same: Gemma has tags of
  /// HTML.
  std::optional<TokenId> control_token(std::string_view spelling) const;
  /// The vocabulary as it is after the mends so far; nullptr where it cannot be read. Made anew
  /// after a mend.
  std::shared_ptr<const Tokenizer> tokenizer();

  /// Whether the file says that it is of a model that was trained to answer: by its names, or
  /// because a text's beginning, end or padding is a mark of a chat's turn.
  bool is_chat_model() const;

  void report(FileFinding finding);
  /// Reports, and mends: the key gets the value, or goes.
  template <typename T>
  void set(FileFinding finding, std::string_view key, T value) {
    const auto* bytes = reinterpret_cast<const char*>(&value);
    set_bytes(std::move(finding), key, gguf_type_of<T>(), std::string(bytes, sizeof(value)),
              fmt::format("{} = {}", key, value));
  }
  /// The same with a value of any type, as the file has it.
  void set_bytes(FileFinding finding, std::string_view key, GgufType type, std::string bytes,
                 std::string mend);
  void set_array(FileFinding finding, std::string_view key, GgufType element, std::string bytes,
                 std::string mend);
  void set_text(FileFinding finding, std::string_view key, std::string value, std::string shown);
  void remove(FileFinding finding, std::string_view key);
  /// Reports what a copy alone mends, such as bytes that belong to nothing.
  void copy(FileFinding finding, std::string mend);

  /// The name that findings carry from now on.
  void begin_check(std::string_view name) { check_ = name; }
  const std::vector<FileFinding>& findings() const { return findings_; }

 private:
  void put(FileFinding finding, std::string_view key, GgufValue value, std::string bytes,
           std::string mend);
  void replace(std::deque<GgufEntry> entries);

  std::string path_;
  MappedFile file_;
  GgufFile gguf_;
  std::deque<std::string> owned_;  ///< keys and values of mends, which entries view
  std::vector<VocabSpec::Token> tokens_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  bool tokenizer_is_current_ = false;
  std::string_view check_;
  std::vector<FileFinding> findings_;
};

}  // namespace llm
