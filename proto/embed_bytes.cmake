# cmake -DINPUT=FILE -DOUTPUT=FILE.cc -DHEADER=INCLUDE -DNAME=IDENTIFIER -P embed_bytes.cmake
# Writes C++ that defines freshet::IDENTIFIER(), declared in INCLUDE, which returns the bytes of
# FILE.
file(READ "${INPUT}" hex HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
# Sixteen bytes a line: compilers and editors dislike one line of 100 KiB.
string(REPEAT "0x..," 16 line_pattern)
string(REGEX REPLACE "(${line_pattern})" "\\1\n" bytes "${bytes}")
file(WRITE "${OUTPUT}" "#include \"${HEADER}\"

namespace freshet {
namespace {

constexpr unsigned char kBytes[] = {
${bytes}
};

}  // namespace

std::string_view ${NAME}() {
  return {reinterpret_cast<const char*>(kBytes), sizeof(kBytes)};
}

}  // namespace freshet
")
