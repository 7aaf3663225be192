// All competitors of one case.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/cases.h"
#include "bench/onednn.h"
#include "bench/ours.h"
#include "bench/peers.h"
#include "bench/timing.h"

namespace renorm::bench {

// Names of competitors, also their keys in the JSON.
inline constexpr const char* kCopy = "copy";
inline constexpr const char* kOurs = "ours";                  // as shipped
inline constexpr const char* kOursRelu = "ours_relu";         // the same with fused ReLU
inline constexpr const char* kOursAddRelu = "ours_add_relu";  // with fused addition and ReLU
inline constexpr const char* kOursSeparately = "ours_add_relu_separately";
inline constexpr const char* kOursInto = "ours_into";  // into preallocated memory
inline constexpr const char* kOursIntoRelu = "ours_into_relu";
inline constexpr const char* kOursGroups = "ours_groups_of_4";
inline constexpr const char* kOursBf16 = "ours_bf16";
inline constexpr const char* kOursOneThread = "ours_one_thread";
inline constexpr const char* kOursIntoOneThread = "ours_into_one_thread";
inline constexpr const char* kNative = "native";
inline constexpr const char* kNativeRelu = "native_relu";
inline constexpr const char* kNativeAddRelu = "native_add_relu";
inline constexpr const char* kNativeBf16 = "native_bf16";
inline constexpr const char* kOneDnn = "onednn";  // into preallocated memory
inline constexpr const char* kOneDnnBlocked = "onednn_blocked";
inline constexpr const char* kTensorOps = "tensor_ops";

// They run on the same data. Holds about ten copies of the tensor and a graph.
struct Field {
  explicit Field(const Case& shape_and_layout);

  // Those that support the pass, the copy first. They refer to this object. With more than one thread they
  // include ours on one thread.
  std::vector<Competitor> competitors(Pass pass, int threads);

  Case shape_and_layout;
  Data data;
  Data data_bf16;
  Ours ours;
  OursInto ours_into;
  Ours ours_bf16;
  Native native;
  std::unique_ptr<Native> native_bf16;     // null if this LibTorch does not support it
  std::unique_ptr<OneDnn> onednn;          // null, see make_onednn
  std::unique_ptr<OneDnn> onednn_blocked;  // null, see make_onednn
  TensorOps tensor_ops;

 private:
  std::vector<Competitor> forward();
  std::vector<Competitor> backward();
  std::vector<Competitor> inference();
  void copy() const;

  at::Tensor copy_target_;
};

}  // namespace renorm::bench
