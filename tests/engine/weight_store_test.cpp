// Weights that are packed when they are first needed: the bits of those that are packed at once,
// and every fault of the file by name.

#include "engine/model/weight_store.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/sha256.h"
#include "engine/engine.h"
#include "tests/support/catch.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/tiny_gguf.h"

namespace llm {
namespace {

using Ids = std::vector<TokenId>;
using test::ScratchDirectory;
using test::TinyGguf;

const Ids kPrompt = {1, 5, 17, 130, 262, 7, 99, 200, 31};

LoadOptions how(bool defer, int threads = 2, Compute compute = Compute::kInt8) {
  LoadOptions options;
  options.compute = compute;
  options.threads = threads;
  options.defer_packing = defer;
  return options;
}

std::shared_ptr<const Model> load(const std::string& path, const LoadOptions& options) {
  auto model = Model::load(path, options);
  INFO((model.ok() ? "" : model.error().to_string()));
  REQUIRE(model.ok());
  return std::move(model).value();
}

std::unique_ptr<Sequence> open(const std::shared_ptr<const Model>& model,
                               const ExecutorOptions& options = {},
                               const SequenceOptions& sequence = {}) {
  auto opened = open_sequence(model, options, sequence);
  REQUIRE(opened.ok());
  return std::move(opened).value();
}

/// The hash of all logits of kPrompt in one call and four tokens one by one.
std::string run(Sequence& sequence) {
  Sha256 hash;
  const auto add = [&](std::span<const TokenId> ids) {
    const auto rows = sequence.evaluate(ids, LogitRows::kAll);
    INFO((rows.ok() ? "" : rows.error().to_string()));
    REQUIRE(rows.ok());
    hash.update(std::as_bytes(*rows));
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

void overwrite(const std::string& path, std::size_t at, char value) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(at));
  file.put(value);
  REQUIRE(file.flush().good());
}

}  // namespace

TEST_CASE("weights left in the file give the bits of packed ones", "[weights]") {
  const std::string architecture = GENERATE("llama", "qwen2", "qwen3");
  const bool tied = GENERATE(false, true);
  const Compute compute = GENERATE(Compute::kInt8, Compute::kF32);
  CAPTURE(architecture, tied, compute);
  const ScratchDirectory folder;
  const TinyGguf gguf =
      TinyGguf::llama({.n_layers = 2, .tied_output = tied, .architecture = architecture});
  const std::string path = folder.write("model.gguf", gguf.bytes());
  const std::string expected = run(*open(load(path, how(false, 1, compute))));
  for (const int threads : {1, 2, 3}) {
    for (const std::size_t batch : {1, 4, 512}) {
      CAPTURE(threads, batch);
      const auto model = load(path, how(true, threads, compute));
      REQUIRE(run(*open(model, {.batch = batch})) == expected);
      REQUIRE(model->weights_in_memory());
    }
  }
  REQUIRE(run(*open(load(path, how(true, 2, compute)), {}, {.reference = true})) == expected);
}

TEST_CASE("until the second pass panels are packed for one product, into the same pages",
          "[weights]") {
  const ScratchDirectory folder;
  const std::string path = folder.write("model.gguf", TinyGguf::llama().bytes());
  REQUIRE(load(path, how(false))->weights_in_memory());
  const auto model = load(path, how(true));
  const PackedMatrix& w = model->weights().layers[0].ffn_down;
  const auto bytes_of = [&](std::size_t begin, std::size_t end) {
    const std::byte* panels = w.panels(begin, end);
    return std::vector<std::byte>(panels, panels + (end - begin) * w.panel_bytes());
  };
  const std::vector<std::byte> whole = bytes_of(0, w.n_panels());
  REQUIRE(w.panels(1, 2) == w.panels(0, 1));
  REQUIRE(std::ranges::equal(bytes_of(1, 2),
                             std::span(whole).subspan(w.panel_bytes(), w.panel_bytes())));
  const auto sequence = open(model);
  REQUIRE(sequence->evaluate(kPrompt, LogitRows::kNone).ok());
  REQUIRE_FALSE(model->weights_in_memory());
  REQUIRE(sequence->evaluate(Ids{9}, LogitRows::kNone).ok());
  REQUIRE(model->weights_in_memory());
  REQUIRE(w.panels(1, 2) == w.panels(0, 1) + w.panel_bytes());
  REQUIRE(bytes_of(0, w.n_panels()) == whole);
  // From then on the file is not needed.
  std::filesystem::resize_file(path, 0);
  REQUIRE(sequence->evaluate(Ids{10}, LogitRows::kLast).ok());
  // Whoever asks may have it sooner.
  const ScratchDirectory other;
  const auto asked = load(other.write("model.gguf", TinyGguf::llama().bytes()), how(true));
  REQUIRE(asked->pack_weights().ok());
  REQUIRE(asked->weights_in_memory());
}

TEST_CASE("several executors may run on weights in the file", "[weights]") {
  const ScratchDirectory folder;
  const std::string path = folder.write("model.gguf", TinyGguf::llama({.n_layers = 2}).bytes());
  const std::string expected = run(*open(load(path, how(false))));
  for (int round = 0; round < 8; ++round) {
    const auto model = load(path, how(true, 2));
    std::vector<std::unique_ptr<Sequence>> sequences;
    for (int i = 0; i < 3; ++i) sequences.push_back(open(model));
    std::vector<std::string> hashes(sequences.size());
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < sequences.size(); ++i)
      threads.emplace_back([&, i] { hashes[i] = run(*sequences[i]); });
    for (std::thread& thread : threads) thread.join();
    for (const std::string& hash : hashes) REQUIRE(hash == expected);
  }
}

TEST_CASE("a file that changes before it is packed is refused in the pass that would read it",
          "[weights]") {
  const bool shortened = GENERATE(false, true);
  const bool after_first_pass = GENERATE(false, true);
  CAPTURE(shortened, after_first_pass);
  const ScratchDirectory folder;
  const std::string path = write_old(folder, TinyGguf::llama());
  const auto model = load(path, how(true));
  const auto sequence = open(model);
  if (after_first_pass) REQUIRE(sequence->evaluate(kPrompt, LogitRows::kLast).ok());
  if (shortened) {
    std::filesystem::resize_file(path, 9000);
  } else {
    overwrite(path, std::filesystem::file_size(path) - 1, '\1');
  }
  const std::size_t before = sequence->position();
  const auto rows = sequence->evaluate(Ids{4, 5}, LogitRows::kLast);
  REQUIRE_FALSE(rows.ok());
  const Error& error = rows.error();
  CAPTURE(error.to_string());
  CHECK(error.code == (shortened ? ErrorCode::kIo : ErrorCode::kIntegrity));
  CHECK(error.file == path);
  CHECK_THAT(error.message,
             Catch::Matchers::Contains(shortened ? "found fewer bytes than when it was opened"
                                                 : "model changed while it was read"));
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
  Error error{.field = {}, .message = {}};
  if (model.ok()) {
    const auto rows = open(*model)->evaluate(kPrompt, LogitRows::kLast);
    REQUIRE_FALSE(rows.ok());
    error = rows.error();
  } else {
    error = model.error();
  }
  CAPTURE(error.to_string());
  CHECK(error.code == ErrorCode::kNonFinite);
  CHECK(error.field == name);
  CHECK(error.file == path);
  if (name != "output.weight")
    CHECK(error.offset ==
          gguf.header_bytes() + gguf.default_offset(name) + block * traits.block_bytes);
}

}  // namespace llm
