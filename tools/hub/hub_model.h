#pragma once

#include <string>

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

}  // namespace llm
