// Reads PyTorch checkpoints from standard input, each behind its length in 8 bytes, and writes a line of JSON for each:
// {"value": the tree} or {"error": the class, "text": the message}. For tools/pt_fuzz.
#include <fmt/format.h>

#include <bit>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "core/grad_mode.h"
#include "io/pt.h"
#include "ops/all_ops.h"
#include "runtime/parallel.h"

namespace deft::io {
namespace {

using json = nlohmann::json;
using Kind = PtValue::Kind;

std::string hex(const void* data, size_t bytes) {
  std::string out;
  for (size_t i = 0; i < bytes; ++i) out += fmt::format("{:02x}", static_cast<const uint8_t*>(data)[i]);
  return out;
}

// Mutants may hold a value in itself a thousand times over: what is written of one file is bounded.
struct Writer {
  int64_t left = 1 << 20;

  json tensor(const Tensor& t) {
    left -= t.numel();
    json v = {"tensor", name_of(t.dtype()), std::vector<int64_t>(t.sizes().begin(), t.sizes().end())};
    if (left < 0) return v;
    Tensor dense = t.contiguous();
    v.push_back(hex(dense.data_ptr(), static_cast<size_t>(dense.numel()) * size_of(dense.dtype())));
    return v;
  }
  json list(const char* kind, const PtValue& value) {
    json items = json::array();
    for (size_t i = 0; i < value.size() && left > 0; ++i) items.push_back(write(value[i]));
    return {kind, items};
  }
  json dict(const PtValue& value) {
    json items = json::array();
    for (size_t i = 0; i < value.size() && left > 0; ++i)
      items.push_back(json::array({write(value.key(i)), write(value[i])}));
    return {"dict", items};
  }
  json write(const PtValue& value) {
    --left;
    switch (value.kind()) {
      case Kind::none:
        return json::array({"none"});
      case Kind::boolean:
        return {"bool", value.to_bool()};
      case Kind::integer:
        return {"int", std::to_string(value.to_int())};
      case Kind::real:
        return {"real", fmt::format("{:016x}", std::bit_cast<uint64_t>(value.to_double()))};
      case Kind::string:
        return {"string", hex(value.text().data(), value.text().size())};
      case Kind::bytes:
        return {"bytes", hex(value.text().data(), value.text().size())};
      case Kind::tuple:
        return list("tuple", value);
      case Kind::list:
        return list("list", value);
      case Kind::set:
        return list("set", value);
      case Kind::dict:
        return dict(value);
      case Kind::tensor:
        return tensor(value.tensor());
      default:
        return {"other", value.text()};
    }
  }
};

json dump(const std::string& bytes) {
  const auto fail = [](const char* kind, const std::exception& e) { return json{{"error", kind}, {"text", e.what()}}; };
  try {
    const PtFile file = parse_pt(std::as_bytes(std::span(bytes)), "mutant", {});
    return {{"value", Writer().write(file.root())}};
  } catch (const LoadError& e) {
    return fail("LoadError", e);
  } catch (const UnsupportedError& e) {
    return fail("UnsupportedError", e);
  } catch (const InternalError& e) {
    return fail("internal", e);
  } catch (const Error& e) {
    return fail("Error", e);
  } catch (const std::exception& e) {
    return fail("untyped", e);
  }
}

int run() {
  set_num_threads(1);
  NoGradGuard no_grad;
  uint64_t size = 0;
  while (std::fread(&size, sizeof size, 1, stdin) == 1) {
    std::string bytes(size, '\0');
    if (std::fread(bytes.data(), 1, size, stdin) != size) return 1;
    std::cout << dump(bytes).dump(-1, ' ', false, json::error_handler_t::replace) << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace deft::io

int main() { return deft::io::run(); }
