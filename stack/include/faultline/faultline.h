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

#ifdef __cplusplus
}
#endif
#endif
