#include "bench/onednn.h"

#ifdef RENORM_ONEDNN

#include <fmt/format.h>

#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

namespace renorm::bench {
namespace {

using dnnl::memory;
using dnnl::normalization_flags;
using Tag = memory::format_tag;
using Arguments = std::unordered_map<int, memory>;
using ForwardDesc = dnnl::batch_normalization_forward::primitive_desc;
using BackwardDesc = dnnl::batch_normalization_backward::primitive_desc;

const auto kAffine = normalization_flags::use_scale | normalization_flags::use_shift;
constexpr auto kEpsilon = static_cast<float>(kEps);

// oneDNN 3 merged descriptors and primitive descriptors.
ForwardDesc forward_desc(const dnnl::engine& engine, dnnl::prop_kind kind, const memory::desc& data,
                         normalization_flags flags) {
#if DNNL_VERSION_MAJOR >= 3
  return ForwardDesc(engine, kind, data, data, kEpsilon, flags);
#else
  return ForwardDesc({kind, data, kEpsilon, flags}, engine);
#endif
}

BackwardDesc backward_desc(const dnnl::engine& engine, const memory::desc& data, const ForwardDesc& forward) {
#if DNNL_VERSION_MAJOR >= 3
  return BackwardDesc(engine, dnnl::prop_kind::backward, data, data, data, kEpsilon, kAffine, forward);
#else
  return BackwardDesc({dnnl::prop_kind::backward, data, data, kEpsilon, kAffine}, engine, forward);
#endif
}

bool has_avx512() {
  const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto avx512 = static_cast<unsigned>(dnnl::cpu_isa::avx512_core);
  return (isa & avx512) == avx512;
}

Tag plain_tag(Layout layout) {
  return layout == Layout::kDense ? Tag::nc : layout == Layout::kNhwc ? Tag::nhwc : Tag::nchw;
}

Tag blocked_tag() { return has_avx512() ? Tag::nChw16c : Tag::nChw8c; }

class OneDnnBatchNorm : public OneDnn {
 public:
  OneDnnBatchNorm(const Case& shape_and_layout, const Data& data, Tag tag)
      : data_(data),
        plain_(shape_and_layout.sizes, memory::data_type::f32, plain_tag(shape_and_layout.layout)),
        desc_(shape_and_layout.sizes, memory::data_type::f32, tag),
        input_(in_format(data_.x)),
        output_(desc_, engine_),
        output_gradient_(in_format(data_.dy)),
        input_gradient_(desc_, engine_),
        batch_mean_(at::empty_like(data_.weight)),
        batch_var_(at::empty_like(data_.weight)),
        dweight_(at::empty_like(data_.weight)),
        dbias_(at::empty_like(data_.weight)) {
    const ForwardDesc training = forward_desc(engine_, dnnl::prop_kind::forward_training, desc_, kAffine);
    const ForwardDesc inference = forward_desc(engine_, dnnl::prop_kind::forward_inference, desc_,
                                               kAffine | normalization_flags::use_global_stats);
    forward_ = dnnl::batch_normalization_forward(training);
    inference_ = dnnl::batch_normalization_forward(inference);
    backward_ = dnnl::batch_normalization_backward(backward_desc(engine_, desc_, training));
    bind_arguments();
    forward();
  }

  void forward() override { execute(forward_, forward_arguments_); }
  void backward() override { execute(backward_, backward_arguments_); }
  void inference() override { execute(inference_, inference_arguments_); }
  at::Tensor output() const override { return in_layout(output_); }
  at::Tensor input_gradient() const override { return in_layout(input_gradient_); }

 private:
  void bind_arguments() {
    forward_arguments_ = {{DNNL_ARG_SRC, input_},
                          {DNNL_ARG_DST, output_},
                          {DNNL_ARG_SCALE, per_channel(data_.weight)},
                          {DNNL_ARG_SHIFT, per_channel(data_.bias)},
                          {DNNL_ARG_MEAN, per_channel(batch_mean_)},
                          {DNNL_ARG_VARIANCE, per_channel(batch_var_)}};
    inference_arguments_ = forward_arguments_;
    inference_arguments_[DNNL_ARG_MEAN] = per_channel(data_.running_mean);
    inference_arguments_[DNNL_ARG_VARIANCE] = per_channel(data_.running_var);
    backward_arguments_ = forward_arguments_;
    backward_arguments_.erase(DNNL_ARG_DST);
#if DNNL_VERSION_MAJOR >= 3
    backward_arguments_.erase(DNNL_ARG_SHIFT);  // not part of the gradient, and rejected
#endif
    backward_arguments_[DNNL_ARG_DIFF_DST] = output_gradient_;
    backward_arguments_[DNNL_ARG_DIFF_SRC] = input_gradient_;
    backward_arguments_[DNNL_ARG_DIFF_SCALE] = per_channel(dweight_);
    backward_arguments_[DNNL_ARG_DIFF_SHIFT] = per_channel(dbias_);
  }

  void execute(const dnnl::primitive& primitive, const Arguments& arguments) {
    primitive.execute(stream_, arguments);
    stream_.wait();
  }

  memory per_channel(const at::Tensor& tensor) const {
    return memory({{tensor.numel()}, memory::data_type::f32, Tag::x}, engine_, tensor.data_ptr());
  }

  // The tensor itself if the format is that of the case, else a copy.
  memory in_format(const at::Tensor& tensor) {
    memory plain(plain_, engine_, tensor.data_ptr());
    if (plain_ == desc_) return plain;
    memory copy(desc_, engine_);
    dnnl::reorder(plain, copy).execute(stream_, plain, copy);
    stream_.wait();
    return copy;
  }

  at::Tensor in_layout(const memory& from) const {
    at::Tensor tensor = at::empty_like(data_.x);
    memory source = from;
    memory target(plain_, engine_, tensor.data_ptr());
    dnnl::stream stream(engine_);
    dnnl::reorder(source, target).execute(stream, source, target);
    stream.wait();
    return tensor;
  }

  Data data_;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  memory::desc plain_, desc_;
  memory input_, output_, output_gradient_, input_gradient_;
  at::Tensor batch_mean_, batch_var_, dweight_, dbias_;
  dnnl::primitive forward_, backward_, inference_;
  Arguments forward_arguments_, backward_arguments_, inference_arguments_;
};

}  // namespace

std::unique_ptr<OneDnn> make_onednn(const Case& shape_and_layout, const Data& data, OneDnn::Format format) {
  const bool blocked = format == OneDnn::Format::kBlocked;
  if (blocked && shape_and_layout.layout != Layout::kNchw) return nullptr;
  try {
    return std::make_unique<OneDnnBatchNorm>(shape_and_layout, data,
                                             blocked ? blocked_tag() : plain_tag(shape_and_layout.layout));
  } catch (const dnnl::error&) {
    return nullptr;
  }
}

std::string onednn_version() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("{}.{}.{}", version->major, version->minor, version->patch);
}

std::string onednn_blocked_format() { return has_avx512() ? "nChw16c" : "nChw8c"; }

}  // namespace renorm::bench

#else

namespace renorm::bench {

std::unique_ptr<OneDnn> make_onednn(const Case&, const Data&, OneDnn::Format) { return nullptr; }

std::string onednn_version() { return ""; }

std::string onednn_blocked_format() { return ""; }

}  // namespace renorm::bench

#endif
