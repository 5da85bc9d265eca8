// The hub's shared cache folder, in the layout of the hub's own tools, so that a file that one
// program has downloaded is found by the others (docs/weights.md):
//   models--Org--name/refs/main                 the commit that the branch named last
//   models--Org--name/blobs/<etag>              the bytes;  <etag>.incomplete while they arrive
//   models--Org--name/snapshots/<commit>/<path> -> ../../blobs/<etag>
//   .locks/models--Org--name/<etag>.lock        held while a file arrives
// Errors: kInvalidArgument (a name that cannot be), kNotFound, kIo. Thread-safety: functions.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "hub/options.h"

namespace needle {

/// What the hub says about a file: enough to keep it.
struct BlobName {
  std::string commit;  // 40 hex digits
  std::string etag;    // the sha256 (64 hex digits) or git's sha1 (40) of the bytes, or a free name
};

/// The places of one file. The names have been checked: none leads out of the cache folder.
struct CachePlaces {
  std::string blob, incomplete, lock, pointer;
};

/// Fails where repo, revision or path would not be one file below the cache folder.
Status CheckHubFile(const HubFile& file);
/// Fails where a server's answer would not be.
Status CheckBlobName(const HubFile& file, const BlobName& name);

/// "models--Org--name"
std::string RepoFolder(std::string_view repo);
CachePlaces PlacesOf(const HubFile& file, const BlobName& name, const std::string& cache);

/// The local path of a file that somebody has downloaded before; never touches the network.
/// kNotFound, with the folder that was searched, when it is not there.
Result<std::string> FindInCache(const HubFile& file, const HubOptions& options);

/// Makes the snapshot's entry for a blob that is in place, and notes the branch's commit. Where
/// links are not supported the snapshot gets the bytes themselves, as the hub's own tools do.
/// Returns the path in the snapshot.
Result<std::string> Publish(const HubFile& file, const BlobName& name, const HubOptions& options);

/// 40 hex digits: a revision that can never mean another file later.
bool IsCommit(std::string_view revision);

}  // namespace needle
