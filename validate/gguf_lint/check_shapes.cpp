#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/model/tensor_name.h"
#include "validate/gguf_lint/checks.h"

namespace llm {
namespace {

/// The sizes that metadata and tensors share.
class Shapes {
 public:
  explicit Shapes(LintContext& patient) : patient_(patient) {}

  void run() {
    check_blocks_present();
    if (const GgufTensor* embedding = tensor("token_embd.weight")) {
      check_key("embedding_length", embedding->dims[0], "the columns of token_embd.weight");
      check_vocab(embedding->dims[1]);
    }
    if (patient_.architecture() == nullptr) return;
    check_feed_forward();
    check_heads();
    check_rope_dims();
  }

 private:
  const GgufTensor* tensor(std::string_view name) const {
    return patient_.gguf().find_tensor(name);
  }
  std::optional<std::int64_t> size(std::string_view suffix) const {
    return patient_.integer(patient_.key(suffix));
  }

  FileFinding contradiction(const std::string& key, std::string found, std::uint64_t need,
                            std::string_view proof) const {
    return {.where = key,
            .what = fmt::format("found {}, need {}: {}", found, need, proof),
            .why = "programs reject the file, or read its tensors in the wrong shape",
            .remedy = fmt::format("set {} to {}: the tensors prove it", key, need)};
  }

  /// A key that tensors prove.
  void check_key(std::string_view suffix, std::uint64_t need, std::string_view proof,
                 bool may_lack = false) {
    const std::string key = patient_.key(suffix);
    const auto found = patient_.integer(key);
    const GgufValue* value = patient_.gguf().find(key);
    if (value == nullptr && may_lack) return;
    if (value != nullptr && value->type == GgufType::kArray) return;
    if (found && std::cmp_equal(*found, need)) return;
    patient_.set(contradiction(key, found ? fmt::format("{}", *found) : "no number", need, proof),
                 key, static_cast<std::uint32_t>(need));
  }

  void check_blocks_present() {
    std::uint64_t present = 0;
    for (const GgufTensor& tensor : patient_.gguf().tensors())
      if (const auto block = layer_of_tensor(tensor.name); block && *block < (1U << 20))
        present = std::max(present, *block + 1);
    if (present > 0) check_key("block_count", present, "the blocks present (blk.N tensors)");
  }

  void check_vocab(std::uint64_t rows) {
    check_key("vocab_size", rows, "the rows of token_embd.weight", true);
    if (patient_.n_tokens() == rows || patient_.n_tokens() == 0) return;
    patient_.report(
        {.where = "tokenizer.ggml.tokens",
         .what = fmt::format("found {} tokens, need {}: the rows of token_embd.weight",
                             patient_.n_tokens(), rows),
         .why = "ids and rows do not match: programs reject the file or generate the wrong tokens",
         .remedy = "convert the model again with its own tokenizer"});
  }

  void check_feed_forward() {
    const Architecture& architecture = *patient_.architecture();
    const GgufTensor* down = tensor("blk.0.ffn_down.weight");
    if (down == nullptr) down = tensor("blk.0.ffn_down_exps.weight");
    if (down == nullptr) return;
    check_key(architecture.keys.d_ff, down->dims[0], fmt::format("the columns of {}", down->name));
    if (architecture.has_experts && down->n_dims > 2)
      check_key(architecture.keys.n_experts, down->dims[2], "the experts of blk.0");
  }

  void check_heads() {
    const GgufTensor* output = tensor("blk.0.attn_output.weight");
    const GgufTensor* k = tensor("blk.0.attn_k.weight");
    const auto heads = size("attention.head_count");
    if (output == nullptr || k == nullptr || !size("embedding_length")) return;
    const auto q_rows = static_cast<std::int64_t>(output->dims[0]);
    const auto kv_rows = static_cast<std::int64_t>(k->dims[1]);
    const std::int64_t head_dim = head_dim_of(q_rows, kv_rows, heads);
    if (head_dim <= 0 || q_rows % head_dim != 0 || kv_rows % head_dim != 0) {
      if (!heads) return;
      return patient_.report(
          {.where = patient_.key("attention.head_count"),
           .what = fmt::format(
               "found {} heads and {} of keys for {} rows of queries and {} of keys", *heads,
               size("attention.head_count_kv").value_or(*heads), q_rows, kv_rows),
           .why = "programs reject the file, or split heads at the wrong places",
           .remedy = "take both counts from the original config.json"});
    }
    check_key(
        "attention.head_count", static_cast<std::uint64_t>(q_rows / head_dim),
        fmt::format("{} columns of blk.0.attn_output.weight in heads of {}", q_rows, head_dim));
    check_key("attention.head_count_kv", static_cast<std::uint64_t>(kv_rows / head_dim),
              fmt::format("{} rows of blk.0.attn_k.weight in heads of {}", kv_rows, head_dim),
              kv_rows == q_rows);
  }

