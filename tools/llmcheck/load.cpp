#include "tools/llmcheck/load.h"

#include <spdlog/spdlog.h>

#include <functional>
#include <utility>

namespace llm {

Result<std::shared_ptr<const Model>> load_for_check(const CheckArguments& arguments,
                                                    const std::string& path,
                                                    const std::string& sha256, Compute compute,
                                                    ProgressBar& bar) {
  LoadOptions options;
  options.compute = compute;
  options.threads = arguments.threads;
  options.expected_sha256 = sha256;
  options.isa = arguments.isa;
  options.packed_cache = arguments.packed_cache;
  options.progress = std::ref(bar);
  auto model = Model::load(path, options);
  bar.clear();
  if (!model.ok()) return in_file(std::move(model).error(), path);
  spdlog::debug("{}: computed with {} by {} threads", path, isa_name((*model)->isa()),
                (*model)->threads());
  for (const auto& warning : (*model)->warnings()) spdlog::warn("{}: {}", path, warning);
  return model;
}

}  // namespace llm
