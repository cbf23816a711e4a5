#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The device's own entries below /sys/class and /dev, as unmodified programs find them through the C library: listed, read, walked and
# refused as the kernel's would be. The rest of the file system is unchanged.
#   files_test.sh LIBIBVERBS
set -euo pipefail
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
library=$1
need python3
own_folder
cat >"$folder/device.toml" <<TOML
[[device]]
name = "faultline7"
ip = ["198.18.0.1/24", "2001:2::1/64"]
mac = "02:46:4c:00:00:01"
vendor_part_id = 4119
[device.port]
kind = "ring"
wire = "files"
side = "a"
TOML
with() { FAULTLINE_CONFIG=$folder/device.toml LD_PRELOAD=$library bounded "$@"; }
expect() {
  local expected=$1 got
  shift
  got=$(with "$@" 2>&1) || true
  [ "$got" = "$expected" ] || { printf 'FAILED: %s\nexpected: %s\ngot: %s\n' "$*" "$expected" "$got"; exit 1; }
}
device=/sys/class/infiniband/faultline7

expect $'rdma_cm\nuverbs0' ls /dev/infiniband
expect faultline7 ls /sys/class/infiniband/
expect '0046:4cff:fe00:0001' cat $device/node_guid
expect $'0000:0000:0000:0000:0000:ffff:c612:0001\n2001:0002:0000:0000:0000:0000:0000:0001\nRoCE v2' \
  cat $device/ports/1/gids/0 $device/ports/1/gids/1 $device/ports/1/gid_attrs/types/0
expect $'regular file\ncharacter special file\ndirectory' stat -c %F $device/fw_ver /dev/infiniband/uverbs0 $device
expect "e7:c0" stat -c %t:%T /dev/infiniband/uverbs0
expect "$device/ports/1/rate" find /sys/class/infiniband -name rate
expect "cat: $device/none: No such file or directory" cat $device/none
expect "$device/device" realpath /sys/class/infiniband/../infiniband//faultline7/device
[ "$(with ls -lR /sys/class/infiniband /dev/infiniband 2>&1 >/dev/null)" = "" ] || { echo "FAILED: ls -lR complains"; exit 1; }
# The folder of the hardware leads to the entries of the classes by links, so that a walk ends.
link=$device/device/infiniband/faultline7
expect $'symbolic link\ndirectory' stat -c %F $link $link/
expect directory stat -L -c %F $link
expect $device readlink $link
expect '' readlink $link/
expect $device/fw_ver realpath $link/device/infiniband/faultline7/fw_ver
expect '1: CA' cat $link/device/infiniband/faultline7/node_type
expect "$device/device/infiniband_verbs/uverbs0 -> /sys/class/infiniband_verbs/uverbs0" \
  find $device -type l -name 'uverbs*' -printf '%p -> %l\n'
with find -L /sys/class/infiniband -name none >"$folder/found" 2>"$folder/loops" || true
# Newer versions of find name the link alone.
grep -q "File system loop detected; .*‘$link’" "$folder/loops" ||
  { echo "FAILED: a walk that follows the links finds no loop:"; cat "$folder/loops"; exit 1; }
# Scripts go there, and start programs in it. $PWD says where, unless the program is elsewhere.
# shellcheck disable=SC2016 # for the shell that is started
expect $'1: CA\n0046:4cff:fe00:0001\n'"$device/ports" bash -c 'cd "$1" && cat node_type && cd ports && cat ../node_guid && bash -c pwd' - $device
# shellcheck disable=SC2016 # for the shell that is started
expect $'1: CA\n'"$link"$'\n'"$device" bash -c 'cd "$1" && cat node_type && pwd && pwd -P' - $link
expect "cat: node_type: No such file or directory" env -C /sys PWD=$device cat node_type
# Other files.
[ "$(with ls /sys/class/net)" = "$(ls /sys/class/net)" ] || { echo "FAILED: /sys/class/net changed"; exit 1; }
echo kept >"$folder/infiniband"
expect kept cat "$folder/infiniband"
# In addition to one line that explains how to get devices.
[ "$(LD_PRELOAD=$library bounded ls /sys/class/infiniband 2>&1 | grep -v '^faultline: no configuration')" = "$(ls /sys/class/infiniband 2>&1)" ] ||
  { echo "FAILED: without devices the kernel's own entries are not seen"; exit 1; }

# The counters, by the names of a NIC. A program that has not opened the device reads zeros.
expect $'0\n0' cat $device/ports/1/counters/port_xmit_packets $device/ports/1/hw_counters/out_of_sequence
if /usr/bin/python3 -c "import pyverbs" 2>/dev/null; then
  PYTHONPATH=$(dirname "$0")/.. with /usr/bin/python3 -B - <<'PYTHON'
