#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/result.h"

namespace llm {

/// How a file is hashed. Nothing here changes a hash.
struct Hashing {
  int threads = 0;  ///< 0: available_cpus()
  /// Called with the bytes done and those to do, by one thread at a time; may be empty.
  std::function<void(std::size_t done, std::size_t total)> progress = {};
};

/// Independent jobs that threads take one after the other, each the next when it is free. Put the
/// longest first: it bounds the time of all.
class HashWork {
 public:
  /// Tells that so many more bytes have been read.
  using Advance = std::function<void(std::size_t bytes)>;

  /// @param bytes  that `job` will read
  void add(std::uint64_t bytes, std::function<void(const Advance&)> job);
  /// Runs every job. Errors: kResource where the system refuses the threads.
  Status run(const Hashing& hashing);

 private:
  std::vector<std::function<void(const Advance&)>> jobs_;
  std::uint64_t total_ = 0;
};

}  // namespace llm
