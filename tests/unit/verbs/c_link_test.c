/* SPDX-License-Identifier: BSD-3-Clause
 * A plain C program: rdma-core's header, -lfaultline, and no libibverbs.so.1 in the process. */
#include <faultline/faultline.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <string.h>

static int fail(const char* what) {
  printf("FAILED: %s (%s)\n", what, faultline_last_error());
  return 1;
}

static int real_library_is_loaded(void) {
  char line[4096];
  int found = 0;
  FILE* maps = fopen("/proc/self/maps", "r");
  if (maps == NULL) return 1;
  while (fgets(line, sizeof line, maps) != NULL) found |= strstr(line, "libibverbs") != NULL;
  fclose(maps);
  return found;
}

int main(int argc, char** argv) {
  struct ibv_device** list;
  struct ibv_context* context;
  struct ibv_device_attr_ex attributes;
  struct ibv_port_attr port;
  union ibv_gid gid;
  int count = 0;

  if (argc != 2) return fail("usage: c_link_test CONFIG");
  if (faultline_configure(argv[1]) != 0) return fail("faultline_configure");
  list = ibv_get_device_list(&count);
  if (list == NULL || count < 1) return fail("ibv_get_device_list");
  context = ibv_open_device(list[0]);
  ibv_free_device_list(list);
  if (context == NULL) return fail("ibv_open_device");
  if (ibv_query_device_ex(context, NULL, &attributes) != 0) return fail("ibv_query_device_ex");
  if ((attributes.odp_caps.general_caps & IBV_ODP_SUPPORT) == 0) return fail("no ODP");
  if (ibv_query_port(context, 1, &port) != 0) return fail("ibv_query_port");
  if (ibv_query_gid(context, 1, 0, &gid) != 0) return fail("ibv_query_gid");
  if (mult_to_ibv_rate(4) != IBV_RATE_10_GBPS) return fail("mult_to_ibv_rate");
  if (mbps_to_ibv_rate(10000) != IBV_RATE_10_GBPS) return fail("mbps_to_ibv_rate");
  if (real_library_is_loaded()) return fail("libibverbs is loaded");
  if (ibv_close_device(context) != 0) return fail("ibv_close_device");
  printf("ok: %s\n", ibv_wc_status_str(IBV_WC_SUCCESS));
  return 0;
}
