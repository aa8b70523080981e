#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "tokenizer/vocab_spec.h"
#include "validate/reference/dump/dump.h"

namespace llm {

/// Metadata of a dump made by `session`'s engine.
/// @param producer      the tool's name
/// @param model_sha256  of the model file; empty where it is not needed
DumpMeta engine_meta(const Sequence& session, const std::string& producer,
                     const std::string& model_sha256);

/// A number that a model's results depend on, besides the members of DumpMeta.
struct HyperNumber {
  std::string_view name;  ///< in DumpMeta::numbers
  std::string_view key;   ///< of the GGUF, without the architecture
  double value;           ///< with what the architecture has where the file has no key
};
std::vector<HyperNumber> hyper_numbers(const HyperParameters& config);

/// SHA-256, hex, of a whole file. Errors: kIo; kIntegrity for one that changes meanwhile. To say
/// which file a model came from, ask Model::file_sha256().
Result<std::string> file_sha256(const std::string& path);

/// Runs `tokens` from position 0 in a session of its own and records every tap, NaN and Inf too.
/// @param step_ptr  tokens of call s are [step_ptr[s], step_ptr[s + 1]), as in a dump, so that
///                  prefill and decode are both seen; empty: all in one call
/// Errors: those of Executor::create and evaluate.
Result<Dump> record_activations(const std::shared_ptr<const Model>& model,
                                const ExecutorOptions& options, bool by_definition,
                                std::span<const TokenId> tokens, const std::string& producer,
                                const std::string& model_sha256,
                                std::span<const std::int64_t> step_ptr = {});

/// The same by the fast path, with a recorder of one's own, and metadata that names no file.
Result<Dump> record_with(Recorder& recorder, const std::shared_ptr<const Model>& model,
                         const ExecutorOptions& options, std::span<const TokenId> tokens,
                         std::span<const std::int64_t> step_ptr = {});

/// Identifies the tokens of a vocabulary: SHA-256, hex, over every entry in id order as u32 byte
/// length, the bytes, f32 score, i32 kind, all little-endian. Empty string for an empty vocabulary.
/// The `tokenizer_hash` of activation dumps.
std::string tokenizer_hash(const VocabSpec& vocab);

/// Identifies how byte-level BPE makes these tokens of a text: SHA-256, hex, over the name of the
/// pre-tokenizer and every merge in the order of ranks ("left right", as the file has it), each as
/// u32 byte length, little-endian, and the bytes. Empty string for other kinds of vocabularies. The
/// `merges_hash` of activation dumps; a hash of its own, because dumps were made before there was
/// one.
std::string merges_hash(const VocabSpec& vocab);

/// The GGUF a dump was made from: the file with that SHA-256 among `*.gguf` in the dump's own
/// directory, the working directory and its models/, in this order.
/// Errors: kIo naming the hash and the directories when there is none.
/// Cost: hashes every candidate until it is found.
Result<std::string> find_model_by_hash(const std::string& sha256, const std::string& dump_path);

}  // namespace llm
