#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "engine/serve/text_service.h"

namespace llm {

/// What HTTP adds to a service's figures.
struct HttpFigures {
  std::size_t connections = 0;
  std::map<int, std::uint64_t> answers = {};  ///< by status
};

/// All of it in Prometheus' text format (version 0.0.4).
std::string metrics_text(const ServiceFigures& service, const HttpFigures& http);

}  // namespace llm
