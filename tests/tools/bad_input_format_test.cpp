// Rows 12-41 of docs/bad_input.md: what the GGUF format itself forbids.

#include "tests/support/test.h"
#include "tests/tools/bad_input_support.h"

namespace llm::test {
namespace {

constexpr std::uint64_t kMax = UINT64_MAX;
constexpr std::uint64_t k2To63 = std::uint64_t{1} << 63;
constexpr const char* kHeadCount = "llama.attention.head_count";
constexpr const char* kQ = "blk.0.attn_q.weight";

std::uint32_t id(WeightType type) { return static_cast<std::uint32_t>(type); }

/// A one-dimensional tensor that is not part of a Llama, last in the file.
TinyGguf::Tensor& add_extra(TinyGguf& m, WeightType type, std::vector<std::uint64_t> dims,
                            std::size_t bytes = 32) {
  m.tensors.push_back({.name = "extra",
                       .dims = std::move(dims),
                       .type = id(type),
                       .data = std::string(bytes, '\0')});
  return m.tensors.back();
}

/// Adds `count` entries of 1 byte each, with `distinct` different keys.
void add_tiny_entries(TinyGguf& m, int count, int distinct) {
  for (int i = 0; i < count; ++i) {
    m.entries.push_back(
        {.key = fmt::format("k{}", i % distinct), .type = 0, .value = std::string(1, 'x')});
  }
}

constexpr BadInputRow kHeaderRows[] = {
    ROW("12 split.count = 3", 6, m.set("split.count", GgufType::kUint16, std::uint16_t{3}),
        "split.count", "found 3", "2 missing parts"),
    ROW("13 bad magic", 3, m.magic = "GGUM", "magic", "47 47 55 4d \"GGUM\"", "47 47 55 46"),
    ROW("14 version 0", 6, m.version = 0, "version", "found 0", "need 2 or 3"),
    ROW("14 version 1", 6, m.version = 1, "version", "found 1", "need 2 or 3"),
    ROW("14 version 4", 6, m.version = 4, "version", "found 4", "need 2 or 3"),
    ROW("14 version 2^32-1", 6, m.version = UINT32_MAX, "version", "found 4294967295",
        "need 2 or 3"),
    ROW("14 version 2 loads", 0, m.version = 2),
    ROW("14 version 3 loads", 0, m.version = 3),
    ROW("15 big-endian", 6, m.version = 0x03000000, "version", "big-endian", "little-endian"),
    ROW("16 n_tensors 2^64-1", 3, m.n_tensors = kMax, "n_tensors (byte 8)", "18446744073709551615",
        "the file has"),
    ROW("16 n_tensors 2^63", 3, m.n_tensors = k2To63, "n_tensors (byte 8)", "9223372036854775808",
        "the file has"),
    ROW("16 n_tensors one too many", 3, m.n_tensors = m.tensors.size() + 1, "tensor 12"),
    ROW("16 n_tensors one too few", 3, m.n_tensors = m.tensors.size() - 1, "n_tensors (byte 8)",
        "found 11", "blk.0.ffn_down.weight"),
    ROW("16 n_tensors 0", 3, m.n_tensors = 0, "n_tensors (byte 8)", "found 0", "token_embd.weight"),
    ROW("17 n_kv 2^64-1", 3, m.n_entries = kMax, "n_kv (byte 16)", "18446744073709551615",
        "the file has"),
    ROW("17 n_kv 2^63", 3, m.n_entries = k2To63, "n_kv (byte 16)", "9223372036854775808",
        "the file has"),
    ROW("17 n_kv one too many", 3, m.n_entries = m.entries.size() + 1),
    ROW("17 n_kv one too few", 3, m.n_entries = m.entries.size() - 1),
    ROW("17 n_kv one too few, no tensors", 3,
        (m.tensors.clear(), m.n_entries = m.entries.size() - 1), "n_kv (byte 16)", "add_bos_token"),
};

constexpr BadInputRow kEntryRows[] = {
    ROW("18 key length 0", 3, m.entries[2].key_length = 0, "key of KV 2", "length 0"),
    ROW("18 key length 65536", 3, m.entries[2].key = std::string(65536, 'k'), "key of KV 2",
        "65536", "65535"),
    ROW("18 key length 2^64-1", 3, m.entries[2].key_length = kMax, "key of KV 2",
        "18446744073709551615"),
    ROW("18 key with NUL", 3, m.entries[2].key[3] = '\0', "key of KV 2", "NUL", "ASCII"),
    ROW("18 key with non-ASCII", 3, m.entries[2].key[3] = '\xC3', "key of KV 2", "non-ASCII"),
    ROW("19 value type 13", 3, m.entry(kHeadCount).type = 13, kHeadCount, "value type 13",
        "0 to 12"),
    ROW("19 value type -1", 3, m.entry(kHeadCount).type = UINT32_MAX, kHeadCount,
        "value type 4294967295"),
    ROW("20 string length 2^63", 3, m.entry("general.name").value = encoded(k2To63), "general.name",
        "9223372036854775808"),
    ROW("20 string over the cap", 3,
        m.set_string("general.name", std::string((16U << 20) + 1, 'x')), "general.name", "16777217",
        "at most 16777216"),
    ROW("21 array n x size wraps", 3,
        (m.entry("tokenizer.ggml.scores").value =
             encoded(std::uint32_t{6}) + encoded((kMax >> 2) + 2)),
        "tokenizer.ggml.scores", "n = 4611686018427387905"),
    ROW("21 array n > remaining", 3,
        (m.entry("tokenizer.ggml.scores").value =
             encoded(std::uint32_t{6}) + encoded(std::uint64_t{1000000})),
        "tokenizer.ggml.scores", "n = 1000000", "bytes remain"),
    ROW(
        "22 array nested 10,000 deep", 6,
        {
          std::string nested;
          for (int i = 0; i < 10000; ++i) {
            nested += encoded(std::uint32_t{9}) + encoded(std::uint64_t{1});
          }
          m.set_encoded("general.name", 9, nested + encoded(std::uint32_t{0}) + encoded(kMax));
        },
        "general.name", "nested arrays"),
    ROW("23 duplicate key", 3, m.entries[4].key = "general.name", "general.name", "duplicate key",
        "KV 1 and KV 4"),
    ROW("24 200,000 tiny KVs", 0, add_tiny_entries(m, 200000, 200000)),
    ROW("24 the last of 200,000 KVs repeats the first", 3, add_tiny_entries(m, 200001, 200000),
        "duplicate key", "KV 20 and KV 200020"),
    ROW("25 bool = 7", 3, m.entry("tokenizer.ggml.add_bos_token").value = encoded(std::uint8_t{7}),
        "tokenizer.ggml.add_bos_token", "BOOL 7"),
    KEY("26 alignment 0", 3, "general.alignment", set_u32, 0, "found 0", "power of two"),
    KEY("26 alignment 13", 3, "general.alignment", set_u32, 13, "found 13"),
    KEY("26 alignment 2^31", 3, "general.alignment", set_u32, 1U << 31, "found 2147483648"),
    ROW("26 alignment INT32", 3, m.set("general.alignment", GgufType::kInt32, std::int32_t{32}),
        "general.alignment", "found INT32", "need UINT32"),
};

constexpr BadInputRow kDescriptionRows[] = {
    ROW("29 tensor name of length 0", 3, m.tensors[3].name_length = 0, "name of tensor 3",
        "length 0"),
    ROW("29 tensor name of 64 bytes", 3, m.tensors[3].name = std::string(64, 'n'),
        "name of tensor 3", "64", "63"),
    ROW("29 tensor name with NUL", 3, m.tensors[3].name[1] = '\0', "name of tensor 3", "NUL"),
    ROW("30 duplicate tensor name", 3, m.tensors[5].name = kQ, kQ, "duplicate name",
        "tensor 4 and tensor 5"),
    ROW("31 n_dims 0", 3, m.tensor(kQ).n_dims = 0, kQ, "n_dims", "found 0"),
    ROW("31 n_dims 5", 3, m.tensor(kQ).n_dims = 5, kQ, "n_dims", "found 5"),
    ROW("31 n_dims 2^32-1", 3, m.tensor(kQ).n_dims = UINT32_MAX, kQ, "n_dims", "found 4294967295"),
    ROW("32 dim 0", 3, m.tensor(kQ).dims[1] = 0, kQ, "dim 1", "found 0"),
    ROW("32 dim 2^64-1", 3, m.tensor(kQ).dims[0] = kMax, kQ, "dim 0", "found 18446744073709551615"),
    ROW("33 dims 2^32 x 2^32", 3, m.tensor(kQ).dims.assign(2, std::uint64_t{1} << 32), kQ,
        "element count overflows", "4294967296 x 4294967296"),
    ROW("34 Q8_0 byte size wraps to 4", 3, add_extra(m, WeightType::kQ8_0, {4340410370284600384}),
        "extra", "byte size overflows", "4340410370284600384"),
    ROW("35 F32 padding wraps to 0", 3,
        add_extra(m, WeightType::kF32, {(std::uint64_t{1} << 62) - 1}), "extra",
        "padded size overflows"),
    ROW("36 type past the last", 3, m.tensor(kQ).type = 43, kQ, "type", "found 43"),
    ROW("36 type of others", 6, m.tensor(kQ).type = 36, kQ, "type", "IQ4_NL_4_4", "Q2_0"),
    ROW("36 type 2^32-1", 3, m.tensor(kQ).type = UINT32_MAX, kQ, "type", "found 4294967295"),
    ROW("36 removed type 4", 6, m.tensor(kQ).type = 4, kQ, "type", "found 4", "removed"),
    ROW("36 removed type 5", 6, m.tensor(kQ).type = 5, kQ, "type", "found 5", "removed"),
    ROW("36 removed type 31", 6, m.tensor(kQ).type = 31, kQ, "type", "found 31", "Q4_0_4_4"),
    ROW("36 removed type 33", 6, m.tensor(kQ).type = 33, kQ, "type", "found 33"),
    ROW("37 Q4_K row of 255", 3, add_extra(m, WeightType::kQ4_K, {255}), "extra", "255",
        "block size 256"),
    ROW("38 offset + 1", 3, m.tensor(kQ).offset = m.default_offset(kQ) + 1, kQ, "offset",
        "file size", "multiple of 32"),
    ROW("38 offset 2^64-1", 3, m.tensor(kQ).offset = kMax, kQ, "offset 18446744073709551615",
        "size 2048", "file size"),
    ROW("38 offset 2^64-32", 3, m.tensor(kQ).offset = kMax - 31, kQ, "offset 18446744073709551584",
        "size 2048", "file size"),
    ROW("38 offset past the end", 3, m.tensor(kQ).offset = 1U << 20, kQ, "offset 1048576",
        "size 2048", "file size"),
    ROW("39 overlapping offsets", 3,
        m.tensor("blk.0.attn_k.weight").offset = m.default_offset(kQ) + 32, "blk.0.attn_k.weight",
        kQ, "overlaps"),
    ROW("39 shared offsets", 3, m.tensor("blk.0.attn_k.weight").offset = m.default_offset(kQ),
        "blk.0.attn_k.weight", kQ, "overlaps"),
    ROW(
        "40 last tensor one byte short", 3,
        {
          m.tensors.back().data.pop_back();
          m.final_padding = false;
        },
        "blk.0.ffn_down.weight", "1 bytes missing"),
    ROW(
        "41 only final padding missing", 0,
        {
          add_extra(m, WeightType::kF32, {3}, 12);
          m.final_padding = false;
        },
        "extra"),
};

TEST_CASE("bad input 12-17: header", "[bad_input]") { check_rows(kHeaderRows); }
TEST_CASE("bad input 18-26: metadata", "[bad_input]") { check_rows(kEntryRows); }
TEST_CASE("bad input 29-41: tensor descriptions", "[bad_input]") { check_rows(kDescriptionRows); }
}  // namespace
}  // namespace llm::test
