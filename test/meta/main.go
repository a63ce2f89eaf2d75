// Command meta is a CNI plugin for tests. It calls its delegates as Multus does (cmdAdd and cmdDel in pkg/multus of multus-cni): by libcni, with a cache of
// its own, and a file with the delegates of each sandbox. The first delegate gets the name that the runtime gives, the others net1, net2 and so on. A pod
// whose name ends with -alone gets the first one only. While the file that "hold" names exists with "-" and the name of the delegate's network, it waits
// after that delegate.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

// dir is Multus's default directory.
const dir = "/var/lib/cni/multus"

func main() {
	skel.PluginMainFuncs(skel.CNIFuncs{Add: add, Del: del}, version.All, "meta")
}

// delegate is what Multus keeps of a delegate.
type delegate struct {
	Conf  struct{ Name string }
	Bytes []byte
}

// network is a delegate that can be called.
type network struct {
	list    *libcni.NetworkConfigList
	runtime *libcni.RuntimeConf
}

func cni() *libcni.CNIConfig {
	return libcni.NewCNIConfigWithCacheDir(filepath.SplitList(os.Getenv("CNI_PATH")), dir, nil)
}

// networks returns the delegates of the sandbox.
func networks(args *skel.CmdArgs) (all []network, err error) {
	var conf struct {
		Delegates []json.RawMessage `json:"delegates"`
	}
	if err := json.Unmarshal(args.StdinData, &conf); err != nil {
		return nil, err
	}
	var pairs [][2]string
	for _, pair := range strings.Split(args.Args, ";") {
		key, value, _ := strings.Cut(pair, "=")
		if pairs = append(pairs, [2]string{key, value}); key == "K8S_POD_NAME" && strings.HasSuffix(value, "-alone") {
			conf.Delegates = conf.Delegates[:1]
		}
	}
	var kept []delegate
	for i, d := range conf.Delegates {
		list, err := libcni.ConfListFromBytes(d)
		if err != nil {
			return nil, err
		}
		name := args.IfName
		if i > 0 {
			name = fmt.Sprintf("net%d", i)
		}
		all = append(all, network{list, &libcni.RuntimeConf{ContainerID: args.ContainerID, NetNS: args.Netns, IfName: name, Args: pairs}})
		k := delegate{Bytes: d}
		k.Conf.Name = list.Name
		kept = append(kept, k)
	}
	b, err := json.Marshal(kept)
	if err == nil {
		err = errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, args.ContainerID), b, 0o600))
	}
	return all, err
}

func add(args *skel.CmdArgs) error {
	all, err := networks(args)
	if err != nil {
		return err
	}
	var conf struct {
		Hold string `json:"hold"`
	}
	if err := json.Unmarshal(args.StdinData, &conf); err != nil {
		return err
	}
	var first types.Result
	for i, n := range all {
		result, err := cni().AddNetworkList(context.Background(), n.list, n.runtime)
		if err != nil {
			return fmt.Errorf("delegate %s: %w", n.list.Name, err)
		}
		if i == 0 {
			first = result
		}
		for err == nil && conf.Hold != "" {
			if _, err = os.Stat(conf.Hold + "-" + n.list.Name); err == nil {
				time.Sleep(10 * time.Millisecond)
			}
		}
	}
	return types.PrintResult(first, all[0].list.CNIVersion)
}

func del(args *skel.CmdArgs) (err error) {
	all, err := networks(args)
	if err != nil {
		return err
	}
	for _, n := range slices.Backward(all) {
		err = errors.Join(err, cni().DelNetworkList(context.Background(), n.list, n.runtime))
	}
	return errors.Join(err, os.Remove(filepath.Join(dir, args.ContainerID)))
}
