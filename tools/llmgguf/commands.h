#pragma once

#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "engine/gguf/gguf_file.h"
#include "engine/gguf/gguf_split.h"
#include "engine/model/precision.h"
#include "tools/common/tool.h"

namespace llm {

struct GgufArguments {
  std::string verb;
  std::string file;
  std::string other_file;  ///< the first argument after FILE
  std::string third;       ///< the second one
  bool json = false;
  bool strict = false;
  bool vocab_only = false;
  bool all = false;           ///< whole arrays and strings
  std::size_t parts = 0;      ///< of split
  std::string max_size;       ///< of a part of split: "2G"
  std::string output;         ///< of hash: the manifest; of set, add, rm and import: the copy
  std::string type = "str";   ///< of add
  std::string chat_template;  ///< of set: a file
  std::size_t context = 0;    ///< of size; 0: the model's
  std::size_t batch = 512;    ///< of size
  KvType kv = KvType::kF16;   ///< of size
  std::string manifest;       ///< of verify
  std::string fix;            ///< of doctor: the mended copy
  bool force = false;         ///< existing files are replaced
  bool dequantize = false;    ///< of merge-lora
  int threads = 0;
};

/// A GGUF that was parsed but not yet taken for a model.
Result<OpenGguf> open_gguf(const std::string& path);

// The verbs. Each returns the exit code.
Result<int> show_gguf(const GgufArguments& arguments, const ToolContext& context);
/// Prints hashes, or writes the manifest to --output.
Result<int> hash_gguf(const GgufArguments& arguments, const ToolContext& context);
/// With --manifest compares FILE with it.
Result<int> verify_gguf(const GgufArguments& arguments, const ToolContext& context);
/// Writes OTHER-00001-of-0000N.gguf and so on: parts of at most --max-size bytes of tensors, or
/// --parts of about the same size.
Result<int> split_gguf(const GgufArguments& arguments, const ToolContext& context);
/// Writes the whole model that FILE is a part of to OTHER.
Result<int> merge_gguf(const GgufArguments& arguments, const ToolContext& context);
/// Prints what is wrong with FILE and how it is mended; with --fix writes a mended copy.
Result<int> doctor_gguf(const GgufArguments& arguments, const ToolContext& context);
/// Writes the model FILE with the adapter merged into it to the file OUT.
Result<int> merge_lora(const GgufArguments& arguments, const ToolContext& context);
/// Changes the value of the key OTHER, or adds or removes the key.
Result<int> set_key(const GgufArguments& arguments, const ToolContext& context);
Result<int> add_key(const GgufArguments& arguments, const ToolContext& context);
Result<int> remove_key(const GgufArguments& arguments, const ToolContext& context);
/// Writes the tensor OTHER to an NPY file in f32, or takes it from one.
Result<int> export_tensor(const GgufArguments& arguments, const ToolContext& context);
Result<int> import_tensor(const GgufArguments& arguments, const ToolContext& context);
/// Prints a block of the tensor OTHER: scales, codes, weights.
Result<int> show_block(const GgufArguments& arguments, const ToolContext& context);
/// Prints what memory a run of the model takes; exit code 1 where it does not fit.
Result<int> show_size(const GgufArguments& arguments, const ToolContext& context);
Result<int> diff_gguf(const GgufArguments& arguments, const ToolContext& context);

/// The version of every JSON object that llmgguf prints.
inline constexpr int kGgufSchemaVersion = 2;

/// "[2048, 32000]", columns first.
std::string dims_text(const GgufTensor& tensor);
/// A value on one line; arrays cut to `limit` elements, strings to 10 times as many characters.
std::string value_text(const GgufValue& value, std::size_t limit);

}  // namespace llm
