#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/byte_bpe/splitter.h"

#include <fmt/core.h>
#include <pcre2.h>

#include <array>
#include <limits>
#include <new>
#include <string>
#include <utility>

#include "base/check.h"

namespace llm {
namespace {

/// The expression in PCRE2's dialect. What differs is \s: PCRE2's has U+180E, too, which lost the
/// property White_Space in Unicode 6.3.
std::string in_pcre2_dialect(std::string_view regex) {
  std::string out;
  for (std::size_t at = 0; at < regex.size(); ++at) {
    if (regex[at] == '\\' && at + 1 < regex.size()) {
      const char next = regex[++at];
      if (next == 's') {
        out += R"(\p{White_Space})";
      } else if (next == 'S') {
        out += R"(\P{White_Space})";
      } else {
        out += {'\\', next};
      }
    } else {
      out += regex[at];
    }
  }
  return out;
}

/// Matches one expression again and again; the memory for a match and its limits.
class Matcher {
 public:
  explicit Matcher(const pcre2_code* code)
      : code_(code),
        data_(pcre2_match_data_create_from_pattern(code, nullptr)),
        context_(pcre2_match_context_create(nullptr)) {
    if (data_ == nullptr || context_ == nullptr) {
      pcre2_match_data_free(data_);
      pcre2_match_context_free(context_);
      throw std::bad_alloc();
    }
    // The limits are against expressions that somebody else wrote. Ours cost O(n) each.
    pcre2_set_match_limit(context_, std::numeric_limits<std::uint32_t>::max());
  }
  Matcher(const Matcher&) = delete;
  Matcher& operator=(const Matcher&) = delete;
  ~Matcher() {
    pcre2_match_data_free(data_);
    pcre2_match_context_free(context_);
  }

  /// The first match at or after `at`: [begin, end), or {size, size} if there is none.
  std::pair<std::size_t, std::size_t> next(std::string_view text, std::size_t at) {
    int found = match(text, at, PCRE2_NO_UTF_CHECK);
    // The stack of compiled code is small and fixed; the interpreter takes memory as it needs.
    if (found == PCRE2_ERROR_JIT_STACKLIMIT)
      found = match(text, at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT);
    if (found == PCRE2_ERROR_NOMATCH) return {text.size(), text.size()};
    if (found == PCRE2_ERROR_NOMEMORY || found == PCRE2_ERROR_HEAPLIMIT) throw std::bad_alloc();
    LLM_CHECK(found > 0);
    const std::size_t* ends = pcre2_get_ovector_pointer(data_);
    LLM_CHECK(ends[0] >= at && ends[1] > ends[0]);
    return {ends[0], ends[1]};
  }

 private:
  int match(std::string_view text, std::size_t at, std::uint32_t options) {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    return pcre2_match(code_, subject, text.size(), at, options, data_, context_);
  }

  const pcre2_code* code_;
  pcre2_match_data* data_;
  pcre2_match_context* context_;
};

}  // namespace

void Splitter::FreeCode::operator()(pcre2_real_code_8* code) const { pcre2_code_free(code); }

Result<Splitter> Splitter::create(const PreTokenizerRule& rule) {
  std::vector<Code> passes;
  for (const SplitPass& pass : rule.passes) {
    const std::string regex = in_pcre2_dialect(pass.regex);
    int error = 0;
    PCRE2_SIZE offset = 0;
    Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(regex.data()), regex.size(),
                            pass.of_bytes ? 0 : PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr));
    if (code == nullptr) {
      if (error == PCRE2_ERROR_NOMEMORY) throw std::bad_alloc();
      std::array<PCRE2_UCHAR, 256> reason{};
      pcre2_get_error_message(error, reason.data(), reason.size());
      return Error{
          .code = ErrorCode::kUnsupported,
          .field = fmt::format("pre-tokenizer {}", rule.name),
          .message = fmt::format("found a PCRE2 that says \"{}\" at byte {} of {}, need "
                                 "10.40 or later with Unicode",
                                 reinterpret_cast<const char*>(reason.data()), offset, regex)};
    }
    // Where the system forbids to make code at run time, the interpreter gives the same matches.
    pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
    passes.push_back(std::move(code));
  }
  return Splitter(std::move(passes));
}

std::vector<std::uint32_t> Splitter::split(std::string_view text) const {
  LLM_CHECK(!text.empty() && text.size() < std::numeric_limits<std::uint32_t>::max());
  std::vector<std::uint32_t> ends = {static_cast<std::uint32_t>(text.size())};
  for (const Code& code : passes_) {
    Matcher matcher(code.get());
    std::vector<std::uint32_t> finer;
    std::size_t begin = 0;
    for (const std::uint32_t end : ends) {
      // A piece is matched alone: an expression must not look at its neighbours.
      const std::string_view piece = text.substr(begin, end - begin);
      for (std::size_t at = 0; at < piece.size();) {
        const auto [match_begin, match_end] = matcher.next(piece, at);
        if (match_begin > at) finer.push_back(static_cast<std::uint32_t>(begin + match_begin));
        if (match_end > match_begin) finer.push_back(static_cast<std::uint32_t>(begin + match_end));
        at = match_end;
      }
      begin = end;
    }
    ends = std::move(finer);
  }
  return ends;
}

}  // namespace llm
