package main

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/cmd/internal/cli"
)

// Each malformed command line ends with exit status 2 and one line. The line names what is wrong and what to do. relink
// changes nothing.
func TestMalformedCommandLines(t *testing.T) {
	dir := t.TempDir()
	for line, says := range map[string]string{
		"restor":                               `unknown verb "restor": did you mean restore?`,
		"get":                                  `unknown verb "get": relink --help lists the verbs`,
		"gcc":                                  `unknown verb "gcc": relink --help lists the verbs`,
		"uninstal":                             `unknown verb "uninstal": relink --help lists the verbs`,
		"frobnicate":                           `unknown verb "frobnicate": relink --help lists the verbs`,
		"--frobnicate":                         "unknown flag --frobnicate: relink --help lists the flags",
		"status now":                           `unexpected argument "now": relink status takes none`,
		"gc --dry-run=perhaps":                 `invalid --dry-run "perhaps": must be true or false`,
		"restore --wait often":                 `invalid --wait "often": must be a time such as 500ms, 30s or 2h`,
		"status -o wide":                       `invalid --output "wide": must be table, json or yaml`,
		"status --cni-cache /nowhere":          "invalid --cni-cache: stat /nowhere",
		"status -q -v":                         "--quiet and --verbose cannot be given together: leave one out",
		"list nobody":                          `"nobody" matches nothing: there is no such pod or container ID; relink list shows what there is`,
		"list shop/":                           `invalid name "shop/": give NAMESPACE/POD, POD, or a container ID or the beginning of one`,
		"list -n shop lab/web-0":               `invalid name "lab/web-0": --namespace says shop`,
		"list -n shop":                         "--namespace shop matches nothing: there is none",
		"list -n shop -A":                      "--all-namespaces and --namespace cannot be given together: leave one out",
		"list -n":                              "--namespace needs a value: only pods of this namespace",
		"list --network lan":                   "--network lan matches nothing: there is none",
		"list --parent eth0":                   "--parent eth0 matches nothing: there is none",
		"restore --parent= --wait 1s":          `invalid --parent "": it must not be empty; leave it out for all`,
		"check --namespace=":                   `invalid --namespace "": it must not be empty; leave it out for all`,
		"forget --network= --force --yes":      `invalid --network "": it must not be empty; leave it out for all`,
		"list -o xml":                          `invalid --output "xml": must be table, wide, name, json or yaml`,
		"list --sandbox c1":                    "unknown flag --sandbox: relink list --help lists the flags",
		"list --checkpoint-dir /nowhere":       "checkpoint directory: stat /nowhere: no such file or directory",
		"list --checkpoint-dir /etc/passwd":    "checkpoint directory: /etc/passwd: not a directory",
		"show":                                 "an argument is missing: relink show [NAMESPACE/]POD|ID...",
		"show shop/web-0":                      `"shop/web-0" matches nothing: there is no such pod`,
		"check nobody":                         `"nobody" matches nothing`,
		"check --cni-cache /nowhere":           "invalid --cni-cache: stat /nowhere",
		"check -o name":                        `invalid --output "name": must be table, json or yaml`,
		"restore nobody":                       `"nobody" matches nothing`,
		"restore --wait -1s":                   `invalid --wait "-1s": must not be negative`,
		"restore --wait soon":                  `invalid --wait "soon": must be a time such as 500ms, 30s or 2h`,
		"restore --wait":                       "--wait needs a value",
		"restore --parent =":                   `invalid --parent "=": device "" is empty`,
		"restore --parent eth0=":               `invalid --parent "eth0=": device "" is empty`,
		"restore --parent eth0=a/b":            `invalid --parent "eth0=a/b": device "a/b" contains`,
		"install --cni-bin bin":                `invalid --cni-bin "bin": must be an absolute path`,
		"install --cni-bin /x --root /nowhere": "invalid --root: stat /nowhere: no such file or directory",
		"install --from /nowhere":              "a release has relink-macvlan beside relink: stat /nowhere/relink-macvlan: no such file or directory; run relink install from a release's directory, or name it with --from",
		"uninstall --root /etc/passwd":         "invalid --root: /etc/passwd: not a directory",
		"uninstall --root / --purge":           "--purge and --root cannot be used together: delete the checkpoints and leases below / yourself",
		"uninstall --root " + dir:              "relink install has put nothing here: there is no " + dir + "/var/lib/relink/installed.json",
		"completion tcsh":                      `unknown verb "tcsh": did you mean bash or fish or zsh?`,
		"completion":                           `relink completion needs a verb: bash, fish, powershell, zsh`,
		"help nonexist":                        `unknown verb "nonexist": relink --help lists the verbs`,
		"restore --parent a=b --parent a=c":    `invalid --parent "a=c": a is b already`,
		"restore --parent a --parent b":        `invalid --parent "b": --parent a selects already; to say that a device has another name now, write OLD=NEW`,
		"restore --parent a=b":                 "--parent a=b: no checkpoint has a parent or bond member a",
		"restore --rebuild-bond=x":             `invalid --rebuild-bond "x": must be true or false`,
		"capture nobody":                       `"nobody" matches nothing`,
		"capture --refresh=x":                  `invalid --refresh "x": must be true or false`,
		"capture --attached":                   "--attached needs a value",
		"forget":                               "relink forget needs the names of pods or sandboxes",
		"forget --stale":                       "--stale",
		"gc --now nobody":                      `"nobody" matches nothing`,
		"gc --now --cni-cache /nowhere":        "invalid --cni-cache: stat /nowhere",
		"forget nobody --yes":                  `"nobody" matches nothing`,
		"import":                               "an argument is missing: relink import DIR",
		"import /tmp /etc --parent lo":         `unexpected argument "/etc": relink import DIR`,
		"import /nowhere --parent lo":          "/nowhere: no such file or directory",
		"import /tmp":                          `invalid --parent "": does not exist: name a device`,
		"import /tmp --parent lo --vlan x":     `invalid --vlan "x": must be a whole number`,
		"import /tmp --parent lo --vlan 9999":  "invalid --vlan: VLAN ID 9999 is not between 1 and 4094",
		"import /tmp --parent lo --mtu -1":     "invalid --mtu -1: must be",
		"import /tmp --parent nosuchnic":       "nosuchnic",
		"validate":                             "an argument is missing: relink validate FILE|DIR...",
		"validate /nowhere":                    "no network configuration was read: stat /nowhere",
		"version now":                          `unexpected argument "now": relink version takes none`,
		"version -o wide":                      `invalid --output "wide": must be table, json or yaml`,
	} {
		var stdout, stderr bytes.Buffer
		args := append(strings.Fields(line), "--checkpoint-dir", dir)
		if strings.Contains(line, "--checkpoint-dir") {
			args = strings.Fields(line)
		}
		if strings.HasSuffix(line, " -n") || strings.HasSuffix(line, " --wait") || strings.HasSuffix(line, " --attached") {
			args = append([]string{"--checkpoint-dir", dir}, strings.Fields(line)...)
		}
		code := run(t.Context(), args, &stdout, &stderr)
		if code != cli.Usage || stdout.Len() > 0 || strings.Count(stderr.String(), "\n") != 1 || !strings.Contains(stderr.String(), says) {
			t.Errorf("%q: exit status %d, %q, %q; want one line that says %s", line, code, &stdout, &stderr, says)
		}
		for _, never := range []string{"strconv", "json:", "Usage:", "%!", "arg(s)"} {
			if strings.Contains(stderr.String(), never) {
				t.Errorf("%q says %s", line, &stderr)
			}
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// No word leads to a verb that frees or deletes something.
func TestNoTypoFreesAnything(t *testing.T) {
	root := newRoot()
	takesAway := regexp.MustCompile(`^(Free|Drop|Delete|Take (host access from|away)|Give up|Make an address free|Declare|Set the time)`)
	var found []string
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, verb := range cmd.Commands() {
			if takesAway.MatchString(verb.Short) {
				found = append(found, verb.CommandPath())
				if near := cli.Suggestions(cmd, verb.Name()); slices.Contains(near, verb.Name()) {
					t.Errorf("a word near %q leads to it: %s", verb.CommandPath(), verb.Short)
				}
			}
			walk(verb)
		}
	}
	walk(root)
	if len(found) < 5 {
		t.Errorf("only %q were looked at", found)
	}
}
