package monitoring

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/test/fresh"
	"github.com/relink-cni/relink/test/node"
)

func TestMain(m *testing.M) {
	node.Main(m, func(ctx context.Context) error {
		_, err := Prepare(ctx)
		return err
	})
}

const (
	agentAddress      = "127.0.0.1:9477"
	prometheusAddress = "127.0.0.1:9090"
	rulesFile         = "../../deploy/prometheus/relink.rules.yml"
)

// tool returns the path of a program of the distribution's Prometheus.
func tool(t *testing.T, name string) string {
	t.Helper()
	dir, err := Prepare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}

// copyTo copies a file into the directory.
func copyTo(t *testing.T, dir, path string) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, filepath.Base(path)), content, 0o644); err != nil {
		t.Fatal(err)
	}
}

// The rules are well formed, and each alert fires when it must and not when it must not.
func TestRules(t *testing.T) {
	dir := t.TempDir()
	copyTo(t, dir, rulesFile)
	copyTo(t, dir, "testdata/relink.rules.test.yml")
	for _, args := range [][]string{{"check", "rules", "relink.rules.yml"}, {"test", "rules", "relink.rules.test.yml"}} {
		cmd := exec.Command(tool(t, "promtool"), args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	// The document has each alert, and each alert has a case that fires.
	document, cases := read(t, "../../docs/monitoring.md"), read(t, "testdata/relink.rules.test.yml")
	rules := alerts(t)
	for _, name := range rules {
		if !strings.Contains(document, "\n| `"+name+"` |") {
			t.Errorf("docs/monitoring.md does not have the alert %s", name)
		}
		if !regexp.MustCompile(`alertname: ` + name + `\n\s+exp_alerts:\n\s+- exp_labels`).MatchString(cases) {
			t.Errorf("no case has %s fire", name)
		}
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `(Relink\\w+)` \\|").FindAllStringSubmatch(document, -1) {
		if !slices.Contains(rules, row[1]) {
			t.Errorf("docs/monitoring.md has the alert %s, and the rules have not", row[1])
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// alerts returns the names of all alerts of the rules.
func alerts(t *testing.T) (names []string) {
	t.Helper()
	for _, m := range regexp.MustCompile(`(?m)^\s*- alert: (\w+)$`).FindAllStringSubmatch(read(t, rulesFile), -1) {
		names = append(names, m[1])
	}
	if len(names) == 0 {
		t.Fatal("the rules have no alert")
	}
	return names
}

// run starts a program. The end of the test ends it.
func run(t *testing.T, env []string, path string, args ...string) {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.Command(path, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), env...), &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Logf("%s: %v\n%s", filepath.Base(path), err, out.String())
		}
	})
}

// attach attaches a pod to lan0, by the plugins.
func attach(t *testing.T, env []string, id string) {
	t.Helper()
	cmd := exec.Command(filepath.Join(node.Bin, "relink-macvlan"))
	cmd.Env = append(env, "CNI_COMMAND=ADD", "CNI_CONTAINERID="+id, "CNI_NETNS="+fresh.Sandbox(t), "CNI_IFNAME=eth0", "CNI_PATH="+node.Bin, "PATH="+node.Bin)
	cmd.Stdin = strings.NewReader(`{"cniVersion":"1.1.0","name":"lan","type":"relink-macvlan","master":"lan0",
		"ipam":{"type":"relink-ipam","ranges":[[{"subnet":"10.3.0.0/24","rangeStart":"10.3.0.2","rangeEnd":"10.3.0.11"}]]}}`)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// hasPool lets the network wan have addresses of a pool that nodes share, as an agent with a Kubernetes API would have stored them.
func hasPool(t *testing.T, dir string) {
	t.Helper()
	l, err := pool.Pool{Metadata: pool.Meta{Name: "shared"}, Spec: pool.Spec{Subnet: "10.4.0.0/24", BlockSize: 4}}.Layout()
	if err != nil {
		t.Fatal(err)
	}
	store, err := lease.Open(dir, "wan")
	if err != nil {
		t.Fatal(err)
	}
	has := pool.Grant{Pool: "shared", First: l.Ranges[0].First, Addresses: "+++?"}
	for _, err := range []error{store.SetPools(t.Context(), []string{"shared"}), store.PutGrants(t.Context(), l, []pool.Grant{has}), store.Confirm(t.Context())} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// await waits until f returns no error.
func await(t *testing.T, what string, f func() error) {
	t.Helper()
	for begun := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Since(begun) > 3*time.Minute {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// get returns what the address answers.
func get(url string) (string, error) {
	resp, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, body)
	}
	return string(body), err
}

// ask asks Prometheus, and reads the data of its answer.
func ask(path string, into any) error {
	body, err := get("http://" + prometheusAddress + path)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(body), &struct {
		Data any `json:"data"`
	}{into})
}

// sample is one series of an answer.
type sample struct {
	Metric map[string]string `json:"metric"`
	Value  [2]any            `json:"value"`
}

// evaluate returns what the query gives now. No series, or one that is no number, is an error.
func evaluate(expr string) ([]sample, error) {
	var data struct {
		Result []sample `json:"result"`
	}
	if err := ask("/api/v1/query?query="+url.QueryEscape(expr), &data); err != nil {
		return nil, err
	}
	if len(data.Result) == 0 {
		return nil, fmt.Errorf("no data for %s", expr)
	}
	for _, s := range data.Result {
		if s.Value[1] == "NaN" {
			return nil, fmt.Errorf("%s is no number, of %v", expr, s.Metric)
		}
	}
	return data.Result, nil
}

// is waits until the query has the value.
func is(t *testing.T, expr, want string) {
	t.Helper()
	await(t, expr+" is "+want, func() error {
		got, err := evaluate(expr)
		if err == nil && (len(got) != 1 || got[0].Value[1] != want) {
			err = fmt.Errorf("it is %v", got)
		}
		return err
	})
}

// Two pods lose their NIC and get it back, and Prometheus looks on. Then each query of the dashboard has data.
func TestPrometheusSeesARestore(t *testing.T) {
	n := node.New(t)
	fresh.IP(t, "", "link set lo up")
	env := []string{checkpoint.DirEnv + "=" + n.Store.Dir(), lease.DirEnv + "=" + filepath.Join(n.Dir, "ipam"), control.SocketEnv + "=" + filepath.Join(n.Dir, "agent.sock")}
	attach(t, env, "c1")
	attach(t, env, "c2")
	hasPool(t, filepath.Join(n.Dir, "ipam"))
	run(t, env, filepath.Join(node.Bin, "relink-agent"), "--metrics-listen", agentAddress, "--host-grace", "0s")
	copyTo(t, n.Dir, rulesFile)
	config := "global: {scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms}\nrule_files: [relink.rules.yml]\nscrape_configs:\n  - job_name: relink-agent\n    static_configs: [{targets: [\"" + agentAddress + "\"]}]\n"
	if err := os.WriteFile(filepath.Join(n.Dir, "prometheus.yml"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, nil, tool(t, "prometheus"), "--config.file="+filepath.Join(n.Dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(n.Dir, "data"),
		"--web.listen-address="+prometheusAddress, "--log.level=warn")
	await(t, "the agent is ready", func() error { _, err := get("http://" + agentAddress + "/readyz"); return err })
	is(t, `relink_attachments{state="whole"}`, "2")
	is(t, `relink_ipam_leases{state="held"}`, "2")
	is(t, `relink_pool_node_addresses{pool="shared",state="gives"}`, "3")

	fresh.IP(t, "", "link del lan0")
	is(t, `relink_base_lost_attachments{base="lan0"}`, "2")
	await(t, "the alert of an outage is pending", func() error {
		got, err := evaluate(`ALERTS{alertname="RelinkOutage"}`)
		if err == nil && got[0].Metric["alertstate"] != "pending" {
			err = fmt.Errorf("it is %v", got)
		}
		return err
	})
	fresh.Run(t, "", "ip link add lan0 type veth peer name lan1; ip link set lan0 up; ip link set lan1 up")
	is(t, `relink_attachments{state="whole"}`, "2")
	is(t, `relink_restored_attachments_total{outcome="restored"}`, "2")
	is(t, `relink_loss_to_whole_seconds_count`, "1")
	is(t, `relink_loss_to_connected_seconds_count`, "1")

	for _, q := range dashboard(t) {
		await(t, "panel "+q.panel, func() error {
			got, err := evaluate(q.expr)
			for _, label := range labelsOf(q.legend) {
				for _, s := range got {
					if s.Metric[label] == "" {
						return fmt.Errorf("%s has no label %s, which the legend has", q.expr, label)
					}
				}
			}
			return err
		})
	}
	rulesAreWell(t)
	if body, err := get("http://" + agentAddress + "/healthz"); err != nil || body != "ok\n" {
		t.Errorf("healthz: %q, %v", body, err)
	}
}

// rulesAreWell expects that Prometheus has all alerts and evaluates them. On a healthy node, no alert is active.
func rulesAreWell(t *testing.T) {
	t.Helper()
	var loaded struct {
		Groups []struct {
			Rules []struct{ Name, Health, State, LastError string }
		}
	}
	await(t, "the alerts end", func() error {
		loaded.Groups = nil
		if err := ask("/api/v1/rules", &loaded); err != nil {
			return err
		}
		for _, g := range loaded.Groups {
			for _, r := range g.Rules {
				want := "inactive"
				if r.Name == "RelinkControllerAbsent" { // The node has a pool here, and no controller runs.
					want = "pending"
				}
				if r.Health != "ok" || r.State != want {
					return fmt.Errorf("%+v, want %s", r, want)
				}
			}
		}
		return nil
	})
	var names []string
	for _, g := range loaded.Groups {
		for _, r := range g.Rules {
			names = append(names, r.Name)
		}
	}
	if want := alerts(t); !slices.Equal(names, want) {
		t.Errorf("Prometheus has the alerts %v, the file %v", names, want)
	}
}
