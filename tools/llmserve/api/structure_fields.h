#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/grammar/grammar.h"
#include "tools/llmserve/api/served_model.h"
#include "tools/llmserve/conversations/json_fields.h"

namespace llm {

/// What the text of an answer must be, as a body asks for it.
struct StructureField {
  std::string path;  ///< of the field, for errors
  GrammarSource source;
};

/// The fields response_format, grammar and regex. @param wanted  is appended to
void add_structure(JsonFields& fields, std::vector<StructureField>& wanted);

/// The same in the shape of newer APIs: an object whose member `format` has type and schema.
JsonFields::Field& add_nested_format(JsonFields& fields, std::string name,
                                     std::vector<StructureField>& wanted);

/// The same in Ollama's shape: "json", or a schema.
JsonFields::Field& add_ollama_format(JsonFields& fields, std::vector<StructureField>& wanted);

/// The grammar of what was asked for; null for nothing. Errors: kUsage naming the field, with the
/// JSON pointer of a schema's keyword behind it, or several fields.
Result<std::shared_ptr<const Grammar>> compile_structure(const std::vector<StructureField>& wanted,
                                                         const ServedModel& served);

}  // namespace llm
