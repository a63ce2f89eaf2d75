package cnicache

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/relink-cni/relink/pkg/attachment"
)

// write makes the files of a cache, by their path below it.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func base64JSON(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

func result(network, id, ifName, more string) string {
	return fmt.Sprintf(`{"kind": "cniCacheV1", "containerId": %q, "networkName": %q, "ifName": %q%s}`, id, network, ifName, more)
}

const podArgs = `, "cniArgs": [["IgnoreUnknown", "1"], ["K8S_POD_NAMESPACE", "shop"], ["K8S_POD_NAME", "web-0"], ["K8S_POD_UID", "u1"]]`

var web = attachment.Pod{Namespace: "shop", Name: "web-0", UID: "u1"}

func key(network, id, ifName string) attachment.Key {
	return attachment.Key{Network: network, ContainerID: id, IfName: ifName}
}

func TestRead(t *testing.T) {
	for name, test := range map[string]struct {
		files      map[string]string
		want       []Entry
		unreadable string // Parts of the reports, separated by "; ". Empty for no report.
	}{
		"no cache": {nil, nil, ""},
		"an entry with its namespace": {
			map[string]string{"results/lan-c1-eth0": result("lan", "c1", "eth0", podArgs+`, "netns": "/run/netns/a",
				"config": "`+base64JSON(`{"name":"lan"}`)+`",
				"result": {"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "mac": "00:00:00:00:00:01"},
				  {"name": "eth0", "mac": "02:00:00:00:00:0A", "sandbox": "/elsewhere"}]}`)},
			[]Entry{{Attachment: key("lan", "c1", "eth0"), Pod: web, Netns: "/run/netns/a", MAC: "02:00:00:00:00:0a"}}, "",
		},
		"an older one, with its namespace in the result": {
			map[string]string{"results/x": result("lan", "c1", "eth0", `, "result": {"interfaces": [{"name": "eth0", "sandbox": "/proc/7/ns/net"}]}`)},
			[]Entry{{Attachment: key("lan", "c1", "eth0"), Netns: "/proc/7/ns/net"}}, "",
		},
		"names with hyphens are told apart by their fields": {
			map[string]string{
				"results/a-b-c-eth0":  result("a-b", "c", "eth0", ""),
				"results/a-b-c-eth0.": result("a", "b-c", "eth0", ""),
			},
			[]Entry{{Attachment: key("a-b", "c", "eth0")}, {Attachment: key("a", "b-c", "eth0")}}, "",
		},
		"what is no entry does not keep the others": {
			map[string]string{
				"results/1": "", "results/2": `{"kind": "other"}`, "results/3": result("lan", "../etc", "eth0", ""),
				"results/4": result("lan", "c1", "eth0", ""), "results/sub/5": "x",
			},
			[]Entry{{Attachment: key("lan", "c1", "eth0")}}, `results/1: ; results/2: its kind is "other"; results/3: container ID`,
		},
		"Multus keeps results of its own, in libcni's form": {
			map[string]string{
				"results/multus-c1-eth0":         result("multus", "c1", "eth0", podArgs+`, "netns": "/n"`),
				"multus/results/lan-c1-eth0":     result("lan", "c1", "eth0", podArgs+`, "netns": "/n"`),
				"multus/results/storage-c1-net1": result("storage", "c1", "net1", podArgs+`, "netns": "/n"`),
				"multus/c1":                      `[{"Conf": {"name": "lan"}}, {"Conf": {"name": "storage"}}]`,
			},
			[]Entry{
				{Attachment: key("lan", "c1", "eth0"), Pod: web, Netns: "/n", Delegate: true},
				{Attachment: key("storage", "c1", "net1"), Pod: web, Netns: "/n", Delegate: true},
				{Attachment: key("multus", "c1", "eth0"), Pod: web, Netns: "/n"},
			}, "",
		},
		"Multus's list, where a result is missing": {
			map[string]string{
				"results/multus-c1-eth0": result("multus", "c1", "eth0", podArgs+`, "netns": "/n"`),
				"multus/c1": `[{"Conf": {"name": "lan", "type": "bridge"}, "ConfList": {}},
					{"Conf": {}, "ConfList": {"name": "storage"}, "ifnameRequest": "data"}, {"Conf": {"name": "third"}}, {}]`,
				"multus/c2":  `[{"Conf": {"name": "lan"}}]`,
				"multus/bad": `no list`,
			},
			[]Entry{
				{Attachment: key("multus", "c1", "eth0"), Pod: web, Netns: "/n"},
				{Attachment: key("lan", "c1", "eth0"), Pod: web, Netns: "/n", Delegate: true},
				{Attachment: key("storage", "c1", "data"), Pod: web, Netns: "/n", Delegate: true},
				{Attachment: key("third", "c1", "net2"), Pod: web, Netns: "/n", Delegate: true},
			}, "multus/bad",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, unreadable, err := Read(write(t, test.files))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got, cmpopts.IgnoreFields(Entry{}, "Config", "Result")); diff != "" {
				t.Error(diff)
			}
			var said []string
			for _, err := range unreadable {
				said = append(said, err.Error())
			}
			all := strings.Join(said, "\n")
			for _, part := range strings.Split(test.unreadable, "; ") {
				if !strings.Contains(all, part) {
					t.Errorf("%q is not said:\n%s", part, all)
				}
			}
			if (test.unreadable == "") != (all == "") {
				t.Errorf("said: %s", all)
			}
		})
	}
}

