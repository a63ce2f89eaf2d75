package cluster

import (
	"os"
	"strings"
	"testing"
)

// failures show what each row of the table in docs/pools.md says.
var failures = map[string]func(*api, *testing.T, map[string]user){
	"the API does not answer":                    (*api).killedUnderLoad,
	"a node cannot reach the API":                (*api).cutOff,
	"an answer of the API gets lost":             (*api).answersLost,
	"something answers with old states":          (*api).oldStates,
	"the agent of a node":                        (*api).agentAway,
	"the controller":                             (*api).controllerAway,
	"a node does not answer":                     (*api).silentNode,
	"a node was declared dead, and comes back":   (*api).backFromTheDead,
	"the pool has no address left":               (*api).allAddresses,
	"the pool does not exist":                    (*api).noPool,
	"the store of a node is lost":                (*api).storeLost,
	"the disk of a node is full":                 (*api).diskFull,
	"the clock of a node jumps":                  (*api).clockJumps,
	"an owner of a dead node does not come back": (*api).ownerGone,
	"etcd lost something":                        (*api).restored,
}

// Each row of the table is a test, in its order, and each test is a row.
func (a *api) failuresOfTable(t *testing.T, users map[string]user) {
	rows := failureRows(t)
	for _, row := range rows {
		show, is := failures[row]
		if !is {
			t.Errorf("docs/pools.md: no test shows what happens when %q fails", row)
			continue
		}
		t.Run(row, func(t *testing.T) { show(a, t, users) })
	}
	for name := range failures {
		if !strings.Contains("\n"+strings.Join(rows, "\n")+"\n", "\n"+name+"\n") {
			t.Errorf("docs/pools.md has no row about what the test %q shows", name)
		}
	}
}

// failureRows are the first cells of the table in docs/pools.md.
func failureRows(t *testing.T) (all []string) {
	t.Helper()
	const columns = 4
	b, err := os.ReadFile("../../docs/pools.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(b), "\n## When something fails\n")
	if !found {
		t.Fatal("docs/pools.md has no section about what happens when something fails")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if first := strings.TrimSpace(cells[0]); strings.HasPrefix(line, "|") && first != "What fails" && !strings.HasPrefix(first, "-") {
			if len(cells) != columns {
				t.Errorf("docs/pools.md: the row about %q has %d columns, not %d", first, len(cells), columns)
			}
			all = append(all, first)
		}
	}
	if len(all) == 0 {
		t.Error("docs/pools.md: the table of failures is empty")
	}
	return all
}
