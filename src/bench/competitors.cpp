#include "bench/competitors.h"

#include <ATen/Parallel.h>

#include "kernels/kernels.h"

namespace renorm::bench {
namespace {

std::unique_ptr<Native> native_if_supported(const Data& data) {
  try {
    auto native = std::make_unique<Native>(data);
    native->backward(Ending::kNone);
    native->inference(Ending::kNone);
    return native;
  } catch (const c10::Error&) {
    return nullptr;
  }
}

}  // namespace

Field::Field(const Case& which)
    : shape_and_layout(which),
      data(which, at::kFloat),
      data_bf16(which, at::kBFloat16),
      ours(data),
      ours_into(which, data, ours),
      ours_bf16(data_bf16),
      native(data),
      native_bf16(native_if_supported(data_bf16)),
      onednn(make_onednn(which, data, OneDnn::Format::kPlain)),
      onednn_blocked(make_onednn(which, data, OneDnn::Format::kBlocked)),
      tensor_ops(data),
      copy_target_(ours.inference(Ending::kNone)) {}

void Field::copy() const {
  // Pieces of whole cache lines, so that every piece is aligned as the kernel requires.
  constexpr int64_t kLine = 16;
  const int64_t values = data.x.numel();
  const float* from = data.x.data_ptr<float>();
  float* to = copy_target_.data_ptr<float>();
  if (at::get_num_threads() == 1) {
    kernels::stream_copy(from, to, values);
    return;
  }
  at::parallel_for(0, (values + kLine - 1) / kLine, 4096, [&](int64_t first, int64_t last) {
    const int64_t begin = first * kLine;
    kernels::stream_copy(from + begin, to + begin, std::min(last * kLine, values) - begin);
  });
}

std::vector<Competitor> Field::forward() {
  std::vector<Competitor> list = {
      {kOurs, [this] { ours.forward(Ending::kNone); }},
      {kOursRelu, [this] { ours.forward(Ending::kRelu); }},
      {kOursAddRelu, [this] { ours.forward(Ending::kAddRelu); }},
      {kOursSeparately, [this] { ours.forward_separately(); }},
      {kOursInto, [this] { ours_into.forward(Activation::kNone); }},
      {kOursIntoRelu, [this] { ours_into.forward(Activation::kRelu); }},
      {kOursGroups, [this] { ours.forward(Ending::kNone, kGroupSize); }},
      {kOursBf16, [this] { ours_bf16.forward(Ending::kNone); }},
      {kNative, [this] { native.forward(Ending::kNone); }},
      {kNativeRelu, [this] { native.forward(Ending::kRelu); }},
      {kNativeAddRelu, [this] { native.forward(Ending::kAddRelu); }},
      {kTensorOps, [this] { tensor_ops.forward(); }},
  };
  if (native_bf16) list.push_back({kNativeBf16, [this] { native_bf16->forward(Ending::kNone); }});
  if (onednn) list.push_back({kOneDnn, [this] { onednn->forward(); }});
  if (onednn_blocked) list.push_back({kOneDnnBlocked, [this] { onednn_blocked->forward(); }});
  return list;
}

std::vector<Competitor> Field::backward() {
  std::vector<Competitor> list = {
      {kOurs, [this] { ours.backward(Ending::kNone); }},
      {kOursRelu, [this] { ours.backward(Ending::kRelu); }},
      {kOursAddRelu, [this] { ours.backward(Ending::kAddRelu); }},
      {kOursSeparately, [this] { ours.backward_separately(); }},
      {kOursInto, [this] { ours_into.backward(Activation::kNone); }},
      {kOursIntoRelu, [this] { ours_into.backward(Activation::kRelu); }},
      {kOursGroups, [this] { ours.backward(Ending::kNone, kGroupSize); }},
      {kOursBf16, [this] { ours_bf16.backward(Ending::kNone); }},
      {kNative, [this] { native.backward(Ending::kNone); }},
      {kNativeRelu, [this] { native.backward(Ending::kRelu); }},
      {kNativeAddRelu, [this] { native.backward(Ending::kAddRelu); }},
      {kTensorOps, [this] { tensor_ops.backward(); }},
  };
  if (native_bf16) list.push_back({kNativeBf16, [this] { native_bf16->backward(Ending::kNone); }});
  if (onednn) list.push_back({kOneDnn, [this] { onednn->backward(); }});
  if (onednn_blocked) list.push_back({kOneDnnBlocked, [this] { onednn_blocked->backward(); }});
  return list;
}

std::vector<Competitor> Field::inference() {
  std::vector<Competitor> list = {
      {kOurs, [this] { ours.inference(Ending::kNone); }},
      {kOursRelu, [this] { ours.inference(Ending::kRelu); }},
      {kOursAddRelu, [this] { ours.inference(Ending::kAddRelu); }},
      {kOursSeparately, [this] { ours.inference_separately(); }},
      {kOursInto, [this] { ours_into.inference(Activation::kNone); }},
      {kOursIntoRelu, [this] { ours_into.inference(Activation::kRelu); }},
      {kOursBf16, [this] { ours_bf16.inference(Ending::kNone); }},
      {kNative, [this] { native.inference(Ending::kNone); }},
      {kNativeRelu, [this] { native.inference(Ending::kRelu); }},
      {kNativeAddRelu, [this] { native.inference(Ending::kAddRelu); }},
      {kTensorOps, [this] { tensor_ops.inference(); }},
  };
  if (native_bf16) list.push_back({kNativeBf16, [this] { native_bf16->inference(Ending::kNone); }});
  if (onednn) list.push_back({kOneDnn, [this] { onednn->inference(); }});
  if (onednn_blocked) list.push_back({kOneDnnBlocked, [this] { onednn_blocked->inference(); }});
  return list;
}

std::vector<Competitor> Field::competitors(Pass pass, int threads) {
  std::vector<Competitor> list = pass == Pass::kForward    ? forward()
                                 : pass == Pass::kBackward ? backward()
                                                           : inference();
  if (threads > 1) {
    for (const auto& [name, alone] : {std::pair{kOurs, kOursOneThread}, {kOursInto, kOursIntoOneThread}}) {
      for (size_t i = 0, size = list.size(); i < size; ++i) {
        if (list[i].name == name) list.push_back({alone, list[i].run, 1});
      }
    }
  }
  list.insert(list.begin(), {kCopy, [this] { copy(); }});
  return list;
}

}  // namespace renorm::bench
