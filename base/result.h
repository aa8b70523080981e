#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.h"

namespace llm {

/// What kind of thing went wrong. The values are the exit codes of every tool (docs/exit_codes.md).
enum class ErrorCode : std::uint8_t {
  kUsage = 2,        ///< a flag or argument is unknown or out of range
  kMalformed = 3,    ///< a file breaks its format
  kIo = 4,           ///< the operating system refused a read or a write
  kResource = 5,     ///< memory, disk or context space would not suffice
  kUnsupported = 6,  ///< valid, but outside what this engine does
  kNonFinite = 7,    ///< NaN or Inf where only numbers may stand
  kIntegrity = 8,    ///< content differs from what was promised (hash, changed file)
};

/// The one error type. Text form: `FILE: FIELD (byte N): MESSAGE; HINT`, absent parts left out.
/// Write messages as "found V, need RULE".
struct Error {
  ErrorCode code = ErrorCode::kMalformed;
  std::string field;    ///< metadata key, tensor, flag, ... that is wrong; may be empty
  std::string message;  ///< found V, need RULE
  std::optional<std::uint64_t> offset = std::nullopt;  ///< byte offset in the file
  std::string file = {};                               ///< filled in by whoever knows the path
  std::string hint = {};                               ///< what the user can do

  /// The text form above, without the program's name, as one clean line (base/shown_text.h).
  std::string to_string() const;
};

/// A file breaks its format in `field`.
inline Error malformed(std::string field, std::string message,
                       std::optional<std::uint64_t> offset = std::nullopt) {
  return {ErrorCode::kMalformed, std::move(field), std::move(message), offset};
}

/// Returns `error` with its file set, unless a deeper layer has set one.
Error in_file(Error error, std::string_view file);

/// A value or an Error. Test ok() before value(); value() of an error is a broken contract.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }

  T& value() & {
    LLM_CHECK(ok());
    return *std::get_if<0>(&state_);
  }
  const T& value() const& {
    LLM_CHECK(ok());
    return *std::get_if<0>(&state_);
  }
  T&& value() && {
    LLM_CHECK(ok());
    return std::move(*std::get_if<0>(&state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const& {
    LLM_CHECK(!ok());
    return *std::get_if<1>(&state_);
  }
  Error&& error() && {
    LLM_CHECK(!ok());
    return std::move(*std::get_if<1>(&state_));
  }

 private:
  std::variant<T, Error> state_;
};

/// Success without a value.
struct Ok {};
using Status = Result<Ok>;

}  // namespace llm

#define LLM_CONCAT_INNER(a, b) a##b
#define LLM_CONCAT(a, b) LLM_CONCAT_INNER(a, b)

/// `LLM_TRY(auto x, f());` binds f()'s value, or returns its error from the enclosing function.
#define LLM_TRY(declaration, expression)                      \
  auto LLM_CONCAT(llm_try_, __LINE__) = (expression);         \
  if (!LLM_CONCAT(llm_try_, __LINE__).ok()) {                 \
    return std::move(LLM_CONCAT(llm_try_, __LINE__)).error(); \
  }                                                           \
  declaration = std::move(LLM_CONCAT(llm_try_, __LINE__)).value()

/// `LLM_RETURN_IF_ERROR(f());` for a Status (or a value that is not needed).
#define LLM_RETURN_IF_ERROR(expression)                         \
  do {                                                          \
    auto llm_status = (expression);                             \
    if (!llm_status.ok()) return std::move(llm_status).error(); \
  } while (false)
