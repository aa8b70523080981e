// Weights that are packed while a model runs: the bits of those that are packed at once, and every
// fault of the file by name.

#include "engine/model/weight_store.h"

#include "base/sha256.h"
#include "engine/engine.h"
#include "tests/support/test.h"
#include "tests/support/tiny_gguf.h"

namespace llm::test {
namespace {

using Ids = std::vector<TokenId>;

const Ids kPrompt = {1, 5, 17, 130, 262, 7, 99, 200, 31};

LoadOptions how(bool defer, int threads = 2, Compute compute = Compute::kInt8) {
  return {.compute = compute, .threads = threads, .defer_packing = defer};
}

std::shared_ptr<const Model> model_at(const std::string& path, const LoadOptions& options) {
  return require_ok(Model::load(path, options));
}

std::unique_ptr<Sequence> open(const std::shared_ptr<const Model>& model,
                               const ExecutorOptions& options = {},
                               const SequenceOptions& sequence = {}) {
  return require_ok(open_sequence(model, options, sequence));
}

/// The hash of all logits of kPrompt in one call and four tokens one by one.
std::string run(Sequence& sequence) {
  Sha256 hash;
  const auto add = [&](std::span<const TokenId> ids) {
    const auto rows = require_ok(sequence.evaluate(ids, LogitRows::kAll));
    hash.update(std::as_bytes(rows));
  };
  add(kPrompt);
  for (const TokenId id : {3, 40, 270, 1}) add(std::span(&id, 1));
  return hash.hex();
}

/// A file that was written a while ago: the clock that stamps files may tick every 10 ms only.
std::string write_old(const ScratchDirectory& folder, const TinyGguf& gguf) {
  std::string path = folder.write("model.gguf", gguf.bytes());
  std::filesystem::last_write_time(
      path, std::filesystem::file_time_type::clock::now() - std::chrono::seconds(9));
  return path;
}

}  // namespace

TEST_CASE("weights left in the file give the bits of packed ones", "[weights]") {
  const std::string architecture = GENERATE(from_range(TinyGguf::architectures()));
  const bool tied = GENERATE(false, true);
  const Compute compute = GENERATE(Compute::kInt8, Compute::kF32);
  CAPTURE(architecture, tied, compute);
  const ScratchDirectory folder;
  const TinyGguf gguf =
      TinyGguf::llama({.n_layers = 2, .tied_output = tied, .architecture = architecture});
  const std::string path = folder.write("model.gguf", gguf.bytes());
  const std::string expected = run(*open(model_at(path, how(false, 1, compute))));
  for (const int threads : {1, 2, 3}) {
    for (const std::size_t batch : {1, 4, 512}) {
      CAPTURE(threads, batch);
      const auto model = model_at(path, how(true, threads, compute));
      REQUIRE(run(*open(model, {.batch = batch})) == expected);
      // By now some panels are packed to stay, and some are not.
      REQUIRE(model->pack_weights_for(std::chrono::nanoseconds(0)).ok());
      REQUIRE(run(*open(model, {.batch = batch})) == expected);
      REQUIRE(model->pack_weights().ok());
      REQUIRE(run(*open(model, {.batch = batch})) == expected);
    }
  }
  REQUIRE(run(*open(model_at(path, how(true, 2, compute)), {}, {.reference = true})) == expected);
}

/// Panels [begin, end), however many of them there are at a time.
std::vector<std::byte> bytes_of(const PackedMatrix& w, std::size_t begin, std::size_t end) {
  std::vector<std::byte> bytes;
  while (begin < end) {
    const PanelRun run = w.panels(begin, end);
    REQUIRE((begin < run.end && run.end <= end));
    bytes.insert(bytes.end(), run.first, run.first + (run.end - begin) * w.panel_bytes());
    begin = run.end;
  }
  return bytes;
}

TEST_CASE("panels are lent until they are packed to stay, one piece after the other", "[weights]") {
  const ScratchDirectory folder;
  const std::string path = folder.write("model.gguf", TinyGguf::llama({.n_layers = 2}).bytes());
  const auto packed = model_at(path, how(false));
  REQUIRE(packed->weights_in_memory());
  const auto model = model_at(path, how(true));
  const std::shared_ptr<WeightStore> store = model->weights().store;
  const WeightPlan& plan = store->plan();
  const auto matrix = [&](const Model& of, std::size_t i) -> const PackedMatrix& {
    const PlacedMatrix& placed = plan.matrices[i];
    return placed.role->matrix.of(of.weights(), placed.layer);
  };
  const PackedMatrix& last = matrix(*model, 0);  // the embedding, though the first in memory
  REQUIRE(&last == &model->weights().token_embd);
  REQUIRE(last.panels(1, 2).first == last.panels(0, 1).first);

  std::size_t n_packed = 0;
  for (std::size_t calls = 0; !model->weights_in_memory(); ++calls) {
    CAPTURE(calls);
    REQUIRE(calls <= plan.matrices.size());
    REQUIRE(store->packed_panels() == n_packed);
    for (std::size_t i = 0; i < plan.matrices.size(); ++i) {
      CAPTURE(plan.matrices[i].view->name);
      const PackedMatrix& w = matrix(*model, i);
      REQUIRE(bytes_of(w, 0, w.n_panels()) == bytes_of(matrix(*packed, i), 0, w.n_panels()));
      const bool stays = w.panels(0, 1).first == store->panels().data() + plan.matrices[i].offset;
      REQUIRE(stays == (plan.matrices[i].first_panel + w.n_panels() <= n_packed));
    }
    REQUIRE(store->pack_more(2, 1).ok());  // these matrices have one piece each
    n_packed += matrix(*model, (calls + 1) % plan.matrices.size()).n_panels();
  }
  REQUIRE(n_packed == plan.panels);
  REQUIRE(last.panels(1, 2).first == last.panels(0, 1).first + last.panel_bytes());
  REQUIRE(std::ranges::equal(store->panels(), packed->weights().store->panels()));
  // From then on the file is not needed.
  std::filesystem::resize_file(path, 0);
  REQUIRE(open(model)->evaluate(Ids{10}, LogitRows::kLast).ok());
}

TEST_CASE("packing pays later where a token reads few of the weights", "[weights]") {
  const auto model =
      model_at(LLM_SOURCE_DIR "/tests/golden/architectures/qwen3moe.gguf", how(true, 1));
  const std::uint64_t stored = model->weights().store->plan().bytes;
  CHECK(model->packing_pays_after() == 40 * stored / model->weight_bytes());
  CHECK(model->packing_pays_after() > 60);
}

TEST_CASE("packing to stay begins after a short text, with a part", "[weights]") {
  const ScratchDirectory folder;
  // 2 MiB of F32 in every wide matrix.
  TinyGguf gguf = TinyGguf::llama();
  constexpr std::uint32_t kWide = 16384;
  gguf.set_u32("llama.feed_forward_length", kWide);
  gguf.set_u32("llama.context_length", 128);
  for (const char* name : {"ffn_gate", "ffn_up", "ffn_down"}) {
    TinyGguf::Tensor& tensor = gguf.tensor(std::string("blk.0.") + name + ".weight");
    tensor.type = static_cast<std::uint32_t>(WeightType::kF32);
    tensor.dims = {32, kWide};
    if (std::string_view(name) == "ffn_down") std::ranges::reverse(tensor.dims);
    tensor.data.assign(std::size_t{32} * kWide * sizeof(float), '\0');
  }
  const auto model = model_at(folder.write("model.gguf", gguf.bytes()), how(true, 1));
  const WeightStore& store = *model->weights().store;
  const auto sequence = open(model);
  using std::chrono::milliseconds;
  std::uint64_t passes = 0;
  const std::uint64_t pays_after = model->packing_pays_after();
  // The wide matrices are all that there is, and every token reads them.
  REQUIRE(pays_after == 40);
  for (; packing_time(passes, milliseconds(640), pays_after) == milliseconds(0); ++passes) {
    REQUIRE(sequence->evaluate(Ids{9}, LogitRows::kLast).ok());
    REQUIRE(store.packed_panels() == 0);
  }
  REQUIRE(passes == pays_after + 1);
  REQUIRE(packing_time(1000, milliseconds(640), 40) == milliseconds(640));
  // A text that will be long pays at once, one that will not be long later.
  REQUIRE(packing_time(0, milliseconds(640), 40, 41) == milliseconds(0));
  REQUIRE(packing_time(1, milliseconds(640), 40, 41) == milliseconds(640));
  REQUIRE(packing_time(1, milliseconds(640), 40, 40) == milliseconds(0));
  REQUIRE(sequence->evaluate(Ids{9}, LogitRows::kLast).ok());
  const std::size_t part = store.packed_panels();
  REQUIRE(part > 0);
  // However little time there is, some is packed.
  REQUIRE(model->pack_weights_for(std::chrono::nanoseconds(0)).ok());
  REQUIRE((model->weights_in_memory() || store.packed_panels() > part));
  // Whoever asks may have it sooner.
  REQUIRE(model->pack_weights().ok());
  REQUIRE(model->weights_in_memory());
}

TEST_CASE("several executors may run on weights in the file", "[weights]") {
  const ScratchDirectory folder;
  const std::string path = folder.write("model.gguf", TinyGguf::llama({.n_layers = 2}).bytes());
  const std::string expected = run(*open(model_at(path, how(false))));
  for (int round = 0; round < 8; ++round) {
    const auto model = model_at(path, how(true, 2));
    std::vector<std::unique_ptr<Sequence>> sequences;
    for (int i = 0; i < 3; ++i) sequences.push_back(open(model));
    std::vector<std::string> hashes(sequences.size());
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < sequences.size(); ++i)
      threads.emplace_back([&, i] { hashes[i] = run(*sequences[i]); });
    threads.emplace_back([&] {  // a piece at a time, beside their passes
      while (!model->weights_in_memory() && model->weights().store->pack_more(1, 1).ok()) {
      }
    });
    for (std::thread& thread : threads) thread.join();
    for (const std::string& hash : hashes) REQUIRE(hash == expected);
  }
}

