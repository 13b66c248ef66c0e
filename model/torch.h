#ifndef FRESHET_MODEL_TORCH_H_
#define FRESHET_MODEL_TORCH_H_

// The part of LibTorch that Freshet uses: ATen and autograd. Do not include <torch/torch.h>, which
// triples compile times. Include this header only from .cc files.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/variable.h>

#endif  // FRESHET_MODEL_TORCH_H_
