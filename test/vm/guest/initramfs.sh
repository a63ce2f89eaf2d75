#!/bin/busybox sh
# First stage, run as /init in the initramfs: puts the root file system together and hands over to the second stage.
# This busybox finds its applets through /proc, so its /proc is mounted first and stays.
set -u

fail() {
	echo "relink-vm: $*" >/dev/console
	poweroff -f
	sleep 60
}

mount_9p() { # tag, directory, options
	mount -t 9p -o "trans=virtio,version=9p2000.L,msize=262144,access=any,$3" "$1" "$2" || fail "mounting $1 on $2"
}

/bin/busybox mount -t proc proc /proc
mount -t devtmpfs dev /dev || fail "mounting /dev"
mount -t sysfs sys /sys || fail "mounting /sys"

while read -r module; do
	insmod "/modules/$module" || fail "loading $module"
done </modules/order

work=
read -r words </proc/cmdline
for word in $words; do
	case $word in relink.work=*) work=${word#relink.work=} ;; esac
done
[ -n "$work" ] || fail "no relink.work on the kernel's command line"

# The host's root, read-only, under an overlay that ends with the machine. Caching is safe as far as the host leaves the
# files alone while the machine runs.
mount_9p root /lower ro,cache=loose
mount -t tmpfs -o mode=0755,size=80% rw /rw || fail "mounting a tmpfs"
mkdir /rw/upper /rw/work
mount -t overlay -o lowerdir=/lower,upperdir=/rw/upper,workdir=/rw/work overlay /root || fail "mounting the overlay"

mkdir -p /root/proc /root/sys /root/dev /root/run /root/tmp /root/var/lib /root/mnt/share
umount /sys
mount -t proc proc /root/proc || fail "mounting /proc"
mount -t sysfs sys /root/sys || fail "mounting /sys"
mount -t devtmpfs dev /root/dev || fail "mounting /dev"
mkdir -p /root/dev/pts /root/dev/shm
mount -t devpts -o mode=0620,gid=5,ptmxmode=0666 devpts /root/dev/pts || fail "mounting /dev/pts"
ln -sf pts/ptmx /root/dev/ptmx
mount -t tmpfs -o mode=1777 shm /root/dev/shm
ln -sf /proc/self/fd /root/dev/fd
ln -sf /proc/self/fd/0 /root/dev/stdin
ln -sf /proc/self/fd/1 /root/dev/stdout
ln -sf /proc/self/fd/2 /root/dev/stderr
mount -t cgroup2 cgroup2 /root/sys/fs/cgroup || fail "mounting cgroup2"
mount -t tmpfs -o mode=0755 run /root/run
mount -t tmpfs -o mode=0755 lib /root/var/lib

# shellcheck source=/dev/null # written by the host for this run: modules, writable directories, the hostname
. "/lower$work/machine" || fail "reading $work/machine"

release=$(uname -r)
mkdir -p "/root/lib/modules/$release"
mount --bind "/lower$MODULES" "/root/lib/modules/$release" || fail "mounting the kernel's modules"
mount_9p share /root/mnt/share rw,cache=mmap
index=0
while read -r directory; do
	[ -n "$directory" ] || continue
	mkdir -p "/root$directory"
	mount_9p "writable$index" "/root$directory" rw,cache=mmap
	index=$((index + 1))
done </lower"$work"/writable

mkdir -m 0700 /root/run/.vm
cp /bin/busybox /init.second "/lower$work/machine" "/lower$work/run" /root/run/.vm/ || fail "copying the second stage"
exec switch_root /root /run/.vm/busybox sh /run/.vm/init.second
