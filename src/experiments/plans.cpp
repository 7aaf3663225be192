#include "experiments/plans.h"

#include <fmt/format.h>

#include <utility>

namespace renorm::experiments {

Recipe characters() {
  Recipe recipe;
  recipe.settings.workers = 4;
  recipe.settings.minibatch = 32;
  recipe.lengths = {{"strokes", "convnet", 1300, 10}, {"strokes:train=200", "convnet", 4000, 20}};
  return recipe;
}

Recipe two_characters(int64_t quick_steps, int64_t full_steps) {
  Recipe recipe;
  recipe.settings.minibatch = 32;
  recipe.settings.norm_scale = true;
  recipe.settings.norm_bias = -1.5;
  recipe.settings.optimizer = train::OptimizerKind::kAdamw;
  recipe.settings.beta2 = 0.99;
  recipe.settings.lr_schedule = train::LrSchedule::kCosine;
  recipe.settings.lr_final = 0.0;
  recipe.settings.warmup = 100;
  recipe.settings.ema_decay = 0.0;
  const std::string data =
      "strokes:classes=50,train=200,test=40,ink=1,jitter=0.25,decoy=0.7,decoy-ink=0.9,amplitude=0.15";
  const std::string model = "convnet:16/2,32/2,flat,512,512,512";
  recipe.lengths = {{data, model, quick_steps, 12}, {data, model, full_steps, 12}};
  return recipe;
}

Arm arm_of(const train::Config& config, const std::string& figure, const Variant& variant,
           record::PaperFigures paper) {
  Arm arm;
  arm.name = fmt::format("{}-{}", figure, variant.name);
  arm.figure = figure;
  arm.label = variant.label;
  arm.config = config;
  arm.config.norm = variant.norm;
  arm.paper = std::move(paper);
  return arm;
}

ClaimPlan difference(std::string text, Subject a, Subject b, double above) {
  ClaimPlan claim;
  claim.text = std::move(text);
  claim.a = std::move(a);
  claim.b = std::move(b);
  claim.above = above;
  return claim;
}

}  // namespace renorm::experiments
