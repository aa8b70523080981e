#ifndef LLM_VALIDATE_NPZ_CRC32_H_
#define LLM_VALIDATE_NPZ_CRC32_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace llm {

/// CRC-32 as ZIP uses it (reflected polynomial 0xEDB88320, initial and final complement), fed in
/// pieces. Of no bytes it is 0, of "123456789" 0xCBF43926. Source: PKWARE APPNOTE 4.4.7.
class Crc32 {
 public:
  void update(std::span<const std::byte> bytes);
  /// Of all bytes so far.
  std::uint32_t value() const { return ~state_; }

 private:
  std::uint32_t state_ = ~0U;
};

}  // namespace llm

#endif  // LLM_VALIDATE_NPZ_CRC32_H_
