// A device of its own to torch whose memory is the computer's: see __init__.py.

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/InferSize.h>
#include <ATen/TensorUtils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/alloc_cpu.h>
#include <pybind11/pybind11.h>
#include <torch/library.h>

using at::Tensor;
using Sizes = c10::SymIntArrayRef;

constexpr auto ELSEWHERE = c10::DeviceType::PrivateUse1;
const at::Device DEVICE(ELSEWHERE, 0);
const c10::DispatchKeySet KEYS(c10::DispatchKey::PrivateUse1);

// What torch asks of any device: memory, streams and events, a generator.

struct Memory final : at::Allocator {
  at::DataPtr allocate(size_t bytes) override {
    void* data = c10::alloc_cpu(bytes);
    return {data, data, c10::free_cpu, DEVICE};
  }
  at::DeleterFnPtr raw_deleter() const override { return c10::free_cpu; }
  void copy_data(void* to, const void* from, std::size_t bytes) const final { default_copy_data(to, from, bytes); }
};

// Everything is done when a call returns, so that there is one stream and nothing to wait for.
struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return ELSEWHERE; }
  c10::Device exchangeDevice(c10::Device) const override { return DEVICE; }
  c10::Device getDevice() const override { return DEVICE; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device device) const noexcept override { return c10::Stream(c10::Stream::DEFAULT, device); }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  at::Device getDeviceFromPtr(void*) const override { return DEVICE; }
  at::Generator getNewGenerator(c10::DeviceIndex) const override { return at::make_generator<at::CPUGeneratorImpl>(); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    return at::detail::getDefaultCPUGenerator();
  }
};

static Memory memory;
static Hooks hooks;
REGISTER_ALLOCATOR(ELSEWHERE, &memory);
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

// Making tensors, and seeing their memory from the CPU.

static Tensor empty(
    Sizes size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>, std::optional<at::Device>,
    std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), &memory, KEYS, c10::dtype_or_default(dtype), format);
}

static Tensor empty_strided(
    Sizes size, Sizes stride, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
    std::optional<at::Device>, std::optional<bool>) {
  const auto sizes = C10_AS_INTARRAYREF_SLOW(size), strides = C10_AS_INTARRAYREF_SLOW(stride);
  return at::detail::empty_strided_generic(sizes, strides, &memory, KEYS, c10::dtype_or_default(dtype));
}

static Tensor view_of(const Tensor& tensor, c10::Storage storage, c10::DispatchKeySet keys, at::IntArrayRef size,
                      at::IntArrayRef stride, int64_t offset) {
  auto view = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, std::move(storage), keys, tensor.dtype());
  view.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride, offset);
  return view;
}

static Tensor seen(const Tensor& tensor) {
  if (tensor.device() != DEVICE) return tensor;
  at::DataPtr data(const_cast<void*>(tensor.storage().data()), at::Device(at::kCPU));
  c10::Storage storage(c10::Storage::use_byte_size_t(), tensor.storage().nbytes(), std::move(data), nullptr, false);
  const c10::DispatchKeySet cpu(c10::DispatchKey::CPU);
  return view_of(tensor, std::move(storage), cpu, tensor.sizes(), tensor.strides(), tensor.storage_offset());
}

static Tensor copied_here(const Tensor& tensor) {
  Tensor copy = at::empty(tensor.sizes(), tensor.options().device(DEVICE));
  seen(copy).copy_(tensor);
  return copy;
}

static Tensor copy_from(const Tensor& from, const Tensor& to, bool) {
  at::AutoDispatchBelowADInplaceOrView no_autograd;
  seen(to).copy_(seen(from));
  return to;
}

static Tensor copy_from_and_resize(const Tensor& from, const Tensor& to) {
  if (to.sizes() != from.sizes()) to.resize_(from.sizes());
  return copy_from(from, to, false);
}

static at::Scalar number(const Tensor& tensor) { return seen(tensor).item(); }

static bool equal(const Tensor& a, const Tensor& b) {
  TORCH_CHECK(a.device() == b.device(), "Expected all tensors to be on the same device: equal");
  return seen(a).equal(seen(b));
}

// Views: the CPU's would be views of a copy.

static Tensor as_strided(const Tensor& self, Sizes size, Sizes stride, std::optional<c10::SymInt> offset) {
  const auto start = offset.has_value() ? offset->expect_int() : self.storage_offset();
  const auto sizes = C10_AS_INTARRAYREF_SLOW(size), strides = C10_AS_INTARRAYREF_SLOW(stride);
  return view_of(self, self.storage(), self.key_set(), sizes, strides, start);
}

static Tensor reshape_alias(const Tensor& self, Sizes size, Sizes stride) {
  return as_strided(self, size, stride, std::nullopt);
}

static Tensor view(const Tensor& self, Sizes size) {
  const auto sizes = at::infer_size_dv(C10_AS_INTARRAYREF_SLOW(size), self.numel());
  const auto strides = at::detail::computeStride(self.sizes(), self.strides(), sizes);
  TORCH_CHECK(strides.has_value(), "view size is not compatible with input tensor's size and stride");
  return view_of(self, self.storage(), self.key_set(), sizes, *strides, self.storage_offset());
}