  /// Whether heads of blk.0 have the size of those in layers with a window.
  bool first_has_window() const {
    if (!size("attention.key_length_swa")) return false;
    const GgufValue* pattern =
        patient_.gguf().find(patient_.key("attention.sliding_window_pattern"));
    return pattern == nullptr || pattern->type != GgufType::kArray ||
           pattern->element_type != GgufType::kBool || pattern->count == 0 ||
           pattern->bytes[0] != std::byte{0};
  }

  /// By what says it most directly: norms of heads, key_length, the counts, RoPE's dims; 0:
  /// nothing.
  std::int64_t head_dim_of(std::int64_t q_rows, std::int64_t kv_rows,
                           std::optional<std::int64_t> heads) {
    const auto kv_heads = size("attention.head_count_kv");
    const std::string_view key =
        first_has_window() ? "attention.key_length_swa" : "attention.key_length";
    const auto key_length = size(key);
    const GgufTensor* norm = tensor("blk.0.attn_k_norm.weight");
    if (norm != nullptr && !patient_.architecture()->norms_rows) {
      if (key_length || std::cmp_not_equal(q_rows, *size("embedding_length")))
        check_key(key, norm->dims[0], "the size of blk.0.attn_k_norm.weight");
      return static_cast<std::int64_t>(norm->dims[0]);
    }
    if (key_length) return *key_length;
    const auto dim_by = [](std::int64_t rows, std::optional<std::int64_t> n) {
      return n && *n > 0 && rows % *n == 0 ? rows / *n : 0;
    };
    const std::int64_t by_q = dim_by(q_rows, heads);
    const std::int64_t by_kv = dim_by(kv_rows, kv_heads ? kv_heads : heads);
    if (by_q == by_kv && by_q > 0) return by_q;
    // One of the counts is wrong: RoPE's dims say which.
    const std::int64_t rope = size("rope.dimension_count").value_or(0);
    if (by_q == rope || by_kv == rope) return rope;
    return 0;
  }

  void check_rope_dims() {
    const auto dims = size("rope.dimension_count");
    const auto heads = size("attention.head_count");
    const auto width = size("embedding_length");
    if (!dims || !heads || !width || *heads <= 0) return;
    const std::int64_t head_dim = size("attention.key_length").value_or(*width / *heads);
    if (*dims > 0 && *dims <= head_dim && *dims % 2 == 0) return;
    const std::string key = patient_.key("rope.dimension_count");
    patient_.set(contradiction(key, fmt::format("{}", *dims), static_cast<std::uint64_t>(head_dim),
                               "the size of a head"),
                 key, static_cast<std::uint32_t>(head_dim));
  }

  LintContext& patient_;
};

void check_context(LintContext& patient) {
  const std::string key = patient.key("context_length");
  const auto context = patient.integer(key);
  if (!context && patient.gguf().find(key) != nullptr) return;  // check_values() names its type
  if (!context || *context <= 0 || *context > (std::int64_t{1} << 28)) {
    return patient.report(
        {.where = key,
         .what = fmt::format("found {}, need the positions that the model was "
                             "trained for",
                             context ? fmt::format("{}", *context) : "none"),
         .why = "programs reject the file or reserve memory for a cache that is not needed",
         .remedy = "take max_position_embeddings of the original config.json"});
  }
  const auto original = patient.integer(patient.key("rope.scaling.original_context_length"));
  if (!original || *original <= *context) return;
  patient.report(
      {.severity = Severity::kWarning,
       .where = key,
       .what =
           fmt::format("found {}, below the {} of before the scaling of RoPE", *context, *original),
       .why = "one of the two is wrong: texts are cut, or positions stretched, too early",
       .remedy = "take both from the original config.json"});
}

}  // namespace

void check_shapes(LintContext& patient) {
  if (!patient.has_weights() || patient.text("general.architecture").empty()) return;
  Shapes(patient).run();
  if (patient.architecture() != nullptr) check_context(patient);
}

}  // namespace llm
