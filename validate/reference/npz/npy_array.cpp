#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "quant/formats/half.h"
#include "validate/reference/npz/npy.h"

namespace llm {
namespace {

static_assert(std::endian::native == std::endian::little,
              "to_npy_array swaps big-endian data only; a big-endian host needs the reverse");

template <typename From, typename To, typename Convert>
std::vector<To> convert(const std::vector<std::byte>& data, Convert element) {
  std::vector<To> out(data.size() / sizeof(From));
  for (std::size_t i = 0; i < out.size(); ++i) {
    From value;
    std::memcpy(&value, data.data() + i * sizeof(From), sizeof(From));
    out[i] = element(value);
  }
  return out;
}

// Reorders from first-index-contiguous to last-index-contiguous. O(elements).
std::vector<std::byte> fortran_to_c(const NpyHeader& header, const std::vector<std::byte>& data) {
  const std::size_t size = npy_type_size(header.type);
  std::vector<std::size_t> strides;  // of each index in the source, in elements
  std::size_t stride = 1;
  for (const auto dimension : header.shape) {
    strides.push_back(stride);
    stride *= static_cast<std::size_t>(dimension);
  }
  std::vector<std::byte> out(data.size());
  std::vector<std::uint64_t> index(header.shape.size(), 0);
  std::size_t source = 0;
  for (std::size_t target = 0; target < out.size(); target += size) {
    std::memcpy(out.data() + target, data.data() + source * size, size);
    for (std::size_t d = index.size(); d-- > 0;) {  // count up, last index fastest
      source += strides[d];
      if (++index[d] < header.shape[d]) break;
      source -= strides[d] * static_cast<std::size_t>(header.shape[d]);
      index[d] = 0;
    }
  }
  return out;
}

}  // namespace

std::uint64_t NpyArray::count() const { return data.size() / npy_type_size(type); }

Result<std::vector<float>> NpyArray::as_f32() const {
  const auto same = [](auto value) { return static_cast<float>(value); };
  switch (type) {
    case NpyType::kF16:
      return convert<std::uint16_t, float>(data, f16_to_f32);
    case NpyType::kF32:
      return convert<float, float>(data, same);
    case NpyType::kF64:
      return convert<double, float>(data, same);
    default:
      return Error{ErrorCode::kMalformed, "descr",
                   fmt::format("found {}, need f2, f4 or f8", npy_type_name(type))};
  }
}

Result<std::vector<std::int64_t>> NpyArray::as_i64() const {
  const auto same = [](auto value) { return static_cast<std::int64_t>(value); };
  switch (type) {
    case NpyType::kU8:
      return convert<std::uint8_t, std::int64_t>(data, same);
    case NpyType::kI32:
      return convert<std::int32_t, std::int64_t>(data, same);
    case NpyType::kI64:
      return convert<std::int64_t, std::int64_t>(data, same);
    default:
      return Error{ErrorCode::kMalformed, "descr",
                   fmt::format("found {}, need i4, i8 or u1", npy_type_name(type))};
  }
}

NpyArray to_npy_array(const NpyHeader& header, std::vector<std::byte> data) {
  const std::size_t size = npy_type_size(header.type);
  if (header.big_endian && size > 1) {
    for (std::size_t i = 0; i + size <= data.size(); i += size)
      std::reverse(data.begin() + static_cast<std::ptrdiff_t>(i),
                   data.begin() + static_cast<std::ptrdiff_t>(i + size));
  }
  if (header.fortran_order && header.shape.size() > 1) data = fortran_to_c(header, data);
  return NpyArray{header.type, header.shape, std::move(data)};
}

}  // namespace llm
