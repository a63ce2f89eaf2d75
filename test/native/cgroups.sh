#!/bin/bash
# cgroups.sh GROUP COMMAND...   moves itself to new control groups below its own, and runs the command in a cgroup namespace there. In
# the hierarchy of version 2 too: otherwise the units of two hosts are in one group.
set -euo pipefail
group=$1
shift
for top in /sys/fs/cgroup/*/cgroup.procs /sys/fs/cgroup/cgroup.procs; do
	dir=${top%/cgroup.procs}
	{ [ -e "$top" ] && mountpoint -q "$dir"; } || continue # It is no hierarchy, or not the top of one.
	mkdir "$dir/$group"
	if [ -e "$dir/cpuset.cpus" ] && [ -e "$dir/$group/cpuset.cpus" ]; then # A group of version 1 has none at first.
		cat "$dir/cpuset.cpus" >"$dir/$group/cpuset.cpus"
		cat "$dir/cpuset.mems" >"$dir/$group/cpuset.mems"
		echo 1 >"$dir/$group/cgroup.clone_children"
	fi
	echo $$ >"$dir/$group/cgroup.procs"
done
exec unshare -C "$@"
