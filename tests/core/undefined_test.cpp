// Whatever an undefined tensor is asked is a typed error.
#include <functional>
#include <sstream>

#include "core_util.h"

namespace deft {
namespace {

TEST(Undefined, EveryQuestionIsAnError) {
  const Tensor none, some = ones({2});
  const std::pair<const char*, std::function<void()>> questions[] = {
      {"meta", [&] { (void)none.meta(); }},
      {"sizes", [&] { (void)none.sizes(); }},
      {"strides", [&] { (void)none.strides(); }},
      {"size", [&] { (void)none.size(0); }},
      {"stride", [&] { (void)none.stride(0); }},
      {"dim", [&] { (void)none.dim(); }},
      {"numel", [&] { (void)none.numel(); }},
      {"dtype", [&] { (void)none.dtype(); }},
      {"device", [&] { (void)none.device(); }},
      {"element_size", [&] { (void)none.element_size(); }},
      {"storage_offset", [&] { (void)none.storage_offset(); }},
      {"is_contiguous", [&] { (void)none.is_contiguous(); }},
      {"is_view", [&] { (void)none.is_view(); }},
      {"is_inference", [&] { (void)none.is_inference(); }},
      {"is_pinned", [&] { (void)none.is_pinned(); }},
      {"shares_storage_with", [&] { (void)none.shares_storage_with(some); }},
      {"shares_storage_with, the other", [&] { (void)some.shares_storage_with(none); }},
      {"version", [&] { (void)none.version(); }},
      {"data_ptr", [&] { (void)none.data_ptr(); }},
      {"data", [&] { (void)none.data<float>(); }},
      {"const data", [&] { (void)none.data<const float>(); }},
      {"item", [&] { (void)none.item(); }},
      {"to_vector", [&] { (void)none.to_vector<float>(); }},
      {"requires_grad", [&] { (void)none.requires_grad(); }},
      {"requires_grad_", [&] { none.requires_grad_(); }},
      {"is_leaf", [&] { (void)none.is_leaf(); }},
      {"grad", [&] { (void)none.grad(); }},
      {"set_grad", [&] { none.set_grad(some); }},
      {"zero_grad", [&] { none.zero_grad(); }},
      {"grad_fn", [&] { (void)none.grad_fn(); }},
      {"grad_fn_name", [&] { (void)none.grad_fn_name(); }},
      {"retain_grad", [&] { none.retain_grad(); }},
      {"backward", [&] { none.backward(); }},
      {"detach", [&] { (void)none.detach(); }},
      {"memory_category", [&] { (void)none.memory_category(); }},
      {"to a type", [&] { (void)none.to(DType::f64); }},
      {"contiguous", [&] { (void)none.contiguous(); }},
      {"clone", [&] { (void)none.clone(); }},
      {"new_zeros", [&] { (void)none.new_zeros({1}); }},
      {"equal", [&] { (void)some.equal(none); }},
      {"view", [&] { (void)none.view({1}); }},
      {"reshape", [&] { (void)none.reshape({1}); }},
      {"transpose", [&] { (void)none.transpose(0, 0); }},
      {"narrow", [&] { (void)none.narrow(0, 0, 1); }},
      {"unfold", [&] { (void)none.unfold(0, 1, 1); }},
      {"median", [&] { (void)none.median(); }},
      {"quantile", [&] { (void)none.quantile(0.5); }},
      {"sum", [&] { (void)none.sum(); }},
      {"add", [&] { (void)(none + some); }},
      {"add, the other", [&] { (void)(some + none); }},
      {"exp", [&] { (void)none.exp(); }},
      {"index", [&] { (void)none.index({0}); }},
      {"multinomial", [&] { (void)none.multinomial(1); }},
  };
  for (const auto& [name, ask] : questions) {
    SCOPED_TRACE(name);
    try {
      ask();
      ADD_FAILURE() << "no error";
    } catch (const InternalError& e) {
      ADD_FAILURE() << e.what();
    } catch (const Error&) {
    }
  }
  std::ostringstream shown;
  shown << none;  // but it can be printed
  EXPECT_FALSE(shown.str().empty());
  EXPECT_FALSE(none.defined());
  EXPECT_TRUE(none.is_same(Tensor()));
}

}  // namespace
}  // namespace deft
