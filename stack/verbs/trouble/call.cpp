// SPDX-License-Identifier: BSD-3-Clause
#include "stack/verbs/trouble/call.hpp"

#include "stack/verbs/objects/objects.hpp"

namespace faultline::verbs {
namespace {

using Kind = trouble::ObjectKind;

uint32_t device_index(const ibv_context* context) {
  return trouble::director()->device(device_of(context->device).description.name);
}

uint64_t handle_of(const ibv_cq* cq) {
  return cq_of(const_cast<ibv_cq*>(cq)).handle;
}

}  // namespace

trouble::Object trouble_object(const ibv_context* context) {
  return {Kind::device, device_index(context), 0};
}

trouble::Object trouble_object(const ibv_qp* qp) {
  return trouble::director()->object(Kind::qp, device_index(qp->context), qp->qp_num);
}

trouble::Object trouble_object(const ibv_cq* cq) {
  return trouble::director()->object(Kind::cq, device_index(cq->context), handle_of(cq));
}

trouble::Object trouble_object(const ibv_mr* mr) {
  return trouble::director()->object(Kind::mr, device_index(mr->context), mr->lkey);
}

void note_end(const ibv_qp* qp) {
  if (trouble::Director* const director = trouble::director())
    director->forget(Kind::qp, device_index(qp->context), qp->qp_num);
}

void note_end(const ibv_cq* cq) {
  if (trouble::Director* const director = trouble::director())
    director->forget(Kind::cq, device_index(cq->context), handle_of(cq));
}

void note_end(const ibv_mr* mr) {
  if (trouble::Director* const director = trouble::director())
    director->forget(Kind::mr, device_index(mr->context), mr->lkey);
}

int decide_call(std::string_view call, const trouble::Object& object, uint64_t bytes) {
  const trouble::Action* const action = trouble::director()->decide(
      {.kind = trouble::EventKind::call, .name = call, .object = object, .bytes = bytes});
  return action == nullptr ? 0 : static_cast<int>(action->number);
}

}  // namespace faultline::verbs
