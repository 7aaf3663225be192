// Nets with torchvision's weights give torchvision's logits. torchvision_reference.py has written the files
// of the folder RENORM_TORCHVISION_FOLDER.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/files.h"
#include "models/blocks.h"
#include "models/load_weights.h"
#include "models/torchvision_names.h"
#include "record/safetensors.h"
#include "support.h"

namespace renorm::models {
namespace {

using Tensors = std::map<std::string, torch::Tensor>;

// Relative to the largest logit. Sums of up to 4,608 terms in another order differ by about
// sqrt(4608) x 6e-8 = 4e-6 of their size in float, and 50 layers in sequence by sqrt(50) times that, 3e-5.
constexpr double kTolerance = 1e-4;

Tensors read_tensors(const std::string& path) {
  const std::string bytes = read_file(path);
  Tensors tensors;
  for (const record::TensorBytes& stored : record::parse_safetensors(bytes, path).tensors) {
    torch::Tensor tensor = torch::empty(stored.shape, stored.dtype == "I64" ? torch::kLong : torch::kFloat);
    std::memcpy(tensor.data_ptr(), stored.data, static_cast<size_t>(stored.bytes));
    tensors[stored.name] = tensor;
  }
  return tensors;
}

// torchvision's name of a norm.
std::string torchvision_module(const std::string& path) {
  const std::string bias = torchvision_tensor(path + ".bias").name;
  return bias.substr(0, bias.rfind('.'));
}

// Evaluation, but for the model itself, which then computes auxiliary logits too.
void evaluate_with_auxiliary(Classifier& model) {
  model.train();
  for (const auto& child : model.children()) child->eval();
}

class Torchvision : public ::testing::TestWithParam<std::pair<const char*, double>> {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("RENORM_TORCHVISION_FOLDER");
    if (folder == nullptr) GTEST_SKIP() << "RENORM_TORCHVISION_FOLDER is not set";
    const std::string path = std::string(folder) + "/" + GetParam().first;
    weights_ = read_tensors(path + ".safetensors");
    computed_ = read_tensors(path + "-computed.safetensors");
  }

  // With torchvision's weights.
  std::shared_ptr<Classifier> load(const MakeNorm& norm) {
    const bool auxiliary = computed_.count("auxiliary") != 0;
    const std::string name = GetParam().first;
    const auto model = make_model(auxiliary ? name + ":aux" : name, model_kind(name).input, norm);
    const LoadedWeights loaded = load_weights(*model, weights_, name);
    EXPECT_TRUE(loaded.left.empty());
    EXPECT_EQ(loaded.loaded, static_cast<int64_t>(weights_.size()) - count_layers<ConvNormImpl>(*model));
    evaluate_with_auxiliary(*model);
    return model;
  }

  void expect_logits(Classifier& model) {
    const torch::NoGradGuard no_grad;
    for (const auto format : {torch::MemoryFormat::Contiguous, torch::MemoryFormat::ChannelsLast}) {
      model.computation.memory_format = format;
      const Logits logits = model.logits(computed_["input"]);
      EXPECT_LT(relative_error(logits.main, computed_["logits"]), kTolerance);
      if (computed_.count("auxiliary") == 0) continue;
      ASSERT_TRUE(logits.auxiliary.defined());
      EXPECT_LT(relative_error(logits.auxiliary, computed_["auxiliary"]), kTolerance);
    }
  }

  Tensors weights_;
  Tensors computed_;
};

TEST_P(Torchvision, WeightsGiveItsLogitsAndShapes) {
  const auto model = load(watched(BatchRenormOptions(1)));
  expect_logits(*model);
  size_t shapes = 0;
  for (const auto& item : computed_) shapes += item.first.rfind("shape of ", 0) == 0 ? 1 : 0;
  const auto layers = batch_renorm_layers(*model);
  EXPECT_EQ(layers.size(), shapes);
  for (const NamedLayer& named : layers) {
    const torch::Tensor expected = computed_["shape of " + torchvision_module(named.path)];
    ASSERT_TRUE(expected.defined()) << named.path;
    const torch::Tensor actual = torch::tensor(dynamic_cast<WatchedNorm*>(named.layer)->seen.sizes());
    EXPECT_TRUE(torch::equal(actual, expected)) << named.path;
    EXPECT_EQ(named.layer->step(), 0) << named.path;
  }
}

TEST_P(Torchvision, WeightsGiveItsLogitsWithLibTorchsNorm) {
  const auto model = load(native_batch_norm(/*eps=*/GetParam().second, /*momentum=*/0.01, /*scale=*/true));
  expect_logits(*model);
}

// The eps of torchvision's batchnorm.
INSTANTIATE_TEST_SUITE_P(Nets, Torchvision,
                         ::testing::Values(std::make_pair("resnet18", 1e-5), std::make_pair("resnet50", 1e-5),
                                           std::make_pair("inception-v3", 1e-3)),
                         [](const auto& info) {
                           std::string name = info.param.first;
                           name.erase(std::remove(name.begin(), name.end(), '-'), name.end());
                           return name;
                         });

}  // namespace
}  // namespace renorm::models
