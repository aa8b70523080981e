#include "engine/generation/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace llm {

StopMatcher::StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase(stops_, "");
}

std::string StopMatcher::push(std::string_view piece) {
  LLM_CHECK(!matched_);
  held_ += piece;
  std::size_t match = std::string::npos;
  std::size_t undecided = held_.size();
  for (const std::string& stop : stops_) {
    match = std::min(match, held_.find(stop));
    // The longest end of the text that begins this stop string.
    std::size_t length = std::min(stop.size() - 1, held_.size());
    while (!held_.ends_with(std::string_view(stop).substr(0, length))) --length;
    undecided = std::min(undecided, held_.size() - length);
  }
  matched_ = match != std::string::npos;
  std::string text = held_.substr(0, matched_ ? match : undecided);
  held_.erase(0, matched_ ? held_.size() : undecided);
  return text;
}

std::string StopMatcher::flush() { return std::exchange(held_, std::string()); }

}  // namespace llm
