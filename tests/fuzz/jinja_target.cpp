// A chat template from its text to a render. jinja_differential.py holds the same renders against
// jinja2's.

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/rendered_template.h"

LLM_FUZZ(input) { (void)llm::fuzz::rendered(std::string(input.rest())); }
