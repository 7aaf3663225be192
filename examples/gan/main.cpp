// A small GAN on drawn characters, with batchnorm and with Batch Renorm in generator and discriminator. Real
// and generated images are different minibatches of the discriminator, so batchnorm sees two distributions,
// and a generator is used with moving averages although it was trained with those of minibatches.
//   gan [--steps N] [--minibatch N] [--seeds N] [--out DIR]
#include <png.h>
#include <renorm/renorm.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "frechet.h"
#include "nets.h"
#include "strokes.h"

namespace {

constexpr int64_t kClasses = 20;
constexpr int64_t kClassifierSteps = 600;
constexpr int64_t kMeasured = 2000;  // images of each set
constexpr int64_t kReports = 5;      // per run

struct Options {
  int64_t steps = 1500;
  int64_t minibatch = 16;
  int64_t seeds = 2;
  std::string out = ".";
};

// The norms of a net that is called so many times.
struct Norm {
  const char* name;
  MakeNorm (*make)(int64_t calls);
};

MakeNorm batchnorm(int64_t /*calls*/) {
  return [](int64_t channels) { return torch::nn::AnyModule(torch::nn::BatchNorm2d(channels)); };
}

MakeNorm batch_renorm(int64_t calls) {
  return [clip = renorm::ClipSchedule::paper(calls)](int64_t channels) {
    return torch::nn::AnyModule(
        renorm::BatchRenorm2d(renorm::BatchRenormOptions(channels).momentum(0.1).clip(clip)));
  };
}

constexpr Norm kNorms[] = {{"batchnorm", batchnorm}, {"batch-renorm", batch_renorm}};
constexpr int64_t kDiscriminatorCalls = 3;  // per step

Classifier trained_classifier(const Strokes& strokes) {
  Classifier net(kClasses);
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(2e-3));
  for (int64_t step = 0; step < kClassifierSteps; ++step) {
    const Characters batch = strokes.draw(64);
    optimizer.zero_grad();
    torch::cross_entropy_loss(net->forward(batch.images), batch.labels).backward();
    optimizer.step();
  }
  net->eval();
  const torch::NoGradGuard no_grad;
  const Characters test = strokes.draw(kMeasured);
  const double right =
      net->forward(test.images).argmax(1).eq(test.labels).to(torch::kDouble).mean().item<double>();
  std::printf("classifier whose features are compared: %.1f %% of %lld test images right\n", 100.0 * right,
              static_cast<long long>(kMeasured));
  return net;
}

// How far generated images are from real ones, with the generator as it would be used.
double distance_of(Generator& generator, Classifier& classifier, const Moments& real) {
  const torch::NoGradGuard no_grad;
  generator->eval();
  const double distance = frechet_distance(
      moments_of(classifier->features(generator->forward(torch::randn({kMeasured, kNoise})))), real);
  generator->train();
  return distance;
}

torch::Tensor loss_of(const torch::Tensor& logits, double target) {
  return torch::binary_cross_entropy_with_logits(logits, torch::full_like(logits, target));
}

struct Run {
  Generator generator{nullptr};
  std::vector<double> distances;  // at equal intervals, the last at the end
};

Run train(const Norm& norm, const Strokes& strokes, Classifier& classifier, const Moments& real,
          uint64_t seed, const Options& options) {
  torch::manual_seed(seed);
  Run run;
  run.generator = Generator(norm.make(options.steps));
  Discriminator discriminator(norm.make(kDiscriminatorCalls * options.steps));
  const auto adam = torch::optim::AdamOptions(2e-4).betas({0.5, 0.999});
  torch::optim::Adam of_generator(run.generator->parameters(), adam);
  torch::optim::Adam of_discriminator(discriminator->parameters(), adam);
  for (int64_t step = 1; step <= options.steps; ++step) {
    const torch::Tensor fake = run.generator->forward(torch::randn({options.minibatch, kNoise}));
    of_discriminator.zero_grad();
    (loss_of(discriminator->forward(strokes.draw(options.minibatch).images), 1.0) +
     loss_of(discriminator->forward(fake.detach()), 0.0))
        .backward();
    of_discriminator.step();
    of_generator.zero_grad();
    loss_of(discriminator->forward(fake), 1.0).backward();
    of_generator.step();
    if (step % std::max<int64_t>(1, options.steps / kReports) == 0 || step == options.steps) {
      run.distances.push_back(distance_of(run.generator, classifier, real));
    }
  }
  return run;
}

