// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/trouble/device_trouble.hpp"

namespace faultline::glue {

using trouble::EventKind;

DeviceTrouble::DeviceTrouble(const std::string& device)
    : director_(trouble::director()),
      device_(director_ != nullptr ? director_->device(device) : 0),
      injected_(director_ != nullptr && director_->may_inject() ? std::make_unique<InjectedPackets>()
                                                                : nullptr) {}

std::unique_ptr<PacketJudge> DeviceTrouble::packet_judge(PacketJudge::Direction direction,
                                                         const std::unique_ptr<transport::Core>& core) const {
  if (director_ == nullptr || !(director_->concerns(EventKind::packet) || director_->may_take_link_down()))
    return nullptr;
  return std::make_unique<PacketJudge>(*director_, device_, direction, core, injected_.get());
}

std::function<chaos::FaultFate(const odp::FaultRequest&)> DeviceTrouble::fault_judge() const {
  if (director_ == nullptr || !director_->concerns(EventKind::fault)) return {};
  return [director = director_, device = device_](const odp::FaultRequest& request) {
    const trouble::Action* const action = director->decide(
        {.kind = EventKind::fault,
         .name = {},
         .object = director->known_object(trouble::ObjectKind::mr, device, request.target.key),
         .bytes = request.length_bytes,
         .region = request.target.key,
         .va = request.va});
    if (action == nullptr) return chaos::FaultFate{};
    return chaos::FaultFate{action->duration_ns, action->kind == trouble::Action::Kind::fail_fault};
  };
}

size_t DeviceTrouble::take(uint32_t core_index, uint32_t cores, std::span<trouble::Pending> out) {
  const auto is_for_core = [core_index, cores](const trouble::Pending& one) {
    switch (one.kind) {
      case trouble::Action::Kind::fail_qp:
        return transport::owner_of(static_cast<uint32_t>(one.handle), cores) == core_index;
      case trouble::Action::Kind::page_out:  // the regions are those of every core
        return core_index == 0;
      default:
        return one.handle == core_index;
    }
  };
  return director_->take_pending(device_, is_for_core, out);
}

}  // namespace faultline::glue
