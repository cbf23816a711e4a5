// SPDX-License-Identifier: BSD-3-Clause
#include "tests/interop/e2e/odp_mix/odp_mix_main.hpp"

int main(int argc, char** argv) {
  return faultline_odp_mix(argc, argv);
}
