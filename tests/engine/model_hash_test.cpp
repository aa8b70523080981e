// Which file a model was made of, whatever stands under its path afterwards.

#include "base/sha256.h"
#include "engine/model/model.h"
#include "tests/support/test.h"
#include "tests/support/tiny_gguf.h"

namespace llm::test {
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
}  // namespace llm::test
