package netfix

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/printable"
)

// File is a checkpoint of i40e_net_fix. The tool writes no other keys. Result can have more: it is kept as it is.
type File struct {
	// Netns is the path of the sandbox's namespace when the file was written. By now it can lead to a
	// stranger's.
	Netns string `json:"netns"`
	// PodName is the tool's name for the pod, for people to read.
	PodName     string          `json:"podname"`
	ContainerID string          `json:"sandbox"`
	IfName      string          `json:"ifname"`
	Result      json.RawMessage `json:"result"`

	// MAC, Addresses and Routes are those of the interface that Result describes.
	MAC       string             `json:"-"`
	Addresses []netstate.Address `json:"-"`
	Routes    []netstate.Route   `json:"-"`
	// Path is where the file is, and ModTime is when it was written.
	Path    string    `json:"-"`
	ModTime time.Time `json:"-"`
	// Err is why the file cannot be used. Then it has nothing but its path.
	Err error `json:"-"`
}

// ReadDir reads the files of the directory. It skips names that begin with a dot: they belong to an
// editor or a copying program. Everything else that is no file of the tool gets an Err.
func ReadDir(dir string) (files []File, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read checkpoints of i40e_net_fix: %w", err)
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		path := filepath.Join(dir, entry.Name())
		f, err := read(path, entry)
		if err != nil {
			f = File{Err: err}
		}
		f.Path = path
		files = append(files, f)
	}
	return files, nil
}

func read(path string, entry fs.DirEntry) (f File, err error) {
	if !entry.Type().IsRegular() {
		return f, errors.New("no regular file, and so no checkpoint of i40e_net_fix: move it away")
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return f, err
	}
	if f, err = Parse(b); err != nil {
		return f, err
	}
	if name := entry.Name(); !strings.HasPrefix(f.ContainerID, name) || len(name) < min(fileNameLength, len(f.ContainerID)) {
		return f, invalidValue("sandbox", f.ContainerID, "the file's name is not the beginning of it: remove the file if it is a copy, or rename it")
	}
	info, err := entry.Info()
	if err == nil {
		f.ModTime = info.ModTime()
	}
	return f, err
}

// fileNameLength is how much of the container ID the tool uses as the file's name.
const fileNameLength = 12

// errTorn says that a file has not the form in which the tool writes it.
var errTorn = errors.New("torn or no checkpoint of i40e_net_fix")

// Parse returns the whole checkpoint in b, or an error that names what is wrong. It refuses keys that the tool does not write: what they ask
// for would be lost.
func Parse(b []byte) (f File, err error) {
	decoder := json.NewDecoder(strings.NewReader(string(b)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&f); err != nil {
		return f, fmt.Errorf("%w: %s", errTorn, printable.Line(err.Error()))
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return f, fmt.Errorf("%w: more follows after its end", errTorn)
	}
	if !filepath.IsAbs(f.Netns) || strings.ContainsRune(f.Netns, 0) {
		return f, invalidValue("netns", f.Netns, "must be the absolute path of the sandbox's network namespace")
	}
	if err := (attachment.Key{Network: "unknown", ContainerID: f.ContainerID, IfName: f.IfName}).Validate(); err != nil {
		return f, fmt.Errorf("invalid \"sandbox\" or \"ifname\": %w", err)
	}
	// The tool writes the layout of 0.3.0 to 1.1.0 whatever cniVersion says, even if cniVersion is missing.
	var r current.Result
	if err := json.Unmarshal(f.Result, &r); err != nil {
		return f, fmt.Errorf("%w: result: %s", errTorn, printable.Line(err.Error()))
	}
	return f, f.configure(&r)
}

// Pod is the pod's name, if PodName can be one. The file does not tell the pod's namespace. A name
// that joins several is not taken apart.
func (f File) Pod() attachment.Pod {
	if (attachment.Pod{Namespace: "default", Name: f.PodName}).Validate() != nil {
		return attachment.Pod{}
	}
	return attachment.Pod{Name: f.PodName}
}

// invalidValue is an error about the value of a key.
func invalidValue(key, value, requirement string) error {
	return fmt.Errorf("invalid %q: %q: %s", key, value, requirement)
}

const (
	// ipv6Priority is the metric of an IPv6 route that is added without one (IP6_RT_PRIO_USER).
	ipv6Priority = 1024
	// tableMain is RT_TABLE_MAIN, the kernel's default.
	tableMain = 254
)

// configure fills in the MAC, and the addresses and routes as the kernel has them after the tool has set them. A result from before CNI 0.3.0
// has no interface, and so no MAC for a restore. Of two routes in one slot configure leaves out the second.
func (f *File) configure(r *current.Result) (err error) {
	if len(r.Interfaces) != 1 || slices.Contains(r.Interfaces, nil) || slices.Contains(r.IPs, nil) || slices.Contains(r.Routes, nil) {
		return errors.New(`invalid "result": must be the CNI result of the attachment, with the pod's one interface and its MAC: relink capture remembers what is alive without this file`)
	}
	if f.MAC, err = netstate.ParseMAC(r.Interfaces[0].Mac); err != nil {
		return invalidValue("result.interfaces[0].mac", r.Interfaces[0].Mac, "must be the interface's MAC: "+err.Error())
	}
	if f.Addresses, err = cniplugin.Addresses(r); err != nil {
		return fmt.Errorf("result.ips: %w", err)
	}
	for i, a := range f.Addresses {
		if a.Prefix.Addr().Is4() {
			f.Addresses[i].Label = f.IfName
		}
	}
	routes, err := cniplugin.Routes(r)
	if err != nil {
		return fmt.Errorf("result.routes: %w", err)
	}
	for _, route := range routes {
		if route.Table == 0 {
			route.Table = tableMain
		}
		if route.Destination.Addr().Is6() {
			route.Scope = 0 // IPv6 routes have none.
			if route.Priority == 0 {
				route.Priority = ipv6Priority
			}
		}
		if !slices.ContainsFunc(f.Routes, route.SameSlot) {
			f.Routes = append(f.Routes, route)
		}
	}
	return nil
}

// Interface is the interface as the tool built it.
func (f File) Interface(parents []netstate.Device, mtu int) netstate.Interface {
	return netstate.Interface{
		Link: netstate.Link{
			Kind: netstate.KindMacvlan, Name: f.IfName, MAC: f.MAC, MTU: mtu, Up: true,
			Macvlan: &netstate.Macvlan{Mode: "bridge"},
		},
		Parents: parents, Addresses: f.Addresses, Routes: f.Routes, Settings: f.Settings(),
	}
}

// Settings are the sysctls that the tool set. The pod answers for others (proxy ARP), and IPv6 is on
// if it is used.
func (f File) Settings() map[string]string {
	s := map[string]string{"ipv4/proxy_arp": "1"}
	if slices.ContainsFunc(f.Addresses, func(a netstate.Address) bool { return a.Prefix.Addr().Is6() }) {
		s["ipv6/disable_ipv6"] = "0"
	}
	return s
}
