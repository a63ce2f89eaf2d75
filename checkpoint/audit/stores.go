package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/ipam/lease"
)

// ConfDirs are where runtimes and Multus keep the configurations of a node's networks. Tests replace it.
var ConfDirs = []string{"/etc/cni/net.d", "/etc/cni/multus/net.d", "/var/lib/rancher/k3s/agent/etc/cni/net.d"}

// OpenLeases opens the stores in the directory only. If that is empty, it opens those in the default directory, and in each
// that "ipam.dataDir" names in a configuration of this node or in a checkpoint. A directory that does not exist has no stores:
// the first ADD makes it. The error says that the checkpoints, or the stores of the first directory, cannot be listed. What
// else cannot be read is in Problems.
func (s *Sources) OpenLeases(leaseDir string) error {
	first, err := lease.Dir(leaseDir)
	if err != nil {
		return err
	}
	dirs := []string{resolveLinks(first)}
	if leaseDir == "" {
		records, _, err := s.Store.List()
		if err != nil {
			return err
		}
		dirs = append(dirs, s.configuredDirs(records)...)
	}
	for i, dir := range dirs {
		if _, err := os.Stat(dir); i > 0 && errors.Is(err, fs.ErrNotExist) || slices.Contains(s.LeaseDirs, dir) {
			continue
		}
		err := s.openAll(dir)
		if err != nil && i == 0 {
			return err
		}
		if err != nil {
			s.Problems = append(s.Problems, fmt.Sprintf("the leases in %s cannot be read: %v", dir, err))
		}
	}
	return nil
}

// openAll opens the stores of a directory.
func (s *Sources) openAll(dir string) error {
	networks, err := lease.Networks(dir)
	if err != nil {
		return err
	}
	for _, network := range networks {
		store, err := lease.Open(dir, network)
		if err != nil {
			return err
		}
		s.Leases = append(s.Leases, store)
	}
	s.LeaseDirs = append(s.LeaseDirs, dir)
	return nil
}

// resolveLinks returns the directory without links: all spellings of it are one.
func resolveLinks(dir string) string {
	if path, err := filepath.EvalSymlinks(dir); err == nil {
		return path
	}
	return filepath.Clean(dir)
}

// netConf is what an audit reads in the configuration of a network, or of a runtime's or Multus's list of them.
type netConf struct {
	IPAM struct {
		Type    string `json:"type"`
		Store   string `json:"store"`
		DataDir string `json:"dataDir"`
	} `json:"ipam"`
	Plugins   []netConf `json:"plugins"`
	Delegates []netConf `json:"delegates"`
}

// leaseDirs returns the directories that the configuration names.
func (c netConf) leaseDirs() (dirs []string) {
	if c.IPAM.Type == "relink-ipam" && filepath.IsAbs(c.IPAM.DataDir) {
		dirs = append(dirs, resolveLinks(c.IPAM.DataDir))
	}
	for _, plugin := range slices.Concat(c.Plugins, c.Delegates) {
		dirs = append(dirs, plugin.leaseDirs()...)
	}
	return dirs
}

// configuredDirs returns the directories that the checkpoints and the configurations of this node name.
func (s *Sources) configuredDirs(records []checkpoint.Record) (dirs []string) {
	for _, r := range records {
		var c netConf
		if json.Unmarshal(r.CNI.Config, &c) == nil { // A configuration that no runtime can read names nothing.
			dirs = append(dirs, c.leaseDirs()...)
		}
	}
	for _, dir := range ConfDirs {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.Problems = append(s.Problems, fmt.Sprintf("whether a configuration has ipam.dataDir is not known: %v", err))
		}
		for _, e := range entries {
			if !slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(e.Name())) {
				continue
			}
			found, err := leaseDirsIn(filepath.Join(dir, e.Name()))
			if err != nil {
				s.Problems = append(s.Problems, fmt.Sprintf("whether it has ipam.dataDir is not known: %v", err))
			}
			dirs = append(dirs, found...)
		}
	}
	return dirs
}

// leaseDirsIn returns the directories that the file of a configuration names.
func leaseDirsIn(path string) ([]string, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() { // A pipe would hang for ever.
		return nil, nil
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) { // Somebody has just removed it.
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var c netConf
	// Another plugin may have a value of another type at one of the keys. All other keys are read.
	if err := json.Unmarshal(b, &c); err != nil && !errors.As(err, new(*json.UnmarshalTypeError)) {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c.leaseDirs(), nil
}
