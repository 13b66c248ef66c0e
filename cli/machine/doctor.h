#ifndef FRESHET_CLI_MACHINE_DOCTOR_H_
#define FRESHET_CLI_MACHINE_DOCTOR_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace freshet {

// Facts about this machine. Gathered by GatherMachineFacts, judged by Diagnose.
struct MachineFacts {
  std::set<std::string> cpu_flags;  // of /proc/cpuinfo
  int cores = 0;
  int64_t memory_available_bytes = 0;
  std::string memory_file_error;  // why processes cannot share memory files; "" if they can
  int64_t state_disk_bytes = 0;   // free space at the clusters' state folder
  std::string state_folder;
  std::string redis_path;     // "" if redis-server was not found
  std::string redis_version;  // "7.0.15"
  std::vector<std::string> missing_binaries;
  bool port_free = false;  // of the default controller
  int port = 0;
  bool server_reached = false;
  std::string server;        // address
  std::string server_error;  // why it was unreachable
  int64_t workers = 0;       // of that server's cluster
  std::string model_path;    // "" if none was given
  std::vector<std::string> model_errors;
  std::string model_text;  // its shape, if it is valid
};

struct Finding {
  enum class Grade { kGood, kWarning, kError };
  Grade grade = Grade::kGood;
  std::string subject;  // "cpu"
  std::string text;     // with the fix, unless it is good
};

// Pure. Errors are conditions that make `freshet local` or `freshet cluster up` fail.
std::vector<Finding> Diagnose(const MachineFacts& facts);

// One line per finding and a verdict.
std::string FormatFindings(const std::vector<Finding>& findings, bool color);

}  // namespace freshet

#endif  // FRESHET_CLI_MACHINE_DOCTOR_H_
