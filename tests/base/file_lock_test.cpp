#include "base/file_lock.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/atomic_file.h"
#include "tests/base/bytes.h"
#include "tests/support/test.h"

namespace llm::test {

using IfHeld = FileLock::IfHeld;
using Unnamed = AtomicFile::Unnamed;

TEST_CASE("bad input 109: a file that another program writes", "[base][atomic_file]") {
  const ScratchDirectory folder;
  const auto unnamed = GENERATE(Unnamed::kNever, Unnamed::kIfPossible);
  const std::string path = folder.write("a", "old");
  constexpr std::string_view kInUse = "found another process that writes it, need one at a time";
  {
    auto first = require_ok(AtomicFile::create(path, unnamed));
    must_fail(AtomicFile::create(path, unnamed), ErrorCode::kIo, {kInUse});
    must_fail(AtomicFile::probe(path), ErrorCode::kIo, {kInUse});
    REQUIRE(first.write(bytes_of("first")).ok());
    REQUIRE(first.commit().ok());
    CHECK(folder.read(path) == "first");
  }
  // One that was not there, and is meanwhile.
  auto second = require_ok(AtomicFile::create(folder.path("b"), unnamed));
  auto third = require_ok(AtomicFile::create(folder.path("b"), unnamed));
  auto equal = require_ok(AtomicFile::create(folder.path("b"), unnamed));
  REQUIRE(second.write(bytes_of("second")).ok());
  REQUIRE(third.write(bytes_of("another")).ok());
  REQUIRE(equal.write(bytes_of("second")).ok());
  REQUIRE(second.commit().ok());
  must_fail(third.commit(), ErrorCode::kIo, {"another program has written meanwhile"});
  CHECK(equal.commit().ok());
  CHECK(folder.read(folder.path("b")) == "second");
}

TEST_CASE("a lock moves to the file that replaces the locked one", "[base][atomic_file]") {
  const ScratchDirectory folder;
  const std::string path = folder.path("a");
  FileLock lock;
  for (const char* text : {"one", "two"}) {
    REQUIRE(write_file_atomically(path, bytes_of(text), &lock).ok());
    CHECK(lock.is_on(path));
    CHECK(folder.read(path) == text);
    must_fail(FileLock::take(path, IfHeld::kFail), ErrorCode::kIo, {"another process"});
    must_fail(write_file_atomically(path, bytes_of("x")), ErrorCode::kIo, {"another process"});
  }
  // Behind the lock's back: what somebody put there stays.
  folder.write("other", "theirs");
  std::filesystem::rename(folder.path("other"), path);
  must_fail(write_file_atomically(path, bytes_of("x"), &lock), ErrorCode::kIo,
            {"found another file than the one that was opened"});
  CHECK(folder.read(path) == "theirs");
  std::filesystem::remove(path);
  REQUIRE(write_file_atomically(path, bytes_of("again"), &lock).ok());
  CHECK(folder.read(path) == "again");
  lock.release();
  CHECK(require_ok(FileLock::take(path, IfHeld::kFail)).is_on(path));
}

TEST_CASE("bad input 110: temporary files of a killed program", "[base][atomic_file]") {
  const ScratchDirectory folder;
  const std::string path = folder.write("a", "old");
  const pid_t child = ::fork();
  if (child == 0) {
    auto file = AtomicFile::create(path, Unnamed::kNever);
    if (!file.ok() || !file->write(bytes_of("half")).ok()) ::_exit(1);
    ::raise(SIGKILL);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  REQUIRE(folder.count() == 2);
  // What is not ours: other names, a link, a folder.
  for (const char* name :
       {"a.tmp", "a.llm.tmp", "a.llm.tmp.", "a.llm.tmp.1x", "ab.llm.tmp.1.0", "xa.llm.tmp.1.0"})
    folder.write(name, "theirs");
  std::filesystem::create_symlink("a", folder.path("a.llm.tmp.7.0"));
  std::filesystem::create_directory(folder.path("a.llm.tmp.7.1"));
  const std::size_t others = 8;
  // A living program's stays.
  auto living = require_ok(AtomicFile::create(folder.path("b"), Unnamed::kNever));
  std::filesystem::path alive;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    if (entry.path().filename().string().starts_with("b.")) alive = entry.path();
  REQUIRE_FALSE(alive.empty());
  REQUIRE(AtomicFile::probe(folder.path("b")).ok());
  CHECK(std::filesystem::exists(alive));
  CHECK(folder.count() == 3 + others);
  REQUIRE(AtomicFile::probe(path).ok());
  CHECK(folder.count() == 2 + others);
  CHECK(folder.read(path) == "old");
}

}  // namespace llm::test
