// What a Batch Renorm layer accepts: every refusal is one sentence with the argument, what was expected and
// what came.
#include "renorm/nn/batch_renorm.h"

namespace renorm {
namespace {

// Whether parameters and averages of dtype `held` serve input of dtype `given`.
bool serves(at::ScalarType held, at::ScalarType given) {
  if (held == at::kFloat) return given == at::kFloat || given == at::kBFloat16 || given == at::kHalf;
  return held == given;
}

}  // namespace

std::string BatchRenormLayer::who() const {
  const std::string kind_name = std::string("renorm::") + kind();
  return options.name().empty() ? kind_name : kind_name + " \"" + options.name() + "\"";
}

// The limits are checked by ClipSchedule.
void BatchRenormLayer::check_options() const {
  TORCH_CHECK(options.num_features() > 0, who(), ": num_features must be > 0, got ", options.num_features());
  TORCH_CHECK(options.eps() > 0.0, who(), ": eps must be > 0, got ", options.eps());
  TORCH_CHECK(options.momentum() > 0.0 && options.momentum() <= 1.0, who(),
              ": momentum must be in (0, 1], got ", options.momentum());
  TORCH_CHECK(options.group_size() >= 0, who(), ": group_size must be >= 0, got ", options.group_size());
}

void BatchRenormLayer::check_input(const torch::Tensor& input) const {
  TORCH_CHECK(input.defined(), who(), ": input must be a tensor, got an undefined one");
  check_input_dim(input);
  TORCH_CHECK(at::isFloatingType(input.scalar_type()), who(), ": input must have a floating dtype, got ",
              input.scalar_type());
  TORCH_CHECK(input.size(1) == options.num_features(), who(), ": input must have ", options.num_features(),
              " channels in dimension 1, got ", input.size(1));
  const torch::Tensor& held = running_mean.defined() ? running_mean : bias;
  if (!held.defined()) return;
  TORCH_CHECK(input.device() == held.device(), who(), ": input must be on ", held.device(),
              " like the module, got ", input.device());
  TORCH_CHECK(
      serves(held.scalar_type(), input.scalar_type()), who(), ": input must be ",
      held.scalar_type() == at::kFloat ? "Float, BFloat16 or Half" : c10::toString(held.scalar_type()),
      " for a module of dtype ", held.scalar_type(), ", got ", input.scalar_type());
}

void BatchRenormLayer::check_groups(const torch::Tensor& input, int64_t group_size) const {
  const int64_t batch = input.size(0);
  if (input.numel() == 0) return;
  TORCH_CHECK(group_size == 0 || batch % group_size == 0, who(),
              ": group_size must divide the batch, got group_size ", group_size, " and a batch of ", batch);
  const int64_t examples = group_size == 0 ? batch : group_size;
  const int64_t positions = input.numel() / (batch * input.size(1));
  const char* remedy = is_training() && running_mean.defined() ? "use a larger batch or group_size, or eval()"
                                                               : "use a larger batch or group_size";
  TORCH_CHECK(
      examples * positions > 1, who(),
      ": input must have more than one value per channel and group when it is normalised with its own "
      "statistics, got shape ",
      input.sizes(), " and group_size ", group_size, "; ", remedy);
}

void BatchRenorm1dImpl::check_input_dim(const torch::Tensor& input) const {
  TORCH_CHECK(input.dim() == 2 || input.dim() == 3, who(),
              ": input must have 2 or 3 dimensions [N, C] or [N, C, L], got ", input.dim());
}

void BatchRenorm2dImpl::check_input_dim(const torch::Tensor& input) const {
  TORCH_CHECK(input.dim() == 4, who(), ": input must have 4 dimensions [N, C, H, W], got ", input.dim());
}

void BatchRenorm3dImpl::check_input_dim(const torch::Tensor& input) const {
  TORCH_CHECK(input.dim() == 5, who(), ": input must have 5 dimensions [N, C, D, H, W], got ", input.dim());
}

}  // namespace renorm
