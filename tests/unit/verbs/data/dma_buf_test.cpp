// SPDX-License-Identifier: BSD-3-Clause
// Regions of dma-bufs (ibv_reg_dmabuf_mr(3)). The kernel's own exporters, udmabuf and the system heap, have
// them where it has these; everywhere a memfd stands in for a dma-buf, with this program's fstatfs and ioctl.
#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include <fcntl.h>
#include <linux/dma-buf.h>
#include <linux/dma-heap.h>
#include <linux/udmabuf.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stack/verbs/memory/later_calls.hpp"
#include "tests/unit/verbs/fixture.hpp"

namespace faultline::verbs::test::dma_buf_test {

namespace {

/// What the stand-ins' exporter was asked, by their inodes.
struct StandIns {
  std::set<ino_t> inodes;
  std::map<uint64_t, int> syncs;  ///< by flags
  int interruptions = 0;          ///< the next calls end with EINTR
  int error = 0;                  ///< of the next call after them
};
StandIns stand_ins;

bool is_stand_in(int descriptor) {
  struct stat facts {};
  return ::fstat(descriptor, &facts) == 0 && stand_ins.inodes.contains(facts.st_ino);
}

int sync_stand_in(const dma_buf_sync& sync) {
  if (stand_ins.interruptions > 0) {
    --stand_ins.interruptions;
    errno = EINTR;
    return -1;
  }
  ++stand_ins.syncs[sync.flags];
  errno = std::exchange(stand_ins.error, 0);
  return errno == 0 ? 0 : -1;
}

}  // namespace

}  // namespace faultline::verbs::test::dma_buf_test

// In the global namespace, for the names that the headers give them by _FILE_OFFSET_BITS.
extern "C" int fstatfs(int descriptor, struct statfs* facts) noexcept {
  const long result = ::syscall(SYS_fstatfs, descriptor, facts);
  if (result == 0 && faultline::verbs::test::dma_buf_test::is_stand_in(descriptor))
    facts->f_type = 0x444d4142;
  return static_cast<int>(result);
}

extern "C" int ioctl(int descriptor, unsigned long request, ...) noexcept {
  va_list arguments;
  va_start(arguments, request);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  if (request == DMA_BUF_IOCTL_SYNC && faultline::verbs::test::dma_buf_test::is_stand_in(descriptor))
    return faultline::verbs::test::dma_buf_test::sync_stand_in(*static_cast<const dma_buf_sync*>(argument));
  return static_cast<int>(::syscall(SYS_ioctl, descriptor, request, argument));
}

namespace faultline::verbs::test::dma_buf_test {

namespace {

constexpr size_t kBytes = 4 * 4096;
constexpr int kRights =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

int make_memfd(unsigned seals) {
  const int memfd = ::memfd_create("dma-buf-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  EXPECT_EQ(::ftruncate(memfd, kBytes), 0);
  EXPECT_EQ(::fcntl(memfd, F_ADD_SEALS, seals), 0);
  return memfd;
}

const char* device_of(const std::string& exporter) {
  return exporter == "heap" ? "/dev/dma_heap/system" : "/dev/udmabuf";
}

/// A dma-buf of one of the exporters: memfd, udmabuf, heap. -1 with errno if this kernel lacks it.
int make_dma_buf(const std::string& exporter) {
  if (exporter == "memfd") {
    const int memfd = make_memfd(0);
    struct stat facts {};
    EXPECT_EQ(::fstat(memfd, &facts), 0);
    stand_ins.inodes.insert(facts.st_ino);
    return memfd;
  }
  const bool is_heap = exporter == "heap";
  const int device = ::open(device_of(exporter), O_RDWR | O_CLOEXEC);
  if (device < 0) return -1;
  int result = -1;
  if (is_heap) {
    dma_heap_allocation_data wanted{};
    wanted.len = kBytes;
    wanted.fd_flags = O_RDWR | O_CLOEXEC;
    if (::ioctl(device, DMA_HEAP_IOCTL_ALLOC, &wanted) == 0) result = static_cast<int>(wanted.fd);
  } else {
    const int memfd = make_memfd(F_SEAL_SHRINK);
    udmabuf_create wanted{};
    wanted.memfd = static_cast<uint32_t>(memfd);
    wanted.flags = UDMABUF_FLAGS_CLOEXEC;
    wanted.size = kBytes;
    result = ::ioctl(device, UDMABUF_CREATE, &wanted);
    ::close(memfd);
  }
  EXPECT_GE(result, 0) << std::strerror(errno);
  ::close(device);
  return result;
}

class DmaBufTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    stand_ins = {};
    buffer = make_dma_buf(exporter());
    ASSERT_GE(buffer, 0) << std::strerror(errno);
    void* const mapping = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, buffer, 0);
    ASSERT_NE(mapping, MAP_FAILED) << std::strerror(errno);
    seen = static_cast<uint8_t*>(mapping);
    connect(end, peer);
    pages.fill(5);
    theirs = peer.add_region(pages);
  }
  void TearDown() override {
    if (seen != nullptr) ::munmap(seen, kBytes);
    if (buffer >= 0) ::close(buffer);
  }
  [[nodiscard]] virtual std::string exporter() const { return GetParam(); }

