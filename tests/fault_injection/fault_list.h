#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace llm::faults {

/// What a fault is of.
struct FaultClass {
  char letter;
  std::string_view what;
};
inline constexpr FaultClass kClasses[] = {
    {'a', "position beyond a chunk, a page, a batch"},
    {'b', "number of tokens modulo a tile"},
    {'c', "rows or columns modulo 16, 32, 256"},
    {'d', "one instruction set"},
    {'e', "one type's last sub-block"},
    {'f', "one number of threads, a share, a missing barrier"},
    {'g', "extreme values"},
    {'h', "one compute mode or cache type"},
    {'i', "tensors of equal shape exchanged, wrong orders and sizes"},
    {'j', "definition and engine wrong alike"},
    {'k', "text: tokenizer, sampler, context shift, proposals"},
    {'l', "the checks themselves"},
};

/// A fault, and who must find it.
struct Row {
  std::string id;          ///< what is planted (fault.h)
  char kind;               ///< its class
  std::string checks;      ///< in the order in which they are asked, with blanks between
  std::string names;       ///< regular expression: what a complaint has where it names the place
  std::string needs = {};  ///< what the model must have: of kModelParts; else nothing
  /// Of the checks themselves: the fault that the first check no longer finds as it did.
  std::string control = {};
};

/// All of them, ever the same.
std::vector<Row> all_faults();

}  // namespace llm::faults
