#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

/// Faults with parameters, injected where functions of one translation unit call those of another
/// (the linker's --wrap, LLM_WRAP below): the objects are the product's own. A fault such as
///
///     matmul:type=Q5_K:isa=avx2:row%16=15:effect=last_code
///
/// names a site, conditions on what the site knows, and an effect. A condition is KEY=NAME or KEY
/// OP NUMBER, OP one of = < > and %M= (the remainder). A fault strikes where all its conditions
/// hold; a condition on what the site does not know never holds.
namespace llm::faults {

/// What a site knows: a number, or a name.
struct Known {
  std::string_view key;
  double number = 0;
  std::string_view text = {};

  Known(std::string_view k, std::string_view name) : key(k), text(name) {}
  Known(std::string_view k, const char* name) : key(k), text(name) {}
  template <typename Number>
  requires std::integral<Number> || std::floating_point<Number> Known(std::string_view k, Number n)
      : key(k), number(static_cast<double>(n)) {}
};
using Knowledge = std::initializer_list<Known>;

class Fault {
 public:
  /// @param item  is kept, not copied. @pre the form above; a site has at most 8 conditions
  explicit Fault(std::string_view item);

  std::string_view site() const { return site_; }
  bool is(std::string_view effect) const { return effect_ == effect; }
  /// The number, or the name, that `key` must be; nothing where no condition is about it.
  std::optional<double> number(std::string_view key) const;
  std::string_view name(std::string_view key) const;

  /// With the conditions about other keys alone; nothing when `known` contradicts one.
  std::optional<Fault> bind(Knowledge known) const;
  /// Whether every condition is about a key of `known`, and holds.
  bool holds(Knowledge known) const;

 private:
  struct Condition {
    std::string_view key;
    char op = '=';  ///< '=', '<', '>' or '%'
    long long modulus = 0;
    double number = 0;
    std::string_view text;

    bool holds(const Known& value) const;
  };

  const Condition* about(std::string_view key) const;  ///< nullptr: none is

  std::string_view site_;
  std::string_view effect_;
  std::array<Condition, 8> conditions_{};
  std::size_t n_ = 0;
};

/// What is planted in this process: one fault, or several with commas between. Whoever calls it has
/// no other thread yet.
void plant(std::string items);
/// The planted fault of a site, or nullptr; the n-th where there are several.
const Fault* planted(std::string_view site, std::size_t n = 0);
/// The planted fault of a site with what `known` leaves of its conditions.
std::optional<Fault> planted(std::string_view site, Knowledge known);
/// The planted fault of a site where it strikes, all its conditions about what is known; noted.
const Fault* strikes(std::string_view site, Knowledge known);
/// Whether the planted fault of a site, whatever its conditions, has this effect; noted.
bool takes_effect(std::string_view site, std::string_view effect);

/// Notes that something was made wrong: a run in which nothing was cannot have noticed.
void note_struck();
bool has_struck();

/// y = wrong, noted where that changes a bit.
void put(float& y, float wrong);
/// The next float: one unit in the last place.
float ulp(float x);

}  // namespace llm::faults

/// A function that stands before one of the product's: real_NAME calls that. CMake passes every
/// SYMBOL in these sources to the linker, which finds none when a signature has changed.
#define LLM_WRAP(name, symbol, result, ...)              \
  result real_##name(__VA_ARGS__) asm("__real_" symbol); \
  result wrap_##name(__VA_ARGS__) asm("__wrap_" symbol); \
  result wrap_##name(__VA_ARGS__)
