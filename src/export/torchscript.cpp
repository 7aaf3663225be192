#include "export/torchscript.h"

#include <fmt/format.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/utils.h>

#include <algorithm>
#include <memory>
#include <set>
#include <sstream>
#include <utility>

#include "base/errors.h"
#include "base/text.h"

namespace renorm::exporting {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using Script = torch::jit::Module;
using Unit = std::shared_ptr<torch::jit::CompilationUnit>;
using Names = std::set<std::string>;

std::string joined(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

// Every class of an archive has a name of its own: "layer1.0.conv1" becomes Layer_layer1_0_conv1.
c10::QualifiedName class_name(const std::string& path) {
  std::string name = path.empty() ? "Classifier" : "Layer_" + path;
  std::replace(name.begin(), name.end(), '.', '_');
  return c10::QualifiedName("__torch__.renorm." + name);
}

bool is_empty(const Script& script) {
  return script.parameters().size() == 0 && script.buffers().size() == 0;
}

// The module as a TorchScript module with the same tensors and names. If `kept` is given, only the tensors
// in it; modules without tensors are left out.
Script mirror(const torch::nn::Module& module, const std::string& path, const Names* kept, const Unit& unit) {
  const auto is_kept = [&](const std::string& name) {
    return kept == nullptr || kept->count(joined(path, name)) > 0;
  };
  Script script(class_name(path), unit, /*shouldMangle=*/true);
  script.register_attribute("training", c10::BoolType::get(), false);
  for (const auto& named : module.named_parameters(/*recurse=*/false)) {
    if (is_kept(named.key())) script.register_parameter(named.key(), named.value(), /*is_buffer=*/false);
  }
  for (const auto& named : module.named_buffers(/*recurse=*/false)) {
    if (is_kept(named.key())) script.register_buffer(named.key(), named.value());
  }
  for (const auto& child : module.named_children()) {
    const Script inner = mirror(*child.value(), joined(path, child.key()), kept, unit);
    if (!is_empty(inner)) script.register_module(child.key(), inner);
  }
  return script;
}

// Everything is float, and convolutions take either memory format. The conversions of the net would tie the
// archive to one format.
void remove_conversions(Graph& graph) {
  for (Node* node : graph.nodes()) {
    const std::string kind = node->kind().toQualString();
    if (kind == "aten::to" || kind == "aten::contiguous") {
      node->output()->replaceAllUsesWith(node->input(0));
    }
  }
}

std::shared_ptr<Graph> traced(models::Classifier& model, const torch::Tensor& example, Script* script) {
  const auto forward = [&model](const torch::jit::Stack& inputs) {
    return torch::jit::Stack{model.forward(inputs.at(0).toTensor())};
  };
  const auto no_name = [](const torch::Tensor& /*tensor*/) { return std::string(); };
  const std::shared_ptr<Graph> graph = torch::jit::tracer::trace({example}, forward, no_name, /*strict=*/true,
                                                                 /*force_outplace=*/false, script, {"images"})
                                           .first->graph;
  remove_conversions(*graph);
  torch::jit::EliminateDeadCode(graph);
  return graph;
}

// "layer1.conv.weight" of the node that fetches it from the module.
std::string attribute_path(const Node& node) {
  const Node* owner = node.input(0)->node();
  const std::string& name = node.s(c10::attr::name);
  return owner->kind() == c10::prim::GetAttr ? joined(attribute_path(*owner), name) : name;
}

Names used_names(const Graph& graph) {
  Names names;
  for (const Node* node : graph.nodes()) {
    if (node->kind() == c10::prim::GetAttr) names.insert(attribute_path(*node));
  }
  return names;
}

}  // namespace

std::string to_torchscript(models::Classifier& model, const torch::Tensor& example,
                           const std::map<std::string, std::string>& extra) {
  const torch::NoGradGuard no_grad;
  Script whole = mirror(model, "", nullptr, std::make_shared<torch::jit::CompilationUnit>());
  const Names used = used_names(*traced(model, example, &whole));

  const auto unit = std::make_shared<torch::jit::CompilationUnit>();
  Script script = mirror(model, "", &used, unit);
  const std::shared_ptr<Graph> graph = traced(model, example, &script);
  const c10::QualifiedName forward(*script.type()->name(), "forward");
  script.type()->addMethod(unit->create_function(forward, graph));
  std::ostringstream stream;
  script.save(stream, {extra.begin(), extra.end()});
  return stream.str();
}

TorchScript read_torchscript(const std::string& bytes, const std::string& file,
                             const std::string& extra_name) {
  torch::jit::ExtraFilesMap extra = {{extra_name, ""}};
  TorchScript result;
  try {
    std::istringstream stream(bytes);
    result.module = torch::jit::load(stream, torch::Device(torch::kCPU), extra);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception&) {
    // LibTorch's own message is long and about its sources.
    throw DataError(fmt::format("{}: not a TorchScript file, or a damaged one", printable(file)));
  }
  result.extra = extra[extra_name];
  return result;
}

}  // namespace renorm::exporting
