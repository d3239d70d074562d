// Writes inputs, results and gradients of every sample that PyTorch can compute too: .npy files and index.json.
// usage: deft_dump_samples FOLDER. Read by tools/torch_diff.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "core/engine.h"
#include "ops/copy.h"
#include "ops/sample_inputs.h"
#include "runtime/random.h"

namespace deft {
namespace {

const char* numpy_type(DType t) {
  switch (t) {
    case DType::f32:
      return "<f4";
    case DType::f64:
      return "<f8";
    case DType::f16:
      return "<f2";
    case DType::i8:
      return "|i1";
    case DType::u8:
      return "|u1";
    case DType::i32:
      return "<i4";
    case DType::i64:
      return "<i8";
    default:
      return "|b1";
  }
}

class Dump {
 public:
  explicit Dump(std::filesystem::path folder) : folder_(std::move(folder)) {
    std::filesystem::create_directories(folder_);
  }

  void add(const OpSamples& op, const Sample& s, DType dtype) {
    const OpInfo* info = find_op_info(op.op);
    std::string torch = s.torch;
    bool derived =
        torch.empty() && info && info->fusion == Fusion::elementwise && static_cast<int>(s.args.size()) == info->inputs;
    if (torch.empty() && !derived) return;
    uint64_t seed = seed_of(std::string(op.op) + "/" + s.note);
    Tensors inputs = make_inputs(s.args, dtype, seed);
    for (size_t i = 0; i < inputs.size(); ++i)
      if (op.grad && s.args[i].grad && s.args[i].kind == Arg::Kind::real) inputs[i].requires_grad_();
    RngScope rng({42, 0});
    Tensors outputs = s.call(inputs);
    nlohmann::json item = {{"op", op.op},         {"note", s.note},    {"torch", torch},
                           {"growth", op.growth}, {"scale", op.scale}, {"dtype", std::string(name_of(dtype))}};
    for (const Tensor& t : inputs) item["inputs"].push_back(save(t));
    for (const Arg& a : s.args) item["grad"].push_back(op.grad && a.grad && a.kind == Arg::Kind::real);
    for (const Tensor& t : outputs) item["outputs"].push_back(save(t));
    add_gradients(item, inputs, outputs, dtype, seed);
    index_.push_back(std::move(item));
  }

  void finish() const { std::ofstream(folder_ / "index.json") << index_.dump(1) << "\n"; }
  size_t size() const { return index_.size(); }

 private:
  void add_gradients(nlohmann::json& item, const Tensors& inputs, const Tensors& outputs, DType dtype, uint64_t seed) {
    Tensors roots, u, wanted;
    std::vector<size_t> at;
    item["cotangents"] = nlohmann::json::array();
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].defined() || !outputs[i].requires_grad()) {
        item["cotangents"].push_back(nullptr);
        continue;
      }
      roots.push_back(outputs[i]);
      u.push_back(make_inputs({Arg{.sizes = outputs[i].sizes(), .low = -1, .high = 1}}, dtype, seed + i + 1)[0]);
      u.back() = u.back().to(outputs[i].dtype());
      item["cotangents"].push_back(save(u.back()));
    }
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i].defined() && inputs[i].requires_grad()) {
        wanted.push_back(inputs[i]);
        at.push_back(i);
      }
    std::vector<nlohmann::json> names(inputs.size());
    if (!roots.empty() && !wanted.empty()) {
      Tensors g = grad(roots, wanted, u, {.allow_unused = true});
      for (size_t k = 0; k < at.size(); ++k) names[at[k]] = save(g[k]);
    }
    item["gradients"] = names;
  }

  // The file's name, or null for an undefined tensor. NumPy has no bf16: such results go out as f32.
  nlohmann::json save(const Tensor& tensor) {
    if (!tensor.defined()) return nullptr;
    Tensor t = tensor.detach().contiguous();
    if (t.dtype() == DType::bf16) t = t.to(DType::f32);
    std::string shape;
    for (int64_t n : t.sizes()) shape += std::to_string(n) + ",";
    std::string header =
        std::string("{'descr': '") + numpy_type(t.dtype()) + "', 'fortran_order': False, 'shape': (" + shape + "), }";
    header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 10 - 1, ' ');
    header += '\n';
    std::string name = std::to_string(files_++) + ".npy";
    std::ofstream out(folder_ / name, std::ios::binary);
    uint16_t length = static_cast<uint16_t>(header.size());
    out.write("\x93NUMPY\x01\x00", 8);
    out.write(reinterpret_cast<const char*>(&length), 2);
    out << header;
    out.write(static_cast<const char*>(t.data_ptr()), t.numel() * static_cast<int64_t>(t.element_size()));
    return name;
  }

  std::filesystem::path folder_;
  nlohmann::json index_ = nlohmann::json::array();
  int files_ = 0;
};

}  // namespace
}  // namespace deft

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: deft_dump_samples FOLDER\n";
    return 2;
  }
  deft::Dump dump(argv[1]);
  for (const deft::OpSamples& op : deft::all_samples())
    for (deft::DType t : {deft::f64, deft::f32})
      if (op.dtypes.contains(t))
        for (const deft::Sample& s : op.good) try {
            dump.add(op, s, t);
          } catch (const std::exception& e) {
            std::cerr << op.op << "/" << s.note << ": " << e.what() << "\n";
          }
  dump.finish();
  std::cout << dump.size() << " samples written to " << argv[1] << "\n";
}
