// Rows 27, 28 and 42-60 of docs/bad_input.md: what a Llama and its vocabulary need.

#include "tests/support/test.h"
#include "tests/tools/bad_input_support.h"

namespace llm::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr const char* kBlocks = "llama.block_count";
constexpr const char* kHeads = "llama.attention.head_count";
constexpr const char* kKvHeads = "llama.attention.head_count_kv";
constexpr const char* kWidth = "llama.embedding_length";
constexpr const char* kRope = "llama.rope.dimension_count";
constexpr const char* kTheta = "llama.rope.freq_base";
constexpr const char* kEps = "llama.attention.layer_norm_rms_epsilon";
constexpr const char* kTokens = "tokenizer.ggml.tokens";
constexpr const char* kScores = "tokenizer.ggml.scores";
constexpr const char* kKinds = "tokenizer.ggml.token_type";
constexpr const char* kScaling = "llama.rope.scaling.type";
constexpr const char* kOriginal = "llama.rope.scaling.original_context_length";
constexpr const char* kWindow = "qwen3.attention.sliding_window";
constexpr const char* kPre = "tokenizer.ggml.pre";
constexpr const char* kTokenizer = "tokenizer.ggml.model";

/// Replaces the text of one token.
void set_piece(TinyGguf& m, std::size_t id, const std::string& text) {
  auto pieces = TinyGguf::pieces();
  pieces.at(id) = text;
  m.set_strings(kTokens, pieces);
}

void set_kind(TinyGguf& m, std::size_t id, std::int32_t kind) {
  auto kinds = TinyGguf::kinds();
  kinds[id] = kind;
  m.set_array(kKinds, GgufType::kInt32, kinds);
}

void set_score(TinyGguf& m, std::size_t id, float score) {
  auto scores = TinyGguf::scores();
  scores[id] = score;
  m.set_array(kScores, GgufType::kFloat32, scores);
}

/// Makes it a model of another architecture, or one of byte-level BPE.
TinyGguf& of_kind(TinyGguf& m, const char* architecture) {
  return m = TinyGguf::llama({.architecture = architecture});
}
TinyGguf& bpe(TinyGguf& m) {
  m.make_byte_bpe();
  return m;
}

void make_byte_bpe_without(TinyGguf& m, const char* token) {
  m.make_byte_bpe();
  auto tokens = TinyGguf::byte_bpe_tokens();
  std::ranges::replace(tokens, token, "another");
  m.set_strings(kTokens, tokens);
}

/// Adds `n` user-defined tokens of a kilobyte each.
void add_user_defined(TinyGguf& m, int n) {
  auto pieces = TinyGguf::pieces();
  auto scores = TinyGguf::scores();
  auto kinds = TinyGguf::kinds();
  for (int i = 0; i < n; ++i) {
    pieces.push_back(std::string(1000, 'x') + std::to_string(i));
    scores.push_back(0);
    kinds.push_back(4);
  }
  m.set_u32("llama.vocab_size", static_cast<std::uint32_t>(pieces.size()));
  for (const char* name : {"token_embd.weight", "output.weight"}) {
    auto& tensor = m.tensor(name);
    tensor.data.resize(tensor.data.size() / tensor.dims[1] * pieces.size());
    tensor.dims[1] = pieces.size();
  }
  m.set_strings(kTokens, pieces);
  m.set_array(kScores, GgufType::kFloat32, scores);
  m.set_array(kKinds, GgufType::kInt32, kinds);
}

void add_tensor(TinyGguf& m, const std::string& name, std::vector<std::uint64_t> dims,
                std::size_t bytes) {
  m.tensors.push_back(
      {.name = name, .dims = std::move(dims), .type = 0, .data = std::string(bytes, '\0')});
}

