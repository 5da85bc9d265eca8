// The download of weights from a model hub, into the folder that the hub's own tools share.
//
// A file arrives as blobs/<etag>.incomplete, is measured and checked against the hub's checksum,
// synced, and only then renamed: a file under its own name is whole. What has arrived stays when a
// download ends early, and the next one goes on from there.
//
// Errors: kInvalidArgument  a name that cannot be; 401 and 403 (token, conditions, wrong name)
//         kNotFound         404: no such repository, revision or file
//         kUnavailable      no network; the hub is busy or down; offline and not in the cache;
//                           built without NEEDLE_HTTP
//         kCorruptFile      the bytes are not those that the hub announced
//         kIo               the cache folder cannot be written; the caller stopped the download
// Thread-safety: FetchFile may run in several threads and processes at once; one of them downloads
// a file and the others wait for it. It blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"
#include "hub/cache.h"
#include "hub/options.h"

namespace needle {

/// Told how many bytes of the file are here, and how many it has (0: not known yet), some ten times
/// a second and while waiting. Returning false stops the download; what has arrived is kept.
/// A server that is silent is noticed only after `stall_timeout`.
using ProgressFn = std::function<bool(uint64_t bytes, uint64_t total)>;

/// The local path of the file: downloaded now, or, when the hub says that it has not changed, the
/// copy of the cache. A commit of 40 hex digits that is in the cache is not asked for again. When
/// the hub cannot be reached, a cached copy is returned and `options.notice` is told.
Result<std::string> FetchFile(const HubFile& file, const HubOptions& options,
                              const ProgressFn& progress = {});

}  // namespace needle
