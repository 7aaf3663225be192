#include "dist/gloo_log.h"

#include <iostream>
#include <string_view>

namespace renorm::dist {
namespace {

// "[./gloo/transport/tcp/context.cc:243] INFO Rank 1 is connected to 1."
bool is_information(std::string_view text) {
  const size_t level = text.find("] INFO ");
  return !text.empty() && text[0] == '[' && level != std::string_view::npos &&
         text.substr(0, level).find("gloo/") != std::string_view::npos;
}

}  // namespace

std::streamsize GlooLogFilter::xsputn(const char* text, std::streamsize size) {
  if (is_information({text, static_cast<size_t>(size)})) return size;
  return target_->sputn(text, size);
}

GlooLogFilter::int_type GlooLogFilter::overflow(int_type character) {
  if (traits_type::eq_int_type(character, traits_type::eof())) return traits_type::not_eof(character);
  return target_->sputc(traits_type::to_char_type(character));
}

void silence_gloo() {
  // Never deleted: std::cerr is used until the very end of the process.
  static GlooLogFilter* const filter = [] {
    auto* made = new GlooLogFilter(std::cerr.rdbuf());
    std::cerr.rdbuf(made);
    return made;
  }();
  static_cast<void>(filter);
}

}  // namespace renorm::dist
