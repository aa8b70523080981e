#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace llm {

/// What a request has that its answer does not depend on, or that was read in another way than it
/// stands there: for a header of the answer and for the log.
class RequestNotes {
 public:
  struct Note {
    std::string field;  ///< where it stands; printable, without commas
    std::string what;   ///< was done with it
    bool is_ignored;    ///< without effect
  };

  /// Of no effect on the answer. @param field  as a client spells it: any bytes
  void ignore(std::string_view field, std::string_view what = "accepted without effect");
  /// Of effect, but not as it stands there.
  void change(std::string_view field, std::string_view what);

  const std::vector<Note>& all() const { return notes_; }
  /// The fields without effect, with commas; "" for none. At most 1 KiB.
  std::string header() const;

 private:
  void add(std::string_view field, std::string_view what, bool is_ignored);

  std::vector<Note> notes_;
};

/// The header of answers that names fields without effect.
inline constexpr const char* kIgnoredHeader = "x-llmserve-ignored";

}  // namespace llm
