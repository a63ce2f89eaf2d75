package validate

import (
	"encoding/json"
	"errors"
	"slices"

	"github.com/containernetworking/cni/libcni"

	"github.com/relink-cni/relink/pkg/cniplugin"
)

// loadError says why libcni does not load a file of that form. It is nil for a file that libcni loads.
func loadError(isList bool, content []byte) error {
	if !isList {
		_, err := libcni.NetworkPluginConfFromBytes(content)
		return err
	}
	list, err := libcni.NetworkConfFromBytes(content)
	if err == nil && len(list.Plugins) == 0 {
		err = errNoPlugins
	}
	return err
}

var errNoPlugins = errors.New(`invalid "plugins": missing: must have the plugins, such as [{"type": "relink-macvlan", "master": "bond4"}]`)

// head is what counts in a list of plugins.
type head struct {
	Name       string            `json:"name"`
	CNIVersion string            `json:"cniVersion"`
	Plugins    []json.RawMessage `json:"plugins"`
}

// readHead reads a list of plugins. The version is the one that libcni takes, if it takes the list. wrong are the values of a wrong type.
// refused says why libcni does not load the list, whatever its plugins are.
func readHead(config []byte) (h head, wrong []error, refused error) {
	wrong = cniplugin.DecodeAll("", config, &h)
	b, err := rewritten(config, map[string]any{"plugins": []map[string]string{{"type": "relink-macvlan"}}})
	if err != nil {
		return h, wrong, err
	}
	list, err := libcni.NetworkConfFromBytes(b)
	if err == nil {
		h.CNIVersion = list.CNIVersion
	}
	return h, wrong, err
}

// addRefusal reports why libcni refuses something, unless that was reported since as many findings were there: relink's own words say what
// to do.
func (r *chainReader) addRefusal(place string, before int, refused error) {
	if refused != nil && !slices.ContainsFunc(r.out.findings[before:], func(f ConfigFinding) bool { return f.Severity == Error }) {
		r.addFinding(Error, place, "%s", errorText(refused))
	}
}
