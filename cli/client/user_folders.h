#ifndef FRESHET_CLI_CLIENT_USER_FOLDERS_H_
#define FRESHET_CLI_CLIENT_USER_FOLDERS_H_

#include <string>

namespace freshet {

// The user's folders of this program, by the XDG base directory specification; below /tmp without a
// home.
std::string ConfigFolder();  // ~/.config/freshet
std::string StateFolder();   // ~/.local/state/freshet

// The folder with this program's binary and the other binaries.
std::string BinaryFolder();

}  // namespace freshet

#endif  // FRESHET_CLI_CLIENT_USER_FOLDERS_H_
