#include "engine/grammar/work_meter.h"

#include <algorithm>
#include <utility>

namespace {

constexpr std::uint64_t kBetweenQuestions = 1 << 20;

thread_local llm::WorkMeter* here = nullptr;
thread_local std::uint64_t at_hand = 0;  ///< units of `here` that were taken from its own

}  // namespace

namespace llm {

WorkMeter::WorkMeter(std::uint64_t& units, std::function<bool()> is_given_up)
    : units_(units), is_given_up_(std::move(is_given_up)) {
  here = this;
}

WorkMeter::~WorkMeter() {
  here = nullptr;
  units_ += std::exchange(at_hand, 0);
}

void WorkMeter::count(std::uint64_t units, const std::string* rule) {
  if (here == nullptr) return;
  if (units > at_hand) here->refill(units, rule);
  at_hand -= units;
}

void WorkMeter::refill(std::uint64_t units, const std::string* rule) {
  here = nullptr;  // the question and what cleans up behind an exception may ask for memory
  const std::uint64_t all = units_ + at_hand;
  if (units > all || (is_given_up_ && is_given_up_())) {
    units_ = at_hand = 0;
    WorkExceeded exceeded;
    if (rule != nullptr) rule->copy(exceeded.rule.data(), exceeded.rule.size() - 1);
    throw exceeded;
  }
  at_hand = std::min(all, std::max(units, kBetweenQuestions));
  units_ = all - at_hand;
  here = this;
}

}  // namespace llm

extern "C" {

void* __real__Znwm(std::size_t size);  // NOLINT: the linker's name
void* __wrap__Znwm(std::size_t size);  // NOLINT

void* __wrap__Znwm(std::size_t size) {  // NOLINT
  llm::WorkMeter::count(llm::WorkMeter::kUnitsOfRequest * (1 + size / 256), nullptr);
  return __real__Znwm(size);
}
}

namespace xgrammar {

void CountWork(std::size_t n, const std::string* rule_name);  // declared by its parser
void CountWork(std::size_t n, const std::string* rule_name) { llm::WorkMeter::count(n, rule_name); }

}  // namespace xgrammar
