#include "base/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/file_lock.h"
#include "tests/base/bytes.h"

namespace llm::test {
using Unnamed = AtomicFile::Unnamed;

TEST_CASE("the path shows the old file until commit", "[base][atomic_file]") {
  const auto unnamed = GENERATE(Unnamed::kNever, Unnamed::kIfPossible);
  const ScratchDirectory folder;
  const std::string path = folder.write("a", "old");
  auto file = require_ok(AtomicFile::create(path, unnamed));
  REQUIRE(file.write(bytes_of("new ")).ok());
  REQUIRE(file.write(bytes_of("text")).ok());
  CHECK(file.size() == 8);
  CHECK(folder.read(path) == "old");
  REQUIRE(file.commit().ok());
  CHECK(folder.read(path) == "new text");
  CHECK(folder.count() == 1);
}

TEST_CASE("without commit the old file stays and nothing is left", "[base][atomic_file]") {
  const ScratchDirectory folder;
  const std::string path = folder.write("a", "old");
  const auto unnamed = GENERATE(Unnamed::kNever, Unnamed::kIfPossible);
  // The folder's file system has files without a name, as all of Linux's usual ones.
  const std::size_t meanwhile = unnamed == Unnamed::kNever ? 2 : 1;
  {
    auto file = require_ok(AtomicFile::create(path, unnamed));
    REQUIRE(file.write(bytes_of("half a fi")).ok());
    CHECK(folder.count() == meanwhile);
    const AtomicFile moved = std::move(file);  // only the last owner cleans up
    CHECK(folder.count() == meanwhile);
  }
  CHECK(folder.read(path) == "old");
  CHECK(folder.count() == 1);
}

TEST_CASE("temporary files are removed for a process that ends at once", "[base][atomic_file]") {
  const ScratchDirectory folder;
  auto first = AtomicFile::create(folder.path("a"), Unnamed::kNever);
  auto second = AtomicFile::create(folder.path("b"), Unnamed::kNever);
  REQUIRE(first.ok());
  REQUIRE(second.ok());
  CHECK(folder.count() == 2);
  REQUIRE(second->commit().ok());
  remove_temporary_files();
  CHECK(folder.count() == 1);
  CHECK(folder.read(folder.path("b")).empty());
}

TEST_CASE("a probe leaves no trace", "[base][atomic_file]") {
  const ScratchDirectory folder;
  const std::string path = folder.write("a", "old");
  CHECK(AtomicFile::probe(path).ok());
  CHECK(AtomicFile::probe(folder.path("new")).ok());
  CHECK(folder.count() == 1);
  CHECK(folder.read(path) == "old");
  REQUIRE(::mkfifo(folder.path("pipe").c_str(), 0600) == 0);
  CHECK(AtomicFile::probe(folder.path("pipe")).ok());  // and does not wait for a reader
  CHECK(must_fail(AtomicFile::probe(folder.path("no/a"))).file == folder.path("no/a"));
  CHECK_FALSE(AtomicFile::probe(folder.path()).ok());
}

TEST_CASE("earlier bytes can be overwritten", "[base][atomic_file]") {
  const ScratchDirectory folder;
  auto file = require_ok(AtomicFile::create(folder.path("a")));
  REQUIRE(file.write(bytes_of("0000 body")).ok());
  REQUIRE(file.write_at(1, bytes_of("42")).ok());
  REQUIRE(file.write(bytes_of(" end")).ok());
  REQUIRE(file.commit().ok());
  CHECK(folder.read(folder.path("a")) == "0420 body end");
}

TEST_CASE("a new file has the usual mode, a replaced one keeps its own", "[base][atomic_file]") {
  const ScratchDirectory folder;
  const auto mode_after_write = [&](const std::string& path) {
    REQUIRE(write_file_atomically(path, bytes_of("x")).ok());
    struct stat info {};
    REQUIRE(::stat(path.c_str(), &info) == 0);
    return static_cast<unsigned>(info.st_mode & 07777);
  };
  const mode_t mask = ::umask(022);
  CHECK(mode_after_write(folder.path("new")) == 0644);
  ::umask(mask);
  const std::string kept = folder.write("kept", "old");
  REQUIRE(::chmod(kept.c_str(), 0640) == 0);
  CHECK(mode_after_write(kept) == 0640);
}

// Devices are reached through links of the test's own: were they replaced by mistake, by a test run
// as root, it would be the link.
TEST_CASE("a full device is an error with its path", "[base][atomic_file]") {
  const ScratchDirectory folder;
  const std::string path = folder.path("full");
  std::filesystem::create_symlink("/dev/full", path);
  const Error error = must_fail(write_file_atomically(path, bytes_of("text")), ErrorCode::kIo,
                                {"No space left on device"});
  CHECK(error.file == path);
  CHECK(std::filesystem::is_symlink(path));
}

TEST_CASE("a pipe is written to, never replaced", "[base][atomic_file]") {
  const ScratchDirectory folder;
  const std::string path = folder.path("pipe");
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  const int reader = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  REQUIRE(reader >= 0);
  const bool written = write_file_atomically(path, bytes_of("text")).ok();
  char content[8] = {};
  const ssize_t size = ::read(reader, content, sizeof content);
  ::close(reader);
  CHECK(written);
  CHECK(std::string_view(content) == "text");
  CHECK(size == 4);
  CHECK(std::filesystem::is_fifo(path));
}

TEST_CASE("a folder that takes no files is an error", "[base][atomic_file]") {
  const ScratchDirectory folder;
  const auto refused = [](const std::string& path, std::string_view words) {
    const Error error =
        must_fail(write_file_atomically(path, bytes_of("x")), ErrorCode::kIo, {words});
    CHECK(error.file == path);
  };
  refused(folder.path("missing/a"), "No such file");
  refused(folder.path(), "Is a directory");
  refused("/proc/a", "cannot create");  // root cannot either
  if (::geteuid() == 0) return;
  REQUIRE(::chmod(folder.path().c_str(), 0500) == 0);
  refused(folder.path("a"), "Permission denied");
}

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
            {"found a different file from the one that was opened"});
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