constexpr BadInputRow kParameterRows[] = {
    ROW("27 architecture absent", 3, m.remove("general.architecture"), "general.architecture",
        "absent"),
    KEY("27 architecture unknown", 6, "general.architecture", set_string, "qwen9", "\"qwen9\"",
        "need one of: llama"),
    KEY("28 block_count as string", 3, kBlocks, set_string, "1", "found STRING", "need UINT32"),
    KEY("28 block_count as float", 3, kBlocks, set_f32, 1.0F, "found FLOAT32", "need UINT32"),
    ROW("28 block_count -1", 3, m.set(kBlocks, GgufType::kInt32, std::int32_t{-1}), kBlocks,
        "found INT32", "need UINT32"),
    ROW("28 block_count absent", 3, m.remove(kBlocks), kBlocks, "absent", "need UINT32"),
    KEY("45 head_count 0", 3, kHeads, set_u32, 0, "found 0"),
    KEY("45 head_count 2^31", 3, kHeads, set_u32, 1U << 31, "found 2147483648"),
    ROW("45 head_count array of wrong length", 3,
        m.set_array(kHeads, GgufType::kUint32, std::vector<std::uint32_t>{4, 4}), kHeads, "n = 2",
        "one value a layer: 1"),
    ROW("45 head_count array of right length loads", 0,
        m.set_array(kHeads, GgufType::kUint32, std::vector<std::uint32_t>{4})),
    KEY("46 head_count_kv 0", 3, kKvHeads, set_u32, 0, "found 0", kHeads),
    KEY("46 head_count_kv > heads", 3, kKvHeads, set_u32, 8, "found 8", kHeads, "= 4"),
    KEY("46 head_count_kv no divisor", 3, kKvHeads, set_u32, 3, "found 3", kHeads, "= 4"),
    KEY("47 embedding_length != token_embd", 3, kWidth, set_u32, 64, "found 64", "32",
        "token_embd.weight"),
    ROW("47 embedding_length % heads", 3, (m.set_u32(kHeads, 5), m.set_u32(kKvHeads, 5)), kWidth,
        "found 32", kHeads, "= 5"),
    KEY("48 block_count 0", 3, kBlocks, set_u32, 0, "found 0", "need 1", "blocks present"),
    KEY("48 block_count 2^32-1", 3, kBlocks, set_u32, UINT32_MAX, "found 4294967295", "need 1",
        "blocks present"),
    ROW("48 block_count 2^32-1 and such a block", 3,
        (m.set_u32(kBlocks, UINT32_MAX),
         add_tensor(m, "blk.4294967294.attn_norm.weight", {32}, 128)),
        kBlocks, "4294967295", "number of tensors"),
    KEY("49 context_length 0", 3, "llama.context_length", set_u32, 0, "found 0"),
    KEY("50 rope dims odd", 3, kRope, set_u32, 7, "found 7", "even"),
    KEY("50 rope dims > head_dim", 3, kRope, set_u32, 10, "found 10", "head dim 8"),
    KEY("50 rope base NaN", 3, kTheta, set_f32, kNan, "found nan"),
    KEY("50 rope base 0", 3, kTheta, set_f32, 0.0F, "found 0"),
    KEY("50 eps NaN", 3, kEps, set_f32, kNan, "found nan"),
    KEY("50 eps -1", 3, kEps, set_f32, -1.0F, "found -1"),
    KEY("RoPE scaling of another kind", 6, kScaling, set_string, "longrope", "\"longrope\"",
        "none, linear, yarn"),
    ROW("YaRN without its context", 3, m.set_string(kScaling, "yarn"), kOriginal, "absent"),
    ROW("YaRN over no context", 3, (m.set_string(kScaling, "yarn"), m.set_u32(kOriginal, 0)),
        kOriginal, "found 0"),
    ROW("YaRN whose ramp ends before it begins", 3,
        (m.set_string(kScaling, "yarn"), m.set_u32(kOriginal, 16),
         m.set_f32("llama.rope.scaling.yarn_beta_fast", 0.5F)),
        "llama.rope.scaling.yarn_beta_fast", "found 0.5", "at least"),
    ROW("YaRN of the magnitude that it has by itself", 0,
        (m.set_string(kScaling, "yarn"), m.set_u32(kOriginal, 16),
         m.set_f32("llama.rope.scaling.factor", 8.0F),
         m.set_f32("llama.rope.scaling.yarn_attn_factor", 1.2079442F))),
    ROW("YaRN of another magnitude", 6,
        (m.set_string(kScaling, "yarn"), m.set_u32(kOriginal, 16),
         m.set_f32("llama.rope.scaling.factor", 8.0F),
         m.set_f32("llama.rope.scaling.yarn_attn_factor", 1.5F)),
        "llama.rope.scaling.yarn_attn_factor", "found 1.5", "need 1 or 1.20794"),
    KEY("queries scaled by position", 6, "llama.attention.temperature_scale", set_f32, 0.1F,
        "found 0.1"),
    ROW("queries scaled by position, without its period", 3,
        (of_kind(m, "mistral3").set_string("mistral3.rope.scaling.type", "none"),
         m.remove("mistral3.rope.scaling.original_context_length")),
        "mistral3.rope.scaling.original_context_length", "absent"),
    KEY("RoPE scaling that has no name", 6, kScaling, set_string, "su", "\"su\"", "none, linear"),
    ROW("a window below the context", 0, m.set_u32("llama.attention.sliding_window", 63)),
    ROW("a window below the context where the architecture has none", 6,
        of_kind(m, "qwen3").set_u32(kWindow, 63), kWindow, "found 63", "64"),
    ROW("a window that covers the context", 0, of_kind(m, "qwen3").set_u32(kWindow, 64)),
    KEY("capped logits", 6, "llama.final_logit_softcapping", set_f32, 30.0F, "found 30", "need 0"),
    KEY("scaled logits", 6, "llama.logit_scale", set_f32, 0.5F, "found 0.5", "need 0 or 1"),
    ROW("logits scaled by 1", 0, m.set_f32("llama.logit_scale", 1.0F)),
    ROW("attention to all sides", 6,
        m.set<std::uint8_t>("llama.attention.causal", GgufType::kBool, 0), "llama.attention.causal",
        "found 0", "need 1"),
    ROW("RoPE over several positions", 6,
        m.set_array<std::int32_t>("llama.rope.dimension_sections", GgufType::kInt32, {1, 1, 2, 0}),
        "llama.rope.dimension_sections", "found ARRAY of INT32"),
    ROW("a model without a scale that it must have", 3,
        of_kind(m, "minicpm").remove("minicpm.logit_scale"), "minicpm.logit_scale", "absent"),
    ROW("a scale of 0 in a model that must have one", 3,
        of_kind(m, "minicpm").set_f32("minicpm.logit_scale", 0), "minicpm.logit_scale", "found 0"),
    ROW("values of images in some layers", 6, m.set_u32("llama.n_deepstack_layers", 1),
        "llama.n_deepstack_layers", "found 1", "need 0"),
    ROW("values of images in all layers, which texts lack", 0,
        of_kind(m, "qwen3vl").set_u32("qwen3vl.n_deepstack_layers", 1)),
    ROW("values of images in more layers than there are", 3,
        of_kind(m, "qwen3vl").set_u32("qwen3vl.n_deepstack_layers", 2),
        "qwen3vl.n_deepstack_layers", "found 2", "need at most the number of layers 1"),
    ROW("what reads images", 6, m.set_string("general.architecture", "clip"),
        "general.architecture", "the file of the language model"),
    KEY("mixture of experts", 6, "llama.expert_count", set_u32, 8, "found 8"),
};