// Multus may know a sandbox that no runtime knows any more.
func TestDelegating(t *testing.T) {
	dir := write(t, map[string]string{
		"multus/c1": `[{"Conf": {"name": "lan"}}]`, "multus/c2": `[]`, "multus/bad": "no list", "multus/results/x": result("lan", "c3", "eth0", ""),
		"results/y": result("lan", "c4", "eth0", ""),
	})
	ids, err := MultusContainerIDs(dir)
	if diff := cmp.Diff([]string{"c1", "c2"}, ids); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if ids, err := MultusContainerIDs(t.TempDir()); len(ids) > 0 || err != nil {
		t.Errorf("without a cache: %v, %v", ids, err)
	}
}

func TestReadKeepsConfigAndResult(t *testing.T) {
	for config, want := range map[string]string{
		`{"name": "lan"}`: `{"name": "lan"}`, `{"name": "lan", "plugins": [{"type": "relink-macvlan"}, {"type": "tuning"}]}`: `{"type": "relink-macvlan"}`,
	} {
		dir := write(t, map[string]string{"results/x": result("lan", "c1", "eth0",
			`, "config": "`+base64JSON(config)+`", "result": {"cniVersion": "1.1.0"}`)})
		entries, _, err := Read(dir)
		if err != nil || len(entries) != 1 {
			t.Fatal(entries, err)
		}
		if string(entries[0].Config) != want || string(entries[0].Result) != `{"cniVersion": "1.1.0"}` {
			t.Errorf("%s %s", entries[0].Config, entries[0].Result)
		}
	}
}

// A Cache reads again what was written again, also a file that it has read in the middle of a write.
func TestCacheReadsAgain(t *testing.T) {
	dir := write(t, map[string]string{"results/a": result("lan", "c1", "eth0", ""), "results/b": result("lan", "c2", "eth0", "")[:20]})
	c := &Cache{Dir: dir}
	for _, step := range []struct {
		change func() error
		want   string
	}{
		{func() error { return nil }, "c1, 1 unreadable"},
		{func() error {
			return os.WriteFile(filepath.Join(dir, "results/b"), []byte(result("lan", "c2", "eth0", "")), 0o600)
		}, "c1 c2, 0 unreadable"},
		{func() error {
			return os.WriteFile(filepath.Join(dir, "results/a"), []byte(result("lan", "c3", "eth0", podArgs)), 0o600)
		}, "c3 c2, 0 unreadable"},
		{func() error { return os.Rename(filepath.Join(dir, "results/b"), filepath.Join(dir, "results/c")) }, "c3 c2, 0 unreadable"},
		{func() error { return os.Remove(filepath.Join(dir, "results/a")) }, "c2, 0 unreadable"},
		{func() error { return os.RemoveAll(dir) }, ", 0 unreadable"},
	} {
		if err := step.change(); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			entries, unreadable, err := c.Read()
			var ids []string
			for _, e := range entries {
				ids = append(ids, e.Attachment.ContainerID)
			}
			if got := fmt.Sprintf("%s, %d unreadable", strings.Join(ids, " "), len(unreadable)); got != step.want || err != nil {
				t.Errorf("%s, %v; want %s", got, err, step.want)
			}
		}
	}
}
