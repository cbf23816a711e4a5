/* SPDX-License-Identifier: BSD-3-Clause
 * Faultline's API in addition to verbs: configuration, counters, and measurements of the machine's limits.
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
struct ibv_qp;
struct ibv_qp_ex;

/* Sets the configuration file (TOML) of this process, instead of $FAULTLINE_CONFIG. Call before
 * ibv_get_device_list. Returns 0, or EINVAL with one line that names the key in faultline_last_error(). */
int faultline_configure(const char* path);

/* Returns the last configuration or start-up error of this thread: one line without a newline, or "". */
const char* faultline_last_error(void);

/* One counter by name ("odp.num_page_faults", "transport.timeouts", "drop.unknown_qpn", "port.rx_frames"). */
struct faultline_counter {
  const char* name; /* static storage */
  uint64_t value;
};

/* Fills up to `capacity` counters of the device. Returns the total number of counters, or -1 with errno. */
int faultline_query_counters(struct ibv_context* context, struct faultline_counter* counters,
                             size_t capacity);

struct ibv_mr;
/* Fills the counters of one region, in pages: "page_faults", "page_invalidations" and "page_prefetch", named
 * as in rdma-core's statistics (rdma-statistic(8)), and "resident_pages", which is a gauge. Arguments and
 * result as in faultline_query_counters. */
int faultline_query_mr_counters(struct ibv_mr* mr, struct faultline_counter* counters, size_t capacity);

/* A guard is a precondition in the process or the kernel for the memory guarantees of
 * docs/on-demand-paging.md. */
enum faultline_guard_state {
  FAULTLINE_GUARD_MISSING = 0,
  FAULTLINE_GUARD_LIMITED = 1,
  FAULTLINE_GUARD_WORKS = 2
};
#define FAULTLINE_GUARD_TEXT_BYTES 400
struct faultline_guard {
  const char* name; /* static storage: "memory hooks", "signal hooks", "userfaultfd", "pins", ... */
  int state;        /* faultline_guard_state */
  int error;        /* errno of the call that the kernel refused, or 0 */
  char text[FAULTLINE_GUARD_TEXT_BYTES]; /* one line: the loss and the remedy, or how it works */
};

/* Tests the guards of this process, before or after a device is opened. Fills up to `capacity` of them, and
 * returns their total number, or -1 with errno. */
int faultline_query_guards(struct faultline_guard* guards, size_t capacity);

/* Why a QP failed: the cause and the last facts. docs/seeing/failures.md lists the causes. */
#define FAULTLINE_ERROR_TEXT_BYTES 768
struct faultline_qp_error {
  uint32_t vendor_err; /* the cause: what the error completions of the QP carry in ibv_wc.vendor_err */
  int status;          /* ibv_wc_status of the failed work request; 0 if a request of the peer was refused */
  uint64_t time_ns;    /* CLOCK_MONOTONIC */
  uint32_t qp_num;
  uint32_t peer_qp_num; /* 0: not connected */
  uint32_t psn;         /* oldest PSN not acknowledged, or that of the refused request */
  uint32_t key;         /* rkey of the request, or the key of the access that was refused; 0: none */
  uint64_t address;     /* of the request at the peer, or of the access that was refused */
  uint32_t length;      /* likewise, in bytes */
  uint32_t unacknowledged_packets;
  const char* name; /* of the cause, static storage: "never_answered", "refused_range", ... */
  char text[FAULTLINE_ERROR_TEXT_BYTES]; /* one line: what happened, the facts, and what to look at */
};

/* Fills the newest failure of a QP. Returns 0, ENOENT if the QP has not failed by itself, or so many other
 * QPs of the device have failed since that the record is gone (64 for each core), or EINVAL. The record
 * remains after ibv_modify_qp to RESET. */
int faultline_query_last_error(struct ibv_qp* qp, struct faultline_qp_error* error);

/* Measures copy+CRC over pieces of `bytes` bytes for about `milliseconds` on this CPU, hot in cache. Returns
 * GB/s (1e9). */
double faultline_measure_copy_crc(size_t bytes, unsigned milliseconds);

/* Transmits frames of `frame_bytes` from this device's raw port, without verbs, for about `milliseconds` at
 * the port's full rate. Returns the packets per second that the port accepted, or a negative errno value. The
 * peer device counts the received frames. The device must have no QP. */
double faultline_measure_port_tx(struct ibv_context* context, size_t frame_bytes, unsigned milliseconds);

/* Receives and frees frames on this device's raw port for about `milliseconds`. Returns the packets per
 * second between the first and the last frame. */
double faultline_measure_port_rx(struct ibv_context* context, unsigned milliseconds);

/* Runs the device's engine once on this thread if progress is inline, as polling an empty CQ does. For
 * programs that wait for data in memory. */
void faultline_progress(struct ibv_context* context);

/* FLUSH (IBA annex A19), which headers before rdma-core 45 lack. The numbers are those of later headers. They
 * are macros, so that C++ can combine them with ibv_access_flags. */
/* Access flags of ibv_reg_mr, binds and ibv_modify_qp. No region persists across a power loss, so ibv_reg_mr
 * refuses FAULTLINE_ACCESS_FLUSH_PERSISTENT. */
#define FAULTLINE_ACCESS_FLUSH_GLOBAL (1 << 8)
#define FAULTLINE_ACCESS_FLUSH_PERSISTENT (1 << 9)
#define FAULTLINE_QP_EX_WITH_FLUSH (1 << 11) /* ibv_qp_init_attr_ex.send_ops_flags */
#define FAULTLINE_WR_FLUSH 14
#define FAULTLINE_WC_FLUSH 8
enum faultline_flush_type { FAULTLINE_FLUSH_GLOBAL = 1, FAULTLINE_FLUSH_PERSISTENT = 2 };
enum faultline_flush_level { FAULTLINE_FLUSH_RANGE = 0, FAULTLINE_FLUSH_MR = 1 };

/* ibv_wr_flush: between ibv_wr_start and ibv_wr_complete, on a QP created with FAULTLINE_QP_EX_WITH_FLUSH.
 * Completes once the writes of earlier requests to the range, or to the whole region or window of `rkey`, are
 * globally visible or, if persistent, preserved across a power loss. `type` is one faultline_flush_type or
 * both, combined by OR. */
void faultline_wr_flush(struct ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr, size_t len, uint8_t type,
                        uint8_t level);

#ifdef __cplusplus
}
#endif
#endif
