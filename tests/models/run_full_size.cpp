// A built-in model at its published size on weights and inputs from a file: logits in eval mode, then loss and
// gradients. usage: deft_run_full_size resnet50|bert-base|gpt2 f32|f64 IN.safetensors OUT.safetensors. Read by
// tools/compare_full_size.
#include <functional>
#include <iostream>
#include <memory>

#include "base/check.h"
#include "core/grad_mode.h"
#include "io/safetensors.h"
#include "models/bert.h"
#include "models/gpt2.h"
#include "models/resnet.h"

namespace deft::models {
namespace {

NamedTensors part(const NamedTensors& all, const std::string& prefix) {
  NamedTensors out;
  for (const NamedTensor& t : all)
    if (t.name.starts_with(prefix)) out.push_back({t.name.substr(prefix.size()), t.tensor});
  return out;
}

std::unique_ptr<nn::Module> make(const std::string& name) {
  if (name == "resnet50") return std::make_unique<ResNet>(resnet50_options());
  if (name == "bert-base") {
    BertOptions o = bert_base_options();
    o.dropout = o.attention_dropout = 0;
    return std::make_unique<BertForSequenceClassification>(2, o);
  }
  DEFT_CHECK(name == "gpt2", ValueError, "found model '{}', expected resnet50, bert-base or gpt2", name);
  Gpt2Options o = gpt2_small_options();
  o.dropout = 0;
  return std::make_unique<Gpt2>(o);
}

void run(const std::string& name, DType type, const std::string& in, const std::string& out) {
  NamedTensors file = io::load_safetensors(in).tensors, inputs = part(file, "in.");
  std::unique_ptr<nn::Module> model = make(name);
  model->to(type);
  model->load_state_dict(part(file, "state."));
  Tensor x = *find_tensor(inputs, "x"), y = *find_tensor(inputs, "y");
  if (is_floating(x.dtype())) x = x.to(type);
  auto logits = [&] {
    Tensor z = (*model)(x);
    return z.reshape({-1, z.size(-1)});
  };
  NamedTensors results;
  model->eval();
  {
    NoGradGuard no_grad;
    results.push_back({"logits", logits()});
  }
  model->train();
  Tensor loss = cross_entropy(logits(), y);
  loss.backward();
  results.push_back({"loss", loss.detach().reshape({1})});
  for (const NamedTensor& p : model->named_parameters()) results.push_back({"grad." + p.name, p.tensor.grad()});
  io::save_safetensors(out, results);
}

}  // namespace
}  // namespace deft::models

int main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "usage: deft_run_full_size resnet50|bert-base|gpt2 f32|f64 IN OUT\n";
    return 2;
  }
  try {
    deft::models::run(argv[1], std::string(argv[2]) == "f64" ? deft::DType::f64 : deft::DType::f32, argv[3], argv[4]);
  } catch (const std::exception& e) {
    std::cerr << "deft_run_full_size: " << e.what() << "\n";
    return 1;
  }
  return 0;
}
