#include "tests/fault_injection/fault_list.h"

#include <algorithm>
#include <fstream>
#include <map>

#include "base/check.h"

namespace llm::faults {
namespace {

using Words = std::vector<std::string>;

Words split(std::string_view text, std::string_view separator) {
  Words parts;
  while (true) {
    const std::size_t end = std::min(text.find(separator), text.size());
    parts.emplace_back(text.substr(0, end));
    if (end == text.size()) return parts;
    text.remove_prefix(end + separator.size());
  }
}

/// A pattern and what was chosen so far in front of `at`.
struct Choice {
  std::string id;
  std::string names;
  std::size_t at = 0;
  std::size_t sum = 0;  ///< of the numbers of what was chosen
  int groups = 0;
};

class Expander {
 public:
  /// "name = a, b, c"
  void define(std::string_view line) {
    const std::size_t equals = line.find(" = ");
    sets_.emplace(line.substr(0, equals), split(line.substr(equals + 3), ", "));
  }

  /// Every fault of a line.
  void expand(const Words& columns) {
    Choice whole{columns[2], columns[3]};
    for (const Choice& one : choices(whole)) {
      Row row{one.id, columns[0][0], columns[1], one.names};
      if (columns.size() > 4) {
        const Words more = split(columns[4], " ");
        if (more[0] == "needs") row.needs = more[1];
        if (more[0] == "control") row.control = more[1], row.id += "," + more[1];
      }
      rows.push_back(std::move(row));
    }
  }

  std::vector<Row> rows;

 private:
  std::vector<Choice> choices(const Choice& from) const {
    const std::size_t open = from.id.find_first_of("{[", from.at);
    if (open == std::string::npos) return {from};
    const bool in_turn = from.id[open] == '[';
    const std::size_t close = from.id.find(in_turn ? ']' : '}', open);
    LLM_CHECK(close != std::string::npos);
    const std::string inside = from.id.substr(open + 1, close - open - 1);
    const auto set = sets_.find(inside);
    const Words all = set == sets_.end() ? split(inside, ", ") : set->second;
    std::vector<Choice> out;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (in_turn && i != from.sum % all.size()) continue;
      const Words said = split(all[i], "~");
      Choice next = from;
      next.id.replace(open, close - open + 1, said.front());
      next.at = open + said.front().size();
      if (!in_turn) {
        next.sum += i;
        const std::string mark = "$" + std::to_string(++next.groups);
        for (std::size_t at = 0; (at = next.names.find(mark)) != std::string::npos;)
          next.names.replace(at, mark.size(), said.back());
      }
      for (Choice& choice : choices(next)) out.push_back(std::move(choice));
    }
    return out;
  }

  std::map<std::string, Words, std::less<>> sets_;
};

}  // namespace

std::vector<Row> all_faults() {
  Expander expander;
  std::ifstream file(LLM_SOURCE_DIR "/tests/fault_injection/faults.txt");
  LLM_CHECK(file.good());
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    const Words columns = split(line, "; ");
    if (columns.size() == 1) {
      expander.define(line);
    } else {
      expander.expand(columns);
    }
  }
  std::ranges::stable_sort(expander.rows, {}, &Row::kind);
  return std::move(expander.rows);
}

}  // namespace llm::faults
