#include "bench/competitors.h"

#include <ATen/Parallel.h>

#include "kernels/kernels.h"

namespace renorm::bench {
namespace {

std::unique_ptr<Native> native_if_supported(const Data& data) {
  try {
    auto native = std::make_unique<Native>(data);
    native->backward(false);
    native->inference(false);
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
      ours_into(which, data),
      ours_bf16(data_bf16),
      native(data),
      native_bf16(native_if_supported(data_bf16)),
      onednn(make_onednn(which, data, OneDnn::Format::kPlain)),
      onednn_blocked(make_onednn(which, data, OneDnn::Format::kBlocked)),
      tensor_ops(data),
      copy_target_(at::empty_like(data.x)) {}

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
      {kOurs, [this] { ours.forward(Activation::kNone); }},
      {kOursRelu, [this] { ours.forward(Activation::kRelu); }},
      {kOursInto, [this] { ours_into.forward(Activation::kNone); }},
      {kOursIntoRelu, [this] { ours_into.forward(Activation::kRelu); }},
      {kOursGroups, [this] { ours.forward(Activation::kNone, kGroupSize); }},
      {kOursBf16, [this] { ours_bf16.forward(Activation::kNone); }},
      {kNative, [this] { native.forward(false); }},
      {kNativeRelu, [this] { native.forward(true); }},
      {kTensorOps, [this] { tensor_ops.forward(); }},
  };
  if (native_bf16) list.push_back({kNativeBf16, [this] { native_bf16->forward(false); }});
  if (onednn) list.push_back({kOneDnn, [this] { onednn->forward(); }});
  if (onednn_blocked) list.push_back({kOneDnnBlocked, [this] { onednn_blocked->forward(); }});
  return list;
}

std::vector<Competitor> Field::backward() {
  std::vector<Competitor> list = {
      {kOurs, [this] { ours.backward(Activation::kNone); }},
      {kOursRelu, [this] { ours.backward(Activation::kRelu); }},
      {kOursInto, [this] { ours_into.backward(Activation::kNone); }},
      {kOursIntoRelu, [this] { ours_into.backward(Activation::kRelu); }},
      {kOursBf16, [this] { ours_bf16.backward(Activation::kNone); }},
      {kNative, [this] { native.backward(false); }},
      {kNativeRelu, [this] { native.backward(true); }},
      {kTensorOps, [this] { tensor_ops.backward(); }},
  };
  if (native_bf16) list.push_back({kNativeBf16, [this] { native_bf16->backward(false); }});
  if (onednn) list.push_back({kOneDnn, [this] { onednn->backward(); }});
  if (onednn_blocked) list.push_back({kOneDnnBlocked, [this] { onednn_blocked->backward(); }});
  return list;
}

std::vector<Competitor> Field::inference() {
  std::vector<Competitor> list = {
      {kOurs, [this] { ours.inference(Activation::kNone); }},
      {kOursRelu, [this] { ours.inference(Activation::kRelu); }},
      {kOursInto, [this] { ours_into.inference(Activation::kNone); }},
      {kOursIntoRelu, [this] { ours_into.inference(Activation::kRelu); }},
      {kOursBf16, [this] { ours_bf16.inference(Activation::kNone); }},
      {kNative, [this] { native.inference(false); }},
      {kNativeRelu, [this] { native.inference(true); }},
      {kTensorOps, [this] { tensor_ops.inference(); }},
  };
  if (native_bf16) list.push_back({kNativeBf16, [this] { native_bf16->inference(false); }});
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
