#!/bin/bash
# cgroups.sh GROUP COMMAND...   moves itself to new control groups below its own, and runs the command in a cgroup namespace there.
set -euo pipefail
group=$1
shift
for top in /sys/fs/cgroup/*/cgroup.procs /sys/fs/cgroup/cgroup.procs; do
	[ -e "$top" ] || continue
	dir=${top%/cgroup.procs}
	[ "$(stat -f -c %T "$dir")" != cgroup2fs ] || [ "$dir" = /sys/fs/cgroup ] || continue # Not a hierarchy of version 1.
	mkdir "$dir/$group"
	if [ -e "$dir/cpuset.cpus" ] && [ -e "$dir/$group/cpuset.cpus" ]; then # A group of version 1 has none at first.
		cat "$dir/cpuset.cpus" >"$dir/$group/cpuset.cpus"
		cat "$dir/cpuset.mems" >"$dir/$group/cpuset.mems"
		echo 1 >"$dir/$group/cgroup.clone_children"
	fi
	echo $$ >"$dir/$group/cgroup.procs"
done
exec unshare -C "$@"
