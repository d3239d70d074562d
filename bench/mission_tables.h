// The two tables that are quoted for gradient modes and for model families, measured on this machine in this run.
#pragma once

#include "bench/models.h"

namespace deft::bench {

// Rows with "table": "modes": one model that trains, validates with gradients, validates under no_grad and infers under
// no_grad in half precision; the time of an epoch of `repeats` batches, peak memory, and how many times as fast as
// training. Then rows with "table": "families": models by batch; peak memory, time per batch, samples per second.
//
// options.models: the first is that of the first table; empty: ResNet-50 there, Transformer-XL, BERT-base and ResNet-50
// with batches of 64, 32 and 128 in the second. options.passes and types: of the second table; empty: infer in f32 and
// bf16.
Report measure_mission_tables(const ModelsOptions& options);

}  // namespace deft::bench
