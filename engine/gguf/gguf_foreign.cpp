// Files that are not GGUF at all: what they probably are.

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "engine/gguf/gguf_parser.h"

namespace llm {
namespace {

struct KnownStart {
  std::string_view start;
  std::string_view what;
  std::string_view hint;
};

constexpr std::array kKnownStarts = {
    KnownStart{"version https://git-lfs", "a Git LFS pointer",
               "fetch the real file with `git lfs pull`"},
    KnownStart{"<!DOCTYPE", "an HTML page", "the download saved a web page; download again"},
    KnownStart{"<!doctype", "an HTML page", "the download saved a web page; download again"},
    KnownStart{"<html", "an HTML page", "the download saved a web page; download again"},
    KnownStart{"PK\x03\x04", "a zip archive (also PyTorch .bin and .npz)",
               "unpack it, or convert the model to GGUF"},
    KnownStart{"\x1F\x8B", "a gzip archive", "unpack it first"},
    KnownStart{"\x28\xB5\x2F\xFD", "a zstd archive", "unpack it first"},
    KnownStart{"lmgg", "a GGML model, the predecessor of GGUF", "convert the model to GGUF"},
    KnownStart{"fmgg", "a GGMF model, a predecessor of GGUF", "convert the model to GGUF"},
    KnownStart{"tjgg", "a GGJT model, a predecessor of GGUF", "convert the model to GGUF"},
    KnownStart{"FUGG", "a GGUF with swapped bytes", "convert the model again"},
};

}  // namespace

Error foreign_file_error(std::span<const std::byte> bytes) {
  const auto* characters = reinterpret_cast<const char*>(bytes.data());
  const std::string_view head(characters, std::min<std::size_t>(bytes.size(), 64));
  std::string found;
  std::string printable;
  for (const char c : head.substr(0, 4)) {
    found += fmt::format("{}{:02x}", found.empty() ? "" : " ", static_cast<unsigned char>(c));
    printable += c >= 0x20 && c < 0x7F ? c : '.';
  }
  Error error{
      .code = ErrorCode::kMalformed,
      .field = "magic",
      .message = fmt::format("found {} \"{}\", need 47 47 55 46 \"GGUF\"", found, printable),
      .offset = 0};
  for (const KnownStart& known : kKnownStarts) {
    if (!head.starts_with(known.start)) continue;
    error.hint = fmt::format("this looks like {}: {}", known.what, known.hint);
    return error;
  }
  // safetensors: a u64 length, then JSON.
  if (head.size() > 8 && head[8] == '{') {
    error.hint = "this looks like a safetensors file: convert the model to GGUF";
  }
  return error;
}

}  // namespace llm
