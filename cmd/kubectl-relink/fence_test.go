package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/test/terminal"
)

// blockAPI answers as a Kubernetes API does that has blocks and one node. test/cluster has a real one.
type blockAPI struct {
	mu     sync.Mutex
	blocks map[string]pool.Block
	// node is the object of node3, empty for none.
	node string
	// changed is the answer to a change, 0 for success.
	changed map[string]int
	// meanwhile happens before the first change.
	meanwhile func()
	agents    map[string]bool
}

func (a *blockAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.agents[r.UserAgent()] = true
	const blocks = "/apis/ipam.relink.dev/v1alpha1/addressblocks"
	name := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	if a.meanwhile != nil && r.Method == http.MethodPut {
		a.meanwhile()
		a.meanwhile = nil
	}
	w.Header().Set("Content-Type", "application/json")
	switch b, is := a.blocks[name]; {
	case r.Header.Get("Authorization") != "Bearer secret":
		refuseBlock(w, http.StatusForbidden, "", "addressblocks is forbidden: User \"nobody\" cannot list it")
	case r.URL.Path == blocks:
		list := map[string]any{"kind": "AddressBlockList", "metadata": m{}}
		var items []pool.Block
		for _, b := range a.blocks {
			selector := r.URL.Query().Get("labelSelector")
			if _, is := b.Metadata.Labels[selector]; is || selector == "" {
				items = append(items, b)
			}
		}
		slices.SortFunc(items, func(a, b pool.Block) int { return strings.Compare(a.Metadata.Name, b.Metadata.Name) })
		list["items"] = items
		_ = json.NewEncoder(w).Encode(list)
	case r.URL.Path == "/api/v1/nodes/node3" && a.node != "":
		fmt.Fprint(w, a.node)
	case strings.HasPrefix(r.URL.Path, "/api/v1/nodes/"):
		refuseBlock(w, http.StatusNotFound, "nodes", name)
	case !is:
		refuseBlock(w, http.StatusNotFound, "addressblocks", name)
	case r.Method == http.MethodGet:
		_ = json.NewEncoder(w).Encode(b)
	case a.changed[name] != 0:
		refuseBlock(w, a.changed[name], "addressblocks", "no change of "+name)
	default:
		var next pool.Block
		if json.NewDecoder(r.Body).Decode(&next) != nil || next.Metadata.ResourceVersion != b.Metadata.ResourceVersion {
			refuseBlock(w, http.StatusConflict, "addressblocks", name)
			return
		}
		next.Metadata.ResourceVersion += "1"
		a.blocks[name] = next
		_ = json.NewEncoder(w).Encode(next)
	}
}

// runsTo runs the command line, and returns the exit status and all that it says.
func runsTo(args ...string) (int, string) {
	var out bytes.Buffer
	code := run(context.Background(), args, &out, &out)
	return code, out.String()
}

type m = map[string]any

func refuseBlock(w http.ResponseWriter, status int, resource, name string) {
	reason := map[int]string{http.StatusNotFound: "NotFound", http.StatusForbidden: "Forbidden", http.StatusConflict: "Conflict"}[status]
	group := map[string]string{"addressblocks": pool.Group}[resource]
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(m{
		"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": name, "reason": reason, "code": status, "details": m{"name": name, "group": group, "kind": resource},
	})
}

const readyNode = `{"metadata": {"name": "node3", "uid": "u"}, "status": {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"bootID": "boot-2"}}}`

