#ifndef FRESHET_CLI_CLIENT_USER_FOLDERS_H_
#define FRESHET_CLI_CLIENT_USER_FOLDERS_H_

#include <string>

namespace freshet {

// The user's folders of this program, by the XDG base directory rules; without a home, below /tmp.
std::string ConfigFolder();  // ~/.config/freshet
std::string StateFolder();   // ~/.local/state/freshet

// The folder of this program's binary, where the other binaries stand too.
std::string BinaryFolder();

}  // namespace freshet

#endif  // FRESHET_CLI_CLIENT_USER_FOLDERS_H_