constexpr BadInputRow kTensorRows[] = {
    ROW("42 required tensor absent", 3, m.remove_tensor("blk.0.ffn_up.weight"),
        "blk.0.ffn_up.weight", "absent"),
    ROW("42 embedding absent", 3, m.remove_tensor("token_embd.weight"), "token_embd.weight",
        "absent"),
    ROW("42 unknown in a layer", 6, add_tensor(m, "blk.0.odd", {8}, 32), "blk.0.odd", "need none"),
    ROW("42 unknown extra", 0, add_tensor(m, "odd", {8}, 32), "odd", "unknown"),
    ROW("42 output.weight absent: tied", 0, m.remove_tensor("output.weight")),
    ROW("43 transposed attn_k", 3, m.tensor("blk.0.attn_k.weight").dims.assign({16, 32}),
        "blk.0.attn_k.weight", "found shape [16, 32]", "need [32, 16]"),
    ROW("44 norm stored as Q4_0", 6,
        m.tensor("blk.0.attn_norm.weight").type = static_cast<std::uint32_t>(WeightType::kQ4_0),
        "blk.0.attn_norm.weight", "found type Q4_0", "F32"),
    ROW("attention bias", 6, add_tensor(m, "blk.0.attn_q.bias", {32}, 128), "blk.0.attn_q.bias",
        "\"attn_q.bias\"", "architecture llama"),
    ROW("head norms in a llama", 6, add_tensor(m, "blk.0.attn_q_norm.weight", {8}, 32),
        "blk.0.attn_q_norm.weight", "\"attn_q_norm.weight\"", "architecture llama"),
    ROW("output bias in a qwen2", 6,
        add_tensor(of_kind(m, "qwen2"), "blk.0.attn_output.bias", {32}, 128),
        "blk.0.attn_output.bias", "\"attn_output.bias\"", "architecture qwen2"),
    ROW("qwen2 without a bias", 3, of_kind(m, "qwen2").remove_tensor("blk.0.attn_k.bias"),
        "blk.0.attn_k.bias", "absent", "architecture qwen2"),
    ROW("qwen2 with a bias of another length", 3,
        of_kind(m, "qwen2").tensor("blk.0.attn_k.bias").dims.assign({8, 2}), "blk.0.attn_k.bias",
        "found shape [8, 2]", "need [16]"),
    ROW("qwen3 without a head norm", 3,
        of_kind(m, "qwen3").remove_tensor("blk.0.attn_k_norm.weight"), "blk.0.attn_k_norm.weight",
        "absent", "architecture qwen3"),
    ROW("qwen3 with a bias", 6, add_tensor(of_kind(m, "qwen3"), "blk.0.attn_q.bias", {96}, 384),
        "blk.0.attn_q.bias", "architecture qwen3"),
    ROW("rope_freqs of zeros", 3, add_tensor(m, "rope_freqs.weight", {4}, 16), "rope_freqs.weight",
        "found 0 at index 0"),
};

