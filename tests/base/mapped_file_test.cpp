#include "base/mapped_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/sha256.h"
#include "tests/base/bytes.h"
#include "tests/support/test.h"

namespace llm::test {
TEST_CASE("a mapped file shows its bytes", "[base][mapped_file]") {
  const ScratchDirectory folder;
  const auto file = require_ok(MappedFile::open(folder.write("a", "hello")));
  CHECK(text_of(file.bytes()) == "hello");
  CHECK(file.path() == folder.path("a"));
  CHECK_FALSE(file.changed_since_open());
}

TEST_CASE("an empty file has no bytes", "[base][mapped_file]") {
  const ScratchDirectory folder;
  const auto file = require_ok(MappedFile::open(folder.write("a", "")));
  CHECK(file.bytes().empty());
}

TEST_CASE("moving hands the mapping over", "[base][mapped_file]") {
  const ScratchDirectory folder;
  auto first = MappedFile::open(folder.write("a", "first"));
  auto second = MappedFile::open(folder.write("b", "second"));
  REQUIRE(first.ok());
  REQUIRE(second.ok());
  MappedFile moved = std::move(*first);
  CHECK(text_of(moved.bytes()) == "first");
  CHECK(first->bytes().empty());
  moved = std::move(*second);
  CHECK(text_of(moved.bytes()) == "second");
  CHECK_FALSE(moved.changed_since_open());
  CHECK(second->bytes().empty());
}

TEST_CASE("dropped pages read the same again", "[base][mapped_file]") {
  const ScratchDirectory folder;
  const std::string content(50000, 'q');
  const auto file = require_ok(MappedFile::open(folder.write("a", content)));
  file.drop_pages(file.bytes());
  file.drop_pages(file.bytes().subspan(5, 20000));
  file.drop_pages(file.bytes().subspan(3, 10));
  file.drop_pages({});
  CHECK(text_of(file.bytes()) == content);
}

TEST_CASE("a change in place is noticed, a replacement leaves the old file",
          "[base][mapped_file]") {
  const ScratchDirectory folder;
  const std::string path = folder.write("a", "old old");
  const auto file = require_ok(MappedFile::open(path));
  SECTION("appended") {
    std::ofstream(path, std::ios::app) << "more";
    CHECK(file.changed_since_open());
  }
  SECTION("appended, and the time set back") {
    const auto time = std::filesystem::last_write_time(path);
    std::ofstream(path, std::ios::app) << "more";
    std::filesystem::last_write_time(path, time);
    CHECK(file.changed_since_open());
  }
  SECTION("touched") {
    std::filesystem::last_write_time(
        path, std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
    CHECK(file.changed_since_open());
  }
  SECTION("replaced") {
    std::filesystem::rename(folder.write("b", "new"), path);
    CHECK(text_of(file.bytes()) == "old old");
    CHECK_FALSE(file.changed_since_open());
  }
}

TEST_CASE("several files are mapped one after the other", "[base][mapped]") {
  const ScratchDirectory folder;
  const std::string large(10'000, 'b');
  const std::vector<std::string> paths = {folder.write("a", "first"), folder.write("b", large),
                                          folder.write("c", ""), folder.write("d", "last")};
  const auto file = require_ok(MappedFile::open_all(paths));
  REQUIRE(file.parts().size() == 4);
  CHECK(file.file_bytes() == 5 + 10'000 + 4);
  CHECK(file.bytes().data() == file.parts()[0].bytes.data());
  CHECK(file.parts()[3].bytes.data() + 4 == file.bytes().data() + file.bytes().size());
  std::string all;
  for (const MappedFile::Part& part : file.parts())
    all.append(reinterpret_cast<const char*>(part.bytes.data()), part.bytes.size());
  CHECK(all == "first" + large + "last");
  CHECK(file.bytes()[5] == std::byte{0});  // between the files
  CHECK(file.part_at(file.bytes().data()).path == paths[0]);
  CHECK(file.part_at(file.parts()[1].bytes.data() + 9'999).path == paths[1]);
  CHECK(file.part_at(file.parts()[3].bytes.data()).path == paths[3]);
  CHECK(file_sha256_hex(file) == sha256_hex(std::as_bytes(std::span(all))));
  CHECK_FALSE(file.changed_since_open());
  std::filesystem::resize_file(paths[3], 2);
  CHECK(file.check_unchanged().error().file == paths[3]);
  const std::vector<std::string> missing = {paths[0], folder / "none"};
  CHECK(MappedFile::open_all(missing).error().file == missing[1]);
}

}  // namespace llm::test