// deadNode is an API with two blocks of node3: one is all its own, and of the other one node1 has a half. prepare
// changes it before it answers. Its kubeconfig is a person's.
func deadNode(t *testing.T, prepare func(*blockAPI)) (a *blockAPI, kubeconfig string) {
	t.Helper()
	l, err := pool.Pool{Metadata: pool.Meta{Name: "lan", UID: "p"}, Spec: pool.Spec{Subnet: "10.3.0.0/24", BlockSize: 4}}.Layout()
	if err != nil {
		t.Fatal(err)
	}
	party := func(node string) pool.Party { return pool.Party{Node: node, Network: "lan", Store: node + "-store"} }
	a = &blockAPI{blocks: map[string]pool.Block{}, changed: map[string]int{}, agents: map[string]bool{}}
	for i := range 2 {
		b, _ := pool.NewBlock(l, int64(i), party("node3"), "boot-1")
		b.Metadata.UID, b.Metadata.ResourceVersion = fmt.Sprint("uid-", i), "1"
		if i == 1 {
			b = b.HandOver(party("node3"), []int{2, 3}, party("node1"))
		}
		a.blocks[b.Metadata.Name] = b
	}
	prepare(a)
	server := httptest.NewTLSServer(a)
	t.Cleanup(server.Close)
	authority := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	file := filepath.Join(t.TempDir(), "config")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: olga\nclusters: [{name: c, cluster: {server: '%s', certificate-authority-data: %s}}]\n"+
		"contexts: [{name: olga, context: {cluster: c, user: olga}}, {name: nobody, context: {cluster: c, user: nobody}}]\n"+
		"users: [{name: olga, user: {token: secret}}, {name: nobody, user: {token: none}}]\n", server.URL, authority)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", file)
	return a, file
}

// fencedBy returns by which proofs the blocks say that node3 is dead.
func (a *blockAPI) fencedBy() (all []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, b := range a.blocks {
		if h, _ := b.Holder(pool.Party{Node: "node3", Store: "node3-store"}); h.Fenced != "" {
			all = append(all, h.Fenced)
		}
	}
	return all
}

