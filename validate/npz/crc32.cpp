#include "validate/npz/crc32.h"

#include <array>

namespace llm {
namespace {

constexpr std::uint32_t kPolynomial = 0xEDB88320U;
constexpr std::size_t kSlices = 8;

// table[0][b] is the CRC register after byte b; table[s][b] the same after s further zero bytes. A
// CRC is linear over GF(2), so eight bytes are folded in at once by xor of one entry of each slice.
constexpr auto make_tables() {
  std::array<std::array<std::uint32_t, 256>, kSlices> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1U) != 0 ? kPolynomial : 0U);
    tables[0][byte] = value;
  }
  for (std::size_t slice = 1; slice < kSlices; ++slice) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[slice - 1][byte];
      tables[slice][byte] = (before >> 8) ^ tables[0][before & 0xFFU];
    }
  }
  return tables;
}

constexpr auto kTables = make_tables();

}  // namespace

void Crc32::update(std::span<const std::byte> bytes) {
  std::uint32_t state = state_;
  std::size_t i = 0;
  for (; i + kSlices <= bytes.size(); i += kSlices) {
    std::uint32_t next = 0;
    for (std::size_t k = 0; k < kSlices; ++k) {
      // The register's four bytes meet the first four bytes of the group.
      const std::uint32_t mixed = k < 4 ? (state >> (8 * k)) & 0xFFU : 0U;
      const auto index = std::to_integer<std::uint32_t>(bytes[i + k]) ^ mixed;
      next ^= kTables[kSlices - 1 - k][index];
    }
    state = next;
  }
  for (; i < bytes.size(); ++i) {
    state = (state >> 8) ^ kTables[0][(state ^ std::to_integer<std::uint32_t>(bytes[i])) & 0xFFU];
  }
  state_ = state;
}

}  // namespace llm
