#!/bin/sh
# Runs the commands that the host puts on the share, one after the other, for ever: N.job is the N-th, N.out what it
# writes, N.end its exit status.
n=1
while :; do
	until [ -e "$RELINK_VM_SHARE/$n.job" ]; do sleep 0.05; done
	sh "$RELINK_VM_SHARE/$n.job" </dev/null >"$RELINK_VM_SHARE/$n.out" 2>&1
	echo $? >"$RELINK_VM_SHARE/$n.end"
	n=$((n + 1))
done
