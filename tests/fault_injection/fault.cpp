#include "tests/fault_injection/fault.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "base/check.h"

namespace llm::faults {
namespace {

struct Planted {
  std::string text;
  std::vector<Fault> faults;
  std::atomic<bool> struck = false;
};

Planted& here() {
  static Planted planted;
  return planted;
}

double number_of(std::string_view text) { return std::strtod(std::string(text).c_str(), nullptr); }

/// LLM_FAULT plants in programs that know nothing of faults (llmcheck_faulty).
[[maybe_unused]] const bool kPlantedFromEnvironment = [] {
  const char* items = std::getenv("LLM_FAULT");
  if (items != nullptr && *items != '\0') plant(items);
  return items != nullptr;
}();

}  // namespace

bool Fault::Condition::holds(const Known& value) const {
  if (!value.text.empty()) return op == '=' && value.text == text;
  if (op == '<') return value.number < number;
  if (op == '>') return value.number > number;
  if (op == '=') return value.number == number;
  return static_cast<long long>(value.number) % modulus == static_cast<long long>(number);
}

Fault::Fault(std::string_view item) {
  const std::size_t colon = std::min(item.find(':'), item.size());
  site_ = item.substr(0, colon);
  for (item.remove_prefix(colon); !item.empty();) {
    item.remove_prefix(1);
    std::string_view word = item.substr(0, item.find(':'));
    item.remove_prefix(word.size());
    Condition c;
    const std::size_t at = word.find_first_of("=<>%");
    LLM_CHECK(at != std::string_view::npos && n_ < conditions_.size());
    c.key = word.substr(0, at);
    c.op = word[at];
    word.remove_prefix(at + 1);
    if (c.op == '%') {
      c.modulus = static_cast<long long>(number_of(word));
      LLM_CHECK(c.modulus > 0 && word.find('=') != std::string_view::npos);
      word.remove_prefix(word.find('=') + 1);
    }
    c.text = word;
    c.number = number_of(word);
    if (c.key == "effect") {
      effect_ = word;
    } else {
      conditions_[n_++] = c;
    }
  }
}

const Fault::Condition* Fault::about(std::string_view key) const {
  const auto end = conditions_.begin() + n_;
  const auto found = std::find_if(conditions_.begin(), end, [&](auto& c) { return c.key == key; });
  return found == end ? nullptr : &*found;
}

std::optional<double> Fault::number(std::string_view key) const {
  const Condition* c = about(key);
  return c == nullptr ? std::nullopt : std::optional(c->number);
}

std::string_view Fault::name(std::string_view key) const {
  const Condition* c = about(key);
  return c == nullptr ? "" : c->text;
}

std::optional<Fault> Fault::bind(Knowledge known) const {
  Fault rest = *this;
  rest.n_ = 0;
  for (std::size_t i = 0; i < n_; ++i) {
    const auto value = std::ranges::find(known, conditions_[i].key, &Known::key);
    if (value == known.end()) rest.conditions_[rest.n_++] = conditions_[i];
    if (value != known.end() && !conditions_[i].holds(*value)) return std::nullopt;
  }
  return rest;
}

bool Fault::holds(Knowledge known) const {
  const auto rest = bind(known);
  return rest && rest->n_ == 0;
}

void plant(std::string items) {
  Planted& p = here();
  p.text = std::move(items);
  p.faults.clear();
  for (std::string_view rest = p.text; !rest.empty();) {
    const std::string_view item = rest.substr(0, rest.find(','));
    p.faults.emplace_back(item);
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
  }
}

const Fault* planted(std::string_view site, std::size_t n) {
  for (const Fault& fault : here().faults) {
    if (fault.site() == site && n-- == 0) return &fault;
  }
  return nullptr;
}

std::optional<Fault> planted(std::string_view site, Knowledge known) {
  const Fault* fault = planted(site);
  return fault == nullptr ? std::nullopt : fault->bind(known);
}

const Fault* strikes(std::string_view site, Knowledge known) {
  const Fault* fault = planted(site);
  if (fault == nullptr || !fault->holds(known)) return nullptr;
  note_struck();
  return fault;
}

bool takes_effect(std::string_view site, std::string_view effect) {
  const Fault* fault = planted(site);
  const bool has = fault != nullptr && fault->is(effect);
  if (has) note_struck();
  return has;
}

void note_struck() { here().struck.store(true, std::memory_order_relaxed); }
bool has_struck() { return here().struck.load(std::memory_order_relaxed); }

void put(float& y, float wrong) {
  if (std::bit_cast<std::uint32_t>(y) != std::bit_cast<std::uint32_t>(wrong)) note_struck();
  y = wrong;
}

float ulp(float x) { return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) ^ 1U); }

}  // namespace llm::faults