TEST_CASE("a file that changes before it is packed is rejected in the pass that would read it",
          "[weights]") {
  const bool shortened = GENERATE(false, true);
  const bool after_first_pass = GENERATE(false, true);
  CAPTURE(shortened, after_first_pass);
  const ScratchDirectory folder;
  const std::string path = write_old(folder, TinyGguf::llama());
  const auto model = model_at(path, how(true));
  const auto sequence = open(model);
  if (after_first_pass) REQUIRE(sequence->evaluate(kPrompt, LogitRows::kLast).ok());
  if (shortened) {
    std::filesystem::resize_file(path, 9000);
  } else {
    overwrite(path, std::filesystem::file_size(path) - 1, '\1');
  }
  const std::size_t before = sequence->position();
  const Error error = must_fail(sequence->evaluate(Ids{4, 5}, LogitRows::kLast),
                                ErrorCode::kIntegrity, {"model changed while it was read"});
  CHECK(error.file == path);
  CHECK(sequence->position() == before);
}

TEST_CASE("bad input 61: with weights in the file, before a token is drawn", "[weights]") {
  // Every row of a matrix takes part in the first pass, but for rows of the embedding.
  const std::string name = GENERATE("blk.0.attn_q.weight", "blk.1.ffn_down.weight", "output.weight",
                                    "token_embd.weight");
  const ScratchDirectory folder;
  TinyGguf gguf = TinyGguf::llama({.n_layers = 2});
  TinyGguf::Tensor& tensor = gguf.tensor(name);
  const BlockTraits& traits = block_traits(static_cast<WeightType>(tensor.type));
  const std::size_t block = tensor.data.size() / traits.block_bytes - 1;
  const std::uint16_t nan = 0x7E00;
  std::memcpy(tensor.data.data() + block * traits.block_bytes, &nan, sizeof(nan));
  // A later one takes no precedence, whichever worker finds it first.
  TinyGguf::Tensor& later = gguf.tensor("output.weight");
  std::memcpy(later.data.data(), &nan, sizeof(nan));
  const std::string path = folder.write("model.gguf", gguf.bytes());
  auto model = Model::load(path, how(true, 3));
  CAPTURE(name);
  REQUIRE(model.ok() == (name != "token_embd.weight"));
  const Error error =
      model.ok() ? must_fail(open(*model)->evaluate(kPrompt, LogitRows::kLast)) : model.error();
  CAPTURE(error.to_string());
  CHECK(error.code == ErrorCode::kNonFinite);
  CHECK(error.field == name);
  CHECK(error.file == path);
  if (name != "output.weight")
    CHECK(error.offset ==
          gguf.header_bytes() + gguf.default_offset(name) + block * traits.block_bytes);
}

}  // namespace llm::test
