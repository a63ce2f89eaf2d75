package cluster

import (
	"net/http"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/pool"
)

// blocksInUse says that a person deletes a block with addresses of a node only after an annotation with its name. Agents are bound by
// another policy. Afterwards the binding is gone: other tests lose blocks.
func (a *api) blocksInUse(t *testing.T, users map[string]user) {
	const binding = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/relink-blocks-in-use"
	const hint = "another node could give them a second time. If no pod has any of them, annotate it first: kubectl annotate addressblock NAME ipam.relink.dev/delete=NAME"
	admin := users["admin"]
	all := []int{0, 1, 2, 3}
	for _, try := range []struct {
		name  string
		is    step
		by    string
		given string
		want  string
	}{
		{"a node has all", whole, "admin", "", "node node1 has addresses of AddressBlock NAME: " + hint},
		{"a node has one", gives(node1, all[1:]...), "admin", "", "node node1 has addresses of AddressBlock NAME: " + hint},
		{"a fenced node has one", then(gives(node1, all[1:]...), fenced(node1)), "admin", "", "node node1 has addresses of AddressBlock NAME: "},
		{"the annotation names another block", whole, "admin", "lan-7", "node node1 has addresses of AddressBlock NAME: "},
		{"nobody has any", gives(node1, all...), "admin", "", ""},
		{"the annotation names it", whole, "admin", "NAME", ""},
		{"its node deletes it", whole, "node1", "", ""},
	} {
		var now pool.Block
		admin.must(t, http.MethodPost, blocks, blockObject(try.is(taken(200, node1))), &now)
		at := blocks + "/" + now.Metadata.Name
		if given := ofBlock(try.given, now); given != "" {
			admin.must(t, http.MethodPatch, at, m{"metadata": m{"annotations": m{"ipam.relink.dev/delete": given}}}, nil)
		}
		said, answer := users[try.by].send(t, http.MethodDelete, at, m{})
		check(t, try.name, said, answer, http.StatusForbidden, ofBlock(try.want, now))
		if try.want == "" {
			continue
		}
		said, answer = admin.send(t, http.MethodDelete, blocks, m{})
		check(t, try.name+", and all blocks are deleted", said, answer, http.StatusForbidden, ofBlock(try.want, now))
		admin.must(t, http.MethodPatch, at, m{"metadata": m{"annotations": m{"ipam.relink.dev/delete": now.Metadata.Name}}}, nil)
		admin.must(t, http.MethodDelete, at, m{}, nil)
	}
	var now pool.Block
	admin.must(t, http.MethodPost, blocks, blockObject(taken(200, node1)), &now)
	admin.must(t, http.MethodDelete, binding, m{}, nil)
	await(t, 20*time.Second, "the end of the policy", func() bool {
		_, answer := admin.send(t, http.MethodDelete, blocks+"/"+now.Metadata.Name, m{})
		return answer.StatusCode < 300
	})
}
