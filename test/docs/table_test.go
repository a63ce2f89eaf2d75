package docs

import "testing"

// check is how a code block is held to the truth.
type check int

const (
	// file: the block is the file that with names, to the byte. JSON may be laid out otherwise.
	file check = iota
	// session: the block runs in the test machine, after those before it in its document. Output must be as shown.
	session
	// table: the block is a sample of a table. The command that with names prints this header in the test machine.
	table
	// parts: the block cannot run. Each relink command line in it must be known to the real command, each target of make
	// must be in the Makefile, and each file of the repository must be there.
	parts
	// tree: the block shows directories of the repository. Each must be there.
	tree
	// drawing: the block is a diagram.
	drawing
	// usage: the block is a verb's line of usage. TestReference compares it with the help.
	usage
)

// entry is for all blocks of a document that begin with the line first.
type entry struct {
	doc, first string
	check      check
	with       string
	why        string
}

const (
	runtime  = "it needs a container runtime or an API server"
	building = "it compiles: TestInstall runs the targets on this machine"
	systemd  = "the sessions run without systemd"
)

// entries has every code block of every document.
var entries = []entry{
	{"README.md", "flowchart LR", drawing, "", ""},
	{"README.md", "make demo", parts, "", building},
	{"README.md", "make build man", parts, "", building},
	{"README.md", "cp docs/examples/10-vlan3.conflist /etc/cni/net.d/10-vlan3.conflist", session, "", ""},
	{"README.md", "{", file, "docs/examples/10-vlan3.conflist", ""},
	{"README.md", "relink guard -- sh -c 'modprobe -r i40e && modprobe i40e'", session, "", ""},

	{"README.zh.md", "flowchart LR", drawing, "", ""},
	{"README.zh.md", "make demo", parts, "", building},
	{"README.zh.md", "make build man", parts, "", building},
	{"README.zh.md", "cp docs/examples/10-vlan3.conflist /etc/cni/net.d/10-vlan3.conflist", parts, "", "TestChinese: it is README.md's, which runs"},
	{"README.zh.md", "{", file, "docs/examples/10-vlan3.conflist", ""},
	{"README.zh.md", "relink guard -- sh -c 'modprobe -r i40e && modprobe i40e'", parts, "", "TestChinese: it is README.md's, which runs"},

	{"CONTRIBUTING.md", "make build", parts, "", building},
	{"CONTRIBUTING.md", "go test ./checkpoint/restore", parts, "", "it runs other tests"},
	{"CONTRIBUTING.md", "go build -o /tmp/vm ./test/vm/cmd/vm", parts, "", "it boots a machine from within this test"},

	{"docs/architecture.md", "plugins/                 the CNI programs: main.go wires", tree, "", ""},
	{"docs/architecture.md", "sequenceDiagram", drawing, "", ""},
	{"docs/architecture.md", "flowchart LR", drawing, "", ""},
	{"docs/agent.md", "flowchart LR", drawing, "", ""},
	{"docs/agent.md", "curl --unix-socket /run/relink/agent.sock http://agent/v1/status", parts, "", "the story agent and checkpoint/control/serve ask with curl"},
	{"docs/monitoring.md", "curl --unix-socket /run/relink/agent.sock http://agent/metrics", parts, "", "test/monitoring asks an agent"},
	{"docs/monitoring.md", "RELINK_AGENT_ARGS=\"--metrics-listen 127.0.0.1:9477\"", parts, "", "a file of the unit: the story unit reads it"},
	{"docs/monitoring.md", "$ kubectl describe pod web-0", parts, "", "podevents.TestTheDocumentHasEachReason has the words, test/cluster asks an API server as kubectl does"},
	{"docs/monitoring.md", "rule_files: [relink.rules.yml]", parts, "", "test/monitoring runs Prometheus"},
	{"docs/benchmarks.md", "go -C test/bench run . -only ipam", parts, "", "it measures for minutes"},
	{"docs/benchmarks.md", "go test ./checkpoint/agent -run NONE -bench NICBack -benchtime 30x", parts, "", "it measures for minutes"},
	{"docs/benchmarks.md", "go -C test/bench run . -only restore", parts, "", "it measures for minutes"},
	{"docs/benchmarks.md", "go -C test/bench run . -only move", parts, "", "it measures for minutes"},
	{"docs/benchmarks.md", "go -C test/bench run . -only agent", parts, "", "it measures for minutes"},
	{"docs/benchmarks.md", "go -C test/bench run . -only recording", parts, "", "it measures for minutes"},
	{"docs/benchmarks.md", "go -C test/bench run . -only audit", parts, "", "it measures for minutes"},
	{"docs/benchmarks.md", "go -C test/bench run . -only pools", parts, "", "it measures for minutes"},

	{"docs/commands.md", "# relink status", session, "", ""},
	{"docs/commands.md", "# relink check", session, "", ""},
	{"docs/commands.md", "# relink audit", parts, "", runtime + ": the story gc of cmd/relink runs it"},
	{"docs/commands.md", "# relink list", session, "", ""},
	{"docs/commands.md", "# relink show shop/db-0", session, "", ""},
	{"docs/commands.md", "# relink restore", session, "", ""},
	{"docs/commands.md", "relink move eth0=eth2 --dry-run", parts, "", "it needs a second uplink: the story moved runs it"},
	{"docs/commands.md", "# relink forget shop/old-0 --yes", session, "", ""},
	{"docs/commands.md", "# relink gc --dry-run", parts, "", runtime + ": the story gc of cmd/relink runs it"},
	{"docs/commands.md", "relink guard -- sh -c 'modprobe -r i40e && modprobe i40e'", parts, "", "README.md's session runs it"},
	{"docs/commands.md", "relink import DIR --parent bond4,eth0 --vlan 3", parts, "", "DIR stands for a directory"},
	{"docs/commands.md", "# relink validate /etc/cni/net.d", session, "", ""},
	{"docs/commands.md", "# relink version", session, "", ""},
	{"docs/commands.md", "source <(relink completion bash)", session, "", ""},
	{"docs/commands.md", "POD            ADDRESS   NETWORK  STATE        AGE  WHY", table, "relink ipam list", ""},
	{"docs/commands.md", "WHEN                  WHAT      POD         SANDBOX        INTERFACE  THEN  WHY", table, "relink ipam show 10.3.0.2", ""},
	{"docs/commands.md", "NETWORK  SET  RANGES               SIZE  HELD  RESERVED  QUARANTINED  FREE  USED", table, "relink ipam usage", ""},
	{"docs/commands.md", "FILE      POD         SANDBOX        INTERFACE  STATE            WHY", table, "relink ipam import /tmp/host-local --network lan --dry-run", ""},
	{"docs/commands.md", "POD         INTERFACE  IN POD  IN HOST         ADDRESS             SETTINGS                          STATE", parts, "", "no pod of the sessions has host access: the story host_access runs it"},
	{"docs/kubectl.md", "kubectl krew install relink", parts, "", "no release is out: TestKrewManifest of cmd/kubectl-relink reads the manifest"},
	{"docs/kubectl.md", "make build", parts, "", building},
	{"docs/kubectl.md", "kubectl create clusterrolebinding relink-viewers --clusterrole=relink-viewer --user=vera", parts, "", runtime + ": TestKubectl of test/cluster binds them"},
	{"docs/kubectl.md", "NODE   VERSION  INTERFACES  LOST  DRIFTED  STATE        WHY", parts, "", runtime + ": TestStatusIsShown of cmd/kubectl-relink compares such a table"},
	{"docs/kubectl.md", "node node3: no node: there is no such Node, and it has 32 addresses of lan-0, lan-4", parts, "", runtime + ": TestKubectl of test/cluster compares such findings"},
	{"docs/kubectl.md", "POOL  SUBNET       ADDRESSES  ON NODES  BLOCKS  TAKEN", parts, "", runtime + ": TestPoolsAreShown of cmd/kubectl-relink compares it"},
	{"docs/kubectl.md", "NODE   NETWORK  ADDRESSES  BLOCKS  FENCED  ASKS  BOOT", parts, "", runtime + ": TestPoolsAreShown of cmd/kubectl-relink compares it"},
	{"docs/kubectl.md", "Address:  10.3.0.9", parts, "", runtime + ": TestWhoHasAnAddress of cmd/kubectl-relink compares it"},
	{"docs/kubectl.md", "BLOCK  ADDRESSES           NODES               FREE  ASKED", parts, "", runtime + ": TestPoolsAreShown of cmd/kubectl-relink compares it"},
	{"docs/kubectl.md", "STORE                             NETWORK  POOL  BLOCKS  ADDRESSES  ASKS FOR  BOOT     STATE", parts, "", runtime + ": TestFenceTakesAnAnswer of cmd/kubectl-relink shows such a question"},
	{"docs/kubectl.md", "BLOCK  ADDRESSES", parts, "", runtime + ": TestPools of test/cluster reads such a list"},
	{"docs/host-access.md", "flowchart LR", drawing, "", ""},
	{"docs/host-access.md", "{", file, "docs/examples/70-host-access.conflist", ""},
	{"docs/host-access.md", `{ "cniVersion": "1.1.0", "name": "vlan5", "plugins": [`, file, "docs/examples/71-host-access-stock.conflist", ""},
	{"docs/host-access.md", "# A pod that leaves its Services while its interface is lost.", file, "docs/examples/pod-network-ready.yaml", ""},
	{"docs/host-access.md", "relink host-access add default/web-0 --services 10.96.0.0/12 --masquerade", parts, "", "the story host_access and the tests of checkpoint/hostends run it"},
	{"docs/pools.md", "kubectl apply -k deploy/kubernetes/examples/pools", parts, "", runtime + ": test/cluster applies the example"},
	{"docs/pools.md", "kubectl annotate addressblock vlan7-3 ipam.relink.dev/delete=vlan7-3", parts, "", runtime + ": test/cluster deletes such a block"},
	{"docs/pools.md", "# The pools of the network vlan7: one for IPv4, and one for IPv6.", file, "docs/examples/pools-vlan7.yaml", ""},
	{"docs/pools.md", "{", file, "docs/examples/80-pool.conflist", ""},
	{"docs/pools.md", "# Each rack has a subnet of its own on VLAN 9. The nodes have the label topology.example.com/rack.", file, "docs/examples/pools-racks.yaml", ""},
	{"docs/pools.md", `{ "cniVersion": "1.1.0", "name": "vlan9", "plugins": [`, file, "docs/examples/81-racks.conflist", ""},
	{"docs/pool-runbooks.md", "kubectl get ippools.whereabouts.cni.cncf.io -A -o json > ippools.json", parts, "", runtime + ": test/cluster takes over two nodes"},
	{"docs/pool-runbooks.md", "kubectl taint node node3 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute", parts, "", runtime},
	{"docs/pool-runbooks.md", "kubectl taint node node3 node.kubernetes.io/out-of-service-", parts, "", runtime},
	{"docs/pool-runbooks.md", "kubectl drain node3 --ignore-daemonsets", parts, "", runtime + ": TestPools of test/cluster has its pods end, and drains it"},
	{"docs/pool-runbooks.md", "kubectl relink fence node3", parts, "", runtime + ": TestPools of test/cluster runs it"},
	{"docs/pool-runbooks.md", "kubectl create clusterrolebinding relink-operators --clusterrole=relink-operator --user=olga", parts, "", runtime},
	{"docs/pool-runbooks.md", "STORE                             NETWORK  POOL   BLOCKS  ADDRESSES  ASKS FOR  BOOT       STATE", parts, "", runtime + ": TestFence of cmd/kubectl-relink compares such a table"},
	{"docs/pool-runbooks.md", "kubectl relink fence node3 --store 0c6e2f9b7a514d38b1f09a6d2c7e4f85", parts, "", runtime + ": TestPools of test/cluster runs it"},
	{"docs/pool-runbooks.md", `kubectl patch addresspool vlan7 --type merge -p '{"spec": {"paused": true}}'`, parts, "", runtime},
	{"docs/pool-runbooks.md", `kubectl patch addresspool vlan7 --subresource status --type merge -p '{"status": {"recovery": {"message": "etcd was restored", "nodes": null, "asserted": null}}}'`, parts, "", runtime},
	{"docs/pool-runbooks.md", "kubectl get addresspool vlan7 -o yaml", parts, "", runtime},
	{"docs/pool-runbooks.md", `kubectl patch addresspool vlan7 --subresource status --type merge -p '{"status": {"recovery": null}}'`, parts, "", runtime},
	{"docs/owners.md", "{", file, "docs/examples/60-owner.conflist", ""},
	{"docs/owners.md", "# A StatefulSet on VLAN 5. Its first pod has 10.5.0.11, and its second pod 10.5.0.12.", file, "docs/examples/statefulset-vlan5.yaml", ""},
	{"docs/plugins.md", `{ "cniVersion": "1.1.0", "name": "lan", "plugins": [`, file, "docs/examples/50-checkpoint.conflist", ""},

	{"docs/runbook.md", "relink move eth0=eth2 --dry-run", parts, "", "it needs a second uplink: the story moved runs it"},
	{"docs/runbook.md", "relink guard --via eth2 -- sh -c 'modprobe -r i40e && modprobe i40e'", parts, "", "it needs a second uplink: test/guard runs one"},
	{"docs/runbook.md", "relink guard -- sh -c 'modprobe -r i40e && modprobe i40e'", parts, "", "README.md's session runs it"},
	{"docs/runbook.md", "# relink status", session, "", ""},
	{"docs/runbook.md", "# relink capture", session, "", ""},
	{"docs/runbook.md", "# relink list", session, "", ""},
	{"docs/runbook.md", "modprobe -r i40e", session, "", ""},
	{"docs/runbook.md", "# relink restore", session, "", ""},
	{"docs/runbook.md", "systemd-run --unit=nic-reload sh -c 'modprobe -r i40e && modprobe i40e && relink restore'", parts, "", systemd},
	{"docs/runbook.md", "# nsenter --net=/run/netns/web-0 ping -q -c 1 -W 5 10.3.0.1", session, "", ""},
	{"docs/runbook.md", "ip -br link", session, "", ""},
	{"docs/runbook.md", "relink restore --rebuild-bond", session, "", ""},
	{"docs/runbook.md", "relink restore --parent eth0=ens5f0", parts, "", "the test machine's NICs keep their names"},
	{"docs/runbook.md", "relink restore shop/web-0", session, "", ""},
	{"docs/runbook.md", "kubectl -n shop delete pod web-0", parts, "", runtime},
	{"docs/runbook.md", "relink capture --refresh shop/web-0", session, "", ""},
	{"docs/runbook.md", "# journalctl -t relink", parts, "", systemd},
	{"docs/runbook.md", "relink gc --checkpoints --now --yes", session, "", ""},

	{"docs/install/containerd.md", "containerd config dump | grep -A 8 'cni\\]'", parts, "", runtime},
	{"docs/install/containerd.md", "make build man", parts, "", building},
	{"docs/install/containerd.md", "bin/relink install --cni-bin /usr/libexec/cni", parts, "", "the story unit installs"},
	{"docs/install/containerd.md", "cp docs/examples/10-vlan3.conflist /etc/cni/net.d/10-vlan3.conflist", session, "", ""},
	{"docs/install/containerd.md", "# relink validate /etc/cni/net.d", session, "", ""},
	{"docs/install/containerd.md", "crictl info | grep -i lastCNILoadStatus", parts, "", runtime},
	{"docs/install/containerd.md", "# relink check", session, "", ""},
	{"docs/install/containerd.md", "# relink list", session, "", ""},
	{"docs/install/containerd.md", "kubectl describe node | grep -i network", parts, "", runtime},
	{"docs/install/containerd.md", "kubectl drain \"$(hostname)\" --ignore-daemonsets --delete-emptydir-data", parts, "", runtime},
	{"docs/install/containerd.md", "rm /etc/cni/net.d/10-vlan3.conflist", session, "", ""},
	{"docs/install/containerd.md", "relink uninstall --purge", parts, "", "the story unit runs it"},

	{"docs/install/systemd.md", "make build man", parts, "", building},
	{"docs/install/systemd.md", "./relink install --dry-run", parts, "", "the story unit runs it"},
	{"docs/install/systemd.md", "systemctl status relink-agent", parts, "", systemd},
	{"docs/install/systemd.md", "RELINK_AGENT_ARGS=\"--kubeconfig /etc/kubernetes/kubelet.conf\"", parts, "", "test/cluster runs an agent with such a file"},
	{"docs/install/systemd.md", "relink uninstall", parts, "", "the story unit runs it"},
	{"docs/install/deb.md", "make deb", parts, "", "test/debian makes packages"},
	{"docs/install/deb.md", "apt-get install /tmp/relink_1.0.0_amd64.deb", parts, "", "test/debian installs it"},
	{"docs/install/deb.md", "apt-get remove relink", parts, "", "test/debian removes it"},
	{"docs/install/daemonset.md", "make build", parts, "", building},
	{"docs/install/daemonset.md", "kubectl apply -k deploy/kubernetes/examples/registry", parts, "", runtime},
	{"docs/install/daemonset.md", "kubectl -n relink-system exec POD -- /relink status", parts, "", runtime},
	{"docs/install/daemonset.md", "kubectl delete addresspools --all --wait", parts, "", runtime + ": test/cluster deletes pools"},
	{"docs/install/daemonset.md", "kubectl delete -k deploy/kubernetes/examples/registry", parts, "", runtime},
	{"docs/install/daemonset.md", "rm /opt/cni/bin/relink-macvlan /opt/cni/bin/relink-vlan /opt/cni/bin/relink-ipam /opt/cni/bin/relink-checkpoint /opt/cni/bin/relink-host-access", parts, "", runtime},
	{"docs/install/driver-hooks.md", "cp deploy/systemd/relink-restore@.service /etc/systemd/system/relink-restore@.service", parts, "", "the story udev_unit does it"},
	{"docs/install/driver-hooks.md", "systemctl start --no-block relink-restore@hook.service", parts, "", systemd},

	{"docs/install/crio.md", "crio config 2>/dev/null | grep -A 30 '^\\[crio.network\\]'", parts, "", runtime},
	{"docs/install/crio.md", "make build man", parts, "", building},
	{"docs/install/crio.md", "cp docs/examples/10-vlan3.conflist /etc/cni/net.d/10-vlan3.conflist", session, "", ""},
	{"docs/install/crio.md", "# relink validate /etc/cni/net.d", session, "", ""},
	{"docs/install/crio.md", "crictl info", parts, "", runtime},
	{"docs/install/crio.md", "# relink check", session, "", ""},
	{"docs/install/crio.md", "kubectl drain \"$(hostname)\" --ignore-daemonsets --delete-emptydir-data", parts, "", runtime},
	{"docs/install/crio.md", "rm /etc/cni/net.d/10-vlan3.conflist", session, "", ""},
	{"docs/install/crio.md", "relink uninstall --purge", parts, "", "the story unit runs it"},

	{"docs/install/k3s.md", "grep -A 3 'cni\\]' /var/lib/rancher/k3s/agent/etc/containerd/config.toml", parts, "", runtime},
	{"docs/install/k3s.md", "make build man", parts, "", building},
	{"docs/install/k3s.md", "# Values of the Helm chart rke2-multus for k3s of October 2024 and later.", file, "docs/examples/multus-k3s-values.yaml", ""},
	{"docs/install/k3s.md", "helm repo add rke2-charts https://rke2-charts.rancher.io", parts, "", runtime},
	{"docs/install/k3s.md", "relink validate --cni-bin /var/lib/rancher/k3s/data/cni /var/lib/rancher/k3s/agent/etc/cni/net.d", session, "", ""},
	{"docs/install/k3s.md", "k3s crictl info | grep -i lastCNILoadStatus", parts, "", runtime},
	{"docs/install/k3s.md", "# relink check", session, "", ""},
	{"docs/install/k3s.md", "k3s kubectl drain \"$(hostname)\" --ignore-daemonsets --delete-emptydir-data", parts, "", runtime},
	{"docs/install/k3s.md", "relink uninstall --purge", parts, "", "the story unit runs it"},

	{"docs/install/rke2.md", "make build man", parts, "", building},
	{"docs/install/rke2.md", "cni:", parts, "", runtime},
	{"docs/install/rke2.md", "relink validate /etc/cni/net.d", session, "", ""},
	{"docs/install/rke2.md", "export CRI_CONFIG_FILE=/var/lib/rancher/rke2/agent/etc/crictl.yaml", parts, "", runtime},
	{"docs/install/rke2.md", "# relink check", session, "", ""},
	{"docs/install/rke2.md", "/var/lib/rancher/rke2/bin/kubectl --kubeconfig /etc/rancher/rke2/rke2.yaml drain \"$(hostname)\" --ignore-daemonsets --delete-emptydir-data", parts, "", runtime},
	{"docs/install/rke2.md", "relink uninstall --purge", parts, "", "the story unit runs it"},

	{"docs/install/multus.md", "# The network. It has no spec: Multus takes the configuration named vlan3 from the node's /etc/cni/multus/net.d.", file, "docs/examples/multus-vlan3.yaml", ""},
	{"docs/install/multus.md", "mkdir -p /etc/cni/multus/net.d", session, "", ""},
	{"docs/install/multus.md", "relink validate /etc/cni/multus/net.d/vlan3.conflist", session, "", ""},
	{"docs/install/multus.md", "kubectl apply -f docs/examples/multus-vlan3.yaml", parts, "", runtime},
	{"docs/install/multus.md", "# A pod with a second interface, net1, on VLAN 3.", file, "docs/examples/pod-vlan3.yaml", ""},
	{"docs/install/multus.md", "relink validate --files-only docs/examples/multus-vlan40.yaml", session, "", ""},
	{"docs/install/multus.md", "kubectl apply -f docs/examples/multus-vlan40.yaml", parts, "", runtime},
	{"docs/install/multus.md", "# relink check", session, "", ""},
	{"docs/install/multus.md", "kubectl -n shop exec web-0 -- ip address show net1", parts, "", runtime},
	{"docs/install/multus.md", "kubectl -n shop delete pod web-0", parts, "", runtime},
	{"docs/install/multus.md", "rm /etc/cni/multus/net.d/vlan3.conflist", session, "", ""},

	{"docs/install/kubevirt.md", "relink capture --refresh shop/virt-launcher-vm-0-x7k2p", session, "", ""},
	{"docs/install/kubevirt.md", "# relink check", session, "", ""},

	{"docs/install/bare-node.md", "go install github.com/containernetworking/cni/cnitool@v1.3.1", parts, "", "the test machine has no network"},
	{"docs/install/bare-node.md", "make build man", parts, "", building},
	{"docs/install/bare-node.md", "mkdir -p /etc/cni/net.d", session, "", ""},
	{"docs/install/bare-node.md", "export CNI_PATH=/opt/cni/bin NETCONFPATH=/etc/cni/net.d", session, "", ""},
	{"docs/install/bare-node.md", "# relink list", session, "", ""},
	{"docs/install/bare-node.md", "# relink check", session, "", ""},
	{"docs/install/bare-node.md", "# relink ipam list", session, "", ""},
	{"docs/install/bare-node.md", "modprobe -r e1000e", session, "", ""},
	{"docs/install/bare-node.md", "# relink restore", session, "", ""},
	{"docs/install/bare-node.md", "CNI_ARGS='K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0' cnitool del vlan3 /run/netns/web-0", session, "", ""},
	{"docs/install/bare-node.md", "rm /etc/cni/net.d/10-vlan3.conflist", session, "", ""},
	{"docs/install/bare-node.md", "relink uninstall --purge", parts, "", "the story unit runs it"},

	{"test/vm/README.md", "go build -o /tmp/vm ./test/vm/cmd/vm", parts, "", "it boots a machine from within this test"},
	{"test/vm/README.md", "func TestMain(m *testing.M) { vm.Main(m) }", parts, "", "every package below test that boots a machine has it"},
}

// find returns the entry of a block. Lines of usage are all checked alike, and need none.
func find(b block) (entry, bool) {
	if b.language == "usage" {
		return entry{doc: b.doc, first: b.first(), check: usage}, true
	}
	for _, e := range entries {
		if e.doc == b.doc && e.first == b.first() {
			return e, true
		}
	}
	return entry{}, false
}

// TestEveryBlockIsChecked says that the table has every block and nothing else, and a reason for each block that does not run.
func TestEveryBlockIsChecked(t *testing.T) {
	used := map[entry]bool{}
	for _, doc := range documents(t) {
		for _, b := range doc.blocks {
			e, ok := find(b)
			if !ok {
				t.Errorf("%s:%d: the block that begins with %q is not in the table of table_test.go: say there how it is checked", b.doc, b.line, b.first())
			}
			used[e] = true
		}
	}
	for i, e := range entries {
		if !used[e] {
			t.Errorf("%s has no block that begins with %q: remove the entry", e.doc, e.first)
		}
		if (e.check == parts) != (e.why != "") || (e.check == file || e.check == table) != (e.with != "") {
			t.Errorf("entry %d, %s %q: only what does not run has a reason, and only a file and a table have what they are compared with", i, e.doc, e.first)
		}
	}
}
