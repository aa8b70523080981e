#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "tools/common/options.h"
#include "tools/common/tool.h"

namespace llm {

/// Adds -hf, whose value stands for the argument MODEL, to a tool that has it.
void add_hub_option(OptionTable& table, std::string* name);

/// Where a hub's `name` was given (owner/repo[:QUANT]), sets `path` to that model: in the cache of
/// the Hugging Face hub, whereto what is missing is downloaded, with a progress line. Says on
/// stderr where the file is, unless the tool is quiet.
///
/// The hub is $HF_ENDPOINT, else https://huggingface.co, asked with the token $HF_TOKEN; the cache
/// $HF_HUB_CACHE, $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub or ~/.cache/huggingface/hub. Where
/// the hub cannot be reached, a model that is in the cache is used with a warning; with
/// HF_HUB_OFFLINE=1 it is not asked.
/// Errors: kUsage for a name of another form, beside another model, and for a quantization that is
/// not there; kIo for what the hub or the disk refuses; kMalformed for an answer of another form;
/// kIntegrity for other bytes than it promised; kUnsupported in a build without libcurl.
Status fetch_hub_model(const std::string& name, const ToolContext& context, std::string& path);

/// A model in the cache of the hub.
struct CachedModel {
  std::string name;  ///< "owner/repo:FILE", as HubName::parse() takes it
  std::string path;  ///< of its first part
  std::uint64_t bytes = 0;
};

/// Those of all repositories' last seen commits, sorted by name. Errors: kUsage without a folder.
Result<std::vector<CachedModel>> cached_models();
/// Where the cache has the model of that name. Errors: kUsage for another form of name; kIo where
/// the cache does not have it.
Result<std::string> find_cached_model(const std::string& name);
/// Removes it, with all its parts. Errors: as find_cached_model(); kIo.
Status remove_cached_model(const std::string& name);

}  // namespace llm
