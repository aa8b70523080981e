#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "base/result.h"

namespace llm {

/// The `__meta__` JSON of an activation dump: who made it, from what, and how. docs/dump_format.md.
struct DumpMeta {
  std::string producer;          ///< "llmcheck", "from_gguf.py", ...
  std::string producer_version;  ///< free text
  std::string model_sha256;      ///< of the model file; empty when there is none
  std::string model_name;        ///< general.name, informative
  std::string tokenizer_hash;    ///< tokenizer_hash() of the vocabulary; may be empty
  std::string merges_hash;       ///< merges_hash() of it; empty in dumps made before there was one
  std::string oracle;            ///< R0, R1, R2, engine, hf, llamacpp
  std::string compute;           ///< f64, f32, int8
  std::string kv;                ///< f64, f32, f16
  double eps = 0;
  double rope_theta = 0;
  std::string qk_layout = "interleaved";           ///< or "half": order of the features of a head
  std::map<std::string, std::string> taps_absent;  ///< tap -> why the producer cannot give it
  // Shape of the model, from "hparams"; 0 where the producer does not say.
  std::size_t n_layers = 0;
  std::size_t head_dim = 0;
  std::size_t rope_dim = 0;  ///< leading dims of a head that rotate
};

/// The JSON text. Keys are sorted, so equal metadata gives equal bytes.
std::string to_json(const DumpMeta& meta);

/// Parses and checks it. Errors (kMalformed) name the key, what was found and the rule.
Result<DumpMeta> parse_dump_meta(std::string_view json);

}  // namespace llm
