// Deft: eager tensors, autograd and the switches. One include for everything.
#pragma once

#include "base/error.h"
#include "core/checkpoint.h"
#include "core/dlpack.h"
#include "core/engine.h"
#include "core/function.h"
#include "core/grad_mode.h"
#include "core/graph_stats.h"
#include "core/hooks.h"
#include "core/tensor.h"
#include "ops/all_ops.h"
#include "ops/gradcheck.h"
#include "runtime/memory.h"
#include "runtime/parallel.h"
#include "runtime/random.h"