// A sheet of 8 x 16 images.
void write_samples(Generator& generator, const std::string& file) {
  const torch::NoGradGuard no_grad;
  generator->eval();
  torch::manual_seed(1);
  const torch::Tensor images = generator->forward(torch::randn({128, kNoise}));
  const torch::Tensor sheet = images.view({8, 16, 20, 20})
                                  .permute({0, 2, 1, 3})
                                  .reshape({160, 320})
                                  .add(1)
                                  .mul(127.5)
                                  .to(torch::kUInt8)
                                  .contiguous();
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  image.width = 320;
  image.height = 160;
  image.format = PNG_FORMAT_GRAY;
  if (png_image_write_to_file(&image, file.c_str(), 0, sheet.data_ptr(), 0, nullptr) == 0) {
    throw std::runtime_error("cannot write '" + file + "': " + image.message);
  }
}

int64_t count_of(const std::string& flag, const std::string& text) {
  const int64_t min = flag == "--minibatch" ? 2 : 1;  // one image alone cannot be normalized
  const bool is_count =
      !text.empty() && text.size() < 7 && text.find_first_not_of("0123456789") == std::string::npos;
  if (!is_count || std::stoll(text) < min) {
    throw std::invalid_argument(flag + " must be a whole number from " + std::to_string(min) +
                                " to 999999, got '" + text + "'");
  }
  return std::stoll(text);
}

Options parsed(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i];
    if (i + 1 == argc) throw std::invalid_argument(flag + " needs a value");
    if (flag == "--steps") {
      options.steps = count_of(flag, argv[i + 1]);
    } else if (flag == "--minibatch") {
      options.minibatch = count_of(flag, argv[i + 1]);
    } else if (flag == "--seeds") {
      options.seeds = count_of(flag, argv[i + 1]);
    } else if (flag == "--out") {
      options.out = argv[i + 1];
    } else {
      throw std::invalid_argument("unknown flag '" + flag +
                                  "'; there are --steps, --minibatch, --seeds and --out");
    }
  }
  return options;
}

void run(const Options& options) {
  torch::manual_seed(1);
  const Strokes strokes(kClasses);
  Classifier classifier = trained_classifier(strokes);
  Moments real, again;
  {
    const torch::NoGradGuard no_grad;
    real = moments_of(classifier->features(strokes.draw(kMeasured).images));
    again = moments_of(classifier->features(strokes.draw(kMeasured).images));
  }
  std::printf("Frechet distance of two sets of real images: %.3f\n\n", frechet_distance(real, again));
  std::printf("minibatches of %lld, Frechet distance to real images after\n%-14s%6s",
              static_cast<long long>(options.minibatch), "norm", "seed");
  for (int64_t i = 1; i <= kReports; ++i)
    std::printf("%9lld", static_cast<long long>(i * (options.steps / kReports)));
  std::printf("   seconds\n");
  for (const Norm& norm : kNorms) {
    for (int64_t seed = 1; seed <= options.seeds; ++seed) {
      const auto begin = std::chrono::steady_clock::now();
      Run trained = train(norm, strokes, classifier, real, static_cast<uint64_t>(seed), options);
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
      std::printf("%-14s%6lld", norm.name, static_cast<long long>(seed));
      for (const double distance : trained.distances) std::printf("%9.2f", distance);
      std::printf("%10.0f\n", seconds.count());
      std::fflush(stdout);
      const std::string file = options.out + "/" + norm.name + "-" + std::to_string(seed) + ".png";
      write_samples(trained.generator, file);
    }
  }
  std::printf("\nsamples        %s/NORM-SEED.png\n", options.out.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(parsed(argc, argv));
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "gan: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gan: %s\n", error.what());
    return 1;
  }
  return 0;
}
