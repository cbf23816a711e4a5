# SPDX-License-Identifier: BSD-3-Clause
"""A rule for each action of a scenario, which the tests of trouble try with several programs."""

# name, when, do, rest of the rule
ACTIONS = {
    "registration": ('call = "ibv_reg_mr"', 'errno = "ENOMEM"', ""),
    "creation": ('call = "ibv_create_qp"', 'errno = "ENOMEM"', ""),
    "transition": ('call = "ibv_modify_qp", nth = 2', 'errno = "EIO"', ""),
    "post": ('call = "ibv_post_send"', 'errno = "ENOMEM"', ""),
    "poll": ('call = "ibv_poll_cq", nth = 3', 'errno = "EIO"', ""),
    "retries": ('send = "*"', 'status = "IBV_WC_RETRY_EXC_ERR"', ""),
    "access": ('send = "*"', 'status = "IBV_WC_REM_ACCESS_ERR"', ""),
    "qp": ('send = "*"', 'qp = "error"', ""),
    "fatal": ('send = "*"', 'event = "IBV_EVENT_DEVICE_FATAL"', ""),
    "event": ('send = "*"', 'event = "IBV_EVENT_GID_CHANGE"', ""),
    "late": ('poll = "*"', 'poll = "nothing"', "times = 200"),
    "few": ('poll = "*"', 'poll = "few", most = 1', "times = 50"),
    "shuffle": ('poll = "*"', 'poll = "shuffle"', "times = 50"),
    "loss": ('packet = "out RC.*", every = 7', 'packet = "lose"', "times = 20"),
    "answers": ('packet = "in RC.ACK", every = 5', 'packet = "lose"', "times = 10"),
    "duplicates": ('packet = "out RC.*", every = 3', 'packet = "duplicate"', "times = 20"),
    "damage": ('packet = "in RC.*", every = 9', 'packet = "corrupt"', "times = 10"),
    "marks": ('packet = "out RC.*", every = 4', 'packet = "mark"', "times = 10"),
    "delay": ('packet = "out RC.*", every = 5', 'packet = "delay", delay_us = 700', "times = 10"),
    "order": ('packet = "out RC.*", every = 11', 'packet = "reorder", by = 2', "times = 10"),
    "jitter": ('packet = "out RC.*", every = 5', 'packet = "delay", delay_us = 100, jitter_us = 900', "times = 10"),
    "partition": ('packet = "out RC.*", nth = 20', 'packet = "partition", for_ms = 20', ""),
    "rate": ('packet = "out RC.*", nth = 5', 'packet = "rate", bits_per_second = 500000000', ""),
    "slow": ('packet = "in RC.*", nth = 5', 'packet = "slow", service_us = 200, for_ms = 200', ""),
    "cnps": ('packet = "out RC.*", every = 10', 'inject = "cnp", count = 50', "times = 5"),
    "not-ready": ('packet = "out RC.*", from = 3', 'inject = "rnr", timer = 3', "times = 5"),
    "sequence": ('packet = "out RC.*", from = 3', 'inject = "nak", syndrome = "psn_sequence"', "times = 5"),
    "refusal": ('packet = "out RC.*", from = 3', 'inject = "nak", syndrome = "remote_access"', ""),
    "not-ready-here": ('packet = "in RC.*", from = 3', 'inject = "rnr", timer = 3', "times = 5"),
    "refusal-here": ('packet = "in RC.*", from = 3', 'inject = "nak", syndrome = "remote_access"', ""),
    "counter": ('packet = "out RC.*", counter = "transport.messages_sent", least = 5', 'packet = "lose"', "times = 3"),
    "address": ('call = "rdma_resolve_addr"', 'errno = "EADDRNOTAVAIL"', ""),
    "connection": ('call = "rdma_connect"', 'errno = "ECONNREFUSED"', ""),
    "reply": ('packet = "in CM.REP"', 'packet = "lose"', ""),
    "ready": ('packet = "out CM.RTU"', 'packet = "delay", delay_us = 50000', ""),
    "link": ('send = "*"', 'link = "down", for_ms = 30', ""),
    "device": ('call = "ibv_query_device"', 'errno = "EIO"', ""),
    "receive": ('receive = "*"', 'status = "IBV_WC_LOC_PROT_ERR"', ""),
    "overflow": ('send = "*"', 'cq = "overflow"', ""),
    "spurious": ('call = "ibv_req_notify_cq"', 'wake = "spurious"', "times = 20"),
    "wakes": ('call = "ibv_req_notify_cq"', 'wake = "late", delay_us = 2000', ""),
    "port": ('list = "*"', 'link = "down", for_ms = 3000', ""),
    "absent": ('list = "*"', 'device = "absent"', "times = 0"),
    "gone": ('send = "*"', 'device = "gone"', ""),
    "change": ('cm_event = "RDMA_CM_EVENT_ROUTE_RESOLVED"', 'cm_event = "RDMA_CM_EVENT_ADDR_CHANGE"', ""),
}
OF_CM = {"address", "connection", "reply", "ready", "change"}


BEGUN = '[[rule]]\nname = "begun"\nwhen = { send = "*" }\ndo = { link = "up" }\n'


def scenario(folder, name, action, is_late=False):
    """is_late: the action waits for the program's first send, where another rule, "begun", decides."""
    when, do, rest = ACTIONS[action]
    path = f"{folder}/{name}.toml"
    if is_late:
        when += ', after = "begun"'
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'name = "{action}"\n{BEGUN if is_late else ""}[[rule]]\nname = "{action}"\nwhen = {{ {when} }}\ndo = {{ {do} }}\n{rest}\n')
    return path
