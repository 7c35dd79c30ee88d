#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# The guest's first process, run by busybox: mounts what a host has mounted, runs /run.sh, sends /out home over
# the second serial port, or a virtio console (the cloud kernels have its driver built in; disks are modules), powers off.
# Messages to the host are lines that start with TKS-; vm.py reads them.

/bin/busybox mkdir -p /bin /sbin /usr/bin /usr/sbin /proc /sys /dev /tmp /run /root /out
/bin/busybox --install -s
export PATH=/bin:/sbin:/usr/bin:/usr/sbin HOME=/root

mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev 2>/dev/null
mkdir -p /dev/shm /dev/pts
mount -t devpts devpts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run
mount -t tmpfs out /out
mount -t debugfs debugfs /sys/kernel/debug
mount -t tracefs tracefs /sys/kernel/tracing
mount -t bpf bpffs /sys/fs/bpf
mount -t cgroup2 cgroup2 /sys/fs/cgroup
ip link set lo up
hostname guest

home=/dev/ttyS1
if [ -e /dev/hvc0 ]; then home=/dev/hvc0; fi
stty -F $home raw -echo
exec 8>$home
echo TKS-BOOTED >&8

seconds=$(cat /etc/tks-seconds)
cd /root || exit 1
# Killed before the host loses patience, so that what it wrote still comes home.
timeout -s KILL "$seconds" /bin/sh /run.sh
status=$?

dmesg >/out/.dmesg
cat /proc/sys/kernel/tainted >/out/.tainted
echo "TKS-STATUS $status" >&8
echo TKS-FILES >&8
tar -C /out -c . | gzip -1 | base64 >&8
echo TKS-END >&8
exec 8>&-
sync
poweroff -f
