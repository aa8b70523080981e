#include <fmt/core.h>

#include <utility>

#include "base/atomic_file.h"
#include "base/hex.h"
#include "base/json.h"
#include "base/sha256.h"
#include "base/shown_text.h"
#include "engine/gguf/gguf_manifest.h"
#include "tools/common/progress.h"
#include "tools/common/tool.h"
#include "tools/llmgguf/commands.h"

namespace llm {
namespace {

/// The tree of a file and, if it is asked for, the SHA-256 of the whole, by one run of the threads.
struct Hashes {
  GgufTree tree;
  std::string whole;
};

Result<Hashes> hash_all(const OpenGguf& open, bool whole, const Hashing& hashing) {
  Hashes hashes;
  LLM_TRY(hashes.tree.segments, gguf_segments(open.file));
  HashWork work;
  if (whole) {
    work.add(open.file.file_bytes(), [&](const HashWork::Advance& advance) {
      std::size_t before = 0;
      hashes.whole = file_sha256_hex(
          open.file, [&](std::size_t done) { advance(done - std::exchange(before, done)); });
    });
  }
  add_chunks(work, open.file, hashes.tree.segments);
  LLM_RETURN_IF_ERROR(work.run(hashing));
  return hashes;
}

std::string hashes_text(const GgufArguments& arguments, const Hashes& hashes) {
  std::string out = fmt::format("{}  {}\n{}  root\n", hashes.whole, shown(arguments.file),
                                hex_text(hashes.tree.root()));
  for (const GgufSegment& segment : hashes.tree.segments)
    out += fmt::format("{}  {}\n", hex_text(segment.hash()), segment.title());
  return out;
}

std::string hashes_json(const GgufArguments& arguments, const OpenGguf& open,
                        const Hashes& hashes) {
  OrderedJson segments = OrderedJson::array();
  for (const GgufSegment& segment : hashes.tree.segments) {
    segments.push_back({{"kind", segment.kind_name()},
                        {"name", segment.name},
                        {"part", segment.part},
                        {"offset", segment.offset},
                        {"bytes", segment.bytes},
                        {"hash", hex_text(segment.hash())}});
  }
  const OrderedJson all = {
      {"schema_version", kGgufSchemaVersion}, {"file", arguments.file},
      {"bytes", open.file.file_bytes()},      {"sha256", hashes.whole},
      {"root", hex_text(hashes.tree.root())}, {"segments", std::move(segments)}};
  return json_text(all, 2) + "\n";
}

}  // namespace

Result<int> hash_gguf(const GgufArguments& arguments, const ToolContext& context) {
  LLM_TRY(const OpenGguf open, open_gguf(arguments.file));
  if (!arguments.output.empty()) {
    for (const MappedFile::Part& part : open.file.parts())
      LLM_RETURN_IF_ERROR(check_output("--output", arguments.output, std::span(&part.path, 1)));
  }
  ProgressBar progress(!context.quiet(), "B");
  const Hashing hashing{arguments.threads, std::bind_front(std::ref(progress), "hash")};
  // A manifest needs no hash of the whole, which only one thread can compute.
  const bool prints = arguments.output.empty() || arguments.json;
  LLM_TRY(const Hashes hashes, hash_all(open, prints, hashing));
  progress.clear();
  LLM_RETURN_IF_ERROR(open.file.check_unchanged());
  if (!arguments.output.empty()) {
    const std::string text = hashes.tree.text();
    LLM_RETURN_IF_ERROR(write_file_atomically(arguments.output, std::as_bytes(std::span(text))));
  }
  if (!prints) return 0;
  LLM_RETURN_IF_ERROR(write_stdout(arguments.json ? hashes_json(arguments, open, hashes)
                                                  : hashes_text(arguments, hashes)));
  return 0;
}

}  // namespace llm
