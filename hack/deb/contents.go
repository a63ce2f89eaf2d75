package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2/files"
)

// contents returns the files of the package. It writes files that are not in the repository in their packed form to the
// directory generated.
func (r release) contents(generated string) (files.Contents, error) {
	bin := func(name string) string { return filepath.Join(r.bin, name) }
	deploy := func(name string) string { return filepath.Join(r.root, "deploy", name) }
	var list files.Contents
	for _, name := range []string{"relink", "relink-agent"} {
		list = append(list, file(bin(name), "/usr/sbin/"+name, 0o755))
	}
	for _, name := range []string{"relink-macvlan", "relink-vlan", "relink-ipam", "relink-checkpoint", "relink-host-access"} {
		list = append(list, file(bin(name), "/opt/cni/bin/"+name, 0o755))
		// Debian's containerd looks here.
		list = append(list, &files.Content{Source: "/opt/cni/bin/" + name, Destination: "/usr/lib/cni/" + name, Type: files.TypeSymlink})
	}
	conffile := file(deploy("deb/relink-agent.default"), "/etc/default/relink-agent", 0o644)
	conffile.Type = files.TypeConfig
	list = append(list, conffile,
		file(bin("completion/relink.bash"), "/usr/share/bash-completion/completions/relink", 0o644),
		file(bin("completion/relink.zsh"), "/usr/share/zsh/vendor-completions/_relink", 0o644),
		file(bin("completion/relink.fish"), "/usr/share/fish/vendor_completions.d/relink.fish", 0o644),
		file(deploy("deb/copyright"), "/usr/share/doc/relink/copyright", 0o644),
		file(deploy("deb/lintian-overrides"), "/usr/share/lintian/overrides/relink", 0o644),
	)
	unit, err := r.unit(generated)
	if err != nil {
		return nil, err
	}
	changelog, err := r.changelog(generated)
	if err != nil {
		return nil, err
	}
	pages, err := r.pages(generated)
	return append(append(list, unit, changelog), pages...), err
}

// unit returns the agent's unit, with the agent's path in the package.
func (r release) unit(generated string) (*files.Content, error) {
	text, err := os.ReadFile(filepath.Join(r.root, "deploy/systemd/relink-agent.service"))
	if err != nil {
		return nil, err
	}
	path := filepath.Join(generated, "relink-agent.service")
	text = bytes.ReplaceAll(text, []byte("/usr/local/sbin/"), []byte("/usr/sbin/"))
	return file(path, "/lib/systemd/system/relink-agent.service", 0o644), os.WriteFile(path, text, 0o600)
}

func (r release) changelog(generated string) (*files.Content, error) {
	path := filepath.Join(generated, "changelog.gz")
	text := fmt.Sprintf("relink (%s) stable; urgency=medium\n\n  * Release %s.\n\n -- The relink authors <relink@relink-cni.github.io>  %s\n",
		debianVersion(r.version), r.version, r.date.Format(time.RFC1123Z))
	return file(path, "/usr/share/doc/relink/changelog.gz", 0o644), zip(path, []byte(text))
}

// pages returns the manual pages.
func (r release) pages(generated string) (files.Contents, error) {
	found, err := filepath.Glob(filepath.Join(r.bin, "man/*.8"))
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("no manual pages in %s: run make man", filepath.Join(r.bin, "man"))
	}
	if err != nil {
		return nil, err
	}
	var list files.Contents
	for _, page := range found {
		text, err := os.ReadFile(page)
		if err != nil {
			return nil, err
		}
		path := filepath.Join(generated, filepath.Base(page)+".gz")
		if err := zip(path, text); err != nil {
			return nil, err
		}
		list = append(list, file(path, "/usr/share/man/man8/"+strings.TrimPrefix(path, generated+"/"), 0o644))
	}
	return list, nil
}

// zip writes the text as gzip -9n does: without a name and a time.
func zip(path string, text []byte) error {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := w.Write(text); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o600)
}