// What the command says, and what it makes of the blocks.
func TestFence(t *testing.T) {
	const table = "STORE        NETWORK  POOL  BLOCKS  ADDRESSES  ASKS FOR  BOOT  STATE\n"
	const means = "Other nodes may take the 6 addresses of node3 then, each after a probe. If the machine still runs, two pods can have one address: make sure that it is off.\n"
	const refused = "update AddressBlock lan-1: the Kubernetes API refuses: no change of lan-1 (status 403). This account needs the rule {apiGroups: [\"ipam.relink.dev\"], resources: [\"addressblocks\"], verbs: [\"update\"]}"
	for name, test := range map[string]struct {
		args    string
		prepare func(*blockAPI)
		code    int
		want    string
		fenced  int
	}{
		"a dry run": {"node3 --dry-run", func(*blockAPI) {}, cli.OK, table +
			"node3-store  lan      lan   2       6          0         -     to fence\n6 addresses to fence\n" + means, 0},
		"by a script": {"node3 --yes", func(*blockAPI) {}, cli.OK, table + "node3-store  lan      lan   2       6          0         -     fenced\n6 addresses fenced\n", 2},
		"quiet":       {"node3 --yes -q", func(*blockAPI) {}, cli.OK, "", 2},
		"each block":  {"node3 --yes -o wide", func(*blockAPI) {}, cli.OK, "", 2},
		"a node that is ready": {"node3 --yes", func(a *blockAPI) { a.node = readyNode }, cli.OK,
			"relink: WARNING: node node3 is Ready: its kubelet has answered lately. Its pods may run.\n" + strings.Replace(table, "BOOT  ", "BOOT     ", 1) +
				"node3-store  lan      lan   2       6          0         earlier  fenced\n6 addresses fenced\n", 2},
		"a node that has booted": {"node3 --dry-run", func(a *blockAPI) {
			a.node = strings.Replace(readyNode, "boot-2", "boot-1", 1)
		}, cli.OK, strings.Replace(table, "BOOT  ", "BOOT       ", 1) + "node3-store  lan      lan   2       6          0         this boot  to fence\n6 addresses to fence\n" + means +
			"WARNING: node node3 is Ready: its kubelet has answered lately. Its pods may run.\nWARNING: node3 has used since its last boot: store node3-store.\n", 0},
		"one block is refused": {"node3 --yes", func(a *blockAPI) { a.changed["lan-1"] = http.StatusForbidden }, cli.Differs, table +
			"node3-store  lan      lan   1       4          0         -     fenced\nnode3-store  lan      lan   1       2          0         -     failed\n" +
			"lan-1 is not fenced: " + refused + "\n4 addresses fenced, 2 addresses failed\n", 1},
		"one block is refused, quiet": {"node3 --yes -q", func(a *blockAPI) { a.changed["lan-1"] = http.StatusForbidden }, cli.Differs, table +
			"node3-store  lan      lan   1       2          0         -     failed\n", 1},
		"it lives": {"node3 --yes", func(a *blockAPI) {
			a.meanwhile = func() {
				b, _ := a.blocks["lan-1"].Confirm(pool.Party{Node: "node3", Store: "node3-store"}, "boot-2")
				b.Metadata.ResourceVersion = "2"
				a.blocks["lan-1"] = b
			}
		}, cli.Differs, table + "node3-store  lan      lan   1       4          0         -     fenced\nnode3-store  lan      lan   1       2          0         -     left\n" +
			"4 addresses fenced, 2 addresses left\n" +
			"relink: the node lives: it has confirmed what it has of AddressBlock lan-1 while this command ran. Make sure that the machine is off, and run it again.\n", 1},
		"nothing of a node":     {"node3 --yes", func(a *blockAPI) { a.node, a.blocks = readyNode, nil }, cli.OK, "no AddressBlock has anything of node3\n", 0},
		"no such node":          {"node4 --yes", func(*blockAPI) {}, cli.Usage, "relink: \"node4\" matches nothing: no AddressBlock has anything of a node of that name, and no Node object is seen\n", 0},
		"no such store":         {"node3 --yes --store x", func(*blockAPI) {}, cli.Usage, "relink: --store x matches nothing: the stores of node3 are node3-store\n", 0},
		"nobody can be asked":   {"node3", func(*blockAPI) {}, cli.Usage, "relink: kubectl relink fence needs --yes where nobody can be asked: standard input and standard error must be a terminal. --dry-run prints what would be fenced\n", 0},
		"no such context":       {"node3 --context x", func(*blockAPI) {}, cli.Usage, "relink: the Kubernetes API cannot be asked: context \"x\" does not exist\n", 0},
		"no rights":             {"node3 --context nobody --yes", func(*blockAPI) {}, cli.Usage, "relink: list addressblocks: the Kubernetes API refuses: addressblocks is forbidden: User \"nobody\" cannot list it (status 403). This account needs the rule", 0},
		"no such file":          {"node3 --kubeconfig /nowhere", func(*blockAPI) {}, cli.Usage, "relink: the Kubernetes API cannot be asked: stat /nowhere: no such file or directory\n", 0},
		"no node":               {"", func(*blockAPI) {}, cli.Usage, "relink: an argument is missing: kubectl relink fence NODE\n", 0},
		"two nodes":             {"node3 node4", func(*blockAPI) {}, cli.Usage, "relink: unexpected argument \"node4\": ", 0},
		"an empty store":        {"node3 --yes --store=", func(*blockAPI) {}, cli.Usage, "relink: invalid --store \"\": it must not be empty", 0},
		"an empty reason":       {"node3 --yes --reason=", func(*blockAPI) {}, cli.Usage, "relink: invalid --reason \"\": it must not be empty", 0},
		"a reason of two lines": {"node3 --yes --reason=a\x01b", func(*blockAPI) {}, cli.Usage, "relink: invalid --reason: it must be one line of at most 500 bytes\n", 0},
	} {
		t.Run(name, func(t *testing.T) {
			a, _ := deadNode(t, test.prepare)
			code, out := runsTo(append([]string{"fence"}, strings.Fields(test.args)...)...)
			if code != test.code || !strings.HasPrefix(out, test.want) || test.want == "" && code == cli.OK && strings.Contains(test.args, "-q") && out != "" {
				t.Errorf("status %d\n%s\nwant %d\n%s", code, out, test.code, test.want)
			}
			if by := a.fencedBy(); len(by) != test.fenced {
				t.Errorf("the blocks have the fences %q, want %d", by, test.fenced)
			}
			if strings.Contains(test.args, "wide") && (!strings.Contains(out, "lan-0") || !strings.Contains(out, "lan-1")) {
				t.Errorf("it does not show each block:\n%s", out)
			}
			a.mu.Lock()
			defer a.mu.Unlock()
			if len(a.agents) > 1 || len(a.agents) == 1 && !a.agents["kubectl-relink"] {
				t.Errorf("the API was asked by %v", a.agents)
			}
		})
	}
}

