package netconf

import (
	"fmt"
	"path/filepath"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/netstate"
)

// Request is what a configuration asks for.
type Request struct {
	cniplugin.Config
	// Link is what to build: its kind, and its MAC where one is given.
	Link netstate.Link
	// VLAN is the VLAN device to put between the master and the link, nil for
	// none.
	VLAN *ParentVLAN
}

// ParentVLAN is a VLAN device of the host, shared by all who ask for it. No DEL
// removes it.
type ParentVLAN struct {
	netstate.VLAN
	// Name is empty for <master>.<ID>.
	Name string
}

// Reader reads a plugin's configuration. args are those of CNI_ARGS. It returns everything that is
// wrong: the errors have code 6 or 7, or code 4 for what is in CNI_ARGS. With any error the request
// is only as good as can be.
type Reader func(config []byte, args cniplugin.Args) (Request, []error)

// Interface are the readers of the plugins that make interfaces, by the plugin's name.
var Interface = map[string]Reader{MacvlanName: Macvlan, VLANName: VLAN}

// decode reads the configuration into part, a pointer to a struct that has config in it. Keys are looked at
// first: a misspelt one explains best why another is missing.
func decode(b []byte, keys *cniplugin.Keys, part any) []error {
	strange, err := keys.Examine("", b)
	if err != nil {
		return []error{err}
	}
	var errs []error
	for _, s := range strange {
		if s.Err != nil {
			errs = append(errs, s.Err)
		}
	}
	return append(errs, cniplugin.DecodeAll("", b, part)...)
}

// OpenStore opens the store that the configuration or the environment names. A path that
// is not absolute would mean another directory each time: that of who calls the plugin.
func OpenStore(config cniplugin.Config) (*checkpoint.Store, error) {
	const must = "must be an absolute path"
	store := checkpoint.OpenStore(config.CheckpointDir)
	switch {
	case filepath.IsAbs(store.Dir()):
		return store, nil
	case config.CheckpointDir != "":
		return nil, cniplugin.ConfigError("checkpointDir", config.CheckpointDir, must)
	}
	return nil, cniplugin.EnvError(checkpoint.DirEnv, store.Dir(), must)
}

// checkVLANID reports an ID that no VLAN has.
func checkVLANID(key string, id int) error {
	if id < netstate.MinVLANID || id > netstate.MaxVLANID {
		return cniplugin.ConfigError(key, id, fmt.Sprintf("must be between %d and %d", netstate.MinVLANID, netstate.MaxVLANID))
	}
	return nil
}
