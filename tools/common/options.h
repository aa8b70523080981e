#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace llm {

/// One row of a tool's option table. Made by OptionTable; chain the setters below.
struct Option {
  std::vector<std::string> names;    ///< without dashes; one letter is a short option
  std::string value;                 ///< placeholder of the value; empty: a flag
  std::string help;                  ///< one sentence without a full stop
  std::string group;                 ///< heading it stands under
  std::string default_text;          ///< empty: none worth telling
  std::string rule;                  ///< what a value must be: "0..100", "f16 or f32"
  std::vector<std::string> choices;  ///< allowed words, for completion; empty: any
  std::string env;                   ///< environment variable read when the option is absent
  std::string positional;            ///< what it gives in place of; empty: nothing
  bool takes_file = false;           ///< completion offers file names
  bool value_optional = false;       ///< a value follows only after "=": `--name` or `--name=V`
  bool repeats = false;              ///< each occurrence counts
  std::function<bool(const std::string&)> set;  ///< false: the value breaks `rule`
  std::function<std::string()> page;  ///< what is printed instead of doing anything; may be empty

  bool is_flag() const { return value.empty(); }
  /// Whether the next word of the command line is its value.
  bool takes_word() const { return !is_flag() && !value_optional; }

  Option& from_env(std::string variable);
  Option& file();
  /// Where it is given, the positional argument of that name is not on the command line.
  Option& in_place_of(std::string positional_name);
  /// Replaces the default shown in the help ("from the model", "random").
  Option& shown_default(std::string text);
};

/// The one description of a tool's command line: parses it, and prints --help, the shell
/// completion and the docs page (option_pages.h).
///
/// Names are given as "n,n-predict,predict". A long name may be written with one dash as well
/// (`-temp 0.5`), as users of llama.cpp do; values follow as `--name V`, `--name=V`, `-nV` or
/// `-n V`. The last of several values wins. `--` ends the options. Arguments of any length and
/// content are taken; an argument that starts with a dash and is not "-" is never positional.
class OptionTable {
 public:
  /// @param summary  what the tool does, as a command and without a full stop
  OptionTable(std::string tool, std::string summary);

  const std::string& tool() const { return tool_; }
  const std::string& summary() const { return summary_; }
  const std::deque<Option>& options() const { return options_; }
  /// The option of that name (without dashes), or nullptr.
  const Option* find(std::string_view name) const;

  /// Options added from here on stand under this heading.
  void group(std::string heading);

  Option& flag(std::string_view names, bool* target, std::string help);
  /// A flag that asks for a text to be printed, instead of anything else.
  Option& page(std::string_view names, std::function<std::string()> text, std::string help);
  /// A flag that may be repeated; counts its occurrences.
  Option& count(std::string_view names, int* target, std::string help);
  Option& text(std::string_view names, std::string value, std::string* target, std::string help);
  /// A text that names a file.
  Option& file(std::string_view names, std::string value, std::string* target, std::string help) {
    return text(names, std::move(value), target, std::move(help)).file();
  }
  /// May be repeated; appends.
  Option& texts(std::string_view names, std::string value, std::vector<std::string>* target,
                std::string help);
  Option& real(std::string_view names, std::string value, float* target, double lowest,
               double highest, std::string help);

  /// A text that may be left out; `target` is then set and empty.
  Option& optional_text(std::string_view names, std::string value,
                        std::optional<std::string>* target, std::string help);

  /// A decimal integer within [lowest, highest].
  template <typename T>
  Option& integer(std::string_view names, std::string value, T* target, std::int64_t lowest,
                  std::int64_t highest, std::string help) {
    return integer_with(
        names, std::move(value), static_cast<std::int64_t>(*target),
        [target](std::int64_t number) { *target = static_cast<T>(number); }, lowest, highest,
        std::move(help));
  }

  /// One of a few words. The default shown is the word of *target.
  template <typename T>
  Option& choice(std::string_view names, std::string value, T* target,
                 std::vector<std::pair<std::string, std::type_identity_t<T>>> words,
                 std::string help) {
    std::vector<std::string> allowed;
    std::string shown;
    for (const auto& [word, meaning] : words) {
      allowed.push_back(word);
      if (meaning == *target) shown = word;
    }
    auto set = [target, words](const std::string& text) {
      for (const auto& [word, meaning] : words) {
        if (word != text) continue;
        *target = meaning;
        return true;
      }
      return false;
    };
    return choice_with(names, std::move(value), std::move(allowed), std::move(shown),
                       std::move(set), std::move(help));
  }

