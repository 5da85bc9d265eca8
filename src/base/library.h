// Shared libraries that are opened while the program runs. A library once opened stays until the
// process ends: what it started (threads, handlers) may not survive its unloading.
// Errors: kNotFound when there is no such file, else kUnavailable with the system's reason, such
// as another library that it needs. Thread-safe.
#pragma once

#include <string>

#include "base/result.h"

namespace needle {

enum class LibraryScope {
  kOwn,     // its symbols serve itself alone
  kShared,  // libraries opened later may use its symbols
};

class Library {
 public:
  static Result<Library> Open(const std::string& path, LibraryScope scope = LibraryScope::kOwn);
  /// The address of an exported function or object; nullptr when it has none of this name.
  void* Symbol(const char* name) const;

 private:
  explicit Library(void* handle) : handle_(handle) {}
  void* handle_;
};

}  // namespace needle
