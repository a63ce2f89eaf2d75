#!/bin/bash
# The demonstration. It runs in the test machine. BIN is the directory of the programs,
# and the working directory is the repository.
set -euo pipefail

export PATH=$BIN:$PATH CNI_PATH=$BIN NETCONFPATH=$PWD/docs/examples
pods="web-0 web-1 web-2 db-0 vm-0"
gateway=10.3.0.1

say() { printf '\n\e[1m== %s\e[0m\n' "$*"; }
show() { printf '   $ %s\n' "$*"; "$@" 2>&1 | sed 's/^/     /'; }

# answers prints how many of the pods get an answer from the gateway.
answers() {
	local n=0 pod
	for pod in $pods; do
		if ip netns exec "$pod" ping -q -c 1 -W 1 "$gateway" >/dev/null 2>&1; then n=$((n + 1)); fi
	done
	echo "   $n of 5 pods get an answer from the gateway $gateway"
	[ "$n" = "$1" ]
}

# state prints what each pod has: a line with its MAC and addresses.
state() {
	local pod mac addrs
	for pod in $pods; do
		mac=$(ip -n "$pod" -j link show eth0 2>/dev/null | jq -r '.[0].address // empty') || true
		addrs=$(ip -n "$pod" -j addr show eth0 scope global 2>/dev/null | jq -r '[.[0].addr_info[]? | .local] | join(" ")') || true
		echo "$pod ${mac:--} ${addrs:--}"
	done
}

await_carrier() {
	local _
	for _ in $(seq 200); do
		if [ "$(cat "/sys/class/net/$1/carrier" 2>/dev/null)" = 1 ]; then return; fi
		sleep 0.05
	done
	echo "no carrier on $1"
	exit 1
}

# seconds prints the time since $1, in seconds.
seconds() { awk -v from="$1" -v to="$EPOCHREALTIME" 'BEGIN { printf "%.2f s", to - from }'; }

say "The node has two e1000e NICs in bond4. A gateway on VLAN 3 is at the other end of the wire."
ip link add bond4 type bond mode active-backup miimon 100
ip link set eth0 master bond4
ip link set eth1 master bond4
ip link set bond4 up
await_carrier bond4
ip -n wire link add link wire0 name wire0.3 type vlan id 3
ip -n wire link set wire0.3 up
ip -n wire addr add $gateway/24 dev wire0.3
ip -n wire addr add fd00:3::1/64 dev wire0.3 nodad
show ip -br link

say "relink-macvlan attaches five pods to VLAN 3, called as a container runtime calls it."
for pod in $pods; do
	ip netns add "$pod"
	CNI_ARGS="IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=$pod" cnitool add vlan3 "/run/netns/$pod" >/dev/null
done
show relink list
answers 5
state >/tmp/before

say "The driver of the NICs is reloaded, and the host's network is set up again: bond4 is back, without its NICs."
lost=$EPOCHREALTIME
rmmod e1000e
ip link del bond4
modprobe e1000e
ip link add bond4 type bond mode active-backup miimon 100
ip link set bond4 up

say "The pods run on, and are cut off. No runtime notices it."
show ip -n web-0 -br addr
answers 0 || true
show relink status || true

say "One restore."
show relink restore --dry-run || true
restored=$EPOCHREALTIME
show relink restore
took=$(seconds "$restored")

say "The pods are back on the wire. No container was restarted."
answers 5
gap=$(seconds "$lost")
state >/tmp/after
{
	echo "POD MAC-BEFORE MAC-AFTER ADDRESSES-BEFORE ADDRESSES-AFTER"
	join <(sort /tmp/before) <(sort /tmp/after) | awk '{ print $1, $2, $5, $3 "," $4, $6 "," $7 }'
} | column -t | sed 's/^/   /'
cmp /tmp/before /tmp/after
echo
echo "   The restore took $took. Most of that is the NICs' own time until they have carrier."
echo "   From the loss of the driver to all answers it took $gap, with the commands shown above in between."

say "The same once more, with relink-agent: nobody types anything."
relink-agent --host-grace 1s 2>/tmp/agent.log &
agent=$!
until curl -sf --unix-socket /run/relink/agent.sock http://agent/readyz >/dev/null; do sleep 0.05; done
lost=$EPOCHREALTIME
rmmod e1000e
ip link del bond4
modprobe e1000e
ip link add bond4 type bond mode active-backup miimon 100
ip link set bond4 up
back=$EPOCHREALTIME
for pod in $pods; do
	until ip -n "$pod" link show eth0 >/dev/null 2>&1; do sleep 0.02; done
done
whole=$(seconds "$back")
carrier=$(cat /sys/class/net/bond4/carrier)
await_carrier bond4
linked=$(seconds "$back")
until answers 5 >/tmp/answers; do :; done
cat /tmp/answers
gap=$(seconds "$lost")
state >/tmp/after
cmp /tmp/before /tmp/after
until relink check --quiet; do sleep 0.1; done
show grep -v level=DEBUG /tmp/agent.log
kill $agent
wait $agent || true
echo
echo "   All pods had their interfaces $whole after the bond was back. It had carrier after $linked (when the pods were whole: $carrier)."
echo "   From the loss of the driver to all answers it took $gap."