  /// Names of options of other programs that this one does not have, with advice for a user who
  /// typed one. A name that the table has itself stays as it is.
  void foreign(std::string_view names, std::string advice);
  /// The advice for a foreign name (without dashes), or nullptr.
  const std::string* foreign_advice(std::string_view name) const;

  /// What follows an option on the command line.
  enum class Operand {
    kNone,
    kWord,
    kSwitch
  };  // kSwitch: "on", "off", "auto", "0", "1" or nothing
  /// Names of options of other programs that a command line may have, and that change nothing here.
  /// @param why  they change nothing
  void without_effect(std::string_view names, Operand operand, std::string why);
  struct WithoutEffect {
    std::string name;
    Operand operand;
    std::string why;
  };
  /// Of that name (without dashes), or nullptr. A name that the table has itself stays as it is.
  const WithoutEffect* find_without_effect(std::string_view name) const;
  /// Those of the last parsed command line, as they were typed.
  const std::vector<WithoutEffect>& given_without_effect() const { return given_without_effect_; }

  struct Positional {
    std::string name;
    std::string* target;
    bool required;
    std::string help;
    std::vector<std::string> choices;  ///< the usual words, for completion; empty: any
    bool takes_file = false;           ///< completion offers file names
    bool is_verb = false;              ///< only `choices` are taken

    Positional& file();
    Positional& one_of(std::vector<std::string> words);
    /// As one_of(), and no other word is taken.
    Positional& verb(std::vector<std::string> words);
  };
  /// Next positional argument. Required ones come first.
  Positional& positional(std::string name, std::string* target, bool required, std::string help);
  const std::deque<Positional>& positionals() const { return positionals_; }

  /// A command line worth showing under EXAMPLES.
  struct Example {
    std::string command;
    std::string meaning;  ///< as a command, without a full stop
  };
  void example(std::string command, std::string meaning);
  const std::vector<Example>& examples() const { return examples_; }

  /// Sets the targets. Reads the environment only for options that name a variable.
  /// @param args  without the program's name
  /// Errors: kUsage naming the option as it was typed, what was found and what is needed; an
  /// unknown one gets as a hint its foreign() advice or the nearest known name. further_errors()
  /// has all but the first.
  Status parse(std::span<const char* const> args);
  const std::vector<Error>& further_errors() const { return errors_; }

  /// The page that was asked for first in the table, if any was, also after parse() failed.
  std::optional<std::string> wanted_page() const;

  /// Whether the option of that name was on the last parsed command line (or in its variable).
  bool given(std::string_view name) const;

  /// "--name" or "-n".
  static std::string dashed(std::string_view name);

 private:
  Option& add(std::string_view names, std::string value, std::string help);
  Option& integer_with(std::string_view names, std::string value, std::int64_t initial,
                       std::function<void(std::int64_t)> store, std::int64_t lowest,
                       std::int64_t highest, std::string help);
  Option& choice_with(std::string_view names, std::string value, std::vector<std::string> allowed,
                      std::string shown, std::function<bool(const std::string&)> set,
                      std::string help);

  std::vector<Error> find_errors(std::span<const char* const> args);
  Status assign(const Option& option, const std::string& typed, const std::string& value);
  Status parse_environment();
  Status assign_positionals(const std::vector<std::string>& found);
  Error unknown(std::string_view typed) const;

  std::string tool_;
  std::string summary_;
  std::string group_ = "Options";
  std::deque<Option> options_;          // a deque: references returned stay valid
  std::deque<Positional> positionals_;  // a deque, as above
  std::vector<Example> examples_;
  std::vector<std::pair<std::string, std::string>> foreign_;  ///< name, advice
  std::vector<WithoutEffect> without_effect_;
  std::vector<WithoutEffect> given_without_effect_;
  std::vector<const Option*> given_;
  std::vector<Error> errors_;  ///< of the last parsed command line, without the first
};

/// A refused option or argument. @param message  "found V, need RULE"
inline Error usage_error(std::string field, std::string message, std::string hint = "") {
  return Error{.code = ErrorCode::kUsage,
               .field = std::move(field),
               .message = std::move(message),
               .hint = std::move(hint)};
}

/// "did you mean WORD?" with the word that is nearest to what was typed, whatever its case; empty
/// where none is near.
std::string nearest_hint(std::string_view typed, const std::vector<std::string>& words,
                         std::string_view before = "");

/// The parts of a text between commas, of which one may be empty.
std::vector<std::string> split_at_commas(std::string_view text);

/// Strict decimal numbers: the whole text, no spaces, no sign but '-'. Nothing on overflow.
std::optional<std::int64_t> parse_integer(std::string_view text);

/// Also "nan" and "inf", which every range test then refuses.
std::optional<double> parse_real(std::string_view text);

}  // namespace llm
