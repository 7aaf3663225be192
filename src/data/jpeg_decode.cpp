// libjpeg-turbo leaves by longjmp, which must not skip a destructor: the functions that it can jump out of
// have only plain data, and their callers own the memory that they fill.
#include "data/jpeg_decode.h"

#include <fmt/format.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <vector>

// The library's header needs FILE from before it, and the numbers of its messages follow from it.
// clang-format off
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#include "base/errors.h"
#include "base/text.h"

namespace renorm::data {
namespace {

constexpr int kExifMarker = JPEG_APP0 + 1;
constexpr unsigned kMaxMarkerBytes = 0xffff;
constexpr char kExifName[] = "Exif\0";  // with the zero that ends it, 6 bytes
constexpr int kFullScale = 8;           // in eighths
constexpr int kFastScales[] = {1, 2, 4};
// A progressive file of a few kilobytes can have scans without end, each of which goes over all pixels.
constexpr int kMaxScans = 100;
constexpr unsigned kFull = 255;

struct Session {
  jpeg_decompress_struct info;
  jpeg_error_mgr errors;
  jpeg_progress_mgr progress;
  std::jmp_buf leave;
  bool forgives_end;  // a missing end marker is no error; missing pixels cause another warning
  bool ended;         // the library has read past the last byte
  char message[JMSG_LENGTH_MAX];
};

Session& session_of(j_common_ptr info) { return *static_cast<Session*>(info->client_data); }

[[noreturn]] void leave(j_common_ptr info) {
  Session& session = session_of(info);
  if (session.message[0] == '\0') info->err->format_message(info, session.message);
  std::longjmp(session.leave, 1);
}

// Other warnings are about things that do not change the pixels, such as bytes between two markers.
bool loses_data(int warning) {
  return warning == JWRN_JPEG_EOF || warning == JWRN_HIT_MARKER || warning == JWRN_HUFF_BAD_CODE ||
         warning == JWRN_ARITH_BAD_CODE || warning == JWRN_MUST_RESYNC || warning == JWRN_NOT_SEQUENTIAL;
}

void on_message(j_common_ptr info, int level) {
  if (level >= 0) return;
  Session& session = session_of(info);
  const int warning = info->err->msg_code;
  // Past the last byte the library goes on with an end marker of its own.
  const bool forgiven = warning == JWRN_JPEG_EOF && session.forgives_end && !session.ended;
  if (warning == JWRN_JPEG_EOF) session.ended = true;
  if (loses_data(warning) && !forgiven) leave(info);
}

void on_progress(j_common_ptr info) {
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMaxScans) return;
  std::snprintf(session_of(info).message, JMSG_LENGTH_MAX, "more than %d scans", kMaxScans);
  leave(info);
}

void connect(Session& session) {
  session.info.err = jpeg_std_error(&session.errors);
  session.info.client_data = &session;
  session.errors.error_exit = leave;
  session.errors.emit_message = on_message;
  session.progress.progress_monitor = on_progress;
}

// Each of the following is false if the library left.
bool read_header(Session& session, const unsigned char* bytes, unsigned long size) {
  if (setjmp(session.leave) != 0) return false;
  jpeg_create_decompress(&session.info);
  jpeg_mem_src(&session.info, bytes, size);
  session.info.progress = &session.progress;
  jpeg_save_markers(&session.info, kExifMarker, kMaxMarkerBytes);
  jpeg_read_header(&session.info, TRUE);
  return true;
}

bool size_at(Session& session, int eighths) {
  if (setjmp(session.leave) != 0) return false;
  session.info.scale_num = static_cast<unsigned>(eighths);
  session.info.scale_denom = kFullScale;
  jpeg_calc_output_dimensions(&session.info);
  return true;
}

// Adobe's inks are inverted: 255 is none.
void inks_to_rgb(const uint8_t* inks, unsigned width, bool inverted, uint8_t* rgb) {
  const unsigned turn = inverted ? 0 : kFull;
  for (unsigned x = 0; x < width; ++x, inks += 4, rgb += 3) {
    const unsigned white = inks[3] ^ turn;
    for (int c = 0; c < 3; ++c) rgb[c] = static_cast<uint8_t>(((inks[c] ^ turn) * white + kFull / 2) / kFull);
  }
}

// `inks` has room for a row of four channels.
bool read_pixels(Session& session, uint8_t* pixels, uint8_t* inks) {
  if (setjmp(session.leave) != 0) return false;
  jpeg_start_decompress(&session.info);
  while (session.info.output_scanline < session.info.output_height) {
    const size_t row_bytes = size_t{3} * session.info.output_width;
    uint8_t* row = pixels + row_bytes * session.info.output_scanline;
    const bool has_inks = session.info.out_color_space == JCS_CMYK;
    JSAMPROW into = has_inks ? inks : row;
    jpeg_read_scanlines(&session.info, &into, 1);
    if (has_inks) inks_to_rgb(inks, session.info.output_width, session.info.saw_Adobe_marker != 0, row);
  }
  return true;
}

class JpegReader {
 public:
  JpegReader(const std::string& bytes, const std::string& file) : bytes_(bytes), file_(file) {
    connect(session_);
  }
  ~JpegReader() { jpeg_destroy_decompress(&session_.info); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  ImageSize header() {
    check(read_header(session_, reinterpret_cast<const unsigned char*>(bytes_.data()), bytes_.size()));
    return {session_.info.image_width, session_.info.image_height};
  }

  int orientation() const {
    constexpr size_t kName = sizeof(kExifName);
    for (jpeg_saved_marker_ptr marker = session_.info.marker_list; marker != nullptr; marker = marker->next) {
      if (marker->data_length < kName || std::memcmp(marker->data, kExifName, kName) != 0) continue;
      return exif_orientation(marker->data + kName, marker->data_length - kName);
    }
    return 1;
  }

  // Before the functions below.
  void choose_output(int64_t wanted_side) {
    choose_colours();
    choose_scale(wanted_side);
    has_scans_ = jpeg_has_multiple_scans(&session_.info) != 0;
  }

  // The memory of pixels() and of turning them upright afterwards.
  int64_t decoding_bytes() const {
    const int64_t pixels = int64_t{3} * session_.info.output_width * session_.info.output_height;
    return pixels + std::max(coefficient_bytes(), orientation() == 1 ? 0 : pixels);
  }

  Image pixels() {
    session_.forgives_end = !has_scans_;
    Image image = blank_image(session_.info.output_width, session_.info.output_height, 3);
    std::vector<uint8_t> inks(size_t{4} * session_.info.output_width);
    check(read_pixels(session_, image.pixels.data(), inks.data()));
    return image;
  }

 private:
  void check(bool done) const {
    if (done) return;
    if (session_.ended) throw DataError(fmt::format("'{}': the JPEG ends too early", printable(file_)));
    throw DataError(
        fmt::format("'{}': the JPEG cannot be read ({})", printable(file_), printable(session_.message)));
  }

  // Of several scans the library keeps all coefficients, at full size.
  int64_t coefficient_bytes() const {
    int64_t blocks = 0;
    for (int i = 0; has_scans_ && i < session_.info.num_components; ++i) {
      const jpeg_component_info& component = session_.info.comp_info[i];
      blocks += int64_t{component.width_in_blocks} * component.height_in_blocks;
    }
    return blocks * DCTSIZE2 * static_cast<int64_t>(sizeof(JCOEF));
  }

  void choose_colours() {
    const J_COLOR_SPACE stored = session_.info.jpeg_color_space;
    if (stored == JCS_CMYK || stored == JCS_YCCK) {
      session_.info.out_color_space = JCS_CMYK;
    } else if (stored == JCS_GRAYSCALE || stored == JCS_YCbCr || stored == JCS_RGB) {
      session_.info.out_color_space = JCS_RGB;
    } else {
      throw DataError(fmt::format("'{}': a JPEG of {} channels, expected 1, 3 or 4", printable(file_),
                                  session_.info.num_components));
    }
  }

  void choose_scale(int64_t wanted_side) {
    for (const int eighths : kFastScales) {
      if (wanted_side <= 0) break;
      check(size_at(session_, eighths));
      if (std::min(session_.info.output_width, session_.info.output_height) >= wanted_side) return;
    }
    check(size_at(session_, kFullScale));
  }

  const std::string& bytes_;
  const std::string& file_;
  Session session_{};
  bool has_scans_ = false;
};

}  // namespace

StoredImage decode_jpeg(const std::string& bytes, const std::string& file, const DecodeLimits& limits,
                        DecodePart part) {
  JpegReader reader(bytes, file);
  StoredImage stored;
  stored.size = reader.header();
  check_pixels(stored.size, file, limits);
  stored.orientation = reader.orientation();
  if (part == DecodePart::kHeader) return stored;
  reader.choose_output(limits.wanted_side);
  stored.share = DecodeShare(reader.decoding_bytes());
  stored.image = reader.pixels();
  return stored;
}

}  // namespace renorm::data
