// The promise: the same model, tokens and KV type give the same logits to the last bit, whatever
// the instruction set, the threads, the way the tokens are split and whether the cache is used.
// Compared as SHA-256 over all logits.

#include "base/atomic_file.h"
#include "base/sha256.h"
#include "engine/engine.h"
#include "engine/model/weight_store.h"
#include "quant/formats/half.h"
#include "tests/support/host_float_mode.h"
#include "tests/support/isas.h"
#include "tests/support/tiny_gguf.h"
#include "tools/llmsynth/synthetic_model.h"

namespace llm::test {
namespace {

using Ids = std::vector<TokenId>;

std::shared_ptr<const Model> load(const std::string& path, const LoadOptions& options) {
  return require_ok(Model::load(path, options));
}

std::unique_ptr<Sequence> session_of(std::shared_ptr<const Model> model,
                                     const ExecutorOptions& options,
                                     const SequenceOptions& how = {}) {
  return require_ok(open_sequence(std::move(model), options, how));
}

/// Hash over the logits of every position, with `step` tokens given to each call (0: all at once).
std::string logits_hash(Session& session, const Ids& ids, std::size_t step) {
  session.truncate(0);
  Sha256 hash;
  const std::size_t stride = step == 0 ? ids.size() : step;
  for (std::size_t begin = 0; begin < ids.size(); begin += stride) {
    const auto part = std::span(ids).subspan(begin, std::min(stride, ids.size() - begin));
    auto logits = require_ok(session.evaluate(part, LogitRows::kAll));
    hash.update(std::as_bytes(logits));
  }
  return hash.hex();
}

Ids token_ids(std::size_t n, std::size_t n_vocab) {
  Ids ids = {1};
  for (std::size_t i = 1; i < n; ++i) ids.push_back(static_cast<TokenId>(i * 7919 % n_vocab));
  return ids;
}

/// Every path against the reference: all ISAs with 3 threads, the best one with {1, 2, 3, 7},
/// passes of fewer tokens than a call has, and without the cache; the best ISA's 3 threads also in
/// splits of {1, 2, 7, 32}. (Each wait of a team of more threads than there are free CPUs takes
/// milliseconds.)
void require_invariance(const std::string& path, std::size_t n_tokens, KvType kv, Compute compute) {
  const auto model = load(path, {.compute = compute, .threads = 3});
  const auto with = [&](Isa isa, int threads) {
    return require_ok(model->variant({.compute = compute, .isa = isa, .threads = threads}));
  };
  const Ids ids = token_ids(n_tokens, model->config().n_vocab);
  const ExecutorOptions plain{.context = n_tokens + 3, .kv = kv};
  ExecutorOptions batched = plain;
  batched.batch = 5;
  const std::string expected =
      logits_hash(*session_of(with(Isa::kScalar, 1), plain, {.reference = true}), ids, 0);
  for (const Isa isa : supported_isas()) {
    for (const int threads : {1, 2, 3, 7}) {
      if ((kSanitized || isa != best_isa()) && threads != 3) continue;
      CAPTURE(path, isa_name(isa), threads);
      const bool all_splits = !kSanitized && isa == best_isa() && threads == 3;
      const auto fast = with(isa, threads);
      const auto session = session_of(fast, plain);
      for (const std::size_t split : {0, 1, 2, 7, 32}) {
        if (split != 0 && !all_splits) continue;
        CAPTURE(split);
        REQUIRE(logits_hash(*session, ids, split) == expected);
      }
      REQUIRE(logits_hash(*session_of(fast, batched), ids, 7) == expected);
    }
  }
  const auto recomputing = session_of(with(best_isa(), 2), plain, {.use_cache = false});
  REQUIRE(logits_hash(*recomputing, ids, 7) == expected);
}

/// The file of a synthetic model, made once.
std::string synthetic(const char* shape, const char* type) {
  static const ScratchDirectory directory;
  const std::string path = directory.path(std::string(shape) + "-" + type + ".gguf");
  if (std::filesystem::exists(path)) return path;
  SyntheticOptions options;
  options.shape = *find_synthetic_shape(shape);
  options.recipe = find_recipe(type);
  REQUIRE(options.recipe != nullptr);
  options.threads = 2;
  auto file = require_ok(AtomicFile::create(path));
  const auto sink = [&](std::span<const std::byte> bytes) { return file.write(bytes); };
  REQUIRE(write_synthetic_model(options, sink).ok());
  REQUIRE(file.commit().ok());
  return path;
}

std::string embedded_model() { return LLM_SOURCE_DIR "/models/fable-3m-f16.gguf"; }

}  // namespace

TEST_CASE("embedded model: one hash on every path", "[invariance]") {
  for (const KvType kv : kKvTypes) {
    require_invariance(embedded_model(), effort(40, 9), kv, Compute::kInt8);
  }
  require_invariance(embedded_model(), effort(20, 8), KvType::kF32, Compute::kF32);
}

/// A model for each weight type, of the type's last recipe, which mixes most.
std::vector<std::string> models_of_all_types() {
  std::map<WeightType, std::string> recipes;
  for (const Recipe& recipe : all_recipes()) recipes[recipe.base] = recipe.name;
  std::vector<std::string> paths;
  for (const auto& [type, recipe] : recipes) paths.push_back(synthetic("mqa", recipe.c_str()));
  return paths;
}

TEST_CASE("every weight type: one hash on every path", "[invariance]") {
  for (const std::string& path : models_of_all_types()) {
    require_invariance(path, effort(37, 9), KvType::kF16, Compute::kInt8);
    require_invariance(path, effort(9, 3), KvType::kF16, Compute::kF32);
  }
}

TEST_CASE("types that are only read: one hash on every path", "[invariance]") {
  const ScratchDirectory directory;
  const std::string path = directory.write("read.gguf", TinyGguf::read_only_types().bytes());
  require_invariance(path, effort(37, 9), KvType::kF16, Compute::kInt8);
  require_invariance(path, effort(9, 3), KvType::kF16, Compute::kF32);
}

/// Weights of which part is in memory and part in the file, on every instruction set, by a batch
/// and by one token.
void require_invariance_of_parts(const std::string& path, std::size_t n_tokens, Compute compute,
                                 std::size_t n_parts) {
  const auto whole = load(path, {.compute = compute, .isa = Isa::kScalar, .threads = 1});
  const ExecutorOptions options{.context = n_tokens};
  const std::size_t n_bytes = whole->weights().store->plan().bytes;
  std::vector<std::shared_ptr<const Model>> in_part;
  for (std::size_t part = 0; part < n_parts; ++part) {
    in_part.push_back(load(path, {.compute = compute, .threads = 2, .defer_packing = true}));
    WeightStore& store = *in_part.back()->weights().store;
    if (part > 0) REQUIRE(store.pack_more(2, n_bytes * part / n_parts).ok());
  }
  for (const std::size_t n : {n_tokens, std::size_t{1}}) {
    const Ids ids = token_ids(n, whole->config().n_vocab);
    const auto session = session_of(whole, options, {.reference = true});
    const std::string expected = logits_hash(*session, ids, 0);
    for (const auto& model : in_part) {
      const std::size_t n_packed = model->weights().store->packed_panels();
      for (const Isa isa : supported_isas()) {
        CAPTURE(path, isa_name(isa), n, n_packed);
        const auto fast =
            require_ok(model->variant({.compute = compute, .isa = isa, .threads = 2}));
        REQUIRE(logits_hash(*session_of(fast, options), ids, 0) == expected);
        REQUIRE_FALSE(fast->weights_in_memory());
        REQUIRE(model->weights().store->packed_panels() == n_packed);
      }
    }
  }
}

TEST_CASE("weights packed in part: one hash on every path", "[invariance]") {
  for (const std::string& path : models_of_all_types()) {
    require_invariance_of_parts(path, effort(9, 5), Compute::kInt8, 2);
    require_invariance_of_parts(path, 2, Compute::kF32, 2);
  }
  // Matrices of several pieces, so that the part ends within one.
  require_invariance_of_parts(synthetic("tinyllama-2l", "Q4_K_M"), 3, Compute::kInt8,
                              kSanitized ? 2 : 4);
}

TEST_CASE("odd shapes: one hash on every path", "[invariance]") {
  const ScratchDirectory directory;
  // Types and shapes are independent, and so are caches and shapes of even heads.
  constexpr std::array kTypes = {"Q4_0", "Q4_K_M", "F16"};
  std::size_t next = 0;
  for (const char* shape :
       {"odd80", "odd80", "odd96", "odd96", "tied", "qwen2-small", "qwen3-small", "gemma3-small",
        "qwen3moe-small", "gpt-oss-small", "phi3-small", "gemma4-small", "gemma4moe-small"}) {
    const KvType kv = next % 2 == 0 ? KvType::kF16 : KvType::kQ8;
    require_invariance(synthetic(shape, kTypes[next++ % kTypes.size()]), effort(34, 9), kv,
                       Compute::kInt8);
  }
  for (const std::string& architecture : TinyGguf::architectures()) {
    // The fourth layer of smollm3 has no RoPE.
    TinyGguf tiny = TinyGguf::llama({.n_layers = 4, .architecture = architecture});
    require_invariance(directory.write("tiny.gguf", tiny.bytes()), 33, KvType::kF16,
                       Compute::kInt8);
  }
}

TEST_CASE("experts: one hash on every path, wherever rows go", "[invariance]") {
  const ScratchDirectory directory;
  TinyGguf tiny = TinyGguf::llama({.architecture = "qwen3moe"});
  // Equal rows of the router: a tie of all experts, so that every row goes through the first ones,
  // and nobody through the others. Then two equal rows, where only one of them may be chosen.
  std::string& router = tiny.tensor("blk.0.ffn_gate_inp.weight").data;
  const std::size_t row = router.size() / 5;
  const std::string first = router.substr(0, row);
  const std::string random = router;
  for (std::size_t e = 1; e < 5; ++e) router.replace(e * row, row, first);
  for (const Compute compute : {Compute::kInt8, Compute::kF32})
    require_invariance(directory.write("tiny.gguf", tiny.bytes()), effort(40, 17), KvType::kF16,
                       compute);
  router = random;
  router.replace(3 * row, row, first);
  require_invariance(directory.write("tiny.gguf", tiny.bytes()), effort(40, 17), KvType::kF16,
                     Compute::kInt8);
}

TEST_CASE("sliding windows: one hash on every path", "[invariance]") {
  const ScratchDirectory directory;
  const auto write = [&](std::uint32_t window) {
    TinyGguf tiny = TinyGguf::llama({.n_layers = 2});
    tiny.set_u32("llama.context_length", 1024);
    tiny.set_u32("llama.attention.sliding_window", window);
    return directory.write("tiny.gguf", tiny.bytes());
  };
  for (const std::uint32_t window : {1U, 5U, 16U, 40U}) {
    const std::string path = write(window);
    for (const KvType kv : kKvTypes) require_invariance(path, effort(45, 21), kv, Compute::kInt8);
  }
  // Chunks that end before the window, in it and with it, for rows of one task and of several.
  for (const std::uint32_t window : {255U, 256U, 257U, 300U}) {
    const auto model = load(write(window), {.threads = 2});
    const Ids ids = token_ids(effort(800, 600), 272);
    for (const KvType kv : kKvTypes) {
      CAPTURE(window, kv);
      const ExecutorOptions options{.context = 1000, .kv = kv};
      const auto hash = [&](const SequenceOptions& how, std::size_t step) {
        return logits_hash(*session_of(model, options, how), ids, step);
      };
      const std::string expected = hash({.reference = true}, 0);
      REQUIRE(hash({}, 0) == expected);
      REQUIRE(hash({}, 33) == expected);
      REQUIRE(hash({}, 1) == expected);
    }
  }
}

/// Multiplies weights by a power of two.
void multiply(std::span<char> data, WeightType type, float factor) {
  const auto change = [&]<typename T>(std::size_t stride, std::size_t n, auto&& by) {
    for (std::size_t at = 0; at < data.size(); at += stride)
      for (std::size_t i = 0; i < n; ++i) {
        T value;
        std::memcpy(&value, &data[at + i * sizeof(T)], sizeof(T));
        value = by(value);
        std::memcpy(&data[at + i * sizeof(T)], &value, sizeof(T));
      }
  };
  if (type == WeightType::kF32)
    return change.operator()<float>(4, 1, [&](float x) { return x * factor; });
  // Blocks begin with d, of Q4_K with d and dmin.
  change.operator()<std::uint16_t>(
      block_traits(type).block_bytes, type == WeightType::kQ4_K ? 2 : 1,
      [&](std::uint16_t x) { return f32_to_f16(f16_to_f32(x) * factor); });
}

/// Puts a scale beside each matrix that may have one, of experts a different one for each, and
/// makes up for it in the weights.
void add_scales(TinyGguf& file) {
  const std::size_t n = file.tensors.size();
  for (std::size_t i = 0; i < n; ++i) {
    TinyGguf::Tensor& tensor = file.tensors[i];
    if (tensor.dims.size() < 2 || !tensor.name.ends_with(".weight") ||
        tensor.name.ends_with("token_embd.weight") || tensor.name.ends_with("conv1d.weight") ||
        tensor.name.ends_with("shortconv.conv.weight") || tensor.name.ends_with("norm.weight") ||
        tensor.name.find("ffn_gate_inp") != std::string::npos)
      continue;
    const std::uint64_t stack = tensor.dims.size() > 2 ? tensor.dims[2] : 1;
    std::string scales;
    for (std::size_t e = 0; e < stack; ++e) {
      const float factor = (i + e) % 2 == 0 ? 2.0F : 4.0F;
      scales += encoded(1 / factor);
      multiply(std::span(tensor.data)
                   .subspan(e * tensor.data.size() / stack, tensor.data.size() / stack),
               static_cast<WeightType>(tensor.type), factor);
    }
    const std::string stem = tensor.name.substr(0, tensor.name.size() - 7);
    file.tensors.push_back({.name = stem + ".scale", .dims = {stack}, .type = 0, .data = scales});
    file.tensors.push_back(
        {.name = stem + ".input_scale", .dims = {1}, .type = 0, .data = encoded(7.0F)});
  }
}

TEST_CASE("scales multiply the products of their matrices, on every path", "[invariance]") {
  const ScratchDirectory directory;
  for (const std::string& architecture : TinyGguf::architectures()) {
    CAPTURE(architecture);
    TinyGguf file = TinyGguf::llama({.architecture = architecture});
    const auto hash = [&] {
      const auto model = load(directory.write("m.gguf", file.bytes()), {.threads = 2});
      return logits_hash(*session_of(model, {.context = 16}), token_ids(9, 272), 0);
    };
    const std::string plain = hash();
    add_scales(file);
    CHECK(hash() == plain);
    if (architecture == "llama" || architecture == "qwen35moe")
      require_invariance(directory.write("m.gguf", file.bytes()), 9, KvType::kF16, Compute::kInt8);
  }
}

/// All logits by the definition, and by every instruction set in calls of some lengths (0: one).
void require_every_isa(const std::string& path, std::size_t n_tokens, std::size_t context,
                       const std::vector<std::size_t>& splits) {
  const auto model = load(path, {.threads = 2});
  const Ids ids = token_ids(n_tokens, model->config().n_vocab);
  const ExecutorOptions options{.context = context};
  const std::string expected =
      logits_hash(*session_of(model, options, {.reference = true}), ids, 0);
  for (const Isa isa : supported_isas()) {
    const auto fast = require_ok(model->variant({.isa = isa, .threads = 3}));
    const auto session = session_of(fast, options);
    for (const std::size_t split : splits) {
      CAPTURE(path, isa_name(isa), split);
      // One by one, many tokens take long.
      if (split == 1 && (n_tokens > 100 ? kSanitized || isa != best_isa() : isa == Isa::kScalar))
        continue;
      REQUIRE(logits_hash(*session, ids, split) == expected);
    }
  }
}

TEST_CASE("several chunks of keys, and TinyLlama's width: one hash on every path", "[invariance]") {
  require_every_isa(synthetic("mqa", "Q4_K_M"), effort(530, 270), 640, {0, 33, 1});
  require_every_isa(synthetic("tinyllama-2l", "Q4_K_M"), effort(6, 3), 64, {0, 1});
}

TEST_CASE("the host's float mode: one hash, and the mode stays", "[invariance]") {
  const ExecutorOptions options{.context = 32};
  const Ids ids = token_ids(9, 1536);
  const auto model = load(embedded_model(), {.threads = 2});
  const std::string expected =
      logits_hash(*session_of(model, options, {.reference = true}), ids, 0);
  for (const bool reference : {true, false}) {
    CAPTURE(reference);
    const HostFloatMode host;
    const auto session = session_of(model, options, {.reference = reference});
    CHECK(logits_hash(*session, ids, 0) == expected);
    CHECK(HostFloatMode::stands());
  }
}

TEST_CASE("truncate forgets: the same continuation gives the same logits", "[invariance]") {
  const auto session = session_of(load(embedded_model(), {.threads = 2}), {.context = 64});
  const Ids ids = token_ids(30, session->model().config().n_vocab);
  const std::string expected = logits_hash(*session, ids, 0);
  session->truncate(10);
  REQUIRE(session->evaluate(Ids(15, 5), LogitRows::kNone).ok());
  REQUIRE(logits_hash(*session, ids, 0) == expected);
}

TEST_CASE("evaluate refuses what does not fit and stays where it was", "[engine]") {
  const auto session = session_of(load(embedded_model(), {.threads = 1}), {.context = 8});
  must_fail(session->evaluate(Ids(9, 5), LogitRows::kLast), ErrorCode::kResource);
  must_fail(session->evaluate(Ids{1536}, LogitRows::kLast), {"1535"});
  REQUIRE(session->position() == 0);
  REQUIRE(session->evaluate(Ids(8, 5), LogitRows::kLast).ok());
}

}  // namespace llm::test
