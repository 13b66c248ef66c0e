#ifndef FRESHET_CLI_TENSORBOARD_CRC32C_H_
#define FRESHET_CLI_TENSORBOARD_CRC32C_H_

#include <cstdint>
#include <string_view>

namespace freshet {

// CRC-32C (Castagnoli; RFC 3720, appendix B.4), as TFRecord files use it.
uint32_t Crc32c(std::string_view bytes);

// The masked form that a TFRecord stores, so that a checksum over stored checksums stays sound.
uint32_t MaskedCrc32c(std::string_view bytes);

}  // namespace freshet

#endif  // FRESHET_CLI_TENSORBOARD_CRC32C_H_
