#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/cpu_features.h"
#include "base/result.h"
#include "engine/model/precision.h"
#include "tools/common/options.h"
#include "validate/provenance/audit_proof.h"

namespace llm {

/// Which ways of computing a comparison covers.
enum class CheckCompute { kBoth, kInt8, kF32 };

/// llmcheck's command line.
struct CheckArguments {
  std::string model;
  std::string hub_model;
  std::string layer_diff;  ///< reference NPZ
  std::string stages;      ///< reference NPZ
  std::string dump;        ///< NPZ to write
  std::string imatrix;     ///< importance matrix to write
  std::string text;        ///< of the importance matrix
  bool self = false;
  bool fail_fast = false;
  std::string verify;                ///< reference JSON
  bool verify_quick = false;         ///< two of its prompts
  bool verify_quantized = false;     ///< it may be another quantization's
  std::string equivalence;           ///< frozen JSON
  std::string update_equivalence;    ///< the reason
  std::vector<std::string> replay;   ///< receipts: files, logs, folders
  std::vector<std::string> compare;  ///< two receipts
  std::string commit;                ///< receipt JSON to write
  std::string audit;                 ///< receipt JSON
  std::string challenge;
  std::string opening;
  std::string make_opening;  ///< to write
  std::size_t audit_rows = Challenge{}.rows;
  std::size_t audit_draws = Challenge{}.draws;
  std::string receipt_log;  ///< a file, or the folder of llmserve --receipts
  std::string public_key;   ///< PEM
  std::string log_head;     ///< SHA-256 of a line that must be there
  std::string judge;        ///< URL of a server
  std::string judge_model;  ///< the name that it knows the model by
  std::string judge_key;    ///< that it asks for; empty: none
  std::string tokenizer;    ///< reference JSONL
  std::string ppl;          ///< text to score
  std::size_t ppl_window = 0;
  std::size_t ppl_sample = 0;
  bool ppl_documents = false;
  std::string against;            ///< GGUF to compare likelihoods with
  std::vector<std::string> also;  ///< further GGUFs for the table
  std::string kld;                ///< reference GGUF or NPZ
  std::uint64_t seed = 1;
  std::string quality;          ///< text whose documents are prompts
  std::string baseline;         ///< directory of frozen figures
  std::string update_baseline;  ///< the reason
  std::string limits;
  std::string prompt = "Once upon a time, there was a little girl named Lily.";
  std::vector<std::string> reports;
  CheckCompute compute = CheckCompute::kBoth;
  std::optional<KvType> kv;
  std::optional<Isa> isa;
  int threads = 0;
  std::string packed_cache;  ///< a directory

  /// The cache of a run in that mode.
  KvType cache_for(Compute mode) const { return kv.value_or(usual_kv(mode)); }
};

OptionTable make_check_table(CheckArguments& arguments);

/// Makes a MODEL behind one receipt of --compare the second one. Errors: kUsage.
Status complete_arguments(CheckArguments& arguments);

/// What the table cannot say by itself: something to do, a model where one is needed, known report
/// endings. Errors: kUsage.
Status check_arguments(const CheckArguments& arguments);

}  // namespace llm
