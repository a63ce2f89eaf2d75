package main

import (
	"context"
	"crypto/tls"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/relink-cni/relink/pkg/kube"
	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/test/kubeapi"
)

// addressPools and addressBlocks are the collections of what nodes share.
const (
	addressPools  = "/apis/" + pool.Group + "/" + pool.Version + "/addresspools"
	addressBlocks = "/apis/" + pool.Group + "/" + pool.Version + "/addressblocks"
)

// server is a running kube-apiserver, and its etcd. Both are on a disk, as in a cluster. It has all that deploy/ has for pools, for nodes
// whose agents have the kubelets' certificates.
type server struct {
	*kubeapi.API
	etcd, api *exec.Cmd
	// log is what agents say.
	log *slog.Logger
}

// withServer calls use with a new API server, and ends it.
func withServer(use func(*server) error) error {
	dir, err := os.MkdirTemp("/var/tmp", "relink-bench-api-")
	if err != nil {
		return err
	}
	s, err := startServer(dir)
	if err == nil {
		err = use(s)
	}
	if s != nil {
		s.end()
		if err != nil {
			err = fmt.Errorf("%w\nthe agents' last words:\n%s", err, lastWords(s.Path("agents.log")))
		}
	}
	return removeAll(dir, err)
}

// lastWords returns the end of a log.
func lastWords(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-2000):])
}

func startServer(dir string) (_ *server, err error) {
	s := &server{}
	if s.API, err = kubeapi.New(context.Background(), dir); err != nil {
		return nil, err
	}
	said, err := os.Create(s.Path("agents.log"))
	if err != nil {
		return nil, err
	}
	s.log = slog.New(slog.NewTextHandler(said, nil))
	if s.etcd, err = s.run(s.Etcd, s.EtcdArgs(s.Path("etcd"))); err != nil {
		return s, err
	}
	if s.api, err = s.run(s.APIServer, s.ServerArgs()); err != nil {
		return s, err
	}
	if err := awaitTrue("the API server", s.Ready); err != nil {
		return s, err
	}
	for _, dir := range []string{"examples/pools", "pools/nodes"} {
		all, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), "deploy/kubernetes/"+dir)
		if err != nil {
			return s, err
		}
		for _, r := range all.Resources() {
			if err := s.Apply(r); err != nil {
				return s, err
			}
		}
	}
	return s, s.awaitPolicies()
}

// run starts a program. It writes a log beside its files.
func (s *server) run(path string, args []string) (*exec.Cmd, error) {
	log, err := os.Create(s.Path(filepath.Base(path) + ".log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // The program has its own.
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // The main goroutine has the main thread.
	return cmd, cmd.Start()
}

// end ends the API server and etcd.
func (s *server) end() {
	for _, cmd := range []*exec.Cmd{s.api, s.etcd} {
		if cmd != nil && cmd.Process != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // It was killed.
		}
	}
}

func awaitTrue(what string, is func() bool) error {
	for begun := time.Now(); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Since(begun) > time.Minute {
			return fmt.Errorf("waited in vain for %s", what)
		}
	}
	return nil
}

// awaitPolicies waits until the API knows the definitions, the rights and the policies: each write passes them.
func (s *server) awaitPolicies() error {
	stranger, err := s.certified("stranger")
	if err != nil {
		return err
	}
	block := `{"apiVersion": "` + pool.Group + `/` + pool.Version + `", "kind": "AddressBlock", "metadata": {"name": "none-0"},
"spec": {"pool": "none", "poolUID": "1", "index": 0, "node": "none", "first": "10.0.0.0", "last": "10.0.0.0"}, "status": {"epoch": 1, "addresses": "."}}`
	err = awaitTrue("the policies of pools", func() bool {
		answer, err := stranger.Post("https://"+kubeapi.Address+addressBlocks+"?dryRun=All", "application/json", strings.NewReader(block))
		if err != nil {
			return false
		}
		defer func() { _ = answer.Body.Close() }()
		said, _ := io.ReadAll(answer.Body)
		return strings.Contains(string(said), "is of no node")
	})
	if err != nil {
		return err
	}
	// A new definition is served a little later than it is known.
	return awaitTrue("the lists of pools", func() bool {
		for _, kind := range []string{"addresspools", "addressblocks", "addressclaims"} {
			if _, status := s.Try(http.MethodGet, "/apis/"+pool.Group+"/"+pool.Version+"/"+kind, "", nil); status != http.StatusOK {
				return false
			}
		}
		return true
	})
}

