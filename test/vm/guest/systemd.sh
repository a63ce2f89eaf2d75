#!/bin/sh
# Turns process 1 into systemd. It leaves out the units that nobody needs here: some take long (systemd-tmpfiles-setup: 40 s), empty /tmp,
# or rename the NICs. Each of the generators takes 25 ms and finds nothing. This writes to the machine's overlay only.
set -e
for unit in /lib/systemd/system/*.wants/* /etc/systemd/system/*.wants/* /lib/systemd/system-generators/*; do
	case $unit in
	*journald.service | *journald.socket | *journald-dev-log.socket) ;;
	*) set -- "$@" "$unit" ;;
	esac
done
rm -f "$@"
mkdir -p /run/udev/rules.d
ln -sf /dev/null /run/udev/rules.d/80-net-setup-link.rules # This rule gives NICs the names of their slots.
kill -USR1 1
until [ -e /run/systemd/private ] && systemctl is-active --quiet basic.target; do sleep 0.05; done
