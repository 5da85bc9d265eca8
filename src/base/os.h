// The operating system, for use inside src/base only: os_posix.cc and os_win.cc implement it, and
// nothing else calls the system. Errors carry the path and the system's reason. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace needle::os {

/// An open file; owned by whoever opened it, closed by Close.
using Handle = intptr_t;
constexpr Handle kNoHandle = -1;

/// A new, empty file to write; an old one of this name is an error. While it is open,
/// RemoveAbandoned leaves it alone. Errors name `shown_path`.
Result<Handle> CreateNew(const std::string& path, const std::string& shown_path);
/// Removes a file that CreateNew made, if no process has it open any more; else does nothing.
void RemoveAbandoned(const std::string& path);
/// Writes all bytes, however many calls that takes.
Status Write(Handle file, std::span<const uint8_t> bytes, const std::string& path);
/// Hands the file's contents to the disk.
Status Sync(Handle file, const std::string& path);
void Close(Handle file);
/// Renames over `to`, which may exist: readers see the old file or the new one.
Status RenameOver(const std::string& from, const std::string& to);
/// Makes the names in a folder last (a no-op where the system cannot or need not).
Status SyncFolder(const std::string& folder);

/// The whole of a regular file; whatever else can be read to its end (a pipe) is read too.
Result<std::vector<uint8_t>> ReadWhole(const std::string& path);

struct Mapping {
  const uint8_t* data = nullptr;  // nullptr for an empty file
  size_t size = 0;
};
Result<Mapping> Map(const std::string& path);
void Unmap(Mapping mapping);

enum class PathKind { kNone, kFile, kFolder, kOther };  // kOther: devices, pipes, sockets
PathKind KindOf(const std::string& path);
/// Makes one folder; one that is there is fine.
Status MakeFolder(const std::string& path);
/// Removes an empty folder.
Status RemoveFolder(const std::string& path);
/// Removes a file; one that is not there is fine.
Status Remove(const std::string& path);
/// The names in a folder, without "." and ".."; empty when it cannot be read.
std::vector<std::string> ListFolder(const std::string& folder);

uint32_t ProcessId();
/// False only when surely no such process runs.
bool ProcessRuns(uint32_t id);
/// Ends this process at once: no clean-up, no flush (SIGKILL).
[[noreturn]] void KillThisProcess();

/// Processors that this process may run on by its affinity; at least 1.
int AffinityThreads();

/// Asks for large pages behind this range where it spans any; where there are none, does nothing.
void PreferLargePages(void* begin, size_t size);

/// Processor time that the calling thread has used, in nanoseconds.
uint64_t ThreadNanoseconds();

/// The system's words for "the disk is full".
std::string DiskFullReason();

}  // namespace needle::os
