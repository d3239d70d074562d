// Tensor's methods and operators: one line each over the functions of ops/.
#include "core/tensor.h"
#include "ops/binary.h"
#include "ops/unary.h"
#include "ops/view.h"

namespace deft {

#define DEFT_DEFINE(name)                                                  \
  Tensor Tensor::name(Site site) const { return deft::name(*this, site); } \
  Tensor& Tensor::name##_(Site site) { return deft::name##_(*this, site); }
DEFT_UNARY_METHODS(DEFT_DEFINE)
#undef DEFT_DEFINE

#define DEFT_DEFINE(name)                                                                               \
  Tensor Tensor::name(const Tensor& other, Site site) const { return deft::name(*this, other, site); }  \
  Tensor Tensor::name(Scalar other, Site site) const { return deft::name(*this, other, site); }         \
  Tensor& Tensor::name##_(const Tensor& other, Site site) { return deft::name##_(*this, other, site); } \
  Tensor& Tensor::name##_(Scalar other, Site site) { return deft::name##_(*this, other, site); }
DEFT_BINARY_METHODS(DEFT_DEFINE)
#undef DEFT_DEFINE

#define DEFT_DEFINE(name)                                                                              \
  Tensor Tensor::name(const Tensor& other, Site site) const { return deft::name(*this, other, site); } \
  Tensor Tensor::name(Scalar other, Site site) const { return deft::name(*this, other, site); }
DEFT_COMPARE_METHODS(DEFT_DEFINE)
#undef DEFT_DEFINE

// --- Views
Tensor Tensor::view(IntList sizes, Site site) const { return deft::view(*this, sizes, site); }
Tensor Tensor::reshape(IntList sizes, Site site) const { return deft::reshape(*this, sizes, site); }
Tensor Tensor::flatten(int64_t start, int64_t end, Site site) const { return deft::flatten(*this, start, end, site); }
Tensor Tensor::permute(IntList dims, Site site) const { return deft::permute(*this, dims, site); }
Tensor Tensor::transpose(int64_t a, int64_t b, Site site) const { return deft::transpose(*this, a, b, site); }
Tensor Tensor::t(Site site) const { return dim() < 2 ? *this : deft::transpose(*this, -2, -1, site); }
Tensor Tensor::expand(IntList sizes, Site site) const { return deft::expand(*this, sizes, site); }
Tensor Tensor::squeeze(Site site) const { return deft::squeeze(*this, site); }
Tensor Tensor::squeeze(int64_t dim, Site site) const { return deft::squeeze(*this, dim, site); }
Tensor Tensor::unsqueeze(int64_t dim, Site site) const { return deft::unsqueeze(*this, dim, site); }
Tensor Tensor::select(int64_t dim, int64_t index, Site site) const { return deft::select(*this, dim, index, site); }
Tensor Tensor::slice(int64_t dim, Slice range, Site site) const { return deft::slice(*this, dim, range, site); }
Tensor Tensor::narrow(int64_t dim, int64_t start, int64_t length, Site site) const {
  return deft::narrow(*this, dim, start, length, site);
}
Tensor Tensor::as_strided(IntList sizes, IntList strides, int64_t offset, Site site) const {
  return deft::as_strided(*this, sizes, strides, offset, site);
}
Tensor Tensor::diagonal(int64_t offset, int64_t dim1, int64_t dim2, Site site) const {
  return deft::diagonal(*this, offset, dim1, dim2, site);
}
std::vector<Tensor> Tensor::split(int64_t size, int64_t dim, Site site) const {
  return deft::split(*this, size, dim, site);
}
std::vector<Tensor> Tensor::chunk(int64_t chunks, int64_t dim, Site site) const {
  return deft::chunk(*this, chunks, dim, site);
}
std::vector<Tensor> Tensor::unbind(int64_t dim, Site site) const { return deft::unbind(*this, dim, site); }

Tensor Tensor::expand_as(const Tensor& other, Site site) const { return deft::expand_as(*this, other, site); }
Tensor Tensor::view_as(const Tensor& other, Site site) const { return deft::view_as(*this, other, site); }
Tensor Tensor::unflatten(int64_t dim, IntList sizes, Site site) const {
  return deft::unflatten(*this, dim, sizes, site);
}

// --- Operators
#define DEFT_DEFINE(op, function)                                                              \
  Tensor operator op(SitedTensor a, const Tensor& b) { return function(a.tensor, b, a.site); } \
  Tensor operator op(SitedTensor a, Scalar b) { return function(a.tensor, b, a.site); }        \
  Tensor operator op(SitedScalar a, const Tensor& b) { return function(a.scalar, b, a.site); }
DEFT_DEFINE(+, add)
DEFT_DEFINE(-, sub)
DEFT_DEFINE(*, mul)
DEFT_DEFINE(/, div)
DEFT_DEFINE(<, lt)
DEFT_DEFINE(<=, le)
DEFT_DEFINE(>, gt)
DEFT_DEFINE(>=, ge)
DEFT_DEFINE(&, bitwise_and)
DEFT_DEFINE(|, bitwise_or)
#undef DEFT_DEFINE
Tensor operator==(SitedTensor a, SitedTensor b) { return eq(a.tensor, b.tensor, a.site); }
Tensor operator==(SitedTensor a, Scalar b) { return eq(a.tensor, b, a.site); }
Tensor operator==(Scalar a, SitedTensor b) { return eq(a, b.tensor, b.site); }
Tensor operator!=(SitedTensor a, SitedTensor b) { return ne(a.tensor, b.tensor, a.site); }
Tensor operator!=(SitedTensor a, Scalar b) { return ne(a.tensor, b, a.site); }
Tensor operator!=(Scalar a, SitedTensor b) { return ne(a, b.tensor, b.site); }
Tensor operator-(SitedTensor a) { return neg(a.tensor, a.site); }
Tensor operator!(SitedTensor a) { return logical_not(a.tensor, a.site); }
#define DEFT_DEFINE(op, function)                                                         \
  Tensor& operator op(Tensor& a, SitedTensor b) { return function(a, b.tensor, b.site); } \
  Tensor& operator op(Tensor& a, SitedScalar b) { return function(a, b.scalar, b.site); }
DEFT_DEFINE(+=, add_)
DEFT_DEFINE(-=, sub_)
DEFT_DEFINE(*=, mul_)
DEFT_DEFINE(/=, div_)
#undef DEFT_DEFINE

}  // namespace deft
