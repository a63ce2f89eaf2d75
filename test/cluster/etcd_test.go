package cluster

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/test/kubeapi"
)

const etcdURL = kubeapi.EtcdURL

// etcd is the store of the API.
type etcd struct {
	stop     func()
	restores int
}

// startEtcd starts etcd on the directory.
func (a *api) startEtcd(dir string) {
	_, end := run(a.whole, nil, a.Etcd, a.EtcdArgs(dir)...)
	a.etcd.stop = func() { _ = end(syscall.SIGKILL) }
}

// etcdctl runs etcdctl(1) as an administrator does.
func (a *api) etcdctl(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), a.Etcdctl, args...)
	cmd.Env = append(os.Environ(), "ETCDCTL_API=3", "ETCDCTL_ENDPOINTS="+etcdURL)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("etcdctl %v: %v\n%s", args, err, out)
	}
}

// backup makes a backup of etcd, and returns its path.
func (a *api) backup(t *testing.T) string {
	t.Helper()
	path := a.path(fmt.Sprintf("backup-%d", time.Now().UnixNano()))
	a.etcdctl(t, "snapshot", "save", path)
	return path
}

// restore brings etcd back to the backup, as an administrator does: everything stops, and starts with the data of the backup.
func (a *api) restore(t *testing.T, backup string) {
	t.Helper()
	a.etcd.restores++
	dir := a.path(fmt.Sprintf("etcd-%d", a.etcd.restores))
	a.etcdctl(t, "snapshot", "restore", backup, "--data-dir="+dir)
	a.serve(t, dir)
}

// serve has the API serve what is in the directory of an etcd. A new directory makes another cluster, with nothing in it.
func (a *api) serve(t *testing.T, dir string) {
	t.Helper()
	a.stop()
	a.etcd.stop()
	a.startEtcd(dir)
	a.start(t)
}

// prefix has the objects of pools in etcd.
const prefix = "/registry/" + pool.Group + "/"

// values returns what etcd has of pools, each value by its key.
func (a *api) values(t *testing.T) map[string][]byte {
	t.Helper()
	var answer struct {
		KVs []struct {
			Key, Value []byte
		} `json:"kvs"`
	}
	a.askEtcd(t, "range", map[string]string{"key": base64.StdEncoding.EncodeToString([]byte(prefix)), "range_end": base64.StdEncoding.EncodeToString([]byte(prefix + "\xff"))}, &answer)
	all := map[string][]byte{}
	for _, kv := range answer.KVs {
		all[string(kv.Key)] = kv.Value
	}
	return all
}

// rollBack makes etcd have of pools what it had before, in no time. The revisions go on: what a node remembers of them
// tells it nothing.
func (a *api) rollBack(t *testing.T, before map[string][]byte) {
	t.Helper()
	key := func(k string) string { return base64.StdEncoding.EncodeToString([]byte(k)) }
	now := a.values(t)
	for k := range now {
		if _, was := before[k]; !was {
			a.askEtcd(t, "deleterange", map[string]string{"key": key(k)}, nil)
		}
	}
	for k, v := range before {
		if !bytes.Equal(v, now[k]) {
			a.askEtcd(t, "put", map[string]string{"key": key(k), "value": base64.StdEncoding.EncodeToString(v)}, nil)
		}
	}
}

// askEtcd makes a request of etcd's interface for JSON.
func (a *api) askEtcd(t *testing.T, what string, body, into any) {
	t.Helper()
	res, err := http.Post(etcdURL+"/v3/kv/"+what, "application/json", bytes.NewReader(text(t, body)))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("etcd: %s: status %d: %v\n%s", what, res.StatusCode, err, b)
	}
	if into == nil {
		return
	}
	if err := json.Unmarshal(b, into); err != nil {
		t.Fatal(err)
	}
}
