#include "runlog/xml_text.h"

#include <string>

#include "gtest/gtest.h"

namespace freshet {
namespace {

TEST(EscapeXml, EscapesMarkup) {
  EXPECT_EQ(EscapeXml("<a href=\"x\">'&'</a>"),
            "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;&lt;/a&gt;");
}

TEST(EscapeXml, KeepsWellFormedText) {
  const std::string text = "na\xC3\xAFve \xE2\x82\xAC \xF0\x9F\x98\x80\n\t";
  EXPECT_EQ(EscapeXml(text), text);
}

TEST(EscapeXml, ReplacesWhatXmlForbids) {
  const std::string replacement = "\xEF\xBF\xBD";
  for (const std::string& bad : {std::string(1, '\0'), std::string("\x1b"), std::string("\x7f"),
                                 std::string("\xff"), std::string("\xc2"), std::string("\x80")}) {
    EXPECT_EQ(EscapeXml("a" + bad + "b"), "a" + replacement + "b");
  }
  EXPECT_EQ(EscapeXml("\xC0\xAF"), replacement + replacement);                    // overlong
  EXPECT_EQ(EscapeXml("\xED\xA0\x80"), replacement + replacement + replacement);  // surrogate
}

}  // namespace
}  // namespace freshet
