// Rows 1-11 and 49 of docs/bad_input.md: what stands in the way of reading, and files that change
// while they are read.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

#include "tests/tools/bad_input_support.h"
#include "tests/tools/tool_test.h"

namespace llm::test {
namespace {

/// Sets the size of a file; what is added takes no room on the disk.
void set_size(const std::string& path, std::uint64_t size) {
  std::error_code error;
  std::filesystem::resize_file(path, size, error);
  INFO(error.message());
  REQUIRE_FALSE(error);
}

/// A valid GGUF of two F32 tensors and about `bytes`, nearly all of it a hole.
void write_large_sparse(const std::string& path, std::uint64_t bytes) {
  TinyGguf model;
  model.set_string("general.architecture", "llama");
  model.tensors.push_back({.name = "large", .dims = {bytes / 4}, .type = 0, .data = ""});
  const auto header = model.bytes();
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(header.data()),
             static_cast<std::streamsize>(header.size()));
  set_size(path, header.size() + bytes);
}

bool has_mapped(const Process& process, const std::string& path) {
  std::ifstream maps("/proc/" + std::to_string(process.pid()) + "/maps");
  const std::string text{std::istreambuf_iterator<char>(maps), std::istreambuf_iterator<char>()};
  return text.find(path) != std::string::npos;
}

/// Hashes a large file and calls `change` once the tool has mapped it. Whether it was still reading
/// after the change, with nothing printed, cannot be enforced, so a file too small for this machine
/// is doubled.
Finished hash_while(const std::function<void(const std::string&)>& change) {
  const ScratchDirectory directory;
  const std::string path = directory.path("large.gguf");
  for (std::uint64_t bytes = std::uint64_t{1} << 30; bytes <= std::uint64_t{1} << 34; bytes *= 2) {
    write_large_sparse(path, bytes);
    // The change must not fall into the same tick of the file system's clock.
    const struct timespec old[2] = {{1000, 0}, {1000, 0}};
    REQUIRE(::utimensat(AT_FDCWD, path.c_str(), old, 0) == 0);
    Process process({tool_path("llmgguf"), "hash", path});
    while (process.is_running() && !has_mapped(process, path)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    change(path);
    const bool in_time = process.output_so_far().empty();
    const Finished result = process.wait();
    if (in_time || result.exit_code != 0) return result;
  }
  FAIL("the tool was always faster");
  return {};
}

TEST_CASE("bad input 1: empty file", "[bad_input]") {
  const ScratchDirectory directory;
  check_file(directory.write("empty.gguf", std::string()), 3, {"empty, need >= 24 B"});
}

TEST_CASE("bad input 2: truncated", "[bad_input]") {
  // Every length is tried in tests/fuzz; these are the borders between kinds of fields.
  const auto bytes = TinyGguf::llama().bytes();
  const ScratchDirectory directory;
  const std::vector<std::pair<std::size_t, std::string>> cases = {
      {1, "magic (byte 0)"},
      {3, "magic (byte 0)"},
      {7, "version (byte 4)"},
      {15, "n_tensors (byte 8)"},
      {23, "n_kv (byte 16)"},
      {30, "n_tensors (byte 8)"},
      {1000, "tokenizer.ggml.tokens (byte"},
      {bytes.size() - 1, "blk.0.ffn_down.weight"}};
  for (const auto& [size, word] : cases) {
    CAPTURE(size);
    check_file(directory.write("cut.gguf", std::span(bytes).first(size)), 3, {word, "(byte "});
  }
}

TEST_CASE("bad input 2: an incomplete download", "[bad_input]") {
  const auto bytes = TinyGguf::llama().bytes();
  const ScratchDirectory directory;
  const std::size_t missing = GENERATE_COPY(1, bytes.size() / 4);
  check_file(directory.write("cut.gguf", std::span(bytes).first(bytes.size() - missing)), 3,
             {"incomplete download? the whole file has " + std::to_string(bytes.size()) +
              " bytes, " + std::to_string(missing) + " are missing"});
}

TEST_CASE("bad input 3-5: no regular file that can be read", "[bad_input]") {
  const ScratchDirectory directory;
  SECTION("3 directory") { check_file(directory.path(""), 4, {"is a directory"}); }
  SECTION("4 FIFO") {
    REQUIRE(::mkfifo(directory.path("fifo").c_str(), 0600) == 0);
    check_file(directory.path("fifo"), 4, {"not a regular file"});
  }
  SECTION("4 /dev/zero") { check_file("/dev/zero", 4, {"not a regular file"}); }
  SECTION("5 missing") { check_file(directory.path("none"), 4, {"No such file or directory"}); }
  SECTION("5 symlink loop") {
    REQUIRE(::symlink("loop", directory.path("loop").c_str()) == 0);
    check_file(directory.path("loop"), 4, {"Too many levels of symbolic links"});
  }
  SECTION("5 chmod 000") {
    const std::string path = directory.write("locked.gguf", TinyGguf::llama().bytes());
    REQUIRE(::chmod(path.c_str(), 0) == 0);
    if (::geteuid() == 0) {
      WARN("skipped: root reads files without permission");
      return;
    }
    check_file(path, 4, {"Permission denied"});
  }
}

TEST_CASE("bad input 6: another kind of file", "[bad_input]") {
  const ScratchDirectory directory;
  const auto check = [&](const std::string& text, const std::vector<std::string>& words) {
    check_file(directory.write("other.gguf", text), 3, words);
  };
  SECTION("LFS pointer") {
    check("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
          {"magic", "76 65 72 73 \"vers\"", "Git LFS pointer", "git lfs pull"});
  }
  SECTION("HTML") { check("<!DOCTYPE html><html>", {"magic", "HTML page"}); }
  SECTION("zip") { check("PK\x03\x04 and so on", {"magic", "50 4b 03 04", "zip archive"}); }
}

TEST_CASE("bad input 7: junk appended", "[bad_input]") {
  const ScratchDirectory directory;
  TinyGguf model = TinyGguf::llama();
  const std::size_t end = model.bytes().size();
  model.trailing = "junk";
  const std::string path = directory.write("model.gguf", model.bytes());
  const std::string where = "trailing data (byte " + std::to_string(end) + ")";
  check_file(path, 0, {"warning", where, "found 4 bytes"});
  check_file(path, 3, {where, "found 4 bytes"}, {"--strict"});
}

TEST_CASE("bad input 7: unknown tensor under --strict", "[bad_input]") {
  const ScratchDirectory directory;
  TinyGguf model = TinyGguf::llama();
  model.tensors.push_back({.name = "odd", .dims = {8}, .type = 0, .data = std::string(32, '\0')});
  const std::string path = directory.write("model.gguf", model.bytes());
  check_file(path, 0, {"warning", "\"odd\""});
  check_file(path, 3, {"\"odd\"", "strict"}, {"--strict"});
}

TEST_CASE("bad input 8: sparse file of 1 TB with a huge array", "[bad_input]") {
  const ScratchDirectory directory;
  TinyGguf model = TinyGguf::llama();
  const auto element = GENERATE(GgufType::kString, GgufType::kFloat32);
  model.set_encoded("general.tags", 9,
                    encoded(static_cast<std::uint32_t>(element)) + encoded(std::uint64_t{1} << 30));
  model.tensors.clear();
  const std::string path = directory.write("sparse.gguf", model.bytes());
  std::error_code error;
  std::filesystem::resize_file(path, std::uint64_t{1} << 40, error);
  if (error) {
    WARN("skipped: no sparse file of 1 TB here: " << error.message());
    return;
  }
  check_file(path, 3, {"general.tags", "1073741824", "cap"});
  const Finished result = run_tool("llmgguf", {"verify", path});
  INFO("peak RSS " << result.peak_rss_kib << " KiB");
  if (!kSanitized) CHECK(result.peak_rss_kib < 64 * 1024);
}

TEST_CASE("bad input 8: arrays at the cap stay cheap", "[bad_input]") {
  const ScratchDirectory directory;
  TinyGguf model;
  model.set_string("general.architecture", "llama");
  model.set_encoded("general.tags", 9, encoded(std::uint32_t{8}) + encoded(std::uint64_t{4 << 20}));
  const std::string path = directory.write("sparse.gguf", model.bytes());
  set_size(path, std::uint64_t{1} << 30);
  check_file(path, 3, {"llama.block_count", "absent"});
  const Finished result = run_tool("llmgguf", {"verify", path});
  INFO("peak RSS " << result.peak_rss_kib << " KiB");
  if (!kSanitized) CHECK(result.peak_rss_kib < 64 * 1024);
}

TEST_CASE("bad input 9: file truncated while it is read", "[bad_input]") {
  hash_while([](const std::string& path) { set_size(path, 0); }).must_end(4, {"large.gguf"});
}

TEST_CASE("bad input 10: file overwritten in place while it is read", "[bad_input]") {
  hash_while([](const std::string& path) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(200);
    file.put('x');
    file.close();
    REQUIRE(file.good());
  }).must_end(8, {"model changed"});
}

TEST_CASE("bad input 11: file replaced by rename while it is read", "[bad_input]") {
  hash_while([](const std::string& path) {
    std::ofstream(path + ".new") << "another file";
    std::filesystem::rename(path + ".new", path);
  }).must_end(0, {}, {"tensor \"large\""});
}

TEST_CASE("bad input 9, 11: a loaded model outlives its file", "[bad_input]") {
  const ScratchDirectory directory;
  TinyGguf model = TinyGguf::llama();
  model.set_u32("llama.context_length", 4096);
  const std::string path = directory.write("model.gguf", model.bytes());
  Process process(
      {tool_path("llmrun"), path, "-p", "the", "-n", "1000", "--ignore-eos", "--jsonl"});
  // By then all weights of this model are packed.
  while (process.is_running() && std::ranges::count(process.output_so_far(), '\n') < 24) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  set_size(path, 0);
  process.wait().must_end(0);
}

TEST_CASE("bad input 49: context_length that no memory holds", "[bad_input]") {
  const ScratchDirectory directory;
  TinyGguf model = TinyGguf::llama();
  model.set_u32("llama.context_length", UINT32_MAX);
  const std::string path = directory.write("model.gguf", model.bytes());
  check_file(path, 0, {});
  run_tool("llmrun", {path, "-p", "the", "-n", "1"}).must_end(5, {"KV cache: ", " MiB", "-c"});
  run_tool("llmrun", {path, "-p", "the", "-n", "1", "-c", "64"}).must_end(0);
}

}  // namespace
}  // namespace llm::test
