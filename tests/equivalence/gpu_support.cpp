// Lets autograd see CUDA tensors in a build of torch without CUDA: it asks the hooks
// whether there is an accelerator, and the guard for streams. Nothing runs there.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace at {
namespace {

constexpr auto CUDA = c10::DeviceType::CUDA;

struct Hooks : at::CUDAHooksInterface {
  explicit Hooks(at::CUDAHooksArgs = {}) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
};

struct Guard : c10::impl::NoOpDeviceGuardImpl<CUDA> {
  c10::Device getDevice() const override { return c10::Device(CUDA, 0); }
  c10::Device exchangeDevice(c10::Device) const override { return getDevice(); }
  c10::Stream getStream(c10::Device device) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
};

}  // namespace

// Registered by name, as the library of CUDA does it.
using CUDAHooks = Hooks;
REGISTER_CUDA_HOOKS(CUDAHooks);

}  // namespace at

namespace c10::impl {
C10_REGISTER_GUARD_IMPL(CUDA, at::Guard);
}
