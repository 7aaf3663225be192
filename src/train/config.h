// Everything that decides what a training run computes, as plain values. No torch.
// The names, limits and help of these are in the table of settings (settings.h).
#pragma once

#include <cstdint>
#include <string>

namespace renorm::train {

struct Config {
  // data and sampling
  std::string data = "strokes";
  std::string sampler = "iid";
  bool split_pairs = false;
  bool deal = false;
  // people's own images
  double val_fraction = 0.0;          // of the training images; 0: there is a folder val
  int64_t image_size = 0;             // pixels a side; 0: what the model is made for
  double crop_area = 0.08;            // least share of a picture that a training crop takes
  double flip = 0.5;                  // how often a training picture is mirrored
  double jitter = 0.4;                // of brightness, contrast and saturation
  std::string on_bad_image = "fail";  // fail, skip
  int loader_threads = 0;             // 0: as threads
  // the step
  int64_t workers = 1;
  int64_t minibatch = 0;   // 0: what the sampler makes, or 32
  int64_t microbatch = 0;  // 0: the whole minibatch (with split_pairs: one group an image of a label)
  int64_t chunk = 0;       // most examples in one pass; 0: chosen by the trainer
  // model
  std::string model = "inception-small";
  std::string norm = "renorm";  // batchnorm, renorm, native
  bool norm_scale = false;
  double norm_eps = 1e-3;
  double norm_momentum = 0.01;
  std::string clip = "paper";
  std::string init;                    // safetensors file with weights to start from; "": none
  std::string dtype = "float";         // of the activations: float, bf16
  std::string memory_format = "auto";  // nchw, channels-last; auto: the faster one for the model
  // length
  int64_t steps = 0;  // one of steps and epochs; both 0: 2,000 steps
  double epochs = 0.0;
  // optimisation
  std::string optimizer = "rmsprop-tf";  // rmsprop-tf, rmsprop, sgd, adamw
  double lr = 0.003;
  std::string lr_schedule = "exponential";  // exponential, cosine, constant
  double lr_final = 0.05;                   // fraction of lr at the end
  int64_t warmup = 0;                       // steps of linear warm-up
  double momentum = 0.0;                    // rmsprop-tf, rmsprop, sgd
  double alpha = 0.9;                       // rmsprop-tf, rmsprop: decay of the mean square
  double beta1 = 0.9;                       // adamw
  double beta2 = 0.999;
  double optimizer_eps = 1e-8;  // rmsprop-tf, rmsprop, adamw
  double weight_decay = 0.0;
  double label_smoothing = 0.0;
  double clip_gradient = 0.0;  // greatest norm of the gradient; 0: no limit
  double ema_decay = 0.99;     // 0: no average
  // the run
  uint64_t seed = 1;  // below 2^63
  int threads = 0;    // 0: all CPUs
  int64_t log_every = 50;
  int64_t eval_every = 0;        // 0: ten times a run
  int64_t checkpoint_every = 0;  // 0: as eval_every
  int64_t keep = 3;              // newest checkpoints kept besides the best
};

}  // namespace renorm::train