  ibv_mr* add(uint64_t offset, size_t bytes, uint64_t iova, int access = kRights) {
    ibv_mr* const mr = ibv_reg_dmabuf_mr(end.pd, offset, bytes, iova, buffer, access);
    if (mr != nullptr) end.regions.push_back(mr);
    return mr;
  }
  /// The error of a registration that fails, 0 of one that succeeds.
  int error_of(uint64_t offset, size_t bytes, uint64_t iova, int access = kRights,
               std::optional<int> descriptor = {}) {
    errno = 0;
    ibv_mr* const mr = ibv_reg_dmabuf_mr(end.pd, offset, bytes, iova, descriptor.value_or(buffer), access);
    if (mr == nullptr) return errno;
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    return 0;
  }
  /// The peer's request on `bytes` of its pages and the address `remote`.
  [[nodiscard]] ibv_wc_status request(ibv_wr_opcode opcode, uint64_t remote, size_t bytes, uint32_t rkey) {
    ibv_sge sge = sge_of(theirs, 0, bytes);
    ibv_send_wr wr{};
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
      wr.wr.atomic = {remote, 3, 0, rkey};
    } else {
      wr.wr.rdma = {remote, rkey};
    }
    EXPECT_EQ(peer.post_send(wr), 0);
    return completion(peer, end).status;
  }
  void end_regions() {
    for (ibv_mr* const mr : end.regions) EXPECT_EQ(ibv_dereg_mr(mr), 0);
    end.regions.clear();
  }

  int buffer = -1;
  uint8_t* seen = nullptr;  ///< the dma-buf, as the program maps it
  const Pages pages{kBytes};
  End end{"mem0"};
  End peer{"mem1"};
  ibv_mr* theirs = nullptr;
};
/// The stand-in, and those that this process may use. The guest's script expects all three.
std::vector<std::string> exporters() {
  std::vector<std::string> found{"memfd"};
  for (const char* const exporter : {"udmabuf", "heap"})
    if (::access(device_of(exporter), R_OK | W_OK) == 0) found.emplace_back(exporter);
  return found;
}
INSTANTIATE_TEST_SUITE_P(Of, DmaBufTest, ::testing::ValuesIn(exporters()),
                         [](const auto& of) { return of.param; });

