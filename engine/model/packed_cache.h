#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "base/mapped_file.h"
#include "base/result.h"
#include "engine/model/model_file.h"
#include "engine/model/progress.h"

namespace llm {

struct WeightPlan;

/// A model's packed matrices in a file (docs/packed_cache.md), so that a later start maps them
/// instead of packing them. Processes that map it share its memory.
struct PackedCache {
  MappedFile file;
  std::span<const std::byte> panels;  ///< the plan's memory, 2 MiB aligned
};

/// Where the cache of the model at `model_path` is: one file in `directory` for each path.
std::string packed_cache_path(const std::string& directory, const std::string& model_path);

/// Opens the cache at `path` if there is one, and checks that it was made by this layout from this
/// model file, and every byte of it. What is compared of the model file: docs/packed_cache.md.
/// @param compare  also that it holds what the file has, byte for byte
/// Errors: kMalformed for a file that is none, damaged or cut; kUnsupported for another version of
/// the format; kIntegrity for another layout, contract, model or version of the model, or other
/// weights; kIo. Cost: reads the cache once, and little of the model, or all of it.
Result<std::optional<PackedCache>> open_packed_cache(const std::string& path,
                                                     const ModelFile& model, const WeightPlan& plan,
                                                     bool compare, int n_threads,
                                                     const Progress& progress);

/// Writes `panels`, the plan's memory, to `path` in one step; makes the directory if there is none.
/// Errors: kIo with the system's words. Cost: writes and syncs the panels' size.
Status write_packed_cache(const std::string& path, const ModelFile& model, const WeightPlan& plan,
                          std::span<const std::byte> panels, int n_threads,
                          const Progress& progress);

}  // namespace llm
