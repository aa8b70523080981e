#include "base/mapped_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "base/mapped_region.h"
#include "base/sha256.h"
#include "tests/base/bytes.h"

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

namespace {

constexpr std::size_t kPage = 65536;

std::string fault_path;

/// While one lives, SIGBUS is answered as a server does.
class Mending {
 public:
  Mending() {
    struct sigaction action = {};
    action.sa_flags = SA_SIGINFO;
    action.sa_sigaction = [](int signal, siginfo_t* info, void*) {
      const char* const path = MappedRegion::named_at(info->si_addr);
      if (path != nullptr) fault_path = path;
      if (!MappedRegion::mend_at(info->si_addr)) std::signal(signal, SIG_DFL);
    };
    sigaction(SIGBUS, &action, &before_);
    fault_path.clear();
    fault_path.reserve(4096);
  }
  ~Mending() { sigaction(SIGBUS, &before_, nullptr); }

 private:
  struct sigaction before_ = {};
};

std::size_t sum_of(std::span<const std::byte> bytes) {
  std::size_t sum = 0;
  for (const std::byte byte : bytes) sum += std::to_integer<std::size_t>(byte);
  return sum;
}

}  // namespace

TEST_CASE("what a file has lost is read as zeros, and that is known", "[base][mapped_file]") {
  const Mending mending;
  const ScratchDirectory folder;
  const std::string ones(100 * kPage, '\1');
  const std::string path = folder.write("cut", ones);
  const auto file = require_ok(MappedFile::open(path));
  const auto other = require_ok(MappedFile::open(folder.write("whole", ones)));
  std::filesystem::resize_file(path, 10 * kPage);
  errno = ERANGE;
  CHECK(sum_of(file.bytes().subspan(50 * kPage)) == 0);
  CHECK(errno == ERANGE);
  CHECK(fault_path == path);
  CHECK(sum_of(file.bytes().first(20 * kPage)) == 10 * kPage);
  // Also when the file is as long as it was.
  std::filesystem::resize_file(path, 100 * kPage);
  CHECK(file.check_unchanged().error().file == path);
  CHECK_THAT(file.check_unchanged().error().message, Contains("changed while it was read"));
  CHECK(sum_of(other.bytes()) == ones.size());
  CHECK_FALSE(other.changed_since_open());
}

TEST_CASE("damage stays where only the signal has told of it", "[base][mapped_file]") {
  const Mending mending;
  const ScratchDirectory folder;
  const std::string ones(4 * kPage, '\1');
  const std::string path = folder.write("cut", ones);
  const auto time = std::filesystem::last_write_time(path);
  const auto file = require_ok(MappedFile::open(path));
  std::filesystem::resize_file(path, kPage);
  CHECK(sum_of(file.bytes()) == kPage);
  std::filesystem::resize_file(path, ones.size());
  std::filesystem::last_write_time(path, time);
  CHECK(file.changed_since_open());
}

TEST_CASE("of a split file the part that was cut is named", "[base][mapped_file]") {
  const Mending mending;
  const ScratchDirectory folder;
  const std::string ones(4 * kPage, '\1');
  const std::vector<std::string> paths = {folder.write("a", ones), folder.write("b", ones),
                                          folder.write("c", ones)};
  auto opened = require_ok(MappedFile::open_all(paths));
  const MappedFile file = std::move(opened);
  std::filesystem::resize_file(paths[1], 0);
  CHECK(sum_of(file.bytes()) == 8 * kPage);
  CHECK(fault_path == paths[1]);
  CHECK(file.check_unchanged().error().file == paths[1]);
}

TEST_CASE("only what is mapped is listed", "[base][mapped_file]") {
  const ScratchDirectory folder;
  const std::byte* address = nullptr;
  {
    const auto file = require_ok(MappedFile::open(folder.write("a", std::string(10, 'a'))));
    address = file.bytes().data();
    CHECK(MappedRegion::named_at(address + 9) == folder.path("a"));
    CHECK(MappedRegion::named_at(address + 10) == nullptr);
    CHECK(MappedRegion::named_at(address - 1) == nullptr);
  }
  CHECK(MappedRegion::named_at(address) == nullptr);
  CHECK_FALSE(MappedRegion::mend_at(address));
}

TEST_CASE("many threads open, cut and read files at once", "[base][mapped_file]") {
  const Mending mending;
  const ScratchDirectory folder;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      const std::string ones(8 * kPage, '\1');
      for (int i = 0; i < 50; ++i) {
        const std::string path = folder.write(fmt::format("{}-{}", t, i), ones);
        const auto file = MappedFile::open(path);
        const bool cuts = (i + t) % 2 == 0;
        if (cuts) std::filesystem::resize_file(path, kPage);
        wrong += file.ok() && sum_of(file->bytes()) == (cuts ? 1 : 8) * kPage &&
                         file->changed_since_open() == cuts
                     ? 0
                     : 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

}  // namespace llm::test
