#include "base/mapped_region.h"

#include <cerrno>
#include <csignal>

#include "base/mapped_file.h"
#include "tests/support/test.h"

namespace llm::test {
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
