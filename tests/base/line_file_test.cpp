#include <sys/stat.h>

#include "base/errors.h"
#include "base/files.h"
#include "temporary_folder.h"

namespace renorm::testing {
namespace {

class LineFiles : public TemporaryFolder {};

TEST_F(LineFiles, AppendsWholeLines) {
  {
    LineFile file(path("a"));
    EXPECT_EQ(file.size(), 0);
    file.append("first");
    EXPECT_EQ(get("a"), "first\n");
    file.append("");
    file.sync();
    EXPECT_EQ(file.size(), 7);
  }
  LineFile again(path("a"));
  EXPECT_EQ(again.size(), 7);
  again.append("third");
  EXPECT_EQ(get("a"), "first\n\nthird\n");
}

TEST_F(LineFiles, CutsWhatCameAfter) {
  put("a", "first\nsecond\nthi");
  LineFile file(path("a"), 6);
  EXPECT_EQ(file.size(), 6);
  EXPECT_EQ(get("a"), "first\n");
  file.append("next");
  EXPECT_EQ(get("a"), "first\nnext\n");
}

TEST_F(LineFiles, KeepsAllOrNothingOnDemand) {
  put("a", "first\n");
  EXPECT_EQ(LineFile(path("a"), 6).size(), 6);
  EXPECT_EQ(get("a"), "first\n");
  EXPECT_EQ(LineFile(path("a"), 0).size(), 0);
  EXPECT_EQ(get("a"), "");
  EXPECT_EQ(LineFile(path("new"), 0).size(), 0);
}

TEST_F(LineFiles, RefusesAFileThatIsTooShort) {
  put("a", "first\n");
  expect_error<DataError>("'" + path("a") + "' has 6 bytes, but 7 were written to it",
                          [&] { LineFile file(path("a"), 7); });
  EXPECT_EQ(get("a"), "first\n");
}

TEST_F(LineFiles, RefusesWhatIsNoFile) {
  EXPECT_THROW(LineFile{folder_}, OutputError);
  EXPECT_THROW(LineFile{path("absent/a")}, OutputError);
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_THROW(LineFile{path("pipe")}, OutputError);
}

TEST_F(LineFiles, ALineThatDoesNotFitIsTakenBack) {
  LineFile file(path("a"));
  file.append("first");
  {
    const FullDisk disk(10);
    expect_error<IoError>("cannot write '" + path("a") + "'", [&] { file.append("a line of more bytes"); });
  }
  EXPECT_EQ(get("a"), "first\n");
  EXPECT_EQ(file.size(), 6);
  file.append("next");
  EXPECT_EQ(get("a"), "first\nnext\n");
}

}  // namespace
}  // namespace renorm::testing
