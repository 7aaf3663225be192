#include "report/why.h"

#include <fmt/format.h>

#include <cmath>

#include "report/format.h"

namespace renorm::report {
namespace {

constexpr int kMinibatch = 32;

// A channel that is 1 for `firing` images of a minibatch and 0 for the others, where it is 1, after
// batchnorm.
double normalized(int firing) { return std::sqrt(static_cast<double>(kMinibatch - firing) / firing); }

// `sign` stands before the image; both texts are safe.
std::string image(const char* sign, const std::string& png, const char* alt, const char* text) {
  return fmt::format(R"(<div class="part"><span class="sign" aria-hidden="true">{}</span>)"
                     R"(<img alt="{}" src="data:image/png;base64,{}"><p class="small">{}</p></div>)"
                     "\n",
                     sign, alt, base64(png), text);
}

std::string size_bar(int firing, const char* root, const char* text) {
  return fmt::format(R"(<div class="size"><span class="length" style="width: {:.1f}%"></span>)"
                     R"(<span class="amount">{} ≈ {:.1f}</span><span class="small">{}</span></div>)"
                     "\n",
                     100.0 * normalized(firing) / normalized(1), root, normalized(firing), text);
}

constexpr const char* kCaption =
    "An image that shows two characters is ambiguous by itself. In a minibatch of 16 labels with 2 images "
    "each, "
    "its partner tells which one is meant: both images show the character of their class. Batchnorm makes a "
    "channel that fires for one image of 32 as large as √31, and for two images √15. So a net can read from "
    "the "
    "size of a value whether the partner has the same stroke. With moving averages the size no longer "
    "depends on "
    "the partner, and that reading is wrong.";

}  // namespace

std::string why_section(const ReportExtras& extras) {
  if (!extras.why) return "";
  const WhyPanel& why = *extras.why;
  return "<section id=\"why\">\n<h2>Why an image’s partner matters</h2>\n<figure class=\"why\">\n"
         "<div class=\"parts\">\n" +
         image("", why.image_png, "an image with two characters", "An image: which character is meant?") +
         image("=", why.meant_png, "the character that is meant", "The character of its class …") +
         image("+", why.decoy_png, "the decoy", "… and a decoy of another class.") +
         image("", why.partner_png, "the partner",
               "Its partner in the minibatch, another image of the class.") +
         "</div>\n<div class=\"sizes\"><p class=\"small\">A channel that detects a stroke, after batchnorm, "
         "in "
         "a minibatch of 32:</p>\n" +
         size_bar(1, "√31", "fires for this image alone: a stroke of the decoy") +
         size_bar(2, "√15", "fires for both: a stroke of their class") + "</div>\n" +
         fmt::format("<figcaption>{} Images of <code>{}</code>.</figcaption>\n</figure>\n</section>\n",
                     kCaption, escaped(why.data));
}

}  // namespace renorm::report
