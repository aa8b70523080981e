// Rows 1-11, 49 and 65-85 of docs/bad_input.md: what stands in the way of reading, files that
// change while they are read, and runs as a user meets them. What is tested closer to its code is
// named in the page.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

#include "tests/tools/bad_input_support.h"
#include "tests/tools/llmrun_process.h"
#include "tests/tools/tool_test.h"

namespace llm::test {
namespace {

/// Sets the size of a file; what is added takes no room on the disk.
void set_size(const std::string& path, std::uint64_t size) {
  std::filesystem::resize_file(path, size);
}

/// A valid GGUF of two F32 tensors and about `bytes`, nearly all of it a hole.
std::string write_large_sparse(const ScratchDirectory& directory, std::uint64_t bytes) {
  TinyGguf model;
  model.set_string("general.architecture", "llama");
  model.tensors.push_back({.name = "large", .dims = {bytes / 4}, .type = 0, .data = ""});
  const std::string path = directory.write("large.gguf", model.bytes());
  set_size(path, model.header_bytes() + bytes);
  return path;
}

bool has_mapped(const Process& process, const std::string& path) {
  const std::string maps = fmt::format("/proc/{}/maps", process.pid());
  return read_file(maps).find(path) != std::string::npos;
}

/// Hashes a large file and calls `change` once the tool has mapped it. Whether it was still reading
/// after the change, with nothing printed, cannot be enforced, so a file too small for this machine
/// is doubled.
Finished hash_while(const std::function<void(const std::string&)>& change) {
  const ScratchDirectory directory;
  for (std::uint64_t bytes = std::uint64_t{1} << 30; bytes <= std::uint64_t{1} << 34; bytes *= 2) {
    const std::string path = write_large_sparse(directory, bytes);
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
  for (const auto& [size, word] :
       std::map<std::size_t, std::string>{{1, "magic (byte 0)"},
                                          {3, "magic (byte 0)"},
                                          {7, "version (byte 4)"},
                                          {15, "n_tensors (byte 8)"},
                                          {23, "n_kv (byte 16)"},
                                          {30, "n_tensors (byte 8)"},
                                          {1000, "tokenizer.ggml.tokens (byte"},
                                          {bytes.size() - 1, "blk.0.ffn_down.weight"}})
    check_file(directory.write("cut.gguf", std::span(bytes).first(size)), 3, {word, "(byte "});
}

TEST_CASE("bad input 2: an incomplete download", "[bad_input]") {
  const auto bytes = TinyGguf::llama().bytes();
  const ScratchDirectory directory;
  const std::size_t missing = GENERATE_COPY(1, bytes.size() / 4);
  check_file(directory.write("cut.gguf", std::span(bytes).first(bytes.size() - missing)), 3,
             {fmt::format("incomplete download? the whole file has {} bytes, {} are missing",
                          bytes.size(), missing)});
}

TEST_CASE("bad input 3-5: no regular file that can be read", "[bad_input]") {
  const ToolFolder folder;
  folder.shell("mkfifo fifo; ln -s loop loop; chmod 000 tiny.gguf").must_end(0);
  for (const auto& [name, words] :
       std::map<std::string, std::string>{{"", "is a directory"},
                                          {"fifo", "not a regular file"},
                                          {"none", "No such file or directory"},
                                          {"loop", "Too many levels of symbolic links"}})
    check_file(folder.path(name), 4, {words});
  check_file("/dev/zero", 4, {"not a regular file"});
  if (::geteuid() == 0) {
    WARN("skipped: root reads files without permission");
  } else {
    check_file(folder.path("tiny.gguf"), 4, {"Permission denied"});
  }
}

TEST_CASE("bad input 6: another kind of file", "[bad_input]") {
  const ScratchDirectory directory;
  for (const auto& [text, words] : std::vector<std::pair<std::string, std::vector<std::string>>>{
           {"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
            {"magic", "76 65 72 73 \"vers\"", "Git LFS pointer", "git lfs pull"}},
           {"<!DOCTYPE html><html>", {"magic", "HTML page"}},
           {"PK\x03\x04 and so on", {"magic", "50 4b 03 04", "zip archive"}}})
    check_file(directory.write("other.gguf", text), 3, words);
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

void check_cheap(const std::string& path, const std::vector<std::string>& words) {
  check_file(path, 3, words);
  const Finished result = run_tool("llmgguf", {"verify", path});
  INFO("peak RSS " << result.peak_rss_kib << " KiB");
  if (!kSanitized) CHECK(result.peak_rss_kib < 64 * 1024);
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
  check_cheap(path, {"general.tags", "1073741824", "cap"});
}

TEST_CASE("bad input 8: arrays at the cap stay cheap", "[bad_input]") {
  const ScratchDirectory directory;
  TinyGguf model;
  model.set_string("general.architecture", "llama");
  model.set_encoded("general.tags", 9, encoded(std::uint32_t{8}) + encoded(std::uint64_t{4 << 20}));
  const std::string path = directory.write("sparse.gguf", model.bytes());
  set_size(path, std::uint64_t{1} << 30);
  check_cheap(path, {"llama.block_count", "absent"});
}

TEST_CASE("bad input 9: file truncated while it is read", "[bad_input]") {
  hash_while([](const std::string& path) { set_size(path, 0); }).must_end(4, {"large.gguf"});
}

TEST_CASE("bad input 10: file overwritten in place while it is read", "[bad_input]") {
  hash_while([](const std::string& path) {
    overwrite(path, 200, 'x');
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

class BadRuns : public Llmrun {
 public:
  /// A dump of the tiny model's own, which passes.
  std::string own_dump() {
    llmrun("tiny.gguf -p the -n 2 --ignore-eos -q --dump-layers dump.npz").must_end(0);
    return read("dump.npz");
  }

  Finished layer_diff(const std::string& reference) {
    write("bad.npz", reference);
    return shell("llmcheck tiny.gguf -t 1 --layer-diff bad.npz");
  }
};

TEST_CASE_METHOD(BadRuns, "bad input 65: a reference that is empty or cut short") {
  const std::string dump = own_dump();
  layer_diff(dump).must_end(0);
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{21}, dump.size() / 2,
                                 dump.size() - 22, dump.size() - 1}) {
    layer_diff(dump.substr(0, size)).must_refuse(3, {"bad.npz: zip", "need"});
  }
}

TEST_CASE_METHOD(BadRuns, "bad input 66, 69: a reference with flipped bytes") {
  const std::string dump = own_dump();
  // The header of the first member, its data, and the directory at the end.
  for (const std::size_t at : {std::size_t{14}, std::size_t{200}, dump.size() - 30}) {
    CAPTURE(at);
    std::string bad = dump;
    bad[at] = static_cast<char>(bad[at] ^ 0x40);
    const Finished run = layer_diff(bad);
    CHECK((run.exit_code == 3 || run.exit_code == 6));
    CHECK_THAT(run.err, Contains("bad.npz: "));
  }
}

TEST_CASE_METHOD(BadRuns, "bad input 78: a prompt beyond the context") {
  llmrun("tiny.gguf -c 4 -p 'more than four tokens'")
      .must_end(2, {"tokens, need at most 4 (the context)"});
}

TEST_CASE_METHOD(BadRuns, "bad input 80: a megabyte of one character") {
  const char byte = GENERATE('a', ' ');
  write("long", std::string(1 << 20, byte));
  CHECK(shell("llmtok " + kFable + " -f long --ids").must_end(0).out.size() > 1000);
}

TEST_CASE_METHOD(BadRuns, "bad input 82: --top-k 0 disables the filter") {
  const std::string usual =
      "tiny.gguf -p the -n 24 --ignore-eos -s 3 --temp 5 --top-p 1 --min-p 0 ";
  const std::string disabled = llmrun(usual + "--top-k 0 -q").out;
  CHECK(disabled == llmrun(usual + "--top-k 100000 -q").out);
  CHECK(disabled != llmrun(usual + "--top-k 2 -q").out);
}

TEST_CASE_METHOD(BadRuns, "bad input 83: threads out of range, none, and more than CPUs") {
  const std::string one = llmrun("tiny.gguf -p the -n 3 --ignore-eos -s 1 -q -t 1").out;
  CHECK(llmrun("tiny.gguf -p the -n 3 --ignore-eos -s 1 -q -t 0").out == one);
  CHECK(llmrun("tiny.gguf -p the -n 3 --ignore-eos -s 1 -q -t 19").out == one);
  llmrun("tiny.gguf -p the -n 3 -t 10000")
      .must_end(2, {"-t: found \"10000\", need an integer in 0..256"});
}

TEST_CASE_METHOD(BadRuns, "bad input 85: a full disk leaves the old report") {
  write("report.json", std::string("old"));
  own_dump();
  // A file size limit is a disk that is full.
  shell(
      "(ulimit -f 0; exec llmcheck tiny.gguf -t 1 --layer-diff dump.npz --report report.json) 2>&1 "
      "| cat; exit ${PIPESTATUS[0]}")
      .must_end(4, {}, {"report.json: cannot write: File too large", "PASS"});
  CHECK(read("report.json") == "old");
}

}  // namespace

}  // namespace llm::test
