package netfilter

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// variant is one of the two kinds of iptables. The kernel keeps their tables apart, and works with both at once.
type variant string

const (
	nft    variant = "nft"
	legacy variant = "legacy"
)

// extraDirectories are searched after PATH. A container runtime can have a PATH without them.
var extraDirectories = []string{"/usr/local/sbin", "/usr/sbin", "/sbin"}

// directories are those of PATH and the others.
func directories() []string {
	return slices.Concat(filepath.SplitList(os.Getenv("PATH")), extraDirectories)
}

// installed are the programs of a family.
type installed struct {
	path map[variant]string
	// system is the variant of the program that is called iptables.
	system variant
}

// find returns the programs of the family. It returns ErrNotInstalled if there are none.
func find(family Family, directories []string) (installed, error) {
	name := family.program()
	programs := installed{path: map[variant]string{}}
	for _, v := range []variant{legacy, nft} {
		if path := lookPath(directories, name+"-"+string(v)); path != "" {
			programs.path[v], programs.system = path, v
		}
	}
	if path := lookPath(directories, name); path != "" {
		v, err := variantOf(path)
		if err != nil {
			return programs, err
		}
		programs.system = v
		if programs.path[v] == "" {
			programs.path[v] = path
		}
	}
	if programs.system == "" {
		return programs, fmt.Errorf("%s is %w: install the package iptables (looked in PATH, %s)", name, ErrNotInstalled, strings.Join(extraDirectories, ", "))
	}
	return programs, nil
}

// lookPath finds a program, and returns "" if it is not installed.
func lookPath(directories []string, name string) string {
	for _, dir := range directories {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil && filepath.IsAbs(dir) {
			return path
		}
	}
	return ""
}

// variantOf returns the variant of the program. Most often the name of the file that it links to tells.
func variantOf(path string) (variant, error) {
	file, _ := filepath.EvalSymlinks(path)
	text := filepath.Base(file)
	if !strings.Contains(text, string(nft)) && !strings.Contains(text, string(legacy)) {
		var err error
		if text, err = output(limit, "", path, "--version"); err != nil {
			return "", err
		}
	}
	if strings.Contains(text, string(nft)) || strings.Contains(text, "nf_tables") {
		return nft, nil
	}
	return legacy, nil // Versions before 1.8 do not say so.
}

// Installed returns ErrNotInstalled if there is no iptables at all.
func Installed() (err error) {
	for _, family := range []Family{IPv6, IPv4} {
		if _, err = find(family, directories()); err == nil {
			break
		}
	}
	return err
}
