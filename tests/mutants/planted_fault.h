#ifndef LLM_TESTS_MUTANTS_PLANTED_FAULT_H_
#define LLM_TESTS_MUTANTS_PLANTED_FAULT_H_

/// Faults with parameters. An item of LLM_MUTANT such as
///
///     matmul:type=Q5_K:isa=avx2:row%16=15:effect=last_code
///
/// names a site (a place where plant.py put a fault point), conditions on what the site knows, and
/// an effect. A condition is KEY OP NUMBER or KEY=NAME, OP one of = < > and %M= (the remainder). A
/// fault strikes where all its conditions hold; a condition on what the site does not know never
/// holds. generate.py makes the items.
///
/// When a fault has struck, its site is appended to the file that LLM_MUTANT_TRACE names, once from
/// each place: a run that never got there cannot have noticed.
///
/// Like planted.h: local to its unit, and only C is called.

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace llm {
namespace {

/// What a site knows: a number, or a name.
struct PlantedValue {
  const char* key;
  double number = 0;
  const char* text = nullptr;

  PlantedValue(const char* k, const char* name) : key(k), text(name) {}
  template <class Number>
  PlantedValue(const char* k, Number n) : key(k), number(static_cast<double>(n)) {}
};
using PlantedValues = std::initializer_list<PlantedValue>;

struct PlantedCondition {
  char key[20];
  char op;         ///< '=', '<', '>' or '%'
  double modulus;  ///< of '%'
  double number;
  char text[24];  ///< what stands behind the operator

  bool holds(const PlantedValue& value) const {
    if (value.text != nullptr) return op == '=' && std::strcmp(value.text, text) == 0;
    switch (op) {
      case '<':
        return value.number < number;
      case '>':
        return value.number > number;
      case '%':
        return static_cast<long long>(value.number) % static_cast<long long>(modulus) ==
               static_cast<long long>(number);
      default:
        return value.number == number;
    }
  }
};

/// Conditions and an effect.
class PlantedFault {
 public:
  /// Reads what follows the site's name: ":key=value:..." up to a comma or the end.
  void parse(const char* at) {
    n_ = 0;
    effect_[0] = '\0';
    while (*at == ':') {
      ++at;
      PlantedCondition c = {};
      std::size_t size = std::strcspn(at, "=<>%:,");
      copy(c.key, sizeof(c.key), at, size);
      at += size;
      c.op = *at;
      if (c.op == '%') {
        c.modulus = std::strtod(at + 1, nullptr);
        at += std::strcspn(at, "=,");
      }
      if (*at == '=' || *at == '<' || *at == '>') ++at;
      size = std::strcspn(at, ":,");
      copy(c.text, sizeof(c.text), at, size);
      c.number = std::strtod(c.text, nullptr);
      at += size;
      if (std::strcmp(c.key, "effect") == 0) {
        std::memcpy(effect_, c.text, sizeof(effect_));
      } else if (n_ < kMost) {
        conditions_[n_++] = c;
      }
    }
  }

  /// Whether no condition contradicts `values`; then `rest` is left with those about other keys.
  bool bind(PlantedValues values, PlantedFault& rest) const {
    PlantedFault left;
    std::memcpy(left.effect_, effect_, sizeof(effect_));
    for (const PlantedValue& value : values) {
      if (std::strcmp(value.key, "effect") == 0 && std::strcmp(value.text, effect_) != 0)
        return false;
    }
    for (int i = 0; i < n_; ++i) {
      const PlantedValue* known = nullptr;
      for (const PlantedValue& value : values) {
        if (std::strcmp(value.key, conditions_[i].key) == 0) known = &value;
      }
      if (known == nullptr) {
        left.conditions_[left.n_++] = conditions_[i];
      } else if (!conditions_[i].holds(*known)) {
        return false;
      }
    }
    rest = left;
    return true;
  }
  /// Whether all conditions hold.
  bool holds(PlantedValues values) const {
    PlantedFault rest;
    return bind(values, rest) && rest.n_ == 0;
  }

  bool is(const char* effect) const { return std::strcmp(effect_, effect) == 0; }

 private:
  static constexpr int kMost = 8;
  static void copy(char* to, std::size_t room, const char* from, std::size_t size) {
    if (size >= room) std::abort();  // generate.py's names are shorter
    std::memcpy(to, from, size);
    to[size] = '\0';
  }

  PlantedCondition conditions_[kMost] = {};
  int n_ = 0;
  char effect_[24] = {};
};

/// The faults of one site. Made once at each place.
class PlantedSite {
 public:
  explicit PlantedSite(const char* name) : name_(name) {
    const std::size_t length = std::strlen(name);
    for (const char* item = std::getenv("LLM_MUTANT"); item != nullptr && n_ < kMost;) {
      if (std::strncmp(item, name, length) == 0 && item[length] == ':')
        faults_[n_++].parse(item + length);
      item = std::strchr(item, ',');
      if (item != nullptr) ++item;
    }
  }

  bool on() const { return n_ > 0; }
  /// The first fault that `values` do not contradict, as PlantedFault::bind.
  bool bind(PlantedValues values, PlantedFault& rest) const {
    for (int i = 0; i < n_; ++i) {
      if (faults_[i].bind(values, rest)) return true;
    }
    return false;
  }
  /// Whether a fault's conditions all hold; it strikes.
  bool strikes(PlantedValues values) const {
    for (int i = 0; i < n_; ++i) {
      if (!faults_[i].holds(values)) continue;
      trace();
      return true;
    }
    return false;
  }

  /// Notes that something was made wrong.
  void trace() const {
    if (__atomic_exchange_n(&noted_, 1, __ATOMIC_RELAXED) != 0) return;
    const char* path = std::getenv("LLM_MUTANT_TRACE");
    std::FILE* file = path == nullptr ? nullptr : std::fopen(path, "a");
    if (file == nullptr) return;
    std::fprintf(file, "%s\n", name_);
    std::fclose(file);
  }

 private:
  static constexpr int kMost = 4;
  const char* name_;
  PlantedFault faults_[kMost];
  int n_ = 0;
  mutable char noted_ = 0;
};

}  // namespace
}  // namespace llm

/// PLANTED_FAULT(site, {"key", value}...) is whether a fault strikes here.
#define PLANTED_FAULT(site, ...)                       \
  ([&]([[maybe_unused]] ::llm::PlantedValues values) { \
    static const ::llm::PlantedSite place(site);       \
    return place.on() && place.strikes(values);        \
  }({__VA_ARGS__}))

#endif  // LLM_TESTS_MUTANTS_PLANTED_FAULT_H_
