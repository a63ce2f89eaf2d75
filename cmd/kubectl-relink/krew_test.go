package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"text/template"

	"go.yaml.in/yaml/v3"

	"github.com/relink-cni/relink/test/binaries"
)

// release is what krew-release-bot fills in.
type release struct{ TagName string }

// filled is the manifest as a release fills it.
func filled(t *testing.T, tag string) string {
	t.Helper()
	text, err := os.ReadFile("../../deploy/krew/relink.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var render func(text string) string
	render = func(text string) string {
		var out strings.Builder
		parsed, err := template.New("relink.yaml").Funcs(template.FuncMap{"addURIAndSha": func(url, _ string) string {
			return fmt.Sprintf("uri: %s\n      sha256: %064d", render(url), 7)
		}}).Parse(text)
		if err == nil {
			err = parsed.Execute(&out, release{tag})
		}
		if err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	return render(string(text))
}

// krew refuses a plugin whose manifest lacks any of this. The Makefile makes an archive for each platform.
func TestKrewManifest(t *testing.T) {
	var plugin struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   struct{ Name string }
		Spec       struct {
			Version, Homepage, ShortDescription, Description string
			Platforms                                        []struct {
				Selector         struct{ MatchLabels struct{ OS, Arch string } }
				URI, SHA256, Bin string
			}
		}
	}
	text := strings.NewReplacer("matchLabels", "matchlabels", "shortDescription", "shortdescription").Replace(filled(t, "v1.2.3"))
	decoder := yaml.NewDecoder(strings.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&plugin); err != nil {
		t.Fatal(err)
	}
	s := plugin.Spec
	if plugin.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" || plugin.Kind != "Plugin" || plugin.Metadata.Name != "relink" || s.Version != "v1.2.3" {
		t.Errorf("%+v", plugin)
	}
	if s.ShortDescription == "" || len(s.ShortDescription) > 60 || strings.HasSuffix(s.ShortDescription, ".") || s.Description == "" || !strings.HasPrefix(s.Homepage, "https://") {
		t.Errorf("%+v", s)
	}
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	var platforms []string
	for _, p := range s.Platforms {
		platform := p.Selector.MatchLabels
		platforms = append(platforms, platform.OS+"/"+platform.Arch)
		want := fmt.Sprintf("https://github.com/relink-cni/relink/releases/download/v1.2.3/kubectl-relink_%s_%s.tar.gz", platform.OS, platform.Arch)
		if p.URI != want || !regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(p.SHA256) || p.Bin != "kubectl-relink" {
			t.Errorf("%+v", p)
		}
	}
	if want := "for p in " + strings.Join(platforms, " ") + "; do"; len(platforms) == 0 || !strings.Contains(string(makefile), want) {
		t.Errorf("the Makefile does not have %q", want)
	}
}

// kubectl asks this program of the PATH for the words that come next.
func TestKubectlCompletes(t *testing.T) {
	bin, err := filepath.Abs("../../bin/test")
	if err == nil {
		err = binaries.Build(bin)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	out, err := exec.Command("../../deploy/krew/kubectl_complete-relink", "sta").Output()
	if err != nil || !strings.HasPrefix(string(out), "status\t") {
		t.Errorf("%v\n%s", err, out)
	}
}
