#pragma once

#include <string_view>

namespace llm {

/// A file of the chat page, as a browser gets it.
struct PageFile {
  std::string_view name;   ///< below /page/, with the folder of a library
  std::string_view type;   ///< of its content, for HTTP
  std::string_view bytes;  ///< part of the program
};

/// The file of that name; nullptr: there is none.
const PageFile* find_page_file(std::string_view name);

}  // namespace llm
