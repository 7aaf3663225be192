#include "report/format.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/text.h"

namespace renorm::report {
namespace {

TEST(Escaped, LeavesNothingThatEndsTextOrAttributes) {
  EXPECT_EQ(escaped(R"(<b>&"'</b>)"), "&lt;b&gt;&amp;&quot;&#39;&lt;/b&gt;");
}

TEST(Escaped, KeepsWhatIsUtf8) { EXPECT_EQ(escaped("größer ± 文 😀\n\t"), "größer ± 文 😀\n\t"); }

TEST(Escaped, ReplacesBytesThatAreNotUtf8) {
  EXPECT_EQ(escaped("a\xff z"), "a\xef\xbf\xbd z");
  EXPECT_EQ(escaped("\xc3"), "\xef\xbf\xbd");
  EXPECT_EQ(escaped("a\xe2\x80"), "a\xef\xbf\xbd");
  EXPECT_EQ(escaped("\xc0\xbc").find('<'), std::string::npos);  // an overlong '<'
}

TEST(Escaped, ReplacesControlsAndTurnsOfDirection) {
  EXPECT_EQ(escaped(std::string("a\0b\x1b\x7f", 5)),
            "a\xef\xbf\xbd"
            "b\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(escaped("\xc2\x85"), "\xef\xbf\xbd");
  EXPECT_EQ(escaped("\xe2\x80\xae"
                    "x\xe2\x81\xa6"),
            "\xef\xbf\xbdx\xef\xbf\xbd");
}

TEST(Base64, PadsToFourDigits) {
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foo"), "Zm9v");
  EXPECT_EQ(base64("foob\xff\xfe"), "Zm9vYv/+");
}

TEST(Shortened, CountsCharacters) {
  EXPECT_EQ(shortened("", 3), "");
  EXPECT_EQ(shortened("abc", 3), "abc");
  EXPECT_EQ(shortened("abcd", 3), "ab…");
  EXPECT_EQ(shortened("äöü", 3), "äöü");
  EXPECT_EQ(shortened("äöüß", 3), "äö…");
}

TEST(Numbers, AreWrittenForPeople) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1300), "1,300");
  EXPECT_EQ(grouped(-1234567), "-1,234,567");
  EXPECT_EQ(percent(record::measure_of({})), "–");
  EXPECT_EQ(percent(record::measure_of({78.34})), "78.3");
  EXPECT_EQ(percent(record::measure_of({78.0, 79.0})), "78.5 ± 0.7");
  EXPECT_EQ(percent(std::nan("")), "NaN");
  EXPECT_EQ(signed_points(record::measure_of({1.0, 2.0})), "+1.5 ± 0.7");
  EXPECT_EQ(signed_points(record::measure_of({-1.26})), "-1.3");
  EXPECT_EQ(signed_points({}), "–");
  EXPECT_EQ(steps(record::measure_of({1200.0, 1400.0})), "1,300 ± 141");
  EXPECT_EQ(steps(record::measure_of({std::nan("")})), "NaN");
  EXPECT_EQ(duration(59.4), "59 s");
  EXPECT_EQ(duration(725.0), "12 min 05 s");
  EXPECT_EQ(duration(12000.0), "3 h 20 min");
  EXPECT_EQ(duration(std::nan("")), "–");
}

}  // namespace
}  // namespace renorm::report