from pyverbs.addr import AH, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from verbs_enums import IBV_ACCESS_LOCAL_WRITE, IBV_QPT_UD, IBV_SEND_SIGNALED, IBV_WC_SUCCESS, IBV_WR_SEND
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR
MESSAGES, BYTES, HEADER_BYTES = 20, 256, 14 + 20 + 8 + 12 + 8 + 4
port = '/sys/class/infiniband/faultline7/ports/1'
def counter(name): return int(open(f'{port}/{name}').read())
context = Context(name='faultline7')
pd, cq = PD(context), CQ(context, 64)
mr = MR(pd, 4096, IBV_ACCESS_LOCAL_WRITE)
attributes = QPAttr(port_num=1)
attributes.qkey = 17
qp = QP(pd, QPInitAttr(qp_type=IBV_QPT_UD, scq=cq, rcq=cq, cap=QPCap(max_send_wr=64, max_recv_wr=1)), attributes)  # in RTS
address = AH(pd, attr=AHAttr(gr=GlobalRoute(dgid=context.query_gid(1, 0), sgid_index=0), is_global=1, port_num=1))
before = counter('counters/port_xmit_data')
for _ in range(MESSAGES):
    request = SendWR(num_sge=1, sg=[SGE(mr.buf, BYTES, mr.lkey)], opcode=IBV_WR_SEND, send_flags=IBV_SEND_SIGNALED)
    request.set_wr_ud(address, qp.qp_num, 17)
    qp.post_send(request)
done = 0
while done < MESSAGES:
    count, completions = cq.poll(16)
    done += count
    assert all(completion.status == IBV_WC_SUCCESS for completion in completions)
while counter('hw_counters/out_of_buffer') < MESSAGES: pass  # no receive is posted: all are dropped
assert counter('counters/port_xmit_packets') == counter('counters/port_rcv_packets') == counter('hw_counters/sent_pkts') == MESSAGES
assert counter('hw_counters/rdma_sends') == counter('hw_counters/transport.messages_sent') == MESSAGES
data = 4 * (counter('counters/port_xmit_data') - before) / MESSAGES
assert BYTES < data <= BYTES + HEADER_BYTES, data
PYTHON
fi

with python3 - <<'PYTHON'
import ctypes, errno, os, stat
device = '/sys/class/infiniband/faultline7'
def refused(error, call):
    try: call()
    except OSError as got: assert got.errno == error, got
    else: assert False, 'not refused'
refused(errno.EACCES, lambda: open(device + '/fw_ver', 'w'))
refused(errno.EACCES, lambda: open(device + '/new', 'w'))
refused(errno.ENOTDIR, lambda: os.open(device + '/fw_ver', os.O_DIRECTORY))
refused(errno.EISDIR, lambda: os.open(device, os.O_RDWR))
refused(errno.ENOENT, lambda: os.listdir(device + '/none'))
refused(errno.EINVAL, lambda: os.readlink(device))
refused(errno.ENOTDIR, lambda: os.stat(device + '/fw_ver/x'))
link = device + '/device/infiniband/faultline7'
refused(errno.ELOOP, lambda: os.open(link, os.O_RDONLY | os.O_NOFOLLOW))
refused(errno.ENOTDIR, lambda: os.open(link, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY))
os.close(os.open(link + '/', os.O_RDONLY | os.O_NOFOLLOW))
many = device + '/device/infiniband/faultline7' * 41
for call in (os.stat, os.listdir, os.open, os.readlink, os.getxattr, os.chdir):
    refused(errno.ELOOP, lambda: call(many + '/node_type', *{os.open: (os.O_RDONLY,), os.getxattr: ('user.x',)}.get(call, ())))
library = ctypes.CDLL(None, use_errno=True)  # os.path.realpath() follows the links itself
assert library.realpath(many.encode(), None) == 0 and ctypes.get_errno() == errno.ELOOP
assert not os.access(many, os.R_OK)
assert os.access('/dev/infiniband/uverbs0', os.R_OK | os.W_OK) and not os.access(device + '/fw_ver', os.W_OK)
assert stat.S_ISCHR(os.fstat(os.open('/dev/infiniband/uverbs0', os.O_RDWR)).st_mode)

# Relative to a directory, also to a duplicated descriptor, and after the number refers to another file.
folder = os.open(device, os.O_RDONLY | os.O_DIRECTORY)
twin = os.dup(folder)
os.close(folder)
assert os.stat('node_type', dir_fd=twin).st_size == 4096
assert os.read(os.open('node_type', os.O_RDONLY, dir_fd=twin), 100) == b'1: CA\n'
assert sorted(os.listdir(twin)) == sorted(os.listdir(device))
os.dup2(os.open('/tmp', os.O_RDONLY), twin)
assert sorted(os.listdir(twin)) == sorted(os.listdir('/tmp'))
refused(errno.ENOENT, lambda: os.stat('node_type', dir_fd=twin))

# A child has the same view.
child = os.fork()
if child == 0: os._exit(0 if os.listdir('/sys/class/infiniband') == ['faultline7'] else 1)
assert os.waitpid(child, 0)[1] == 0
PYTHON
echo "the device's files, as the kernel would have them"
