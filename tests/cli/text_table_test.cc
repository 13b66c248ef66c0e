#include "cli/format/text_table.h"

#include "gtest/gtest.h"

namespace freshet {
namespace {

TEST(TextTable, AlignsColumnsAndTrimsLines) {
  TextTable table({"ID", "STATE", "NOTE"});
  table.AddRow({"a", "RUNNING", ""});
  table.AddRow({"longer", "OK", "x"});
  EXPECT_EQ(table.Format(),
            "ID      STATE    NOTE\n"
            "a       RUNNING  -\n"
            "longer  OK       x\n");
}

TEST(TextTable, HeadersAloneWhenThereAreNoRows) {
  EXPECT_EQ(TextTable({"A", "B"}).Format(), "A  B\n");
}

TEST(TextTable, FillsMissingCellsAndIgnoresExtraOnes) {
  TextTable table({"A", "B"});
  table.AddRow({"1"});
  table.AddRow({"1", "2", "3"});
  EXPECT_EQ(table.Format(), "A  B\n1  -\n1  2\n");
}

TEST(TextTable, CountsCharactersNotBytesAndKeepsCellsOnOneLine) {
  TextTable table({"A", "B"});
  table.AddRow({"\u00e4\u00f6", "x\ny"});
  table.AddRow({"abc", "z"});
  EXPECT_EQ(table.Format(), "A    B\n\u00e4\u00f6   x y\nabc  z\n");
}

}  // namespace
}  // namespace freshet
