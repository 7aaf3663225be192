// The files of exported models: their contents, and the errors of wrong ones.
#include "export/ready_model.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <torch/torch.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

#include "base/errors.h"
#include "base/files.h"
#include "export/torchscript.h"
#include "models/norm.h"
#include "record/safetensors.h"
#include "support.h"
#include "train/tensor_file.h"
#include "trained_nets.h"

namespace renorm::exporting {
namespace {

using namespace testing;

const Kind kSmall = {"convnet:8/2,8", "renorm", true};

std::string file_of(const Kind& kind, bool fold, ModelFormat format) {
  return encode_model(*trained(kind), card_for(kind, fold), format);
}

TorchScript script_of(const Kind& kind, bool fold) {
  return read_torchscript(file_of(kind, fold, ModelFormat::kTorchScript), "FILE.pt", "renorm.json");
}

std::vector<std::string> parameter_names(const torch::jit::Module& script) {
  std::vector<std::string> names;
  for (const auto& named : script.named_parameters()) names.push_back(named.name);
  return names;
}

TEST(TorchScriptFile, HasParametersAndBuffersByTheNamesOfTheNet) {
  const TorchScript plain = script_of(kSmall, false);
  EXPECT_EQ(parameter_names(plain.module),
            (std::vector<std::string>{"conv1.conv.weight", "conv1.norm.weight", "conv1.norm.bias",
                                      "conv2.conv.weight", "conv2.norm.weight", "conv2.norm.bias",
                                      "classifier.weight", "classifier.bias"}));
  EXPECT_EQ(plain.module.buffers().size(), 4U);
  const TorchScript fold = script_of(kSmall, true);
  EXPECT_EQ(parameter_names(fold.module),
            (std::vector<std::string>{"conv1.conv.weight", "conv1.conv.bias", "conv2.conv.weight",
                                      "conv2.conv.bias", "classifier.weight", "classifier.bias"}));
  EXPECT_EQ(fold.module.buffers().size(), 0U);
}

TEST(TorchScriptFile, ComputesWithItsParametersNotWithConstants) {
  TorchScript script = script_of(kSmall, true);
  const torch::NoGradGuard no_grad;
  for (torch::Tensor parameter : script.module.parameters()) parameter.zero_();
  const torch::Tensor logits = script.module.forward({torch::randn({2, 3, 12, 10})}).toTensor();
  EXPECT_EQ(logits.abs().max().item<double>(), 0.0);
}

TEST(TorchScriptFile, HasLibTorchsOperatorsOnlyAndIsTiedToNoDevice) {
  for (const bool fold : {false, true}) {
    for (const char* model : {"inception-small", "resnet-small"}) {
      const TorchScript script = script_of({model, "renorm", false}, fold);
      const std::string graph = script.module.get_method("forward").graph()->toString(false);
      EXPECT_NE(graph.find("aten::"), std::string::npos);
      EXPECT_EQ(graph.find("renorm::"), std::string::npos);
      EXPECT_EQ(graph.find("aten::batch_norm") == std::string::npos, fold);
      EXPECT_EQ(graph.find("aten::to"), std::string::npos);
    }
  }
}

TEST(TorchScriptFile, TakesImagesOfOtherSizesWhereTheNetDoes) {
  TorchScript script = script_of({"resnet-small", "renorm", false}, true);
  const torch::NoGradGuard no_grad;
  EXPECT_EQ(script.module.forward({torch::randn({4, 3, 32, 24})}).toTensor().sizes(),
            (torch::IntArrayRef{4, 5}));
}

TEST(TorchScriptFile, LeavesOutWhatEvaluationDoesNotUse) {
  const Blueprint blueprint{"inception-v3:aux", {3, 299, 299, 4}};
  torch::manual_seed(1702);
  const auto model = models::make_model(blueprint.model, blueprint.input,
                                        models::batch_renorm(BatchRenormOptions(1).scale(false)));
  const auto net = folded(*model, blueprint);
  const std::string bytes = to_torchscript(*net, torch::zeros({2, 3, 75, 75}), {});
  const std::vector<std::string> names =
      parameter_names(read_torchscript(bytes, "FILE.pt", "renorm.json").module);
  EXPECT_EQ(names.size(), 2U * 95);  // 94 convolutions and the classifier
  for (const std::string& name : names) EXPECT_EQ(name.find("Aux"), std::string::npos) << name;
}

void expect_refused(const std::string& bytes, ModelFormat format, const std::vector<std::string>& parts) {
  const std::string message = message_of<DataError>([&] { decode_model(bytes, "some/FILE", format); });
  EXPECT_EQ(message.rfind("some/FILE", 0), 0U) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  expect_parts(message, parts);
}

TEST(TorchScriptFile, ThatIsDamagedOrNotOursIsRefused) {
#ifdef __SANITIZE_ADDRESS__
  const __lsan::ScopedDisabler reader_of_libtorch;  // it leaks 152 bytes for a damaged file
#endif
  const std::string whole = file_of(kSmall, false, ModelFormat::kTorchScript);
  expect_refused("", ModelFormat::kTorchScript, {"TorchScript"});
  expect_refused("a text", ModelFormat::kTorchScript, {"TorchScript"});
  for (const size_t size : {size_t{4}, size_t{100}, whole.size() / 2, whole.size() - 10}) {
    expect_refused(whole.substr(0, size), ModelFormat::kTorchScript, {"TorchScript"});
  }
  const auto net = folded(*trained(kSmall), blueprint_of(card_for(kSmall, true)));
  const torch::Tensor example = torch::zeros({2, 3, 12, 10});
  expect_refused(to_torchscript(*net, example, {}), ModelFormat::kTorchScript, {"model card"});
  expect_refused(to_torchscript(*net, example, {{"renorm.json", "{}"}}), ModelFormat::kTorchScript,
                 {"model card", "format_version"});
}

TEST(TorchScriptFile, WhoseCardIsOfAnotherNetIsRefusedWhenItRuns) {
  const auto net = folded(*trained(kSmall), blueprint_of(card_for(kSmall, true)));
  ModelCard card = card_for(kSmall, true);
  card.classes.pop_back();
  const auto decoded = [&] {
    const std::string bytes =
        to_torchscript(*net, torch::zeros({2, 3, 12, 10}), {{"renorm.json", to_json(card)}});
    return decode_model(bytes, "FILE.pt", ModelFormat::kTorchScript);
  };
  expect_parts(message_of<DataError>([&] {
                 decoded().logits(torch::zeros({1, 3, 12, 10}));
               }),
               {"FILE.pt", "4 classes"});
  expect_parts(message_of<DataError>([&] {
                 decoded().logits(torch::zeros({1, 2, 12, 10}));
               }),
               {"FILE.pt", "its program fails"});
}

// An archive with a good card whose program makes the file `victim`.
std::string forged_archive(const std::string& victim) {
  torch::jit::Module script("Forged");
  script.define("def forward(self, images):\n  return torch.from_file('" + victim + "', True, 1)\n");
  std::ostringstream stream;
  script.save(stream, {{"renorm.json", to_json(card_for(kSmall, false))}});
  return stream.str();
}

class UntrustedFile : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_.path(name); }
  void put(const std::string& name, const std::string& bytes) const { write_durably(path(name), bytes); }

