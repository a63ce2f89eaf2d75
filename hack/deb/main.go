// Command deb makes a Debian package of the programs in bin/. make build and make man have made those. The command has
// a module of its own, because the library that writes the package needs many others.
//
//	go -C hack/deb run . -version v1.0.0 -date 1700000000
package main

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
)

func main() {
	version := flag.String("version", "", "version of relink, as git describe has it")
	seconds := flag.Int64("date", time.Now().Unix(), "time of the release, in seconds since 1970: packages of one version and time are the same")
	arch := flag.String("arch", "amd64", "architecture of the programs")
	root := flag.String("root", "../..", "directory of the repository")
	bin := flag.String("bin", "../../bin", "directory of the programs, man/ and completion/; the package goes there")
	compression := flag.String("compression", "xz", "gzip, xz, zstd or none")
	flag.Parse()
	path, err := write(release{*version, *arch, *root, *bin, *compression, time.Unix(*seconds, 0).UTC()})
	if err != nil {
		fmt.Fprintf(os.Stderr, "deb: %v\n", err)
		os.Exit(1)
	}
	fmt.Println(path)
}

// release is what is packed.
type release struct {
	version, arch, root, bin, compression string
	date                                  time.Time
}

// write makes the package and returns its path.
func write(r release) (string, error) {
	generated, err := os.MkdirTemp("", "relink-deb-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(generated) }()
	list, err := r.contents(generated)
	if err != nil {
		return "", err
	}
	deploy := func(name string) string { return filepath.Join(r.root, "deploy/deb", name) }
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "relink", Arch: r.arch, Platform: "linux", Version: debianVersion(r.version), VersionSchema: "none",
		Section: "net", Priority: "optional", Homepage: "https://github.com/relink-cni/relink", MTime: r.date,
		Maintainer: "The relink authors <relink@relink-cni.github.io>",
		Description: "keep pods on their network when the NIC below them goes away\n" +
			"relink remembers each pod's network interface, and rebuilds it inside the\n" +
			"running pod after a driver reload, a firmware reset or a network restart.",
		Overridables: nfpm.Overridables{
			Depends:    []string{"init-system-helpers (>= 1.54)"},
			Recommends: []string{"kmod", "iptables"},
			Contents:   list,
			Deb:        nfpm.Deb{Compression: r.compression},
			Scripts:    nfpm.Scripts{PreInstall: deploy("preinst"), PostInstall: deploy("postinst"), PreRemove: deploy("prerm"), PostRemove: deploy("postrm")},
		},
	})
	packager, err := nfpm.Get("deb")
	if err != nil {
		return "", err
	}
	path := filepath.Join(r.bin, packager.ConventionalFileName(info))
	to, err := os.Create(path)
	if err != nil {
		return "", err
	}
	if err := packager.Package(info, to); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return path, to.Close()
}

var (
	tagged    = regexp.MustCompile(`^v?(\d+\.\d+.*)$`)
	candidate = regexp.MustCompile(`-(rc|alpha|beta)`)
)

// debianVersion turns the output of git describe into a version that dpkg sorts correctly. A candidate comes before its
// release, later commits come after it, and a version without a tag comes before everything.
func debianVersion(described string) string {
	found := tagged.FindStringSubmatch(described)
	if found == nil {
		return "0~" + strings.ReplaceAll(described, "-", "+")
	}
	return strings.ReplaceAll(candidate.ReplaceAllString(found[1], "~$1"), "-", "+")
}

// file is one file of the package.
func file(source, destination string, mode fs.FileMode) *files.Content {
	return &files.Content{Source: source, Destination: destination, FileInfo: &files.ContentFileInfo{Mode: mode, Owner: "root", Group: "root"}}
}