// certificate makes a certificate of a user in the group of nodes, and returns the names of its files.
func (s *server) certificate(user string) (cert, key string, err error) {
	file := strings.ReplaceAll(user, ":", "-")
	err = s.Keys.Issue(file, pkix.Name{CommonName: user, Organization: []string{"system:nodes"}})
	return s.Path(file + ".crt"), s.Path(file + ".key"), err
}

// certified returns a client with such a certificate.
func (s *server) certified(user string) (*http.Client, error) {
	cert, key, err := s.certificate(user)
	if err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	transport := s.HTTP.Transport.(*http.Transport).Clone()
	transport.TLSClientConfig.Certificates = []tls.Certificate{pair}
	return &http.Client{Timeout: s.HTTP.Timeout, Transport: transport}, nil
}

// asNode returns the pools as the node's agent sees them. Each node has a connection of its own.
func (s *server) asNode(name string) (kube.Pools, error) {
	cert, key, err := s.certificate("system:node:" + name)
	if err != nil {
		return kube.Pools{}, err
	}
	return s.connect(name, fmt.Sprintf("{client-certificate: %s, client-key: %s}", cert, key))
}

// asAdmin returns the pools as the administrator sees them.
func (s *server) asAdmin() (kube.Pools, error) {
	return s.connect("admin", fmt.Sprintf("{token: %q}", kubeapi.AdminToken))
}

func (s *server) connect(name, user string) (kube.Pools, error) {
	path, err := s.Config("https://"+kubeapi.Address, name+".conf", user)
	if err != nil {
		return kube.Pools{}, err
	}
	client, err := kube.Connect(path, s.log)
	if err != nil {
		return kube.Pools{}, err
	}
	return kube.NewPools(client), nil
}

// create makes an object.
func (s *server) create(path string, object any) error {
	b, err := json.Marshal(object)
	if err != nil {
		return err
	}
	_, err = s.Ask(http.MethodPost, path, "application/json", b)
	return err
}

// createNode makes the object of a node.
func (s *server) createNode(name string) error {
	return s.create("/api/v1/nodes", map[string]any{"metadata": map[string]any{"name": name}})
}

// createPool makes a pool.
func (s *server) createPool(name string, spec pool.Spec) error {
	return s.create(addressPools, map[string]any{
		"apiVersion": pool.Group + "/" + pool.Version, "kind": "AddressPool", "metadata": map[string]any{"name": name}, "spec": spec,
	})
}

// usage is what a process has used so far. The processor time is in seconds, the memory in MiB.
type usage struct{ cpu, peak float64 }

// used returns what the API server and etcd have used since they started.
func (s *server) used() (api, etcd usage, err error) {
	api, err = usedBy(s.api.Process.Pid)
	if err != nil {
		return api, etcd, err
	}
	etcd, err = usedBy(s.etcd.Process.Pid)
	return api, etcd, err
}

// ticksOfSecond is the unit of times in /proc, on every Linux.
const ticksOfSecond = 100

func usedBy(pid int) (u usage, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u, err
	}
	// The name of the program is in parentheses, and can have spaces. What follows begins with the third field.
	_, rest, _ := strings.Cut(string(b), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return u, errors.New("/proc/PID/stat is cut short")
	}
	var user, system int64
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
		return u, err
	}
	u.cpu = float64(user+system) / ticksOfSecond
	u.peak, err = megabytes(pid, "VmHWM:")
	return u, err
}
