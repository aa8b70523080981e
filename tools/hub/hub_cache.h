#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "tools/hub/hub_name.h"

namespace llm {

/// The part of one repository in the Hugging Face hub's cache, in the layout of its own library:
///   FOLDER/models--OWNER--REPO/blobs/SHA256            contents
///                             /refs/main               the commit that was last seen
///                             /snapshots/COMMIT/PATH   symbolic links to contents
///   FOLDER/.locks/models--OWNER--REPO/SHA256.lock
/// so that files which that library fetched are found here, and the other way round.
class HubCache {
 public:
  /// @param folder  $HF_HUB_CACHE  @param repo  "owner/repo"
  HubCache(const std::string& folder, const std::string& repo);

  /// Files of the commit that was last seen whose contents are there; none where nothing is.
  std::vector<HubFile> files() const;
  /// Where a file of that commit is.
  std::string path(const HubFile& file) const { return path_in(last_commit(), file); }

  /// Where contents are or will be.
  std::string blob(const HubFile& file) const { return root_ + "/blobs/" + file.sha256; }

  /// Removes those files, and contents that no other file of the repository has. Errors: kIo.
  Status remove(const std::vector<HubFile>& files) const;

  /// Calls `fetch` unless blob(file) is there, while no other process does.
  /// @param wait  called once where another process holds the lock
  /// Errors: kIo; those of `fetch`.
  Status fetch_once(const HubFile& file, const std::function<void()>& wait,
                    const std::function<Status()>& fetch) const;

  /// Removes what a killed process of ours has left of contents that the hub lists no more, so that
  /// nobody goes on with it. What the hub's library began, and what a process has, stays.
  void remove_stale(const std::vector<HubFile>& listed) const;

  /// Makes `files`, whose contents are there, known as files of `commit`, the last seen.
  /// Errors: kIo. @return the path of the first. @pre is_safe_hub_path(), commit and hashes in hex
  Result<std::string> add(const std::string& commit, const std::vector<HubFile>& files) const;

 private:
  std::string path_in(const std::string& commit, const HubFile& file) const;
  std::string last_commit() const;

  std::string root_;   ///< FOLDER/models--OWNER--REPO
  std::string locks_;  ///< FOLDER/.locks/models--OWNER--REPO
};

}  // namespace llm
