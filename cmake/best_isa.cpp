// Prints the word of this CPU's best instruction set, for LLM_ISAS=native.

#include <iostream>

#include "base/cpu_features.h"

int main() { std::cout << llm::isa_name(llm::best_isa()); }
