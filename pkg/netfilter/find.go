package netfilter

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// extraDirectories are searched after PATH. A container runtime can have a PATH without them.
var extraDirectories = []string{"/usr/local/sbin", "/usr/sbin", "/sbin"}

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
	path := lookPath(directories, name)
	if path == "" && programs.system == "" {
		return programs, fmt.Errorf("%s is %w: install the package iptables (looked in PATH, %s)", name, ErrNotInstalled, strings.Join(extraDirectories, ", "))
	}
	if path == "" {
		return programs, nil
	}
	v, err := variantOf(path)
	if err != nil {
		return programs, err
	}
	programs.system = v
	if programs.path[v] == "" {
		programs.path[v] = path
	}
	return programs, nil
}

// directories are those of PATH and the others.
func directories() []string {
	return slices.Concat(filepath.SplitList(os.Getenv("PATH")), extraDirectories)
}

// lookPath finds a program, and returns "" if it is not installed.
func lookPath(directories []string, name string) string {
	for _, dir := range directories {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); filepath.IsAbs(dir) && err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}

// variantOf returns the variant of the program. Most often the name of the file that it links to tells.
func variantOf(path string) (variant, error) {
	if file, err := filepath.EvalSymlinks(path); err == nil {
		for _, v := range []variant{nft, legacy} {
			if strings.Contains(filepath.Base(file), string(v)) {
				return v, nil
			}
		}
	}
	version, err := output(limit, path, "--version")
	if err != nil {
		return "", err
	}
	if strings.Contains(version, "nf_tables") {
		return nft, nil
	}
	return legacy, nil // Versions before 1.8 do not say so.
}

// Installed returns ErrNotInstalled if there is no iptables for the family.
func Installed(family Family) error {
	_, err := find(family, directories())
	return err
}