  TemporaryFolder folder_;
};

TEST_F(UntrustedFile, WithCodeIsNotRead) {
  const std::string victim = path("victim");
  put("forged.pt", forged_archive(victim));
  put("text.pt", "a text");
  for (const char* name : {"forged.pt", "text.pt"}) {
    expect_parts(message_of<UsageError>([&] { open_model(path(name), {}); }),
                 {name, "a program", "was not run", "--trust-code", ".safetensors"});
  }
  EXPECT_FALSE(std::filesystem::exists(victim));
}

// The danger is real: this is what the flag allows.
TEST_F(UntrustedFile, RunsWithYourRightsIfItIsTrusted) {
  put("forged.pt", forged_archive(path("victim")));
  OpenModelOptions options;
  options.trust_code = true;
  ReadyModel model = open_model(path("forged.pt"), options);
  message_of<DataError>([&] { model.logits(torch::zeros({1, 3, 12, 10})); });
  EXPECT_TRUE(std::filesystem::exists(path("victim")));
}

TEST_F(UntrustedFile, OfSafetensorsNeedsNoTrust) {
  put("FILE.safetensors", file_of(kSmall, true, ModelFormat::kSafetensors));
  EXPECT_EQ(open_model(path("FILE.safetensors"), {}).card.model, kSmall.model);
}

// The ending decides: an archive with another name is not loaded as one.
TEST_F(UntrustedFile, WithCodeUnderAnotherNameIsRefused) {
  put("forged.safetensors", forged_archive(path("victim")));
  message_of<DataError>([&] { open_model(path("forged.safetensors"), {}); });
  EXPECT_FALSE(std::filesystem::exists(path("victim")));
}

