// Weights of files are loaded into models by our names and by torchvision's; wrong files are refused.
#include "models/load_weights.h"

#include <limits>

#include "models/torchvision_names.h"
#include "support.h"

namespace renorm::models {
namespace {

using Tensors = std::map<std::string, torch::Tensor>;

constexpr int64_t kClasses = 7;

Tensors state_of(const Classifier& model) {
  Tensors state;
  for (const auto& item : model.named_parameters()) state[item.key()] = item.value().detach().clone();
  for (const auto& item : model.named_buffers()) state[item.key()] = item.value().clone();
  return state;
}

// The same values as torchvision would write them.
Tensors torchvision_state(const Classifier& model) {
  Tensors state;
  for (const auto& [name, tensor] : state_of(model)) {
    const TorchvisionTensor theirs = torchvision_tensor(name);
    state[theirs.name] = theirs.eps > 0.0 ? tensor.to(torch::kDouble).square().sub(theirs.eps) : tensor;
  }
  return state;
}

bool same(const Tensors& one, const Tensors& other) {
  if (one.size() != other.size()) return false;
  for (const auto& [name, tensor] : one) {
    if (other.count(name) == 0 || !torch::equal(tensor, other.at(name))) return false;
  }
  return true;
}

class LoadWeights : public Seeded {
 protected:
  // Values that no fresh model has.
  std::shared_ptr<Classifier> trained(const std::string& spec, const MakeNorm& norm,
                                      int64_t classes = kClasses) {
    const auto model = make_model(spec, images(3, 299, classes), norm);
    const torch::NoGradGuard no_grad;
    for (auto& item : model->named_parameters()) {
      if (item.value().dim() == 1) item.value().uniform_(0.5, 1.5);
    }
    for (auto& item : model->named_buffers()) {
      if (item.value().dim() == 1) item.value().uniform_(0.5, 1.5);
    }
    return model;
  }
  std::shared_ptr<Classifier> fresh(const std::string& spec, const MakeNorm& norm,
                                    int64_t classes = kClasses) {
    return make_model(spec, images(3, 299, classes), norm);
  }
};

TEST_F(LoadWeights, TakesOurOwnNames) {
  for (const MakeNorm& norm : {batchnorm(), batchnorm(true), native(true)}) {
    const auto from = trained("resnet-small", norm);
    const auto into = fresh("resnet-small", norm);
    const Tensors expected = state_of(*from);
    ASSERT_FALSE(same(state_of(*into), expected));
    const LoadedWeights loaded = load_weights(*into, expected, "file");
    EXPECT_TRUE(same(state_of(*into), expected));
    EXPECT_TRUE(loaded.left.empty());
    EXPECT_EQ(loaded.loaded, static_cast<int64_t>(expected.size()) - 15);  // a counter a norm
  }
}

TEST_F(LoadWeights, TakesTorchvisionsNames) {
  for (const char* spec : {"resnet18", "inception-v3:aux"}) {
    const auto from = trained(spec, batchnorm(true));
    const auto into = fresh(spec, batchnorm(true));
    const LoadedWeights loaded = load_weights(*into, torchvision_state(*from), "file");
    EXPECT_TRUE(loaded.left.empty()) << spec;
    const Tensors actual = state_of(*into);
    for (const auto& [name, expected] : state_of(*from)) {
      EXPECT_LE((actual.at(name) - expected).abs().max().item<double>(), 2e-7) << spec << " " << name;
    }
  }
}

TEST_F(LoadWeights, ComputesDeviationsInDoubleWithTorchvisionsEps) {
  const auto into = fresh("resnet18", batchnorm(true));  // whose own eps is 1e-3
  Tensors tensors = torchvision_state(*into);
  tensors["bn1.running_var"] = torch::full({64}, 0.3F);
  load_weights(*into, tensors, "file");
  const double expected = std::sqrt(static_cast<double>(0.3F) + 1e-5);
  EXPECT_EQ(into->named_buffers()["stem.norm.running_std"][0].item<float>(), static_cast<float>(expected));
}

TEST_F(LoadWeights, GivesVariancesToNativeNorms) {
  const auto into = fresh("resnet18", native(true));
  Tensors tensors = torchvision_state(*into);
  tensors["bn1.running_var"] = torch::full({64}, 0.3F);
  tensors["bn1.weight"] = torch::full({64}, 2.0F);
  load_weights(*into, tensors, "file");
  EXPECT_EQ(into->named_buffers()["stem.norm.batch_norm.running_var"][0].item<float>(), 0.3F);
  EXPECT_EQ(into->named_parameters()["stem.norm.weight"][0].item<float>(), 2.0F);
}

TEST_F(LoadWeights, LeavesTheStepAlone) {
  const auto into = fresh("resnet-small", batchnorm());
  Tensors tensors = state_of(*into);
  tensors["stem.norm.num_batches_tracked"] = torch::tensor(int64_t{500});
  load_weights(*into, tensors, "file");
  EXPECT_EQ(batch_renorm_layers(*into)[0].layer->step(), 0);
}

TEST_F(LoadWeights, TakesAnyFloatingDtype) {
  const auto into = fresh("resnet-small", batchnorm());
  Tensors tensors = state_of(*into);
  for (auto& item : tensors) {
    if (item.second.is_floating_point()) item.second = item.second.to(torch::kBFloat16);
  }
  load_weights(*into, tensors, "file");
  const torch::Tensor weight = into->named_parameters()["stem.conv.weight"];
  EXPECT_EQ(weight.scalar_type(), torch::kFloat);
  EXPECT_TRUE(torch::equal(weight, tensors["stem.conv.weight"].to(torch::kFloat)));
}

TEST_F(LoadWeights, LeavesClassifiersOfAnotherNumberOfClasses) {
  const auto from = trained("inception-v3:aux", batchnorm(true), 10);
  const auto into = fresh("inception-v3:aux", batchnorm(true));
  const Tensors before = state_of(*into);
  const LoadedWeights loaded = load_weights(*into, torchvision_state(*from), "file");
  const std::vector<std::string> left = {"AuxLogits.fc.weight", "AuxLogits.fc.bias", "fc.weight", "fc.bias"};
  EXPECT_EQ(loaded.left, left);
  const Tensors after = state_of(*into);
  for (const std::string& name : left) EXPECT_TRUE(torch::equal(after.at(name), before.at(name))) << name;
  EXPECT_FALSE(torch::equal(after.at("Mixed_7c.branch_pool.conv.weight"),
                            before.at("Mixed_7c.branch_pool.conv.weight")));
  EXPECT_EQ(loaded.loaded, 96 * 5);
}

TEST_F(LoadWeights, PassesOverAnAuxiliaryHeadThatTheModelDoesNotHave) {
  const auto from = trained("inception-v3:aux", batchnorm(true));
  const auto into = fresh("inception-v3", batchnorm(true));
  const LoadedWeights loaded = load_weights(*into, torchvision_state(*from), "file");
  EXPECT_EQ(loaded.loaded, 94 * 5 + 2);
  EXPECT_TRUE(loaded.left.empty());
}

TEST_F(LoadWeights, FixedWeightsOfNormsMustBeOne) {
  for (const bool is_native : {false, true}) {
    const auto from = fresh("resnet18", batchnorm(true));
    const auto into = fresh("resnet18", is_native ? native(false) : batchnorm(false));
    Tensors tensors = torchvision_state(*from);
    EXPECT_NO_THROW(load_weights(*into, tensors, "file"));
    tensors["layer1.0.bn2.weight"][3] = 1.5;
    const Tensors before = state_of(*into);
    EXPECT_EQ(message_of<DataError>([&] { load_weights(*into, tensors, "file"); }),
              "file: tensor 'layer1.0.bn2.weight' must be all 1, because this model's norms have no weight; "
              "use --norm-scale");
    EXPECT_TRUE(same(state_of(*into), before));
  }
}

struct Bad {
  const char* tensor;
  torch::Tensor value;  // undefined: taken out
  const char* message;
};

TEST_F(LoadWeights, WhatDoesNotFitIsNamedAndNothingChanges) {
  const auto from = trained("resnet18", batchnorm(true));
  const auto into = fresh("resnet18", batchnorm(true));
  const Tensors before = state_of(*into);
  const double infinity = std::numeric_limits<double>::infinity();
  const Bad table[] = {
      {"layer4.1.conv2.weight", {}, "is missing; the file must hold the weights of the same model"},
      {"fc.weight", {}, "is missing"},
      {"fc.bias", {}, "is missing"},
      {"fc.bias", torch::zeros({8}), "has shape [8], expected [7]"},
      {"fc.weight", torch::zeros({7, 511}), "has shape [7, 511], expected [7, 512]"},
      {"fc.weight", torch::zeros({8, 511}), "has shape [8, 511], expected [7, 512]"},
      {"conv1.weight", torch::zeros({64, 1, 7, 7}), "has shape [64, 1, 7, 7], expected [64, 3, 7, 7]"},
      {"layer5.0.conv1.weight", torch::zeros({1}), "is not expected"},
      {"bn1.running_mean", torch::zeros({64}, torch::kLong), "must be of a floating dtype, got Long"},
      {"bn1.running_mean", torch::full({64}, infinity), "has a value that is not finite"},
      {"bn1.running_var", torch::full({64}, -1e-6), "has a value below 0"},
  };
  for (const Bad& bad : table) {
    Tensors tensors = torchvision_state(*from);
    tensors.erase(bad.tensor);
    if (bad.value.defined()) tensors[bad.tensor] = bad.value;
    const std::string message = message_of<DataError>([&] { load_weights(*into, tensors, "some/file"); });
    EXPECT_EQ(message.rfind(std::string("some/file: tensor '") + bad.tensor + "' " + bad.message, 0), 0U)
        << message;
    EXPECT_TRUE(same(state_of(*into), before)) << message;
  }
}

TEST_F(LoadWeights, RefusesFilesOfOtherModels) {
  const auto into = fresh("resnet-small", batchnorm());
  EXPECT_EQ(message_of<DataError>([&] { load_weights(*into, {}, "a\nfile"); }),
            "a\\x0afile: has no tensor of this model, neither by renorm's names nor by torchvision's");
  EXPECT_NE(message_of<DataError>([&] { load_weights(*into, {{"x", torch::zeros({1})}}, "file"); }), "");
  const Tensors larger = torchvision_state(*fresh("resnet18", batchnorm()));
  EXPECT_NE(message_of<DataError>([&] { load_weights(*into, larger, "file"); }), "");
  Tensors own = state_of(*into);
  own["stem.norm.running_std"][2] = 0.0;
  EXPECT_EQ(message_of<DataError>([&] { load_weights(*into, own, "file"); }),
            "file: tensor 'stem.norm.running_std' has a value that is not above 0");
}

}  // namespace
}  // namespace renorm::models
