#ifndef FRESHET_TESTS_SERVICES_RUNTIME_CERTIFICATES_H_
#define FRESHET_TESTS_SERVICES_RUNTIME_CERTIFICATES_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/file.h"
#include "services/runtime/endpoint_options.h"

namespace freshet {

// Creates certificates with the openssl command in a temporary folder.
class Certificates {
 public:
  Certificates() {
    std::string pattern = ::testing::TempDir() + "/freshet_certs_XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  ~Certificates() { std::filesystem::remove_all(folder_); }
  Certificates(const Certificates&) = delete;
  Certificates& operator=(const Certificates&) = delete;

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

  // Creates a certification authority, NAME.pem and NAME.key.
  void MakeAuthority(const std::string& name) {
    Run("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj "
        "/CN=" +
        name + " -addext basicConstraints=critical,CA:TRUE -keyout " + Path(name + ".key") +
        " -out " + Path(name + ".pem"));
  }
  // Creates NAME.pem and NAME.key, signed by `authority`. `names` is a subjectAltName value.
  void Make(const std::string& name, const std::string& authority, const std::string& names,
            int days = 2) {
    ASSERT_TRUE(WriteFileAtomically(Path(name + ".ext"), "subjectAltName=" + names + "\n").ok());
    Run("openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=" +
        name + " -keyout " + Path(name + ".key") + " -out " + Path(name + ".csr"));
    Run("openssl x509 -req -in " + Path(name + ".csr") + " -CA " + Path(authority + ".pem") +
        " -CAkey " + Path(authority + ".key") + " -CAcreateserial -days " + std::to_string(days) +
        " -extfile " + Path(name + ".ext") + " -out " + Path(name + ".pem"));
  }
  // TLS files for identity `name` that verify peers against `authority`.
  runtime::TlsFiles Files(const std::string& name, const std::string& authority) const {
    runtime::TlsFiles files;
    if (!name.empty()) {
      files.cert = Path(name + ".pem");
      files.key = Path(name + ".key");
    }
    files.ca = Path(authority + ".pem");
    files.refresh = absl::Seconds(1);
    return files;
  }

 private:
  void Run(const std::string& command) {
    ASSERT_EQ(std::system((command + " >" + Path("log") + " 2>&1").c_str()), 0)
        << ReadFile(Path("log"), 1 << 20).value_or("");
  }

  std::string folder_;
};

}  // namespace freshet

#endif  // FRESHET_TESTS_SERVICES_RUNTIME_CERTIFICATES_H_
