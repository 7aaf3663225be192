#include "dist/gloo_log.h"

#include <gtest/gtest.h>

#include <ostream>
#include <sstream>
#include <string>

namespace renorm::dist {
namespace {

std::string passed_on(const std::string& text) {
  std::ostringstream target;
  GlooLogFilter filter(target.rdbuf());
  std::ostream stream(&filter);
  stream << text << 'x' << 1;
  return target.str();
}

TEST(GlooLog, DropsInformation) {
  EXPECT_EQ(passed_on("[./gloo/transport/tcp/context.cc:243] INFO Rank 1 is connected to 1.\n"), "x1");
}

TEST(GlooLog, PassesOnAllElse) {
  for (const std::string text :
       {"[./gloo/transport/tcp/pair.cc:1] ERROR lost\n", "[./gloo/a.cc:1] WARN slow\n",
        "[W Module.cpp:7] INFO of another library\n", "a line\n", ""}) {
    EXPECT_EQ(passed_on(text), text + "x1");
  }
}

}  // namespace
}  // namespace renorm::dist
