#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "engine/batching/generation_service.h"
#include "tools/llmserve/api/receipt_log_file.h"

namespace llm {

/// What HTTP adds to a service's figures.
struct HttpFigures {
  std::size_t connections = 0;
  std::map<int, std::uint64_t> answers = {};  ///< by status
};

/// What a model has done.
struct ModelFigures {
  std::string id;
  std::uint64_t n_loads = 0;
  std::uint64_t bytes = 0;                     ///< of memory
  std::optional<ServiceFigures> service = {};  ///< nothing: it is not loaded
};

/// All of it in Prometheus' text format (version 0.0.4). @param receipts  nothing: there is no log
std::string metrics_text(std::span<const ModelFigures> models, const HttpFigures& http,
                         const std::optional<ReceiptFigures>& receipts);

}  // namespace llm
