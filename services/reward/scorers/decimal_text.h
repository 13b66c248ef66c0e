#ifndef FRESHET_SERVICES_REWARD_SCORERS_DECIMAL_TEXT_H_
#define FRESHET_SERVICES_REWARD_SCORERS_DECIMAL_TEXT_H_

#include <string>
#include <string_view>
#include <vector>

namespace freshet {

// The decimal numbers in `text`, in order, in canonical form, so that two numbers are equal iff the
// strings are: an optional '-', digits without leading zeros (at least "0"), and, unless it is an
// integer, '.' and digits without trailing zeros. "-0" is "0".
//
// Parts of a number: a sign (ASCII, or U+2212) that does not follow a letter, a digit or a closing
// bracket; '$' (or "\$") between sign and digits or before the sign; commas between groups of three
// digits (also LaTeX's "{,}" and "\,"); a decimal point followed by a digit. A percent sign or a
// period after the number is ignored. Exponents and fractions are not numbers: "1/2" holds two.
// Linear in the size of the text.
std::vector<std::string> FindDecimals(std::string_view text);

}  // namespace freshet

#endif  // FRESHET_SERVICES_REWARD_SCORERS_DECIMAL_TEXT_H_
