#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# A tgtd with one disk behind iSER, until it is ended.   iser_target.sh ADDRESS
set -eu
folder=${EXPLORE_FOLDER:?}
TGT_IPC_SOCKET=$folder/tgtd
export TGT_IPC_SOCKET
truncate -s 16M "$folder/disk"
tgtd -f --iscsi "portal=$1:3260" &
target=$!
trap 'kill $target' TERM INT
until tgtadm --lld iser --op new --mode target --tid 1 -T iqn.2026-11.test.faultline:disk 2>/dev/null; do
  kill -0 $target
  sleep 0.1
done
tgtadm --lld iser --op new --mode logicalunit --tid 1 --lun 1 -b "$folder/disk"
tgtadm --lld iser --op bind --mode target --tid 1 -I ALL
tgtadm --lld iser --op bind --mode target --tid 1 -Q iqn.2026-11.test.faultline:host
wait $target
