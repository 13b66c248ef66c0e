#ifndef FRESHET_SERVICES_SANDBOX_WORKER_PROGRAM_ENVIRONMENT_H_
#define FRESHET_SERVICES_SANDBOX_WORKER_PROGRAM_ENVIRONMENT_H_

namespace freshet::sandbox {

// The environment variables of every program, for execve. None comes from this process.
inline char* const* ProgramEnvironment() {
  static char path[] = "PATH=/usr/local/bin:/usr/bin:/bin";
  static char home[] = "HOME=.";
  static char folder[] = "TMPDIR=.";
  static char language[] = "LANG=C.UTF-8";
  // Programs whose output depends on the order of sets give the same one each time.
  static char hash_seed[] = "PYTHONHASHSEED=0";
  static char no_files[] = "PYTHONDONTWRITEBYTECODE=1";
  static char* const variables[] = {path, home, folder, language, hash_seed, no_files, nullptr};
  return variables;
}

}  // namespace freshet::sandbox

#endif  // FRESHET_SERVICES_SANDBOX_WORKER_PROGRAM_ENVIRONMENT_H_