static Tensor unfold(const Tensor& self, int64_t dimension, int64_t size, int64_t step) {
  auto sizes = self.sizes().vec(), strides = self.strides().vec();
  const auto place = at::maybe_wrap_dim(dimension, self.dim());
  sizes.push_back(size);
  strides.push_back(strides[place]);
  sizes[place] = (sizes[place] - size) / step + 1;
  strides[place] *= step;
  return view_of(self, self.storage(), self.key_set(), sizes, strides, self.storage_offset());
}

static const Tensor& resize_(const Tensor& self, Sizes size, std::optional<at::MemoryFormat>) {
  const auto sizes = C10_AS_INTARRAYREF_SLOW(size);
  auto* tensor = self.unsafeGetTensorImpl();
  auto* storage = self.storage().unsafeGetStorageImpl();
  const size_t bytes = (c10::multiply_integers(sizes) + tensor->storage_offset()) * self.itemsize();
  if (bytes > storage->nbytes()) {
    auto data = memory.allocate(bytes);
    if (storage->nbytes()) std::memcpy(data.get(), storage->data(), storage->nbytes());
    storage->set_data_ptr_noswap(std::move(data));
    storage->set_nbytes(bytes);
  }
  tensor->set_sizes_contiguous(sizes);
  return self;
}

static Tensor& set_source(Tensor& self, at::Storage source, c10::SymInt offset, Sizes size, Sizes stride) {
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(source);
  const auto sizes = C10_AS_INTARRAYREF_SLOW(size), strides = C10_AS_INTARRAYREF_SLOW(stride);
  self.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset.expect_int());
  return self;
}

// Convolutions choose among backends by name, and have none for others.

static Tensor convolution(
    const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias, Sizes stride, Sizes padding,
    Sizes dilation, bool transposed, Sizes output_padding, c10::SymInt groups) {
  at::AutoDispatchBelowADInplaceOrView no_autograd;
  const std::optional<Tensor> b = bias.has_value() && bias->defined() ? std::optional<Tensor>(seen(*bias)) : std::nullopt;
  return copied_here(at::convolution_symint(
      seen(x), seen(weight), b, stride, padding, dilation, transposed, output_padding, groups));
}

static std::tuple<Tensor, Tensor, Tensor> convolution_backward(
    const Tensor& gradient, const Tensor& x, const Tensor& weight, Sizes stride, Sizes padding, Sizes dilation,
    bool transposed, Sizes output_padding, c10::SymInt groups, std::array<bool, 3> wanted) {
  at::AutoDispatchBelowADInplaceOrView no_autograd;
  const std::vector<c10::SymInt> bias{transposed ? weight.sym_size(1) * groups : weight.sym_size(0)};
  const auto [dx, dweight, dbias] = at::convolution_backward_symint(
      seen(gradient), seen(x), seen(weight), at::OptionalSymIntArrayRef(bias), stride, padding, dilation, transposed,
      output_padding, groups, wanted);
  const auto here = [](const Tensor& tensor) { return tensor.defined() ? copied_here(tensor) : Tensor(); };
  return {here(dx), here(dweight), here(dbias)};
}

// All else: refuse what an accelerator refuses, then let the CPU compute. Numbers without dimensions may be anywhere, and so
// may indices into a tensor that is here.

static void check(const Tensor& tensor, const std::string& operation) {
  const bool fits = !tensor.defined() || tensor.device() == DEVICE || tensor.dim() == 0;
  TORCH_CHECK(
      fits, "Expected all tensors to be on the same device: ", operation, " was given one of shape ", tensor.sizes(),
      " on ", tensor.device());
}

static bool takes_indices_from_anywhere(const std::string& operation) {
  for (const char* name : {"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_", "aten::_unsafe_index"})
    if (operation == name) return true;
  return false;
}

// A generator is given where it was made on the CPU: numbers from torch's own stream come without one.

static void check_generator(const c10::IValue& argument) {
  TORCH_CHECK(!argument.isGenerator() || !argument.toGenerator().defined(),
              "Expected a 'elsewhere' device type for generator but found 'cpu'");
}

static void on_the_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& name = op.schema().name();
  for (const auto& argument : torch::jit::last(*stack, op.schema().arguments().size())) {
    check_generator(argument);
    if (argument.isTensor()) check(argument.toTensor(), name);
    if (!argument.isList() || takes_indices_from_anywhere(name)) continue;
    for (const auto& item : argument.toListRef())
      if (item.isTensor()) check(item.toTensor(), name);
  }
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&on_the_cpu>()); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", number);
  m.impl("equal", equal);
  m.impl("as_strided", as_strided);
  m.impl("_reshape_alias", reshape_alias);
  m.impl("view", view);
  m.impl("unfold", unfold);
  m.impl("resize_", resize_);
  m.impl("set_.source_Storage_storage_offset", set_source);
  m.impl("convolution_overrideable", convolution);
  m.impl("convolution_backward_overrideable", convolution_backward);
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { at::RegisterPrivateUse1HooksInterface(&hooks); }
