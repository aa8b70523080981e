// Bytes of a connection: the same requests come of them whatever their pieces are.

#include <boost/asio/buffer.hpp>
#include <boost/beast/core/flat_buffer.hpp>

#include "tests/fuzz/fuzz.h"
#include "tools/llmserve/access_control.h"
#include "tools/llmserve/http/http_reader.h"

namespace llm::fuzz {
namespace {

const AccessControl& gate() {
  static const AccessControl made = must(AccessControl::create({.api_key = "k",
                                                                .host = "127.0.0.1",
                                                                .hosts = {"llm.example"},
                                                                .origins = {"https://a.example"}}));
  return made;
}

/// What is read of a header, and what becomes of it.
std::string understood(const HttpHeader& header) {
  const HttpRequest request = request_of(header);
  std::string all = request.method + ' ' + request.path + '\n';
  for (const auto& [name, value] : request.query) all += name + '=' + value + '\n';
  all += request.host + '\n' + request.origin + '\n' + request.content_type + '\n';
  all += request.authorization + '\n' + header_fault(header).value_or("clear") + '\n';
  const auto refusal = gate().refuse(request);
  if (refusal) all += std::to_string(refusal->status);
  for (const auto& [name, value] : gate().headers(request)) {
    require(value.find_first_of("\r\n") == std::string::npos, "a header is one line", value);
    all += name + ": " + value;
  }
  return all + (gate().has_key(request) ? "key" : "");
}

/// Each step in words, as a connection goes on: a broken or ambiguous request ends it. That one
/// will be broken is seen in a larger piece before it is in a smaller one, so it is not said.
std::string requests(std::string_view bytes, std::size_t piece) {
  const HttpLimits limits{.header_bytes = 2048, .body_bytes = 512};
  boost::beast::flat_buffer buffer;
  std::optional<HttpReader> reader(std::in_place, limits);
  std::string all;
  while (!bytes.empty()) {
    const std::string_view next = bytes.substr(0, piece);
    bytes.remove_prefix(next.size());
    buffer.commit(boost::asio::buffer_copy(buffer.prepare(next.size()),
                                           boost::asio::buffer(next.data(), next.size())));
    for (auto step = reader->read(buffer); step != HttpReader::Step::kNeedsMore;
         step = reader->read(buffer)) {
      if (step == HttpReader::Step::kBroken) return all;
      if (step == HttpReader::Step::kHeader) {
        all += understood(reader->header());
        if (header_fault(reader->header())) return all;
      }
      if (step == HttpReader::Step::kWhole || reader->is_whole()) {
        all += reader->take_body() + (reader->keep_alive() ? "goes on" : "ends");
        if (!reader->keep_alive()) return all;
        reader.emplace(limits);
      }
    }
  }
  return all;
}

}  // namespace
}  // namespace llm::fuzz

LLM_FUZZ(input) {
  using namespace llm::fuzz;
  const std::size_t piece = 2 + input.byte();
  const std::string_view bytes = input.rest();
  const std::string whole = requests(bytes, bytes.size() + 1);
  for (const std::size_t size : {std::size_t{1}, piece}) {
    const std::string cut = requests(bytes, size);
    require(cut == whole, "requests do not depend on their pieces", cut + "\n--\n" + whole);
  }
}
