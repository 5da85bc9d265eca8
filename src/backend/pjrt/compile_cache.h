// Compiled programs on disk: one file a program, named by a digest of all that decides its code.
// A file is a tag, the SHA-256 of the rest, and what the plugin serialised; one that is damaged is
// as good as absent. Files appear whole or not at all. Thread-safety: functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace needle::pjrt {

/// 64 hex digits of the parts; ("ab", "c") and ("a", "bc") differ.
std::string DigestOf(const std::vector<std::string>& parts);

/// The file of a program in a cache folder.
std::string CacheFile(const std::string& folder, const std::string& digest);

/// What StoreCompiled wrote, or nullopt when it is absent or damaged.
std::optional<std::string> LoadCompiled(const std::string& path);

/// Writes an entry and removes the oldest ones beyond `most_bytes`. Failing to write is no error:
/// the next run compiles again.
void StoreCompiled(const std::string& path, std::string_view serialized,
                   uint64_t most_bytes = uint64_t{1} << 30);

}  // namespace needle::pjrt
