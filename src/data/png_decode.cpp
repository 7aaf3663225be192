// libpng leaves by longjmp, which must not skip a destructor: the functions that it can jump out of have only
// plain data, and their callers own the memory that they fill.
#include "data/png_decode.h"

#include <fmt/format.h>
#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <new>

#include "base/errors.h"
#include "base/text.h"

namespace renorm::data {
namespace {

constexpr png_uint_32 kMaxSide = 0x7fffffff;  // the limit of the format; check_pixels limits the pixels
constexpr png_alloc_size_t kMaxChunkBytes = png_alloc_size_t{1} << 23;
// Texts, profiles and suggested palettes: packed, and not needed here.
constexpr png_byte kSkippedChunks[] = "iCCP\0iTXt\0tEXt\0zTXt\0sPLT";
constexpr int kSkippedCount = sizeof(kSkippedChunks) / 5;
constexpr unsigned kFull = 255;
constexpr size_t kSignatureBytes = 8;
constexpr size_t kChunkBytes = 12;  // of a chunk without data: length, name, checksum

struct Session {
  png_structp png;
  png_infop info;
  const png_byte* next;
  size_t left;
  std::jmp_buf leave;
  bool ended;  // the library has read past the last byte
  char message[128];
};

// Whether every chunk before the pixels ends within the file. The library allocates the stated length of some
// chunks before it reads them.
bool chunks_fit(const std::string& bytes) {
  size_t at = kSignatureBytes;
  while (bytes.size() - at >= kChunkBytes && bytes.compare(at + 4, 4, "IDAT") != 0) {
    const size_t length = png_get_uint_32(reinterpret_cast<png_const_bytep>(bytes.data()) + at);
    if (length > bytes.size() - at - kChunkBytes) return false;
    at += kChunkBytes + length;
  }
  return true;
}

[[noreturn]] void throw_short(const std::string& file) {
  throw DataError(fmt::format("'{}': the PNG ends too early", printable(file)));
}

void on_error(png_structp png, png_const_charp message) {
  Session& session = *static_cast<Session*>(png_get_error_ptr(png));
  std::snprintf(session.message, sizeof(session.message), "%s", message);
  std::longjmp(session.leave, 1);
}

void on_warning(png_structp, png_const_charp) {}

void on_read(png_structp png, png_bytep into, size_t count) {
  Session& session = *static_cast<Session*>(png_get_io_ptr(png));
  if (count > session.left) {
    session.ended = true;
    png_error(png, "end of file");
  }
  std::memcpy(into, session.next, count);
  session.next += count;
  session.left -= count;
}

// Each of the following is false if the library left.
bool read_header(Session& session) {
  if (setjmp(session.leave) != 0) return false;
  png_set_user_limits(session.png, kMaxSide, kMaxSide);
  png_set_chunk_malloc_max(session.png, kMaxChunkBytes);
  png_set_keep_unknown_chunks(session.png, PNG_HANDLE_CHUNK_NEVER, kSkippedChunks, kSkippedCount);
  png_set_read_fn(session.png, &session, on_read);
  png_read_info(session.png, session.info);
  return true;
}

// Afterwards a row has red, green and blue of 8 bits, and perhaps alpha.
bool choose_format(Session& session, int* passes) {
  if (setjmp(session.leave) != 0) return false;
  png_set_expand(session.png);
  png_set_scale_16(session.png);
  png_set_gray_to_rgb(session.png);
  *passes = png_set_interlace_handling(session.png);
  png_read_update_info(session.png, session.info);
  return true;
}

bool read_pixels(Session& session, uint8_t* pixels, int64_t row_bytes, int64_t height, int passes) {
  if (setjmp(session.leave) != 0) return false;
  for (int pass = 0; pass < passes; ++pass) {
    for (int64_t y = 0; y < height; ++y) png_read_row(session.png, pixels + y * row_bytes, nullptr);
  }
  return true;
}

// Over white, in place.
void drop_alpha(Image* image) {
  const auto count = static_cast<size_t>(image->width * image->height);
  const uint8_t* from = image->pixels.data();
  uint8_t* into = image->pixels.data();
  for (size_t i = 0; i < count; ++i, from += 4, into += 3) {
    const unsigned alpha = from[3];
    for (int c = 0; c < 3; ++c) {
      into[c] = static_cast<uint8_t>((from[c] * alpha + kFull * (kFull - alpha) + kFull / 2) / kFull);
    }
  }
  image->channels = 3;
  image->pixels.resize(3 * count);
}

class PngReader {
 public:
  PngReader(const std::string& bytes, const std::string& file) : file_(file) {
    session_.next = reinterpret_cast<const png_byte*>(bytes.data());
    session_.left = bytes.size();
    session_.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &session_, on_error, on_warning);
    if (session_.png != nullptr) session_.info = png_create_info_struct(session_.png);
    if (session_.info == nullptr) {
      png_destroy_read_struct(&session_.png, nullptr, nullptr);
      throw std::bad_alloc();
    }
  }
  ~PngReader() { png_destroy_read_struct(&session_.png, &session_.info, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  ImageSize header() {
    check(read_header(session_));
    return {png_get_image_width(session_.png, session_.info),
            png_get_image_height(session_.png, session_.info)};
  }

  // An EXIF chunk after the pixels is not read.
  int orientation() {
    png_uint_32 size = 0;
    png_bytep block = nullptr;
    if (png_get_eXIf_1(session_.png, session_.info, &size, &block) == 0) return 1;
    return exif_orientation(block, size);
  }

  // The memory of choose_output(), pixels() and of turning them upright afterwards.
  int64_t decoding_bytes(ImageSize size) {
    const bool has_alpha = (png_get_color_type(session_.png, session_.info) & PNG_COLOR_MASK_ALPHA) != 0 ||
                           png_get_valid(session_.png, session_.info, PNG_INFO_tRNS) != 0;
    const int64_t turned = orientation() == 1 ? 0 : 3;
    constexpr int64_t kRowBytes = 16;  // libpng keeps two rows of at most 8 bytes per pixel
    return size.width * size.height * ((has_alpha ? 4 : 3) + turned) + size.width * kRowBytes;
  }

  // Before pixels().
  void choose_output() { check(choose_format(session_, &passes_)); }

  Image pixels(ImageSize size) {
    Image image = blank_image(size.width, size.height, png_get_channels(session_.png, session_.info));
    check(read_pixels(session_, image.pixels.data(), image.row_bytes(), image.height, passes_));
    if (image.channels == 4) drop_alpha(&image);
    return image;
  }

 private:
  void check(bool done) const {
    if (done) return;
    if (session_.ended) throw_short(file_);
    throw DataError(
        fmt::format("'{}': the PNG cannot be read ({})", printable(file_), printable(session_.message)));
  }

  const std::string& file_;
  Session session_{};
  int passes_ = 0;
};

}  // namespace

StoredImage decode_png(const std::string& bytes, const std::string& file, const DecodeLimits& limits,
                       DecodePart part) {
  if (!chunks_fit(bytes)) throw_short(file);
  PngReader reader(bytes, file);
  StoredImage stored;
  stored.size = reader.header();
  check_pixels(stored.size, file, limits);
  stored.orientation = reader.orientation();
  if (part == DecodePart::kHeader) return stored;
  stored.share = DecodeShare(reader.decoding_bytes(stored.size));
  reader.choose_output();
  stored.image = reader.pixels(stored.size);
  return stored;
}

}  // namespace renorm::data
