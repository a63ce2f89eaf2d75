#!/bin/bash
# run.sh part ARGUMENT...   runs go test with the arguments, in the present directory. Shows what each package says, and what a failed
#                           test says. A skipped test is a failed one.
# run.sh summary <TIMES     shows the tests of all parts that took longest, and the processor time of the parts and of what TIMES says.
#
# All events of the tests go to $RELINK_EVENTS, and the parts' times to $RELINK_EVENTS.times.
set -euo pipefail

# seconds reads what times(1) of a shell says, and prints the processor time of that shell's children.
seconds() {
	tail -n 1 | tr 'ms' '  ' | awk '{ printf "%.0f", 60 * $1 + $2 + 60 * $3 + $4 }'
}

part() {
	local status=0
	"${GO:-go}" test -json "$@" | tee -a "$RELINK_EVENTS" | jq -nj --unbuffered '
		foreach (inputs | .key = "\(.Package) \(.Test)") as $e ({};
			if $e.Action == "output" then .[$e.key] += $e.Output elif $e.Action == "pass" then del(.[$e.key]) else . end;
			if $e.Test == null then $e.Output // empty
			elif $e.Action == "skip" or $e.Action == "fail" then .[$e.key] // empty else empty end)' || status=$?
	times >"$RELINK_EVENTS.$$" # In this shell: a subshell has children of its own.
	echo "$(seconds <"$RELINK_EVENTS.$$") s of processor time: go test $*" | tee -a "$RELINK_EVENTS.times"
	return $status
}

summary() {
	echo "the tests that took longest:"
	jq -s -r '[.[] | select(.Test)] | (map(.Test | split("/")[:-1] | join("/")) | unique) as $parents
		| map(select(.Elapsed and (.Test | IN($parents[]) | not))) | sort_by(-.Elapsed)[:10][]
		| "\(.Elapsed) s  \(.Package | sub("^github.com/relink-cni/relink/"; "")) \(.Test)"' "$RELINK_EVENTS"
	sort -rn "$RELINK_EVENTS.times"
	echo "$(seconds) s of processor time in all"
	if jq -r 'select(.Action == "skip" and .Test) | "skipped: \(.Package) \(.Test)"' "$RELINK_EVENTS" | grep .; then
		return 1
	fi
}

"$@"