// The blocks say who has fenced, and when. A second run says that it is done.
func TestFenceNotesWhy(t *testing.T) {
	for args, want := range map[string]string{
		"": `^by hand: \S+@\S+, \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$`, "--reason power-is-off": `^by hand: power-is-off, \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$`,
	} {
		a, file := deadNode(t, func(*blockAPI) {})
		t.Setenv("KUBECONFIG", "")
		words := strings.Fields("fence node3 --yes --kubeconfig " + file + " " + args)
		if code, out := runsTo(words...); code != cli.OK {
			t.Fatalf("%q: status %d\n%s", args, code, out)
		}
		by := a.fencedBy()
		if len(by) != 2 || by[0] != by[1] || !regexp.MustCompile(want).MatchString(by[0]) {
			t.Fatalf("%q: the blocks have %q, want twice %s", args, by, want)
		}
		if code, out := runsTo(words...); code != cli.OK || !strings.HasSuffix(out, "  fenced before\nothers may take what node3 had: "+by[0]+"\n6 addresses fenced before\n") {
			t.Errorf("%q again: status %d\n%s", args, code, out)
		}
		var report struct {
			Node, Object string
			Parts        []struct{ Block, Store, State, Reason string }
		}
		code, out := runsTo(append(words, "-o", "json")...)
		if err := json.Unmarshal([]byte(out), &report); err != nil || code != cli.OK || report.Node != "node3" || report.Object != "gone" || len(report.Parts) != 2 || report.Parts[0].State != "fenced before" || report.Parts[0].Reason != by[0] {
			t.Errorf("%q as JSON: status %d, %v\n%s", args, code, err, out)
		}
	}
}

// Only the node's name fences anything.
func TestFenceTakesAnAnswer(t *testing.T) {
	const question = "Type the node's name to declare it dead: "
	for name, test := range map[string]struct {
		answer, more string
		code         int
		ends         string
		fenced       int
	}{
		"the name":      {"node3\n", "", cli.OK, "\n6 addresses fenced\n", 2},
		"as JSON":       {"node3\n", "-o json", cli.OK, "\n}\n", 2},
		"another name":  {"node1\n", "", cli.Differs, "\nnothing is fenced\n", 0},
		"an empty line": {"\n", "", cli.Differs, "\nnothing is fenced\n", 0},
		"the end":       {"\x04", "", cli.Differs, "\nnothing is fenced\n", 0},
		"interrupt":     {"\x03", "-q", cli.Differs, "\nnothing is fenced\n", 0},
	} {
		t.Run(name, func(t *testing.T) {
			a, file := deadNode(t, func(a *blockAPI) { a.node = readyNode })
			shown, code := terminal.TypeAfter(t, "kubectl-relink", question, test.answer, "fence node3 --kubeconfig "+file+" "+test.more)
			if code != test.code || !strings.HasSuffix(shown, test.ends) || len(a.fencedBy()) != test.fenced {
				t.Errorf("exit status %d, fenced by %q:\n%s", code, a.fencedBy(), shown)
			}
			before, _, _ := strings.Cut(shown, question)
			for _, says := range []string{"node3-store", "the 6 addresses of node3", "two pods can have one address", "WARNING: node node3 is Ready"} {
				if !strings.Contains(before, says) {
					t.Errorf("before it asks it does not say %q:\n%s", says, shown)
				}
			}
		})
	}
}

// kubectl relink blocks says once how each node was declared dead.
func TestBlocksSayWhyANodeIsFenced(t *testing.T) {
	a, _ := deadNode(t, func(*blockAPI) {})
	runsTo("fence", "node3", "--yes", "--reason", "power is off")
	by := a.fencedBy()[0]
	a.mu.Lock()
	defer a.mu.Unlock()
	b, _ := a.blocks["lan-1"].Fence(func(p pool.Party) bool { return p.Node == "node1" }, "taint")
	var out bytes.Buffer
	writeBlocks([]pool.Block{a.blocks["lan-0"], b}, &cli.Screen{Format: cli.FormatTable, Out: &out, Err: &out})
	want := `BLOCK  ADDRESSES          NODES                                               FREE  ASKED
lan-0  10.3.0.1-10.3.0.4  node3: 4 (declared dead)                            0     -
lan-1  10.3.0.5-10.3.0.8  node3: 2 (declared dead), node1: 2 (declared dead)  0     -
others may take what node3 had: ` + by + "\nothers may take what node1 had: taint\n"
	if out.String() != want || !strings.HasPrefix(by, "by hand: power is off, ") {
		t.Errorf("it says\n%swant\n%s", &out, want)
	}
}