TEST_P(DmaBufTest, CarriesEachKindOfTraffic) {
  ibv_mr* const mr = add(0, kBytes, 0);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(request(IBV_WR_RDMA_WRITE, 0, kBytes, mr->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(seen, pages.data(), kBytes), 0);
  seen[4097] ^= 0xff;
  EXPECT_EQ(request(IBV_WR_RDMA_READ, 4096, 4096, mr->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(seen + 4096, pages.data(), 4096), 0);
  const uint64_t five = 5;
  std::memcpy(seen + 8, &five, sizeof five);
  EXPECT_EQ(request(IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 8, mr->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(seen[8], 8);
  EXPECT_EQ(pages.data()[0], 5);
  // Its own QP receives into it and sends from it.
  ASSERT_EQ(end.post_receive(1, {{100, 5000, mr->lkey}}), 0);
  pages.fill(9);
  EXPECT_EQ(request(IBV_WR_SEND, 0, 5000, 0), IBV_WC_SUCCESS);
  EXPECT_EQ(completion(end, peer).byte_len, 5000U);
  EXPECT_EQ(std::memcmp(seen + 100, pages.data(), 5000), 0);
  ASSERT_EQ(peer.post_receive(2, {sge_of(theirs, 0, kBytes)}), 0);
  ibv_sge sge{8192, 4096, mr->lkey};
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  ASSERT_EQ(end.post_send(wr), 0);
  EXPECT_EQ(completion(peer, end).byte_len, 4096U);
  EXPECT_EQ(std::memcmp(pages.data(), seen + 8192, 4096), 0);
}

TEST_P(DmaBufTest, APartHasItsOffsetAndItsAddress) {
  constexpr uint64_t kIova = 0x7000064;
  ibv_mr* const mr = add(4096 + 100, 1000, kIova);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->addr, reinterpret_cast<void*>(4096 + 100)) << "as in rdma-core";
  EXPECT_EQ(mr->length, 1000U);
  EXPECT_EQ(request(IBV_WR_RDMA_WRITE, kIova, 1000, mr->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(seen + 4096 + 100, pages.data(), 1000), 0);
  EXPECT_EQ(seen[4096 + 99], 0);
  EXPECT_EQ(request(IBV_WR_RDMA_WRITE, kIova, 1001, mr->rkey), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(seen[4096 + 1100], 0);
}

TEST_P(DmaBufTest, LivesAsLongAsItsRegion) {
  ibv_mr* const mr = add(0, kBytes, 0);
  ASSERT_NE(mr, nullptr);
  ::close(std::exchange(buffer, -1));
  EXPECT_EQ(request(IBV_WR_RDMA_WRITE, 0, kBytes, mr->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(seen, pages.data(), kBytes), 0);
}

TEST_P(DmaBufTest, WhatTheManualPageForbidsIsRefused) {
  EXPECT_EQ(error_of(0, kBytes, 0, kRights, -1), EBADF) << "the question of UCX, libfabric and NCCL";
  const int other = make_memfd(0);
  EXPECT_EQ(error_of(0, kBytes, 0, kRights, other), EINVAL) << "no dma-buf";
  ::close(other);
  EXPECT_EQ(error_of(0, kBytes, 8), EINVAL) << "another page offset";
  EXPECT_EQ(error_of(0, 0, 0), EINVAL);
  EXPECT_EQ(error_of(0, kBytes + 1, 0), EINVAL);
  EXPECT_EQ(error_of(kBytes, 1, 0), EINVAL);
  EXPECT_EQ(error_of(UINT64_MAX - 4095, 4096, 0), EINVAL);
  EXPECT_EQ(error_of(0, SIZE_MAX, 0), EINVAL);
  for (const int access :
       {IBV_ACCESS_ON_DEMAND, IBV_ACCESS_MW_BIND, IBV_ACCESS_ZERO_BASED, IBV_ACCESS_HUGETLB})
    EXPECT_EQ(error_of(0, kBytes, 0, kRights | access), EINVAL) << access;
  EXPECT_EQ(error_of(0, kBytes, 0, IBV_ACCESS_REMOTE_WRITE), EINVAL);
  EXPECT_EQ(error_of(0, kBytes, 0, kRights | IBV_ACCESS_RELAXED_ORDERING), 0);
  EXPECT_EQ(error_of(0, kBytes, 0, 0), 0);
}

TEST_P(DmaBufTest, IsRegisteredByTheGeneralCall) {
  RegionAttributes wanted{};
  wanted.members =
      RegionAttributes::descriptor_bit | RegionAttributes::offset_bit | RegionAttributes::iova_bit;
  wanted.descriptor = buffer;
  wanted.offset_bytes = 4096;
  wanted.length_bytes = 4096;
  wanted.iova = 0x10000;
  wanted.access = kRights;
  ibv_mr* const mr = ibv_reg_mr_ex(end.pd, reinterpret_cast<ibv_mr_init_attr*>(&wanted));
  ASSERT_NE(mr, nullptr);
  end.regions.push_back(mr);
  EXPECT_EQ(request(IBV_WR_RDMA_WRITE, 0x10000, 4096, mr->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(seen + 4096, pages.data(), 4096), 0);
}

TEST_P(DmaBufTest, StaysAsItWasRegistered) {
  ibv_mr* const mr = add(0, kBytes, 0);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_REMOTE_READ),
            IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

/// What only a stand-in can be made to do.
class StandInTest : public DmaBufTest {
 protected:
  [[nodiscard]] std::string exporter() const override { return "memfd"; }
};

TEST_F(StandInTest, MemoryThatTheExporterTakesAwayIsAnAccessError) {
  ibv_mr* const mr = add(0, kBytes, 0);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(request(IBV_WR_RDMA_WRITE, 0, kBytes, mr->rkey), IBV_WC_SUCCESS);
  ASSERT_EQ(::ftruncate(buffer, 0), 0);
  EXPECT_EQ(request(IBV_WR_RDMA_WRITE, 0, 64, mr->rkey), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(StandInTest, TheExporterLearnsOfEachAccess) {
  stand_ins.interruptions = 2;
  ASSERT_NE(add(0, kBytes, 0), nullptr);
  ASSERT_NE(add(0, kBytes, 0, IBV_ACCESS_REMOTE_READ), nullptr);
  const std::map<uint64_t, int> begun{{DMA_BUF_SYNC_START | DMA_BUF_SYNC_RW, 1},
                                      {DMA_BUF_SYNC_START | DMA_BUF_SYNC_READ, 1}};
  EXPECT_EQ(stand_ins.syncs, begun);
  end_regions();
  EXPECT_EQ(stand_ins.syncs[DMA_BUF_SYNC_END | DMA_BUF_SYNC_RW], 1);
  EXPECT_EQ(stand_ins.syncs[DMA_BUF_SYNC_END | DMA_BUF_SYNC_READ], 1);
}

TEST_F(StandInTest, AnExporterThatRefusesTheAccessEndsTheRegistration) {
  stand_ins.error = ETIMEDOUT;
  EXPECT_EQ(error_of(0, kBytes, 0), ETIMEDOUT);
  EXPECT_EQ(stand_ins.syncs.size(), 1U) << "an access that has not begun does not end";
}

TEST_F(StandInTest, AChildLeavesTheAccessOfItsParentAlone) {
  ibv_mr* const mr = add(0, kBytes, 0);
  ASSERT_NE(mr, nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    const int error = ibv_dereg_mr(mr);
    ::_exit(error == 0 && stand_ins.syncs.size() == 1 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(request(IBV_WR_RDMA_WRITE, 0, kBytes, mr->rkey), IBV_WC_SUCCESS);
}

TEST_F(StandInTest, ADescriptorThatTheProgramGaveAnewIsLeftAlone) {
  ASSERT_NE(add(0, kBytes, 0), nullptr);
  int own = -1;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    if (const int number = std::stoi(entry.path().filename()); number != buffer && is_stand_in(number))
      own = number;
  ASSERT_GE(own, 0);
  const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(::dup2(null, own), own);  // as after closefrom(3)
  end_regions();
  EXPECT_EQ(::fcntl(own, F_GETFD), 0) << "the program's own descriptor is open";
  ::close(own);
  ::close(null);
}

TEST_F(StandInTest, ADescriptorThatMayNotBeWrittenServesReadersAlone) {
  const std::string path = "/proc/self/fd/" + std::to_string(buffer);
  const int reading = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(reading, 0);
  EXPECT_EQ(error_of(0, kBytes, 0, kRights, reading), EACCES);
  EXPECT_EQ(error_of(0, kBytes, 0, IBV_ACCESS_REMOTE_READ, reading), 0);
  ::close(reading);
}

TEST_F(StandInTest, MemoryThatCannotBeMappedIsRefusedWithALine) {
  ASSERT_EQ(::munmap(std::exchange(seen, nullptr), kBytes), 0);
  ASSERT_EQ(::fcntl(buffer, F_ADD_SEALS, F_SEAL_WRITE), 0);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(error_of(0, kBytes, 0), EOPNOTSUPP);
  EXPECT_EQ(error_of(0, kBytes, 0), EOPNOTSUPP);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("cannot be mapped"), std::string::npos) << said;
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
}

/// ibv_dm_export_dmabuf_fd(3).
TEST(ExportedDeviceMemory, IsADmaBufOfTheSameBytes) {
  const bool is_possible = ::access(device_of("udmabuf"), R_OK | W_OK) == 0;
  const End end{"mem0"};
  ibv_alloc_dm_attr attributes{5000, 0, 0};
  ibv_dm* const dm = ibv_alloc_dm(end.context, &attributes);
  ASSERT_NE(dm, nullptr);
  errno = 0;
  const int descriptor = ibv_dm_export_dmabuf_fd(dm);
  if (!is_possible) {
    EXPECT_EQ(descriptor, -1);
    EXPECT_EQ(errno, EOPNOTSUPP);
    EXPECT_EQ(ibv_free_dm(dm), 0);
    return;
  }
  ASSERT_GE(descriptor, 0) << std::strerror(errno);
  const uint64_t value = 0x1122334455667788;
  ASSERT_EQ(ibv_memcpy_to_dm(dm, 4992, &value, sizeof value), 0);
  ibv_mr* const mr = ibv_reg_dmabuf_mr(end.pd, 4096, 4096, 0, descriptor, kRights);
  ASSERT_NE(mr, nullptr);
  const void* const seen = ::mmap(nullptr, 8192, PROT_READ, MAP_SHARED, descriptor, 0);
  ASSERT_NE(seen, MAP_FAILED);
  EXPECT_EQ(std::memcmp(static_cast<const uint8_t*>(seen) + 4992, &value, sizeof value), 0);
  EXPECT_EQ(ibv_free_dm(dm), 0) << "the dma-buf keeps the memory";
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  ::close(descriptor);
}

TEST(ExportedDeviceMemory, NeedsLiveMemory) {
  errno = 0;
  EXPECT_EQ(ibv_dm_export_dmabuf_fd(nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
}

}  // namespace

}  // namespace faultline::verbs::test::dma_buf_test
