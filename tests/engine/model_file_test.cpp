// What a valid file gives: hyper-parameters, vocabulary, tensor views. What an invalid one gives is
// tested row by row in tests/tools/bad_input_*.

#include "engine/model/model_file.h"

#include "base/sha256.h"
#include "engine/model/model.h"
#include "engine/model/rope.h"
#include "quant/formats/finite.h"
#include "tests/support/test.h"
#include "tests/support/tiny_gguf.h"

namespace llm::test {
namespace {

HyperParameters config_of(const TinyGguf& file) {
  const auto bytes = file.bytes();
  return require_ok(open_model_bytes(bytes)).config;
}

/// What opening it says, of this kind and with these words.
Error refused(const TinyGguf& file, ErrorCode code, Words words = {}) {
  const auto bytes = file.bytes();
  return must_fail(open_model_bytes(bytes), code, words);
}

TEST_CASE("a file without output.weight is tied", "[model]") {
  const auto bytes = TinyGguf::llama({.tied_output = true}).bytes();
  const auto model = require_ok(open_model_bytes(bytes));
  CHECK(model.tensors.own_output.empty());
  CHECK(model.tensors.output().data.data() == model.tensors.token_embd.data.data());
}

TEST_CASE("RoPE scaling, divisors and head dim", "[model]") {
  TinyGguf file = TinyGguf::llama();
  file.set_string("llama.rope.scaling.type", "linear");
  file.set_f32("llama.rope.scaling.factor", 4.0F);
  file.set_u32("llama.rope.dimension_count", 4);
  file.tensors.push_back(
      {.name = "rope_freqs.weight", .dims = {2}, .type = 0, .data = encoded(1.0F) + encoded(8.0F)});
  SECTION("linear") {
    const auto bytes = file.bytes();
    const auto model = require_ok(open_model_bytes(bytes));
    CHECK(model.config.rope_of(0).scale == 4.0F);
    CHECK(model.config.rope_of(0).dims == 4);
    CHECK(model.tensors.rope_divisors.n_cols == 2);
  }
  SECTION("none: the factor is not used") {
    file.set_string("llama.rope.scaling.type", "none");
    CHECK(config_of(file).rope_of(0).scale == 1.0F);
  }
  SECTION("the older name of the factor") {
    file.remove("llama.rope.scaling.type");
    file.remove("llama.rope.scaling.factor");
    file.set_f32("llama.rope.scale_linear", 2.0F);
    CHECK(config_of(file).rope_of(0).scale == 2.0F);
  }
  SECTION("an odd head dim is refused") {
    file.set_u32("llama.attention.key_length", 7);
    refused(file, ErrorCode::kUnsupported, {"found a head dim of 7"});
  }
  SECTION("key_length gives the head dim") {
    file.set_u32("llama.attention.key_length", 16);
    refused(file, ErrorCode::kMalformed, {"blk.0.attn_q.weight", "need [32, 64]"});
  }
}

VocabSpec vocab_of(const TinyGguf& file) {
  const auto bytes = file.bytes();
  const auto gguf = require_ok(GgufFile::parse(bytes));
  std::vector<std::string> warnings;
  return require_ok(vocab_from_gguf(gguf, warnings));
}

TEST_CASE("vocabulary: kinds, flags, special ids", "[model]") {
  TinyGguf file = TinyGguf::llama();
  SECTION("flags and ids that the file sets") {
    file.set<std::uint8_t>("tokenizer.ggml.add_bos_token", GgufType::kBool, 0);
    file.set<std::uint8_t>("tokenizer.ggml.add_eos_token", GgufType::kBool, 1);
    file.set<std::uint8_t>("tokenizer.ggml.add_space_prefix", GgufType::kBool, 0);
    file.set_u32("tokenizer.ggml.eot_token_id", 265);
    file.set_u32("tokenizer.ggml.bos_token_id", UINT32_MAX);
    const VocabSpec vocab = vocab_of(file);
    CHECK_FALSE(vocab.add_bos);
    CHECK(vocab.add_eos);
    CHECK_FALSE(vocab.add_space_prefix);
    CHECK_FALSE(vocab.bos.has_value());
    CHECK(vocab.end_of_generation == std::vector<TokenId>{2, 265});
  }
  SECTION("ids and kinds that the file leaves out") {
    file.remove("tokenizer.ggml.bos_token_id");
    file.remove("tokenizer.ggml.eos_token_id");
    file.remove("tokenizer.ggml.unknown_token_id");
    file.remove("tokenizer.ggml.token_type");
    const VocabSpec vocab = vocab_of(file);
    CHECK(vocab.bos == 1);
    CHECK(vocab.eos == 2);
    CHECK(vocab.unknown == 0);
    CHECK(vocab.tokens[13].kind == TokenKind::kByte);
    CHECK(vocab.tokens[260].kind == TokenKind::kNormal);
  }
  SECTION("a chat model's end of turn") {
    auto pieces = TinyGguf::pieces();
    auto kinds = TinyGguf::kinds();
    pieces[270] = "<|im_end|>";
    kinds[270] = 3;
    file.set_strings("tokenizer.ggml.tokens", pieces);
    file.set_array("tokenizer.ggml.token_type", GgufType::kInt32, kinds);
    CHECK(vocab_of(file).end_of_generation == std::vector<TokenId>{2, 270});
  }
}

TEST_CASE("vocabulary: tokens of fill-in-the-middle", "[model]") {
  TinyGguf file = TinyGguf::llama();
  auto pieces = TinyGguf::pieces();
  const auto read = [&] {
    file.set_strings("tokenizer.ggml.tokens", pieces);
    return vocab_of(file);
  };
  // -1: none
  using Ids = std::vector<TokenId>;
  const auto ids_of = [](const auto& fim) {
    Ids ids;
    for (const auto& id :
         {fim.prefix, fim.suffix, fim.middle, fim.pad, fim.repository, fim.file_separator})
      ids.push_back(id.value_or(-1));
    return ids;
  };
  SECTION("none") { CHECK(ids_of(read().fim) == Ids(6, -1)); }
  SECTION("by their texts, of any kind; the last three end a text") {
    const auto texts =
        GENERATE(std::vector<std::string>{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>",
                                          "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"},
                 std::vector<std::string>{"<fim_prefix>", "<fim_suffix>", "<fim_middle>",
                                          "<fim_pad>", "<reponame>", "<file_sep>"},
                 std::vector<std::string>{"\u2581<PRE>", "\u2581<SUF>", "\u2581<MID>", "[PAD]",
                                          "<REPO>", "<|file_sep|>"},
                 std::vector<std::string>{
                     "<\uFF5Cfim\u2581begin\uFF5C>", "<\uFF5Cfim\u2581hole\uFF5C>",
                     "<\uFF5Cfim\u2581end\uFF5C>", "<PAD>", "<fim-repo>", "<|file_sep|>"});
    CAPTURE(texts.front());
    std::ranges::copy(texts, pieces.begin() + 262);
    const VocabSpec vocab = read();
    CHECK(ids_of(vocab.fim) == Ids{262, 263, 264, 265, 266, 267});
    CHECK(vocab.end_of_generation == std::vector<TokenId>{2, 265, 266, 267});
  }
  SECTION("keys win over texts, new keys over old ones") {
    pieces[262] = "<|fim_prefix|>";
    pieces[263] = "<|fim_pad|>";
    pieces[264] = "<|fim_middle|>";
    file.set_u32("tokenizer.ggml.fim_pre_token_id", 265);
    file.set_u32("tokenizer.ggml.prefix_token_id", 266);
    file.set_u32("tokenizer.ggml.suffix_token_id", 267);
    file.set_u32("tokenizer.ggml.fim_pad_token_id", 268);
    file.set_u32("tokenizer.ggml.fim_sep_token_id", 269);
    const VocabSpec vocab = read();
    CHECK(ids_of(vocab.fim) == Ids{265, 267, 264, 268, -1, 269});
    CHECK(vocab.end_of_generation == std::vector<TokenId>{2, 268, 269});
  }
}

TEST_CASE("files of other makers open", "[model]") {
  const char* data = std::getenv("LLM_TEST_DATA");
  if (data == nullptr) {
    WARN("skipped: LLM_TEST_DATA is not set");
    return;
  }
  const auto model = require_ok(open_model_file(std::string(data) + "/stories260K.gguf"));
  CHECK(model.config.n_layers == 5);
  CHECK(model.config.n_vocab == 512);
  CHECK(model.warnings.empty());
  std::vector<std::string> warnings;
  const auto vocab =
      require_ok(open_vocab_file(std::string(data) + "/llama-spm-vocab.gguf", warnings));
  CHECK(vocab.tokens.size() == 32000);
  CHECK(warnings.empty());
}

}  // namespace
TEST_CASE("scales of Granite and of large Gemmas are read", "[model]") {
  TinyGguf granite = TinyGguf::llama({.architecture = "granite"});
  // Of embedding, scores and residuals, and what divides logits.
  const auto scales_of = [](const HyperParameters& c) {
    return std::array{c.embedding_scale, c.attention(0).scale, c.residual_scale, c.logit_divisor};
  };
  CHECK(scales_of(config_of(granite)) == std::array{3.0F, 0.2F, 0.7F, 1.3F});
  for (const char* key : {"embedding_scale", "attention.scale", "residual_scale", "logit_scale"})
    granite.set_f32(std::string("granite.") + key, 0);
  CHECK(scales_of(config_of(granite)) ==
        std::array{1.0F, static_cast<float>(1 / std::sqrt(8.0)), 1.0F, 1.0F});
  granite.set<std::uint8_t>("granite.rope.scaling.finetuned", GgufType::kBool, 0);
  CHECK(refused(granite, ErrorCode::kUnsupported).field == "granite.rope.scaling.finetuned");
  granite.set<std::uint8_t>("granite.rope.scaling.finetuned", GgufType::kBool, 1);
  granite.set_f32("granite.residual_scale", -1);
  CHECK(refused(granite, ErrorCode::kMalformed).field == "granite.residual_scale");

  const auto usual = config_of(TinyGguf::llama({.n_layers = 6, .architecture = "gemma3"}));
  CHECK(usual.attention(5).scale == static_cast<float>(1 / std::sqrt(8.0)));
  // 1 / sqrt(d_model / n_heads), whatever head_dim is.
  const auto wide = config_of(TinyGguf::llama({.n_layers = 62, .architecture = "gemma3"}));
  CHECK(wide.attention(61).scale == static_cast<float>(1 / std::sqrt(32.0 / 4)));
}

TEST_CASE("a Gemma 4's layers share keys, and its keys agree with its layers", "[model]") {
  const auto made = [] { return TinyGguf::llama({.n_layers = 4, .architecture = "gemma4"}); };
  const HyperParameters config = config_of(made());
  const auto source = [&](std::size_t layer) { return config.attention(layer).kv_of_layer; };
  CHECK(!source(0));
  CHECK(!source(1));
  CHECK(source(2) == std::size_t{0});  // the last before them with a window
  CHECK(source(3) == std::size_t{1});
  CHECK(config.attention(1).v_is_k);
  CHECK(config.attention(0).head_dim == 12);
  CHECK(config.attention(1).head_dim == 8);
  CHECK(config.attention(0).scale == 1.0F);
  CHECK(config.logit_cap == 4.0F);
  CHECK(config.d_inputs == 4 * config.d_input());

  // Checkpoints have keys of layers that do not use them.
  TinyGguf file = made();
  file.tensors.push_back(file.tensor("blk.1.attn_k.weight"));
  file.tensors.back().name = "blk.3.attn_k.weight";
  config_of(file);

  const auto key = [](const char* suffix) { return std::string("gemma4.") + suffix; };
  file = made();
  file.set_u32(key("attention.shared_kv_layers"), 4);
  CHECK(refused(file, ErrorCode::kMalformed).field == key("attention.shared_kv_layers"));
  file.set_u32(key("attention.shared_kv_layers"), 3);  // no layer without a window is before them
  CHECK(refused(file, ErrorCode::kMalformed).field == key("attention.shared_kv_layers"));
  file = made();
  file.set_u32(key("embedding_length_per_layer_input"), 1U << 23);
  CHECK(refused(file, ErrorCode::kMalformed).field == key("embedding_length_per_layer_input"));
  file = made();
  file.set_f32(key("final_logit_softcapping"), -1);
  CHECK(refused(file, ErrorCode::kMalformed).field == key("final_logit_softcapping"));
  file = made();
  file.set_array(key("attention.sliding_window_pattern"), GgufType::kBool,
                 std::vector<std::uint8_t>{1, 0});
  CHECK(refused(file, ErrorCode::kMalformed).field == key("attention.sliding_window_pattern"));
  file = made();
  file.set_u32(key("expert_count"), 8);  // its layers have no experts
  refused(file, ErrorCode::kMalformed, {"expert_feed_forward_length"});
  file = made();
  file.remove_tensor("rope_freqs.weight");
  refused(file, ErrorCode::kMalformed, {"rope_freqs.weight"});
  TinyGguf llama = TinyGguf::llama();
  llama.set_u32("llama.attention.shared_kv_layers", 1);
  CHECK(refused(llama, ErrorCode::kUnsupported).field == "llama.attention.shared_kv_layers");
}

TEST_CASE("YaRN and attention factors", "[model]") {
  const auto rope_of = [](const TinyGguf& file) {
    const RopeSpec spec = config_of(file).ropes.front();
    const Rope rope(spec, {});
    std::vector<float> cos(rope.pairs());
    std::vector<float> sin(rope.pairs());
    rope.angles(1, cos, sin);
    std::vector<double> out = {spec.magnitude};
    for (std::size_t i = 0; i < rope.pairs(); ++i)
      out.push_back(std::atan2(static_cast<double>(sin[i]), static_cast<double>(cos[i])));
    return out;
  };
  const auto check = [](const std::vector<double>& actual, const std::vector<double>& expected) {
    REQUIRE(actual.size() == expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i) {
      CAPTURE(i);
      CHECK(std::abs(actual[i] - expected[i]) <= 2e-6 * expected[i]);
    }
  };
  const auto yarn = [](const std::string& architecture, float factor, std::uint32_t original,
                       float theta) {
    TinyGguf file = TinyGguf::llama({.architecture = architecture});
    file.set_string(architecture + ".rope.scaling.type", "yarn");
    file.set_f32(architecture + ".rope.scaling.factor", factor);
    file.set_u32(architecture + ".rope.scaling.original_context_length", original);
    file.set_f32(architecture + ".rope.freq_base", theta);
    return file;
  };
  // Magnitude and frequencies by transformers 5.23.0 (ROPE_INIT_FUNCTIONS["yarn"]), with
  // "truncate": false for gpt-oss alone.
  check(
      rope_of(yarn("gpt-oss", 32, 4096, 150000.0F)),
      {1.3465735902799727, 1.0, 0.05081327259540558, 0.0004564839182421565, 4.099978468730114e-06});
  TinyGguf qwen3 = yarn("qwen3", 4, 32768, 1000000.0F);
  check(rope_of(qwen3), {1.138629436111989, 1.0, 0.3162277638912201, 0.09999999403953552,
                         0.03162277862429619, 0.009999998845160007, 0.002569351112470031,
                         0.0006250000442378223, 0.00013834968558512628, 2.4999992092489265e-05,
                         7.905693564680405e-06, 2.5000008463393897e-06, 7.90569231412519e-07});
  qwen3.set_f32("qwen3.rope.scaling.attn_factor", 0.5F);
  CHECK(rope_of(qwen3)[0] == Approx(0.5 * (0.1 * std::log(4.0) + 1)));
  CHECK(rope_of(TinyGguf::llama({.architecture = "phi3"}))[0] == static_cast<double>(1.2F));
  TinyGguf mistral3 = yarn("mistral3", 4, 8, 10000.0F);
  CHECK(rope_of(mistral3)[0] == 1);
  mistral3.set_f32("mistral3.rope.scaling.yarn_log_multiplier", 0.5F);
  CHECK(rope_of(mistral3)[0] == Approx((0.1 * std::log(4.0) + 1) / (0.05 * std::log(4.0) + 1)));

  TinyGguf phi3 = TinyGguf::llama({.architecture = "phi3"});
  phi3.tensors.push_back(
      {.name = "rope_factors_short.weight", .dims = {4}, .type = 0, .data = std::string(16, '\0')});
  phi3.set_u32("phi3.rope.scaling.original_context_length", 64);
  CHECK(rope_of(phi3)[2] == Approx(0.1));
  phi3.tensors.back().name = "rope_factors_long.weight";
  CHECK(refused(phi3, ErrorCode::kUnsupported).field ==
        "phi3.rope.scaling.original_context_length");
}

TEST_CASE("a scale beside a matrix has one number, or one for each expert", "[model]") {
  const auto with = [](const char* architecture, const std::string& name,
                       const std::vector<float>& values, std::uint32_t type = 0) {
    TinyGguf file = TinyGguf::llama({.architecture = architecture});
    std::string data;
    for (const float value : values) data += encoded(value);
    file.tensors.push_back({.name = name, .dims = {values.size()}, .type = type, .data = data});
    return file;
  };
  const std::string up = "blk.0.ffn_up.scale";
  const std::vector<float> five(5, 0.5F);
  const auto experts = with("qwen3moe", "blk.0.ffn_up_exps.scale", five).bytes();
  CHECK(require_ok(open_model_bytes(experts)).tensors.layers[0].ffn_up.scales == five);
  CHECK(refused(with("llama", up, five), ErrorCode::kMalformed, {"need [1]"}).field ==
        "tensor \"" + up + "\"");
  refused(with("qwen3moe", "blk.0.ffn_up_exps.scale", {1.0F}), ErrorCode::kMalformed, {"need [5]"});
  refused(with("llama", up, {INFINITY}), ErrorCode::kNonFinite, {"index 0"});
  refused(with("llama", up, {1.0F, 1.0F}, 30), ErrorCode::kUnsupported, {"found type BF16"});
  refused(with("qwen3moe", "blk.0.ffn_gate_inp.scale", {1.0F}), ErrorCode::kUnsupported);
  refused(with("llama", "token_embd.scale", {1.0F}), ErrorCode::kUnsupported);
}

TEST_CASE("fused matrices and experts' biases have shapes of their own", "[model]") {
  TinyGguf phi3 = TinyGguf::llama({.architecture = "phi3"});
  phi3.tensor("blk.0.attn_qkv.weight").dims = {32, 32};
  CHECK(refused(phi3, ErrorCode::kMalformed, {"need [32, 64]"}).field ==
        "tensor \"blk.0.attn_qkv.weight\"");
  TinyGguf gpt_oss = TinyGguf::llama({.architecture = "gpt-oss"});
  gpt_oss.tensor("blk.0.ffn_up_exps.bias").dims = {5, 256};
  CHECK(refused(gpt_oss, ErrorCode::kMalformed, {"need [256, 5] (elements, experts)"}).field ==
        "tensor \"blk.0.ffn_up_exps.bias\"");
}

namespace {

TEST_CASE("a model knows the hash of the bytes it was made of", "[model]") {
  const ScratchDirectory directory;
  const auto bytes = TinyGguf::llama().bytes();
  const std::string path = directory.write("m.gguf", bytes);
  const std::string hash = sha256_hex(bytes);

  const auto plain = require_ok(Model::load(path));
  CHECK(plain->file_sha256().empty());
  const auto hashed = require_ok(Model::load(path, {.hash_file = true}));
  CHECK(hashed->file_sha256() == hash);
  const auto f32 = require_ok(hashed->with_compute(Compute::kF32));
  CHECK(f32->file_sha256() == hash);
  CHECK(Model::load(path, {.expected_sha256 = hash}).ok());

  must_fail(Model::load(path, {.expected_sha256 = std::string(64, '0')}), ErrorCode::kIntegrity,
            {path + ": SHA-256: found " + hash + ", need 0000"});
}

TEST_CASE("a file replaced while it is loaded lends its hash to nobody", "[model]") {
  const ScratchDirectory directory;
  const auto bytes = TinyGguf::llama().bytes();
  const auto others = TinyGguf::llama({.seed = 2}).bytes();
  const std::string path = directory.write("m.gguf", bytes);
  directory.write("other.gguf", others);
  LoadOptions options{.hash_file = true};
  // The first report comes when the file is open.
  options.progress = [&](std::string_view, std::size_t, std::size_t) {
    if (std::filesystem::exists(directory / "other.gguf"))
      std::filesystem::rename(directory / "other.gguf", path);
  };
  const auto model = require_ok(Model::load(path, options));
  REQUIRE(read_file(path).size() == others.size());
  CHECK(model->file_sha256() == sha256_hex(bytes));
}

TEST_CASE("a file overwritten while it is hashed and read is refused", "[model]") {
  const ScratchDirectory directory;
  const std::string path = directory.write("m.gguf", TinyGguf::llama().bytes());
  // The clock that stamps files may tick every 4 ms only.
  std::filesystem::last_write_time(
      path, std::filesystem::file_time_type::clock::now() - std::chrono::seconds(9));
  LoadOptions options{.hash_file = true};
  options.progress = [&](std::string_view stage, std::size_t, std::size_t) {
    if (stage != "load") return;
    overwrite(path, std::filesystem::file_size(path) - 1, '\1');
  };
  must_fail(Model::load(path, options), ErrorCode::kIntegrity);
}

}  // namespace

namespace {

TEST_CASE("RoPE's cosines and sines are the nearest f32", "[model][golden]") {
  struct Record {  // of tests/golden/make_f64_functions.py
    float theta;
    std::uint32_t dims;
    std::uint32_t pair;
    std::uint32_t position;
    float cos;
    float sin;
  };
  const std::string bytes = test::read_file(LLM_SOURCE_DIR "/tests/golden/f64_functions/rope.bin");
  REQUIRE(bytes.size() > 2000 * sizeof(Record));
  std::vector<Record> records(bytes.size() / sizeof(Record));
  std::memcpy(records.data(), bytes.data(), records.size() * sizeof(Record));
  for (const Record& r : records) {
    CAPTURE(r.theta, r.dims, r.pair, r.position);
    RopeSpec spec;
    spec.theta = r.theta;
    spec.dims = r.dims;
    const Rope rope(spec, {});
    std::vector<float> cos(rope.pairs());
    std::vector<float> sin(rope.pairs());
    rope.angles(r.position, cos, sin);
    REQUIRE(cos[r.pair] == r.cos);
    REQUIRE(sin[r.pair] == r.sin);
  }
}

}  // namespace

}  // namespace llm::test
