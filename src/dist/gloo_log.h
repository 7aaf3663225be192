// Newer versions of Gloo report successes to std::cerr and have no setting for it.
#pragma once

#include <streambuf>

namespace renorm::dist {

// Drops Gloo's messages of level INFO; passes on its warnings, its errors and all other text. Gloo writes a
// message by one call.
class GlooLogFilter : public std::streambuf {
 public:
  explicit GlooLogFilter(std::streambuf* target) : target_(target) {}

 protected:
  std::streamsize xsputn(const char* text, std::streamsize size) override;
  int_type overflow(int_type character) override;
  int sync() override { return target_->pubsync(); }

 private:
  std::streambuf* target_;
};

// Filters std::cerr from now on.
void silence_gloo();

}  // namespace renorm::dist
