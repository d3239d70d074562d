// All modules.
#pragma once

#include "nn/activation.h"
#include "nn/attention.h"
#include "nn/containers.h"
#include "nn/conv.h"
#include "nn/dropout.h"
#include "nn/embedding.h"
#include "nn/group.h"
#include "nn/init.h"
#include "nn/linear.h"
#include "nn/loss.h"
#include "nn/module.h"
#include "nn/norm.h"
#include "nn/pool.h"
#include "nn/rnn.h"
#include "nn/transformer.h"
#include "ops/all_ops.h"
