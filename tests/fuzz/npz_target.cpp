// Archives of arrays: the reader, and dumps of activations. An input is an archive, or the members
// of one whose directory and sums are right.

#include "tests/fuzz/fuzz.h"
#include "validate/reference/dump/dump.h"
#include "validate/reference/npz/npz.h"

namespace llm::fuzz {
namespace {

void append(std::string& out, std::initializer_list<std::uint32_t> values, std::size_t size) {
  for (const std::uint32_t value : values) out.append(reinterpret_cast<const char*>(&value), size);
}

/// What a local header and a directory's entry have in common (PKWARE APPNOTE, 4.3.7 and 4.3.12).
std::string facts(std::string_view name, std::string_view content) {
  std::string out;
  append(out, {20, 0, ZipEntry::kStored, 0, 33}, 2);
  const auto n = static_cast<std::uint32_t>(content.size());
  append(out, {zip_crc32(0, bytes_of(content)), n, n}, 4);
  append(out, {static_cast<std::uint32_t>(name.size()), 0}, 2);
  return out;
}

std::string archive(Input& input) {
  std::string out;
  std::string directory;
  std::uint32_t n_members = 0;
  while (!input.empty()) {
    const std::string_view name = input.text();
    const std::size_t size = input.byte() + 256U * input.byte();
    const std::string_view content = input.take(size);
    const auto offset = static_cast<std::uint32_t>(out.size());
    out += "PK\x03\x04" + facts(name, content);
    out.append(name).append(content);
    directory += "PK\x01\x02";
    append(directory, {20}, 2);
    directory += facts(name, content);
    append(directory, {0, 0, 0}, 2);
    append(directory, {0, offset}, 4);
    directory += name;
    ++n_members;
  }
  const auto begin = static_cast<std::uint32_t>(out.size());
  out += directory + "PK\x05\x06";
  append(out, {0, 0, n_members, n_members}, 2);
  append(out, {static_cast<std::uint32_t>(directory.size()), begin}, 4);
  append(out, {0}, 2);
  return out;
}

}  // namespace
}  // namespace llm::fuzz

LLM_FUZZ(input) {
  using namespace llm;
  const bool is_members = (input.byte() & 1) != 0;
  const fuzz::MemoryFile file(is_members ? fuzz::archive(input) : std::string(input.rest()));
  const NpzLimits limits{.max_member_bytes = 1 << 20, .free_bytes = 1 << 16};
  const auto reader = NpzReader::open(file.path(), limits);
  if (!reader.ok()) return;
  for (const std::string& key : reader->keys()) {
    const auto array = reader->read(key);
    if (!array.ok()) continue;
    fuzz::require(array->data.size() == array->count() * npy_type_size(array->type),
                  "an array has what its shape says");
    (void)array->as_f32();
    (void)array->as_i64();
  }
  const auto dump = Dump::load(file.path(), limits);
  if (!dump.ok()) return;
  for (std::size_t layer = 0; layer < std::min<std::size_t>(dump->n_layers(), 4); ++layer)
    for (const Tap& tap : kTaps) (void)dump->tap(static_cast<int>(layer), tap.name);
}
