#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "engine/state/kv_pool.h"
#include "engine/state/state_file.h"

namespace llm {

/// Keys, values and states on disk (docs/cache.md): a directory of files of state_file.h, each
/// found by the tokens up to its end and a hash of all else that they depend on. What is read is
/// checked first, so a damaged file, or one of another model, is never used; it is deleted, and
/// nothing is lost but time. Files are written by a thread of its own and appear whole or not at
/// all. Several processes may share a directory.
///
/// Usable from any thread; a KvPool that is passed stays its caller's.
class StateStore {
 public:
  struct Options {
    std::string directory;                    ///< made if there is none, in one that is there
    std::uint64_t most_bytes = 0;             ///< of all its files
    std::uint64_t most_waiting = 256U << 20;  ///< bytes to write; what comes then is not kept
    /// Told once of each kind of failure. Any thread calls it; it does not call the store.
    std::function<void(const std::string&)> notice = {};
  };
  struct Figures {
    std::uint64_t files = 0;  ///< there now
    std::uint64_t bytes = 0;  ///< of them
    std::uint64_t tokens_read = 0;
    std::uint64_t bytes_written = 0;
    std::uint64_t dropped = 0;  ///< pages not kept: the disk was full or slow
    std::uint64_t refused = 0;  ///< files that were damaged
    std::uint64_t evicted = 0;  ///< files deleted to stay within most_bytes
  };

  /// Errors: kIo naming the directory; kResource where there is no thread.
  static Result<std::shared_ptr<StateStore>> open(Options options);
  /// Writes what waits.
  ~StateStore();
  StateStore(const StateStore&) = delete;
  StateStore& operator=(const StateStore&) = delete;

  /// Publishes in `pool` what the files have that lets `tokens`, of which n_held are held by a
  /// sequence, go on from a later position. Stops where the pool has no page left that nobody
  /// holds.
  /// @return tokens that were read
  std::size_t load(KvPool& pool, const Prefix& root, std::span<const TokenId> tokens,
                   std::size_t n_held);

  /// Keeps what `pool` has published of a page's tokens after `parent`, and is not kept yet. Copies
  /// it; the disk is never waited for.
  /// @param page  its number in the sequence
  void save(const KvPool& pool, const Prefix& parent, std::size_t page,
            std::span<const TokenId> tokens);

  /// Waits until all that was saved is written, or could not be.
  void flush();
  Figures figures() const;

 private:
  struct Entry {
    StateHead head;
    std::uint64_t bytes = 0;
    std::int64_t used = 0;    ///< seconds; the file's time of modification, about
    bool is_written = false;  ///< else it waits
  };
  /// By name.
  using Entries = std::map<std::string, Entry>;
  /// A file that has positions [begin, end) of a page.
  struct Part {
    std::string name;
    StateHead head;
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  /// What the files have of the tokens of a page.
  struct Found {
    std::vector<Part> parts;  ///< in order, from position 0 on
    std::size_t n = 0;        ///< positions
    /// The most positions behind which a file has states; its name.
    std::size_t n_to_state = 0;
    Part state = {};
  };
  struct Job {
    std::string name;
    std::vector<std::vector<std::byte>> sections;
    std::uint64_t bytes = 0;
  };
  struct Plan;

  explicit StateStore(Options options) : options_(std::move(options)) {}

  std::string path_of(const std::string& name) const { return options_.directory + "/" + name; }
  /// @param groups  tells sections of states. @pre the lock is held
  Found find(const KvGroups& groups, const Prefix& parent, std::span<const TokenId> tokens,
             bool written_only);
  Plan plan(const KvPool& pool, const Prefix& root, std::span<const TokenId> tokens,
            std::size_t n_held);
  enum class Loaded { kWhole, kDamaged, kFull };
  /// Publishes a page's tokens in the wanted groups. kDamaged: a file is bad, and forgotten; kFull:
  /// the pool has no page for them.
  Loaded load_page(KvPool& pool, const Prefix& parent, std::span<const TokenId> tokens,
                   const Found& found, const std::vector<bool>& wanted);
  /// Stores what a part has of the first n positions of the page.
  Status read_part(KvPool& pool, const Part& part, std::size_t n, std::vector<bool> wanted,
                   std::span<const KvPool::Page> pages) const;
  /// Whether sections have the sizes and the contents that the pool's layers may have.
  static Status check_part(const KvPool& pool, const Part& part,
                           std::span<const std::vector<std::byte>> sections);

  // Of these each caller holds the lock.
  /// Notes the files that others have written, and forgets those that are gone.
  void scan();
  /// The same where the directory has changed, a few times a second at most.
  void scan_again();
  void add(const std::string& name, Entry entry);
  void forget(const std::string& name);
  void refuse(const std::string& name, const Error& error);
  void use(const std::string& name);
  void tell(const Error& error);

  void work();
  void write(Job job);
  /// Deletes the files that were used the longest ago, the ends of texts first.
  void evict();

  Options options_;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  std::condition_variable idle_;
  Entries entries_;
  std::map<Prefix, std::set<std::string>> by_parent_;
  std::deque<Job> waiting_;
  std::uint64_t waiting_bytes_ = 0;
  std::set<std::string> told_;
  std::chrono::steady_clock::time_point scanned_{};
  std::int64_t modified_ = 0;  ///< the directory, when it was scanned
  Figures figures_;
  bool is_writing_ = false;
  bool stopped_ = false;

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace llm
