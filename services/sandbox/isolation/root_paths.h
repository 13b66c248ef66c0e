#ifndef FRESHET_SERVICES_SANDBOX_ISOLATION_ROOT_PATHS_H_
#define FRESHET_SERVICES_SANDBOX_ISOLATION_ROOT_PATHS_H_

#include <sys/mount.h>
#include <sys/statvfs.h>

namespace freshet::sandbox {

// Folders of MakeRootFolder, in which each program's own are mounted.
inline constexpr char kProgramFolder[] = "/program";
inline constexpr char kBuiltFolder[] = "/built";
inline constexpr char kOldRoot[] = "/old";

// The flags of mount(2) that a mount, with these flags of statvfs(3), has and must keep. Pure.
inline unsigned long KeptMountFlags(unsigned long flags) {
  unsigned long kept = 0;
  if ((flags & ST_RDONLY) != 0) kept |= MS_RDONLY;
  if ((flags & ST_NOSUID) != 0) kept |= MS_NOSUID;
  if ((flags & ST_NODEV) != 0) kept |= MS_NODEV;
  if ((flags & ST_NOEXEC) != 0) kept |= MS_NOEXEC;
  return kept;
}

}  // namespace freshet::sandbox

#endif  // FRESHET_SERVICES_SANDBOX_ISOLATION_ROOT_PATHS_H_
