// SPDX-License-Identifier: BSD-3-Clause
// Validates the object pointers that programs pass. A call that changes, queries, destroys or derives an
// object checks first. A destroyed, invalid or null pointer then yields EINVAL instead of a crash. The data
// path does not check.
#pragma once

#include <cstdint>

#include <infiniband/verbs.h>

namespace faultline::verbs {

enum class ObjectKind : uint8_t {
  context,
  pd,
  td,
  mr,
  mw,
  dm,
  ah,
  cq,
  srq,
  qp,
  channel,
  xrcd,
  buffer,
  counter
};

/// A member that registers its object's address, as programs know it, for the object's lifetime. Needs no
/// memory of its own.
class LiveObject {
 public:
  LiveObject(const void* object, ObjectKind kind);
  ~LiveObject();
  LiveObject(const LiveObject&) = delete;
  LiveObject& operator=(const LiveObject&) = delete;

 private:
  friend bool is_live(const void* object, ObjectKind kind);

  const void* const object_;
  LiveObject* next_ = nullptr;  ///< next entry of the bucket, under the bucket's lock
  const ObjectKind kind_;
};

[[nodiscard]] bool is_live(const void* object, ObjectKind kind);

[[nodiscard]] inline bool is_live(const ibv_context* object) {
  return object != nullptr && is_live(object, ObjectKind::context);
}
[[nodiscard]] inline bool is_live(const ibv_pd* object) {
  return object != nullptr && is_live(object, ObjectKind::pd);
}
[[nodiscard]] inline bool is_live(const ibv_td* object) {
  return object != nullptr && is_live(object, ObjectKind::td);
}
[[nodiscard]] inline bool is_live(const ibv_mr* object) {
  return object != nullptr && is_live(object, ObjectKind::mr);
}
[[nodiscard]] inline bool is_live(const ibv_mw* object) {
  return object != nullptr && is_live(object, ObjectKind::mw);
}
[[nodiscard]] inline bool is_live(const ibv_dm* object) {
  return object != nullptr && is_live(object, ObjectKind::dm);
}
[[nodiscard]] inline bool is_live(const ibv_ah* object) {
  return object != nullptr && is_live(object, ObjectKind::ah);
}
[[nodiscard]] inline bool is_live(const ibv_cq* object) {
  return object != nullptr && is_live(object, ObjectKind::cq);
}
[[nodiscard]] inline bool is_live(const ibv_srq* object) {
  return object != nullptr && is_live(object, ObjectKind::srq);
}
[[nodiscard]] inline bool is_live(const ibv_qp* object) {
  return object != nullptr && is_live(object, ObjectKind::qp);
}
[[nodiscard]] inline bool is_live(const ibv_comp_channel* object) {
  return object != nullptr && is_live(object, ObjectKind::channel);
}
[[nodiscard]] inline bool is_live(const ibv_xrcd* object) {
  return object != nullptr && is_live(object, ObjectKind::xrcd);
}

}  // namespace faultline::verbs
