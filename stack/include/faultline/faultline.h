/* SPDX-License-Identifier: BSD-3-Clause
 * What Faultline offers beside verbs: the configuration, counters, and the measured limits of the machine.
 * The data API is <infiniband/verbs.h>; link with -lfaultline. Plain C.
 */
#ifndef FAULTLINE_FAULTLINE_H
#define FAULTLINE_FAULTLINE_H

#include <stddef.h> /* NOLINT(modernize-deprecated-headers): plain C */
#include <stdint.h> /* NOLINT(modernize-deprecated-headers) */

#ifdef __cplusplus
extern "C" {
#endif

struct ibv_context;
struct ibv_qp_ex;

/* Uses the configuration file `path` (TOML) in this process, instead of $FAULTLINE_CONFIG. Call before
 * ibv_get_device_list. Returns 0, or EINVAL with one line that names the key in faultline_last_error(). */
int faultline_configure(const char* path);

/* The last configuration or start-up error of this thread, one line without a newline; "" if none. */
const char* faultline_last_error(void);

/* One counter by name ("odp.num_page_faults", "transport.timeouts", "drop.unknown_qpn", "port.rx_frames"). */
struct faultline_counter {
  const char* name; /* static storage */
  uint64_t value;
};

/* Fills up to `capacity` counters of the device; returns how many there are in all, or -1 with errno. */
int faultline_query_counters(struct ibv_context* context, struct faultline_counter* counters,
                             size_t capacity);

struct ibv_mr;
/* The counters of one region: "page_faults", "page_invalidations" and "page_prefetch" as rdma-core's
 * statistics name them (rdma-statistic(8)), in pages, and "resident_pages", which is no count but a level. As
 * faultline_query_counters. */
int faultline_query_mr_counters(struct ibv_mr* mr, struct faultline_counter* counters, size_t capacity);

/* A guard is what the library needs of its place in the process, or of the kernel, to keep what
 * docs/on-demand-paging.md promises of memory. */
enum faultline_guard_state {
  FAULTLINE_GUARD_MISSING = 0,
  FAULTLINE_GUARD_LIMITED = 1,
  FAULTLINE_GUARD_WORKS = 2
};
#define FAULTLINE_GUARD_TEXT_BYTES 400
struct faultline_guard {
  const char* name; /* static storage: "memory hooks", "signal hooks", "userfaultfd", "pins", ... */
  int state;        /* faultline_guard_state */
  int error;        /* errno of what the kernel refused, or 0 */
  char text[FAULTLINE_GUARD_TEXT_BYTES]; /* one line: what is lost and what to do, or how it works */
};

/* Tries the guards of this process, before or after a device is opened, and fills up to `capacity` of them;
 * returns how many there are in all, or -1 with errno. */
int faultline_query_guards(struct faultline_guard* guards, size_t capacity);

/* Measures copy+CRC of `bytes` long pieces for about `milliseconds` on this CPU, hot in cache. Returns GB/s
 * (1e9). */
double faultline_measure_copy_crc(size_t bytes, unsigned milliseconds);

/* Raw port: sends frames of `frame_bytes` with nothing behind them from this device's port for about
 * `milliseconds`, as fast as the port takes them, and returns packets per second taken; the peer device
 * counts what came. The device must have no QP. Returns a negative errno value on failure. */
double faultline_measure_port_tx(struct ibv_context* context, size_t frame_bytes, unsigned milliseconds);

/* Raw port, the other side: receives and frees frames for about `milliseconds`; packets per second between
 * the first and the last frame seen. */
double faultline_measure_port_rx(struct ibv_context* context, unsigned milliseconds);

/* Drives the device's engine once from this thread where progress is inline: what polling an empty CQ does,
 * for programs that wait for data in memory. */
void faultline_progress(struct ibv_context* context);

/* FLUSH (IBA annex A19), which headers before rdma-core 45 lack; the numbers are those of later ones. Macros,
 * so that C++ can or them with ibv_access_flags. */
/* Rights of ibv_reg_mr, binds and ibv_modify_qp. No region is kept across a power loss: ibv_reg_mr refuses
 * that. */
#define FAULTLINE_ACCESS_FLUSH_GLOBAL (1 << 8)
#define FAULTLINE_ACCESS_FLUSH_PERSISTENT (1 << 9)
#define FAULTLINE_QP_EX_WITH_FLUSH (1 << 11) /* ibv_qp_init_attr_ex.send_ops_flags */
#define FAULTLINE_WR_FLUSH 14
#define FAULTLINE_WC_FLUSH 8
enum faultline_flush_type { FAULTLINE_FLUSH_GLOBAL = 1, FAULTLINE_FLUSH_PERSISTENT = 2 };
enum faultline_flush_level { FAULTLINE_FLUSH_RANGE = 0, FAULTLINE_FLUSH_MR = 1 };

/* ibv_wr_flush: between ibv_wr_start and ibv_wr_complete, on a QP made with FAULTLINE_QP_EX_WITH_FLUSH.
 * Completes once what was written to the range (or the whole region or window of rkey) by requests before it
 * is visible to everyone there, or, persistent, kept across a power loss. `type` is one faultline_flush_type
 * or both, or'ed. */
void faultline_wr_flush(struct ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr, size_t len, uint8_t type,
                        uint8_t level);

#ifdef __cplusplus
}
#endif
#endif
