#!/bin/bash
# init.sh ROOT DIRECTORY...   is process 1 of the host: it makes the root file system at ROOT, the NICs and the wire, and becomes systemd.
set -euo pipefail
root=$1
shift
mount --make-rprivate /
mkdir "$root"
mount -t tmpfs -o mode=755 none "$root"
mkdir "$root"/{upper,work,all}
mount -t overlay -o "lowerdir=/,upperdir=$root/upper,workdir=$root/work" none "$root/all"
all=$root/all
mount -t proc none "$all/proc"
mount -t sysfs none "$all/sys"
if [ "$(stat -f -c %T /sys/fs/cgroup)" = cgroup2fs ]; then
	mount -t cgroup2 none "$all/sys/fs/cgroup"
else
	mount -t tmpfs -o mode=755 none "$all/sys/fs/cgroup"
	while IFS=: read -r _ controllers _; do
		[ -n "$controllers" ] || continue
		name=${controllers#name=}
		mkdir "$all/sys/fs/cgroup/$name"
		option=$controllers
		[ "$name" = "$controllers" ] || option=none,$controllers
		mount -t cgroup -o "$option" none "$all/sys/fs/cgroup/$name"
	done </proc/self/cgroup
fi
# The devices that programs need, and none of the machine's.
mount -t tmpfs -o mode=755 none "$all/dev"
mkdir "$all"/dev/{net,pts,shm,mqueue}
devices=()
for device in null zero full random urandom tty fuse net/tun; do
	[ ! -e "/dev/$device" ] || devices+=("$device")
done
(cd /dev && cp -a --parents "${devices[@]}" "$all/dev")
mount -t devpts -o newinstance,ptmxmode=0666 none "$all/dev/pts"
mount -t tmpfs none "$all/dev/shm"
ln -s null "$all/dev/kmsg" # A kubelet wants to read it, and systemd writes to it.
ln -s pts/ptmx "$all/dev/ptmx"
ln -s /proc/self/fd "$all/dev/fd"
touch "$all/dev/console"
# What the machine has, the host has not.
for dir in run tmp var/lib/cni var/lib/containerd var/lib/kubelet var/log; do
	mkdir -p "$all/$dir"
	mount -t tmpfs -o mode=755 none "$all/$dir"
done
chmod 1777 "$all/tmp"
for dir; do
	mkdir -p "$all/$dir"
	mount --bind "$dir" "$all/$dir"
done
# These belong to the machine, and a kubelet writes to them.
mkdir -p "$root"/settings/{vm,kernel/keys}
for setting in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
	read -r value <"/proc/sys/$setting"
	echo "$value" >"$root/settings/$setting"
	mount --bind "$root/settings/$setting" "$all/proc/sys/$setting"
done
# Nothing of the machine's systemd but what tests need: most of it finds no devices here.
units=()
for unit in "$all"/lib/systemd/system/*.wants/* "$all"/etc/systemd/system/*.wants/* "$all"/lib/systemd/system-generators/*; do
	case $unit in
	*journald.service | *journald.socket | *journald-dev-log.socket) ;;
	*) units+=("$unit") ;;
	esac
done
rm -f "${units[@]}"
mkdir -p "$all/run/udev/rules.d" "$all/run/netns"
ln -s /dev/null "$all/run/udev/rules.d/80-net-setup-link.rules" # It gives NICs the names of their slots.
cd "$all"
mkdir -p old
pivot_root . old
cd /
umount -l /old
mount --make-rshared /
hostname relink-native
ip link set lo up
ip netns add wire
ip netns exec wire sh -ec 'ip link set lo up; ip link add wire0 address 52:54:00:00:00:10 type bridge; ip link set wire0 up
	ip link add spare0 address 52:54:00:00:00:11 type veth peer name port9; ip link set port9 master wire0 up'
mkdir -p /usr/local/sbin
cat >/usr/local/sbin/nics <<'END'
#!/bin/sh
# nics on|off...   brings the NICs, which are down, or takes them away, as a driver does.
for word; do
	for n in 0 1; do
		if [ "$word" = off ]; then
			ip link del "eth$n" || exit
		else
			ip link add "eth$n" address "52:54:00:00:00:0$((n + 1))" type veth peer name "port$n" netns wire || exit
			ip -n wire link set "port$n" master wire0 up || exit
		fi
	done
done
END
chmod +x /usr/local/sbin/nics
nics on
exec env -i container=relink PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system --show-status=0