TEST(SafetensorsFile, PlainHasTheNamesOfTheTrainedNet) {
  const auto tensors = train::read_tensors(file_of(kSmall, false, ModelFormat::kSafetensors), "FILE");
  const auto model = trained(kSmall);
  const auto state = train::named_state(*model);
  ASSERT_EQ(tensors.size(), state.size());
  for (const train::NamedTensor& named : state) {
    EXPECT_TRUE(torch::equal(tensors.at(named.name), named.tensor)) << named.name;
  }
}

TEST(SafetensorsFile, WithoutCardOrWithACardOfAnotherNetIsRefused) {
  const auto model = trained(kSmall);
  expect_refused(train::encode_tensors(train::named_state(*model)), ModelFormat::kSafetensors,
                 {"model card"});
  expect_refused(train::encode_tensors(train::named_state(*model), {{"renorm", "no JSON"}}),
                 ModelFormat::kSafetensors, {"model card", "JSON"});
  ModelCard card = card_for(kSmall, false);
  const auto with_card = [&] {
    return train::encode_tensors(train::named_state(*model), {{"renorm", to_json(card)}});
  };
  card.folded = true;
  expect_refused(with_card(), ModelFormat::kSafetensors, {"norm"});
  card = card_for(kSmall, false);
  card.classes.pop_back();
  expect_refused(with_card(), ModelFormat::kSafetensors, {"classifier", "shape"});
  card = card_for(kSmall, false);
  card.model = "convnet:8/2,";
  expect_refused(with_card(), ModelFormat::kSafetensors, {"model card"});
  card.model = "resnet-smal";
  expect_refused(with_card(), ModelFormat::kSafetensors, {"resnet-small"});
}

// The memory that this process has taken from the system so far, in kB.
int64_t peak_memory() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

// A few kilobytes whose card asks for gigabytes.
TEST(SafetensorsFile, ThatIsTooSmallForItsModelTakesNoMemoryForIt) {
  const auto model = trained(kSmall);
  const int64_t before = peak_memory();
  for (const char* name : {"convnet:8192,8192", "convnet:16384/8,5x5:1024", "resnet50", "inception-v3"}) {
    for (const bool folded : {false, true}) {
      ModelCard card = card_for({name, "renorm", true}, folded);
      card.input.height = card.input.width = 299;
      expect_refused(train::encode_tensors(train::named_state(*model), {{"renorm", to_json(card)}}),
                     ModelFormat::kSafetensors, {"bytes are too few for the weights of its model"});
    }
  }
  EXPECT_LT(peak_memory() - before, 100000);
}

TEST(ReadTensors, GivesEveryDtypeInMemoryOfItsOwn) {
  torch::manual_seed(1702);
  const torch::Tensor numbers = torch::randn({3, 5}) * 100;
  std::vector<train::NamedTensor> written;
  for (const auto dtype : {torch::kFloat, torch::kDouble, torch::kBFloat16, torch::kHalf, torch::kLong,
                           torch::kInt, torch::kByte, torch::kBool}) {
    written.push_back({std::string(torch::toString(dtype)), numbers.abs().to(dtype)});
  }
  written.push_back({"empty", torch::zeros({0, 4})});
  std::string bytes = train::encode_tensors(written, {{"note", "text"}});
  const auto read = train::read_tensors(bytes, "FILE");
  std::fill(bytes.begin(), bytes.end(), '\0');
  ASSERT_EQ(read.size(), written.size());
  for (const train::NamedTensor& named : written) {
    EXPECT_EQ(read.at(named.name).scalar_type(), named.tensor.scalar_type());
    EXPECT_TRUE(torch::equal(read.at(named.name), named.tensor)) << named.name;
  }
}

TEST(ReadTensors, RefusesOtherDtypesAndBoolsThatAreNone) {
  const char values[] = {2, 0, 0, 0};
  for (const auto& [dtype, part] : {std::pair("I16", "I16"), std::pair("BOOL", "neither 0 nor 1")}) {
    const int64_t count = 4 / record::dtype_size(dtype);
    const std::string bytes = record::encode_safetensors({{"some", dtype, {count}, values, 4}});
    expect_parts(message_of<DataError>([&] { train::read_tensors(bytes, "FILE"); }),
                 {"FILE: ", "'some'", part});
  }
}

TEST(ModelFormat, IsToldByTheEndOfTheName) {
  EXPECT_EQ(model_format("a/b.pt"), ModelFormat::kTorchScript);
  EXPECT_EQ(model_format("b.safetensors"), ModelFormat::kSafetensors);
  for (const char* name : {"b.onnx", "b", ".pt", "pt", "b.pt.zip"}) {
    expect_parts(message_of<UsageError>([&] { model_format(name); }), {".safetensors", ".pt", name});
  }
}

}  // namespace
}  // namespace renorm::exporting