constexpr const char* kMerges = "tokenizer.ggml.merges";

constexpr BadInputRow kVocabRows[] = {
    KEY("51 vocab_size != tokens", 3, "llama.vocab_size", set_u32, 273, "273", "272 tokens",
        "272 rows"),
    ROW("51 embedding rows != tokens", 3, m.tensor("token_embd.weight").dims[1] = 240, "272 tokens",
        "240 rows"),
    ROW("52 tokens absent", 3, m.remove(kTokens), kTokens, "absent"),
    ROW("52 tokens INT32", 3,
        m.set_array(kTokens, GgufType::kInt32, std::vector<std::int32_t>(272)), kTokens,
        "ARRAY of INT32", "ARRAY of STRING"),
    ROW("52 tokens n = 0", 3, m.set_strings(kTokens, {}), kTokens, "0 tokens"),
    ROW("53 scores absent", 3, m.remove(kScores), kScores, "absent", "ARRAY of FLOAT32"),
    ROW("53 scores short", 3, m.set_array(kScores, GgufType::kFloat32, std::vector<float>(271)),
        kScores, "length 271", "272"),
    ROW("53 scores INT8", 3, m.set_array(kScores, GgufType::kInt8, std::vector<std::int8_t>(272)),
        kScores, "ARRAY of INT8", "ARRAY of FLOAT32"),
    ROW("53 score NaN", 3, set_score(m, 260, kNan), kScores, "NaN", "index 260"),
    ROW("54 token_type short", 3,
        m.set_array(kKinds, GgufType::kInt32, std::vector<std::int32_t>(3, 1)), kKinds, "length 3",
        "272"),
    ROW("54 token_type 99", 3, set_kind(m, 7, 99), kKinds, "found 99", "index 7"),
    ROW("59 byte-level BPE without a pre-tokenizer", 6, m.set_string(kTokenizer, "gpt2"), kPre,
        "found no key", "llama-bpe, ", "tekken"),
    ROW("59 an unknown pre-tokenizer", 6,
        (m.set_string(kTokenizer, "gpt2"), m.set_string(kPre, "gpt-5")), kPre, "found \"gpt-5\"",
        "llama-bpe, ", "tekken"),
    ROW("58 a byte-level vocabulary with byte tokens", 3,
        (m.set_string(kTokenizer, "gpt2"), m.set_string(kPre, "gpt-2")), kTokens, "byte token id 3",
        "need none in byte-level BPE"),
    ROW("58 a byte without a token", 3, make_byte_bpe_without(m, "c"), kTokens,
        "no token \"c\" for byte 0x63"),
    ROW("a byte-level vocabulary", 0, m.make_byte_bpe()),
    ROW("90 merges absent", 3, bpe(m).remove(kMerges), kMerges, "absent"),
    ROW("90 no merges", 3, bpe(m).set_strings(kMerges, {}), kMerges, "found no merges",
        "need at least one"),
    ROW("58 a byte that is not printable ASCII may lack a token", 0,
        make_byte_bpe_without(m, "\u0104")),
    ROW("90 a merge without a space", 3, bpe(m).set_strings(kMerges, {"a b", "ab"}), kMerges,
        "\"ab\" at index 1", "two tokens"),
    ROW("90 a merge of three", 3, bpe(m).set_strings(kMerges, {"a b c"}), kMerges,
        "\"a b c\" at index 0", "two tokens"),
    ROW("90 a merge of an unknown token", 3, bpe(m).set_strings(kMerges, {"a qq"}), kMerges,
        "\"a qq\" at index 0", "names \"qq\""),
    ROW("90 a merge that makes no token", 3, bpe(m).set_strings(kMerges, {"b a"}), kMerges,
        "\"b a\" at index 0", "names \"ba\""),
    ROW("90 a merge that makes a control token", 3, bpe(m).set_strings(kMerges, {"c d"}), kMerges,
        "names \"cd\""),
    KEY("55 bos >= vocab", 3, "tokenizer.ggml.bos_token_id", set_u32, 272, "272"),
    KEY("55 eos >= vocab", 3, "tokenizer.ggml.eos_token_id", set_u32, UINT32_MAX - 1, "4294967294",
        "272"),
    KEY("55 unknown >= vocab", 3, "tokenizer.ggml.unknown_token_id", set_u32, 1000, "1000", "272"),
    KEY("55 a token of fill-in-the-middle >= vocab", 3, "tokenizer.ggml.fim_sep_token_id", set_u32,
        272, "272"),
    ROW("55 0xFFFFFFFF means none", 0, m.set_u32("tokenizer.ggml.eos_token_id", UINT32_MAX)),
    ROW("56 token invalid UTF-8", 0, set_piece(m, 260, "a\xFF"), kTokens, "invalid UTF-8", "260"),
    ROW("56 token empty", 0, set_piece(m, 261, ""), kTokens, "empty", "261"),
    ROW("56 token of 1 MiB", 3, set_piece(m, 262, std::string(1U << 20, 'x')), kTokens,
        "token id 262", "1048576 bytes"),
    ROW("56 control token of 1025 bytes", 3,
        (set_kind(m, 262, 3), set_piece(m, 262, std::string(1025, 'x'))), kTokens,
        "token id 262, control or user-defined, of 1025 bytes", "1024"),
    ROW("56 5 MB of user-defined tokens", 3, add_user_defined(m, 5000), kTokens,
        "bytes of control and user-defined tokens", "4194304"),
    ROW("57 duplicate tokens", 0, set_piece(m, 265, "he"), kTokens, "duplicate tokens",
        "265 repeats 260", "first"),
    ROW("58 <0x-1>", 3, set_piece(m, 13, "<0x-1>"), kTokens, "token id 13", "<0x-1>"),
    ROW("58 <0xZZ>", 3, set_piece(m, 13, "<0xZZ>"), kTokens, "token id 13", "<0xZZ>"),
    ROW("58 missing <0x0A>", 3, set_kind(m, 13, 1), kTokens, "no token id for <0x0A>"),
    ROW("58 neither byte tokens nor an unknown token", 3,
        (m.set_array(kKinds, GgufType::kInt32, std::vector<std::int32_t>(272, 1)),
         m.set_u32("tokenizer.ggml.unknown_token_id", UINT32_MAX)),
        kTokens, "found neither"),
    KEY("59 unknown tokenizer model", 6, kTokenizer, set_string, "bert", "\"bert\"", "\"llama\""),
    ROW("60 10 MB chat template", 6,
        m.set_string("tokenizer.chat_template", std::string(10000000, 't')),
        "tokenizer.chat_template", "10000000 bytes", "cap"),
};

TEST_CASE("bad input 27-28, 45-50: hyper-parameters", "[bad_input]") { check_rows(kParameterRows); }
TEST_CASE("bad input 42-44: tensors of a Llama", "[bad_input]") { check_rows(kTensorRows); }
TEST_CASE("bad input 51-60: vocabulary", "[bad_input]") { check_rows(kVocabRows); }
}  // namespace
}  // namespace llm::test
