#pragma once

#include <memory>
#include <string>

#include "base/json.h"

namespace llm {

/// References of a JSON schema to its own parts. The places that many lead to are found by hash:
/// each look-up costs as its pointer is long, but for the first one, which may go through `root`.
class JsonReferences {
 public:
  /// @param root  outlives this and stays as it is
  explicit JsonReferences(const OrderedJson& root);
  ~JsonReferences();
  JsonReferences(const JsonReferences&) = delete;
  JsonReferences& operator=(const JsonReferences&) = delete;

  /// The JSON pointer that a reference is: "#", "#/...", "#ANCHOR", each behind the root's "$id" or
  /// alone; "?" for what is none of them.
  std::string pointer_of(const OrderedJson& reference);
  /// What stands at a pointer; null: nothing.
  const OrderedJson* at(const std::string& pointer);

 private:
  struct Index;

  const OrderedJson& root_;
  std::unique_ptr<Index> index_;
};

}  // namespace llm
