#pragma once

#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "tools/common/adapter_option.h"
#include "tools/llmserve/conversations/json_fields.h"

namespace llm {

/// The adapters of a served model, in the order of Model::adapters(), and the scales of requests
/// that ask for none. Usable from any thread.
class ServedAdapters {
 public:
  /// @param applied  requests that ask for none get the scales of `options`, else 0
  ServedAdapters(std::vector<AdapterOption> options, bool applied);

  const std::vector<AdapterOption>& all() const { return all_; }
  /// Its place; all().size() where none has that name.
  std::size_t find(std::string_view name) const;
  std::vector<float> scales() const;
  void set_scales(std::vector<float> scales);

  /// The scales of a request: of a list of {"id", "scale"}, without those that it does not name; or
  /// of a model's name that ends with ":NAME"; else scales(). @param lora  null: there is no list
  /// Errors: kUsage naming the place in the list.
  Result<std::vector<float>> wanted(const OrderedJson* lora, std::string_view model) const;

 private:
  const std::vector<AdapterOption> all_;
  mutable std::mutex mutex_;  // guards what follows
  std::vector<float> scales_;
};

}  // namespace llm
