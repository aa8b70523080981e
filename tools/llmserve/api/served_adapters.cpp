#include "tools/llmserve/api/served_adapters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>

namespace llm {

ServedAdapters::ServedAdapters(std::vector<AdapterOption> options, bool applied)
    : all_(std::move(options)) {
  for (const AdapterOption& one : all_) scales_.push_back(applied ? one.scale : 0);
}

std::size_t ServedAdapters::find(std::string_view name) const {
  return static_cast<std::size_t>(std::ranges::find(all_, name, &AdapterOption::name) -
                                  all_.begin());
}

std::vector<float> ServedAdapters::scales() const {
  const std::lock_guard lock(mutex_);
  return scales_;
}

void ServedAdapters::set_scales(std::vector<float> scales) {
  const std::lock_guard lock(mutex_);
  scales_ = std::move(scales);
}

Result<std::vector<float>> ServedAdapters::wanted(const OrderedJson* lora,
                                                  std::string_view model) const {
  std::vector<float> scales(all_.size());
  if (lora == nullptr) {
    const std::size_t i = find(model.substr(model.rfind(':') + 1));
    if (i == all_.size() || model.find(':') == std::string_view::npos) return this->scales();
    scales[i] = all_[i].scale;
    return scales;
  }
  std::vector<std::string> names;
  for (const AdapterOption& one : all_) names.push_back(shown_json(one.name));
  for (std::size_t i = 0; i < lora->size(); ++i) {
    const std::string path = at_index("lora", i);
    const OrderedJson& entry = (*lora)[i];
    if (!entry.is_object()) return wrong_field(path, shown_json(entry), "an object");
    const OrderedJson id = entry.value("id", OrderedJson());
    std::size_t place = all_.size();
    if (id.is_string()) place = find(id.get<std::string>());
    if (id.is_number_unsigned()) place = std::min(id.get<std::size_t>(), all_.size());
    if (place == all_.size())
      return wrong_field(path + ".id", shown_json(id),
                         all_.empty() ? "no adapter: the server has none"
                                      : fmt::format("a number below {} or one of {}", all_.size(),
                                                    fmt::join(names, ", ")));
    const OrderedJson scale = entry.value("scale", OrderedJson(1));
    constexpr double kMost = std::numeric_limits<float>::max();
    if (!scale.is_number() || std::abs(scale.get<double>()) > kMost)
      return wrong_field(path + ".scale", shown_json(scale), "a number");
    scales[place] = scale.get<float>();
  }
  return scales;
}

}  // namespace llm
