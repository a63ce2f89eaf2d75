package netconf

import (
	"fmt"
	"path/filepath"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/pkg/netstate"
)

// Request is what a configuration asks for.
type Request struct {
	cniplugin.Config
	// Link is the interface to build: its kind, and its MAC if one is given.
	Link netstate.Link
	// VLAN is the VLAN device to put between the master and the interface. It is nil for
	// none.
	VLAN *ParentVLAN
	// HostAccess is the path between the pod and its node. It is nil for none.
	HostAccess *hostaccess.Options
}

// ParentVLAN is a VLAN device of the host. All attachments that ask for it share it. No DEL
// removes it.
type ParentVLAN struct {
	netstate.VLAN
	// Name is empty for <master>.<ID>.
	Name string
}

// Reader reads a plugin's configuration, with what CNI_ARGS say. It returns everything that is wrong, each with code
// 6 or 7, or 4 for what is wrong in CNI_ARGS. If there is any error, the request is not complete.
type Reader func(config []byte, args cniplugin.Args) (Request, []error)

// InterfaceReaders has the readers of the plugins that make interfaces, by the plugin's name.
var InterfaceReaders = map[string]Reader{MacvlanName: Macvlan, VLANName: VLAN}

// OpenStore opens the store that the configuration or the environment names. A path that is not absolute is an error
// with code 7 or 4: it would depend on the directory of whoever calls the plugin.
func OpenStore(config cniplugin.Config) (*checkpoint.Store, error) {
	const absolute = "must be an absolute path"
	store := checkpoint.OpenStore(config.CheckpointDir)
	switch {
	case filepath.IsAbs(store.Dir()):
		return store, nil
	case config.CheckpointDir != "":
		return nil, cniplugin.ConfigError("checkpointDir", config.CheckpointDir, absolute)
	}
	return nil, cniplugin.EnvError(checkpoint.DirEnv, store.Dir(), absolute)
}

// checkVLANID reports an ID that no VLAN has.
func checkVLANID(key string, id int) error {
	if id < netstate.MinVLANID || id > netstate.MaxVLANID {
		return cniplugin.ConfigError(key, id, fmt.Sprintf("must be between %d and %d", netstate.MinVLANID, netstate.MaxVLANID))
	}
	return nil
}
