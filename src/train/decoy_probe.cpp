#include "train/decoy_probe.h"

#include <algorithm>
#include <numeric>

#include "base/random.h"
#include "data/stroke_overlay.h"
#include "train/evaluate.h"

namespace renorm::train {
namespace {

constexpr int64_t kMinibatch = 32;
constexpr int64_t kPairs = 15;  // of other classes
constexpr double kPalerDecoy = 0.7;
constexpr double kInks[] = {0.4, 0.6, 0.8, 1.0, 1.2};

enum class Company { kPartner, kDecoysPartner, kNeither };

class Prober {
 public:
  Prober(models::Classifier& model, const data::StrokesOptions& options, const data::Description& description,
         const data::ByteImages& characters, int64_t images, uint64_t seed)
      : model_(model),
        options_(options),
        overlay_(options, characters),
        tables_(data::standardizing_tables(description)),
        images_(images),
        seed_(seed) {}

  DecoyProbe run() {
    DecoyProbe probe;
    probe.images = images_;
    probe.alone = own_alone(1.0, options_.decoy_ink);
    probe.with_partner = own_in(Company::kPartner);
    probe.with_decoys_partner = own_in(Company::kDecoysPartner);
    probe.with_neither = own_in(Company::kNeither);
    for (const double ink : kInks) probe.by_ink.push_back({ink, own_alone(ink, kPalerDecoy * ink)});
    return probe;
  }

 private:
  // The classes of a probed image and of its minibatch, in random order: its own, the decoy's, then others.
  std::vector<int64_t> classes_of(RandomStream& stream) const {
    std::vector<int64_t> classes(static_cast<size_t>(options_.classes));
    std::iota(classes.begin(), classes.end(), 0);
    for (size_t i = 0; i < static_cast<size_t>(kProbeClasses); ++i) {
      std::swap(classes[i], classes[i + stream.below(options_.classes - static_cast<int64_t>(i))]);
    }
    return classes;
  }

  // Two different characters of a class.
  std::pair<int64_t, int64_t> two_of(int64_t label, RandomStream& stream) const {
    const int64_t first = stream.below(overlay_.per_class());
    const int64_t step = 1 + stream.below(overlay_.per_class() - 1);
    const int64_t begin = label * overlay_.per_class();
    return {begin + first, begin + (first + step) % overlay_.per_class()};
  }

  torch::Tensor blank(int64_t count) const {
    const data::ByteImages& of = overlay_.characters();
    return torch::empty({count, of.channels, of.height, of.width});
  }

  template <typename Paint>
  void put(int64_t place, const Paint& paint, torch::Tensor* images) const {
    std::vector<uint8_t> bytes(static_cast<size_t>(overlay_.characters().image_bytes()));
    paint(bytes.data());
    const int64_t area = overlay_.characters().height * overlay_.characters().width;
    data::standardize(bytes.data(), area, area, 1, tables_,
                      images->data_ptr<float>() + place * overlay_.characters().image_bytes());
  }

  static bool prefers_own(const torch::Tensor& logits, int64_t own, int64_t decoy) {
    return logits[own].item<float>() > logits[decoy].item<float>();
  }

  double share(int64_t own) const { return 100.0 * static_cast<double>(own) / static_cast<double>(images_); }

  double own_alone(double ink, double decoy_ink) {
    torch::Tensor images = blank(images_);
    std::vector<std::pair<int64_t, int64_t>> labels;
    for (int64_t i = 0; i < images_; ++i) {
      RandomStream stream(seed_, Purpose::kProbe, static_cast<uint64_t>(i));
      const std::vector<int64_t> classes = classes_of(stream);
      const data::Composition shown = {two_of(classes[0], stream).first, ink,
                                       two_of(classes[1], stream).first, decoy_ink};
      put(
          i, [&](uint8_t* pixels) { overlay_.draw(shown, stream, pixels); }, &images);
      labels.emplace_back(classes[0], classes[1]);
    }
    const torch::Tensor logits = logits_of(model_, images, Statistics::kAverages).to(torch::kFloat);
    int64_t own = 0;
    for (int64_t i = 0; i < images_; ++i) {
      own += prefers_own(logits[i], labels[i].first, labels[i].second) ? 1 : 0;
    }
    return share(own);
  }

  double own_in(Company company) {
    int64_t own = 0;
    for (int64_t i = 0; i < images_; ++i) {
      RandomStream stream(seed_, Purpose::kProbe, static_cast<uint64_t>(i));
      const std::vector<int64_t> classes = classes_of(stream);
      const auto [character, partner] = two_of(classes[0], stream);
      const auto [decoy, decoys_partner] = two_of(classes[1], stream);
      torch::Tensor images = blank(kMinibatch);
      const data::Composition shown = {character, 1.0, decoy, options_.decoy_ink};
      put(
          0, [&](uint8_t* pixels) { overlay_.draw(shown, stream, pixels); }, &images);
      const int64_t single = two_of(classes[2], stream).first;
      const int64_t second = company == Company::kPartner         ? partner
                             : company == Company::kDecoysPartner ? decoys_partner
                                                                  : single;
      const auto paint = [&](int64_t place, int64_t index) {
        put(
            place, [&](uint8_t* pixels) { overlay_.paint(index, stream, pixels); }, &images);
      };
      paint(1, second);
      for (int64_t pair = 0; pair < kPairs; ++pair) {
        const auto [first, other] = two_of(classes[static_cast<size_t>(3 + pair)], stream);
        paint(2 + 2 * pair, first);
        paint(3 + 2 * pair, other);
      }
      const torch::Tensor logits = logits_of(model_, images, Statistics::kBatch).to(torch::kFloat);
      own += prefers_own(logits[0], classes[0], classes[1]) ? 1 : 0;
    }
    return share(own);
  }

  models::Classifier& model_;
  data::StrokesOptions options_;
  data::StrokeOverlay overlay_;
  std::vector<data::ByteTable> tables_;
  int64_t images_;
  uint64_t seed_;
};

}  // namespace

DecoyProbe probe_decoys(models::Classifier& model, const data::StrokesOptions& options,
                        const data::Description& description, const data::ByteImages& characters,
                        int64_t images, uint64_t seed) {
  return Prober(model, options, description, characters, images, seed).run();
}

}  // namespace renorm::train
