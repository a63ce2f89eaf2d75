#!/run/.vm/busybox sh
# Second stage, process 1 of the guest: network, then the command, then its exit status. This busybox prefers its own
# applets to programs found in PATH, hence the full paths.
set -u

fail() {
	echo "relink-vm: $*" >/dev/console
	poweroff -f
	sleep 60
}

nic_by_mac() { # prints the name of the NIC that has this address
	local address
	for address in /sys/class/net/*/address; do
		if [ "$(cat "$address")" = "$1" ]; then
			basename "$(dirname "$address")"
			return
		fi
	done
	fail "no NIC has the address $1"
}

# shellcheck source=/dev/null # GUEST_HOSTNAME, TRAILER
. /run/.vm/machine

export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/go/bin
export HOME=/root USER=root LANG=C.UTF-8 RELINK_VM=1 RELINK_VM_SHARE=/mnt/share

# The Go runtime has a thread that sleeps for 20 microseconds at a time. The emulated processor needs longer than that for each sleep.
# With this, timers of all that runs here fire up to 2 ms late. Go programs need 15 to 30% less time.
echo 2000000 >/proc/$$/timerslack_ns

hostname "$GUEST_HOSTNAME"
echo "127.0.0.1 $GUEST_HOSTNAME" >>/etc/hosts

[ "$(nic_by_mac 52:54:00:00:00:01)" = eth0 ] || fail "the first e1000e NIC is not eth0"
[ "$(nic_by_mac 52:54:00:00:00:02)" = eth1 ] || fail "the second e1000e NIC is not eth1"
wire=$(nic_by_mac 52:54:00:00:00:10)
spare=$(nic_by_mac 52:54:00:00:00:11)
ip=$(PATH=/usr/sbin:/sbin:/usr/bin:/bin /run/.vm/busybox which ip) || fail "no ip command: run make setup"
"$ip" -batch - <<-END || fail "making the namespace wire"
	link set lo up
	netns add wire
	link set $wire netns wire name wire0
	link set $spare netns wire name spare0
END
"$ip" -netns wire -batch - <<-END || fail "setting wire0 up"
	link set lo up
	link set wire0 up
END

# The command writes to a pipe, not to the port: a port can be opened only once, which breaks >/dev/stderr. The shell that
# writes the exit status is the pipe's writer too, so it knows that what it writes last also arrives last.
# What a shell starts with & ignores SIGINT and SIGQUIT, and so do its children. The command must not: a test ends its
# programs with SIGINT. The shell's own env has no such option.
mkfifo /run/.vm/output
cat /run/.vm/output >/dev/vport0p1 &
(
	exec 3<>/run/.vm/output
	/usr/bin/env --default-signal=INT,QUIT /bin/sh /run/.vm/run </dev/null >/run/.vm/output 2>&1 3>&-
	status=$?
	sync
	printf '%s%d\n' "$TRAILER" "$status" >&3
	# The host ends the machine when it has read the status.
	sleep 30
	poweroff -f
) &

# Process 1 becomes systemd on this signal. Everything that runs goes on: systemd moves it into init.scope.
become_systemd() {
	exec /lib/systemd/systemd --unit=basic.target </dev/null >/dev/console 2>&1
}
trap become_systemd USR1
while :; do wait; done
