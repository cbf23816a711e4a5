// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/wires/inbox.hpp"

#include <cerrno>

#include <sys/mman.h>
#include <unistd.h>

#include "pmd_glue/wires/sealed_memory.hpp"

namespace faultline::glue {

Inbox::Inbox(UniqueFd memory, UniqueFd event, Page* page)
    : memory_(std::move(memory)), event_(std::move(event)), page_(page) {}

Inbox::~Inbox() {
  munmap(page_, kBytes);
}

std::unique_ptr<Inbox> Inbox::create() {
  UniqueFd memory = create_sealed_memory("faultline-inbox", kBytes);
  void* const page = memory ? map_sealed_memory(memory.get(), kBytes) : nullptr;
  if (page == nullptr) return nullptr;
  return std::unique_ptr<Inbox>(new Inbox(std::move(memory), {}, static_cast<Page*>(page)));
}

std::unique_ptr<Inbox> Inbox::adopt(UniqueFd memory, UniqueFd event) {
  if (!is_event(event.get())) {
    errno = EINVAL;
    return nullptr;
  }
  void* const page = map_sealed_memory(memory.get(), kBytes);
  if (page == nullptr) return nullptr;
  // The mapping holds the memory.
  return std::unique_ptr<Inbox>(new Inbox({}, std::move(event), static_cast<Page*>(page)));
}

void Inbox::ring(uint32_t seat, bool only_acks) {
  const uint32_t word = seat / kBitsOfWord % kWords;
  page_->words[word].fetch_or(uint64_t{1} << (seat % kBitsOfWord));
  page_->any.fetch_or(1U << word);
  // One wake-up is enough: the owner is awake, or about to be, until it sets its flag again.
  const uint32_t asleep = page_->asleep.load();
  if (asleep == 0 || (only_acks && WakeFor{asleep} == WakeFor::requests)) return;
  if (page_->asleep.exchange(0) == 0) return;
  const uint64_t one = 1;
  static_cast<void>(!write(event_.get(), &one, sizeof one));
}

}  // namespace faultline::glue
