// Weights that PyTorch saved, in a model of the same layers, and back. In Python:
//
//   torch.save(model.state_dict(), "net.pt")                        # read by io::load_tensors
//   safetensors.torch.save_file(model.state_dict(), "net.safetensors")
//   model.load_state_dict(safetensors.torch.load_file("from_deft.safetensors"))
//
// usage: pytorch_weights [FILE]; without one it writes a file as PyTorch names its tensors, and reads that.
#include <deft/deft.h>

#include <filesystem>
#include <iostream>

using namespace deft;

struct Net : nn::Module {
  nn::Linear& hidden = add<nn::Linear>("hidden", 8, 16);
  nn::Linear& out = add<nn::Linear>("out", 16, 2);
  Tensor forward(const Tensor& x) override { return out(relu(hidden(x))); }
};

int main(int argc, char** argv) {
  manual_seed(1);
  const std::filesystem::path folder = std::filesystem::temp_directory_path();
  std::filesystem::path file = folder / "deft_example_net.safetensors";
  if (argc > 1) {
    file = argv[1];
  } else {  // names as DistributedDataParallel writes them
    NamedTensors saved;
    for (const NamedTensor& t : Net().state_dict()) saved.push_back({"module." + t.name, t.tensor});
    io::save_safetensors(file.string(), saved);
  }

  Net net;
  const io::NameRule rules[] = {{"module.*", "*"}};
  const NamedTensors weights = io::rename_tensors(io::load_tensors(file.string()), rules).tensors;
  const io::NameReport fit = io::compare_names(weights, net.state_dict());
  if (!fit.complete()) {
    std::cerr << fit.text();  // what is missing, unused, or of another shape
    return 1;
  }
  net.load_state_dict(weights);
  net.eval();
  std::cout << net.to_string() << "\nlogits " << no_grad([&] { return net(ones({1, 8})); }) << "\n";

  const std::string back = (folder / "from_deft.safetensors").string();
  io::save_safetensors(back, net.state_dict());
  std::cout << "wrote " << std::filesystem::path(back).filename().string() << "\n";
  return 0;
}
