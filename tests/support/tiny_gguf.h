#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/gguf/gguf_value.h"
#include "quant/formats/block_traits.h"

namespace llm::test {

/// The encoded bytes of a number.
template <typename T>
std::string encoded(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

/// The encoded bytes of a string: its length as u64, then its characters.
std::string encoded_string(std::string_view text);

/// The encoded bytes of an array of numbers.
template <typename T>
std::string encoded_array(GgufType element, const std::vector<T>& values) {
  std::string out = encoded(static_cast<std::uint32_t>(element)) +
                    encoded(static_cast<std::uint64_t>(values.size()));
  for (const T& value : values) out += encoded(value);
  return out;
}

std::string encoded_string_array(const std::vector<std::string>& values);

struct TinyOptions {
  std::size_t n_layers = 1;
  std::uint64_t seed = 1;
  bool tied_output = false;  ///< leaves output.weight out
  /// A row's name; "qwen3" has a head_dim of 24, so that n_heads * head_dim is not d_model.
  std::string architecture = "llama";
  /// Every other layer has half the heads, KV heads and features of feed-forwards.
  bool unlike_layers = false;
  bool mtp = false;  ///< a block after the layers predicts further tokens
};

/// A small GGUF in memory whose every piece can be set to something wrong: the serializer writes
/// what it is told and checks nothing.
///
///   TinyGguf model = TinyGguf::llama();
///   model.set<std::uint32_t>("llama.attention.head_count", GgufType::kUint32, 0);
///   model.tensor("blk.0.attn_q.weight").offset = 1;
///   auto result = open_model_bytes(model.bytes());
struct TinyGguf {
  struct Entry {
    std::string key;
    std::uint32_t type = 0;                        ///< a GgufType, or not
    std::string value;                             ///< encoded
    std::optional<std::uint64_t> key_length = {};  ///< written instead of key.size()
  };
  struct Tensor {
    std::string name;
    std::vector<std::uint64_t> dims;                ///< columns first
    std::uint32_t type = 0;                         ///< a WeightType, or not
    std::string data;                               ///< as many bytes as you like
    std::optional<std::uint64_t> name_length = {};  ///< written instead of name.size()
    std::optional<std::uint32_t> n_dims = {};       ///< written instead of dims.size()
    std::optional<std::uint64_t> offset = {};       ///< written instead of the next free one
  };

  std::string magic = "GGUF";
  std::uint32_t version = 3;
  std::optional<std::uint64_t> n_tensors;  ///< written instead of tensors.size()
  std::optional<std::uint64_t> n_entries;  ///< written instead of entries.size()
  std::vector<Entry> entries;
  std::vector<Tensor> tensors;
  std::uint64_t alignment = 32;  ///< of the layout; the key general.alignment is yours to add
  bool final_padding = true;     ///< pad the last tensor too
  std::string trailing;          ///< appended

  /// A valid Llama that runs: d_model 32, 4 heads, 2 KV heads, head_dim 8, d_ff 256, context 64,
  /// 272 tokens (<unk>, <s>, </s>, 256 bytes, 13 pieces), tensors of F32, F16, Q8_0, Q4_0 and Q4_K.
  /// About 36 KB with one layer, of which 7 KB are metadata. Weights are random by `seed` and small
  /// enough for logits of order 1; the same options give the same bytes everywhere.
  static TinyGguf llama(const TinyOptions& options = {});

  /// Every TinyOptions::architecture: those that are read. Their layers have the tensors that
  /// kTensorRoles and the architecture's row require.
  static std::vector<std::string> architectures();

  /// Gives it a vocabulary of byte-level BPE instead: 256 bytes from "!" on, "ab" with its merge,
  /// the control token "cd", and words that no merges make.
  void make_byte_bpe();
  static std::vector<std::string> byte_bpe_tokens();

  /// Adds or replaces an entry.
  template <typename T>
  void set(std::string_view key, GgufType type, T value) {
    set_encoded(key, static_cast<std::uint32_t>(type), encoded(value));
  }
  void set_u32(std::string_view key, std::uint32_t value) { set(key, GgufType::kUint32, value); }
  void set_f32(std::string_view key, float value) { set(key, GgufType::kFloat32, value); }
  void set_string(std::string_view key, std::string_view value);
  void set_strings(std::string_view key, const std::vector<std::string>& values);
  template <typename T>
  void set_array(std::string_view key, GgufType element, const std::vector<T>& values) {
    set_encoded(key, static_cast<std::uint32_t>(GgufType::kArray), encoded_array(element, values));
  }
  void set_bool(std::string_view key, std::uint8_t value) { set(key, GgufType::kBool, value); }
  /// Gives tokens of llama()'s vocabulary other pieces, and one kind (3: control).
  void set_pieces(const std::map<std::size_t, std::string>& changed, std::int32_t kind = 1);
  void set_encoded(std::string_view key, std::uint32_t type, std::string value);
  void remove(std::string_view key);
  void remove_tensor(std::string_view name);

  /// The entry or tensor of that name; fails the test when there is none.
  Entry& entry(std::string_view key);
  Tensor& tensor(std::string_view name);

  /// A llama with a layer for each type that llmquant does not make but Q8_K: its ffn_down's.
  static TinyGguf read_only_types();

  /// The pieces, scores and kinds of llama()'s vocabulary, to be changed and set again.
  static std::vector<std::string> pieces();
  static std::vector<float> scores();
  static std::vector<std::int32_t> kinds();

  /// The file.
  std::vector<std::byte> bytes() const;
  /// Bytes before the data section: header, entries, tensor descriptions, padding.
  std::size_t header_bytes() const;
  /// The offset that bytes() writes for a tensor without one of its own.
  std::uint64_t default_offset(std::string_view name) const;
};

/// `n_rows` x `n_cols` random weights of `type` in the file's format, about uniform in
/// [-amplitude, amplitude]. Supports F32, F16, Q8_0, Q4_0, Q4_K and, less uniform, the types of
/// read_only_types().
std::string random_weights(WeightType type, std::size_t n_rows, std::size_t n_cols, float amplitude,
                           std::uint64_t seed);

}  // namespace llm::test
