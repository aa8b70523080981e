#pragma once

#include <functional>
#include <string>

#include "base/result.h"
#include "tools/hub/http_call.h"
#include "tools/hub/hub_name.h"

namespace llm {

/// Downloads `file` to `path`, which appears with the promised SHA-256 or not at all. What has
/// arrived stays in `path`.incomplete, from where this or a later call goes on; a connection that
/// breaks is tried again as long as bytes come: four times in a row that bring less than 64 KiB
/// more than ever before end it, and so does a server that begins anew for the fifth time.
/// @param refused  the error that a server's answer means
/// @param progress  bytes that are there
/// Errors: kIo (network, disk, no space); kIntegrity for other bytes than promised, which are
/// removed (where some were there before, all are fetched once more first).
Status download_blob(const HttpCall& request, const HubFile& file, const std::string& path,
                     const std::function<Error(const HttpReply&)>& refused,
                     const std::function<void(std::uint64_t)>& progress);

}  // namespace llm
