#!/bin/bash
# run.sh part ARGUMENT...   runs go test with the arguments, in the present directory. Shows what each package says, and what a failed
#                           test says. A skipped test is a failed one.
# run.sh summary <TIMES     shows the tests of all parts that took longest, and the processor time of the parts and of what TIMES says.
#
# The events of a part's tests go to a file of its own in the directory $RELINK_EVENTS, and its time to another: tee cuts lines in two, so
# that two parts at once cannot append to one file.
set -euo pipefail

# seconds reads what times(1) of a shell says, and prints the processor time of that shell's children.
seconds() {
	tail -n 1 | tr 'ms' '  ' | awk '{ printf "%.0f", 60 * $1 + $2 + 60 * $3 + $4 }'
}

part() {
	local status=0 events="$RELINK_EVENTS/$$"
	mkdir -p "$RELINK_EVENTS"
	"${GO:-go}" test -json "$@" | tee "$events.json" | jq -nj --unbuffered '
		foreach (inputs | .key = "\(.Package) \(.Test)") as $e ({};
			if $e.Action == "output" then .[$e.key] += $e.Output elif $e.Action == "pass" then del(.[$e.key]) else . end;
			if $e.Test == null then $e.Output // empty
			elif $e.Action == "skip" or $e.Action == "fail" then .[$e.key] // empty else empty end)' || status=$?
	times >"$events.times" # In this shell: a subshell has children of its own.
	echo "$(seconds <"$events.times") s of processor time: go test $*" | tee "$events.time"
	return $status
}

summary() {
	echo "the tests that took longest:"
	jq -s -r '[.[] | select(.Test)] | (map(.Test | split("/")[:-1] | join("/")) | unique) as $parents
		| map(select(.Elapsed and (.Test | IN($parents[]) | not))) | sort_by(-.Elapsed)[:10][]
		| "\(.Elapsed) s  \(.Package | sub("^github.com/relink-cni/relink/"; "")) \(.Test)"' "$RELINK_EVENTS"/*.json
	sort -rn "$RELINK_EVENTS"/*.time
	echo "$(seconds) s of processor time in all"
	if jq -r 'select(.Action == "skip" and .Test) | "skipped: \(.Package) \(.Test)"' "$RELINK_EVENTS"/*.json | grep .; then
		return 1
	fi
}

"$@"
