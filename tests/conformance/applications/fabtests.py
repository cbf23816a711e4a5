#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""libfabric's own tests, fabtests, with the providers verbs and verbs;ofi_rxm. Debian has no package of fabtests, so they are built from
libfabric's source package, together with libfabric.
  fabtests.py FAULTLINE_RUN
Each test is a pair of programs. fabtests_expected.tsv lists the exceptions; every other test must pass.
"""
import os
import re

import harness
import source
from harness import Failure

# Bookworm's mirror may no longer have the older source.
SUITES = ["bookworm", "trixie", "sid"]
TEST_SECONDS = 60


def libfabric():
    options = "--disable-static --enable-verbs --enable-rxm --enable-rxd --enable-tcp --disable-sockets --disable-shm " + \
              "--disable-psm2 --disable-psm3 --disable-opx --disable-efa --disable-usnic CFLAGS='-O1 -g0' " + source.compiler()
    return source.build("fabtests", "libfabric", SUITES, [
        f"[ -e configure ] || ./autogen.sh; ./configure --prefix=$out {options} && make -j2 && make install",
        f"cd fabtests; [ -e configure ] || ./autogen.sh; ./configure --prefix=$out --with-libfabric=$out CFLAGS='-O1 -g0' {source.compiler()}"
        " && make -j2 && make install"], "bin/fi_msg_pingpong")


# Program and options; the server's address is added to the client. -I: the number of rounds.
MSG_TESTS = ["fi_cm_data", "fi_cq_data -e msg -o senddata", "fi_cq_data -e msg -o writedata", "fi_dgram -e dgram", "fi_msg",
             "fi_msg_epoll", "fi_msg_sockets", "fi_recv_cancel -e msg", "fi_rma_bw -e msg -o write -I 5",
             "fi_rma_bw -e msg -o read -I 5", "fi_rma_bw -e msg -o writedata -I 5", "fi_rma_pingpong -e msg -o write -I 5",
             "fi_rma_pingpong -e msg -o writedata -I 5", "fi_msg_bw -I 5 -v", "fi_msg_pingpong -I 5 -v",
             "fi_shared_ctx -e msg --no-tx-shared-ctx"]
RDM_TESTS = ["fi_av_xfer -e rdm", "fi_cq_data -e rdm -o senddata", "fi_cq_data -e rdm -o writedata", "fi_multi_ep -e rdm -v",
             "fi_multi_ep -e rdm -v -A", "fi_recv_cancel -e rdm -V", "fi_rdm", "fi_rdm_atomic -o all -I 5", "fi_rdm_deferred_wq",
             "fi_rdm_multi_client -C 5 -I 5", "fi_rdm_multi_domain -V", "fi_rdm_rma_event", "fi_rdm_rma_trigger", "fi_rdm_shared_av",
             "fi_rdm_tagged_peek", "fi_rdm_bw -I 5 -v", "fi_rdm_pingpong -I 5 -v", "fi_rdm_tagged_bw -I 5 -v",
             "fi_rdm_tagged_pingpong -I 5 -v", "fi_rma_bw -e rdm -o write -I 5 -v", "fi_rma_bw -e rdm -o read -I 5 -v",
             "fi_rma_bw -e rdm -o writedata -I 5 -v", "fi_rma_pingpong -e rdm -o write -I 5", "fi_scalable_ep", "fi_unexpected_msg -e rdm -I 5",
             "fi_multi_mr -e rdm -V", "fi_multi_recv -e rdm -I 5", "fi_inject_test -A inject -v",
             "fi_flood -e rdm -v -T 10", "fi_rdm_cntr_pingpong -I 5"]


def pair(session, tools, provider, test):
    words = test.split()
    program = [f"{tools}/bin/{words[0]}", "-p", provider, *words[1:]]
    if not os.path.exists(program[0]):
        return "skip", "this version has none"
    variables = {"LD_LIBRARY_PATH": f"{tools}/lib", "FI_LOG_LEVEL": "warn"}
    server = session.launch(session.on_wire("a", *program, "-s", harness.SERVER_IP), **variables)
    client = None
    for _ in range(15):
        client = session.launch(session.on_wire("b", *program, "-s", harness.CLIENT_IP, harness.SERVER_IP), **variables)
        status = session.wait(client, TEST_SECONDS)
        output = session.output_of(client)
        if status == 0 or server.poll() is not None or not re.search("onnection refused|ECONNREFUSED|rejected", output):
            break
    try:
        server_status = session.wait(server, 15 if status == 0 else 2)
    except Failure:
        server_status = -1
    if status == 0 and server_status == 0:
        return "pass", ""
    # fabtests exits with FI_ENODATA or FI_ENOSYS if the provider does not offer the tested feature.
    if {status, server_status} & {61, 38, 95, 256 - 61, 256 - 38, 256 - 95}:
        return "skip", harness.last_line(output)
    return "fail", f"client {status}, server {server_status}: {harness.last_line(output)}"


def work(session):
    tools = source.cache("fabtests") + "/out"
    wanted = source.expected("fabtests_expected.tsv")
    for provider, tests in (("verbs", MSG_TESTS), ("verbs;ofi_rxm", RDM_TESTS)):
        counts = {"pass": 0, "fail": 0, "skip": 0, "own": 0}
        wrong = []
        for test in tests:
            result_wanted, _ = wanted.get(f"{provider} {test}", ("pass", ""))
            # A client that starts before its server's address is on the wire finds no provider: FI_ENODATA too.
            for _ in range(3):
                try:
                    result, why = pair(session, tools, provider, test)
                except Failure as failure:
                    result, why = "fail", str(failure)
                finally:
                    session.end_all()
                if result != "skip" or result_wanted != "pass":
                    break
            if result == "fail" and result_wanted == "fail":
                result = "own"
            counts[result] += 1
            if result == "fail" or result == "skip" and result_wanted == "pass":
                wrong.append(test)
            print(f"    {result}: {provider} {test}" + (f": {why}" if why else ""), flush=True)
        text = f"{counts['pass']} passed, {counts['fail']} failed, {counts['own']} failed as expected, {counts['skip']} skipped"
        session.row("FAILED" if wrong else "ok", f"fabtests, {provider}", text + (": " + ", ".join(wrong) if wrong else ""))


if __name__ == "__main__":
    # Some tests exchange data by TCP, at the address of the argument.
    harness.main(work, prepare=libfabric, kernel_addresses=True)
