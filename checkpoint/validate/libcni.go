package validate

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/relink-cni/relink/pkg/cniplugin"
)

// head is a list of plugins as libcni reads it (libcni.NetworkConfFromBytes). libcni itself links net/http. A test
// compares both.
type head struct {
	name, version string
	plugins       []json.RawMessage
	// errs are all reasons for which libcni refuses the list. pluginErrors has the reasons of the plugins.
	errs []error
}

// readHead reads the keys of a list. Case counts in them.
func readHead(keys map[string]json.RawMessage) head {
	var h head
	if keys["name"] == nil {
		h.addError("name", cniplugin.Missing, "must be the network's name")
	} else {
		h.name = h.text(keys, "name")
	}
	h.version = h.text(keys, "cniVersion")
	h.versions(keys["cniVersions"])
	h.boolean(keys, "disableCheck")
	h.boolean(keys, "disableGC")
	h.boolean(keys, "loadOnlyInlinedPlugins")
	h.list(keys["plugins"])
	return h
}

func (h *head) addError(key string, value any, requirement string) {
	h.errs = append(h.errs, cniplugin.ConfigError(key, value, requirement))
}

// text reads a string. null is none.
func (h *head) text(keys map[string]json.RawMessage, key string) string {
	var s *string
	if written := keys[key]; written != nil && (json.Unmarshal(written, &s) != nil || s == nil) {
		h.addError(key, cniplugin.RawValue(written), "must be a string: put it in quotation marks")
	}
	if s == nil {
		return ""
	}
	return *s
}

// versions reads "cniVersions". The newest version that libcni knows counts.
func (h *head) versions(written json.RawMessage) {
	if written == nil {
		return
	}
	list, ok := decode[[]*string](written)
	if !ok || list == nil || slices.Contains(list, nil) {
		h.addError("cniVersions", cniplugin.RawValue(written), `must be a list of versions such as ["1.0.0", "1.1.0"]`)
		return
	}
	if h.version != "" {
		list = append(list, &h.version)
	}
	var supported []string
	for i, v := range list {
		newer, err := version.GreaterThan(*v, version.Current())
		switch {
		case err != nil && v == &h.version:
			h.addError("cniVersion", *v, "must be a version such as 1.1.0")
		case err != nil:
			h.addError(fmt.Sprintf("cniVersions[%d]", i), *v, "must be a version such as 1.1.0")
		case !newer:
			supported = append(supported, *v)
		}
	}
	for i, v := range supported {
		if newer, err := version.GreaterThan(v, h.version); i == 0 || err == nil && newer {
			h.version = v
		}
	}
}

// boolean checks one that libcni takes as a string, too.
func (h *head) boolean(keys map[string]json.RawMessage, key string) {
	written := keys[key]
	if written == nil {
		return
	}
	var value any
	_ = json.Unmarshal(written, &value) // It was decoded before.
	text, isText := value.(string)
	if _, isBoolean := value.(bool); isBoolean || isText && slices.Contains([]string{"true", "false"}, strings.ToLower(text)) {
		return
	}
	h.addError(key, cniplugin.RawValue(written), "must be true or false")
}

func (h *head) list(written json.RawMessage) {
	const requirement = `must have the plugins, such as [{"type": "relink-macvlan", "master": "bond4"}]`
	var ok bool
	switch h.plugins, ok = decode[[]json.RawMessage](written); {
	case written == nil:
		h.addError("plugins", cniplugin.Missing, requirement)
	case !ok:
		h.addError("plugins", cniplugin.RawValue(written), "must be a list: put it in [ ]")
	case len(h.plugins) == 0:
		h.addError("plugins", cniplugin.RawValue(written), requirement)
	}
}

// pluginErrors are the reasons for which libcni refuses a plugin's configuration (types.PluginConf). Case does not count
// in its keys.
func pluginErrors(config []byte) []error {
	var c struct {
		CNIVersion   string          `json:"cniVersion"`
		Name         string          `json:"name"`
		Type         string          `json:"type"`
		Capabilities map[string]bool `json:"capabilities"`
		IPAM         struct {
			Type string `json:"type"`
		} `json:"ipam"`
		DNS              types.DNS            `json:"dns"`
		PrevResult       map[string]any       `json:"prevResult"`
		ValidAttachments []types.GCAttachment `json:"cni.dev/valid-attachments"`
	}
	errs := cniplugin.DecodeAll("", config, &c)
	if c.Type == "" && !slices.ContainsFunc(errs, func(err error) bool { return strings.HasPrefix(errorText(err), `invalid "type"`) }) {
		errs = append(errs, cniplugin.ConfigError("type", cniplugin.Missing, "must be the plugin's name, such as relink-macvlan"))
	}
	return errs
}

// loadError says why libcni does not load a file of that form. It is nil for a file that libcni loads.
func loadError(isList bool, content []byte) error {
	config, err := normalized(content)
	if err != nil {
		return err
	}
	if !isList {
		return cniplugin.FirstError(pluginErrors(content))
	}
	var keys map[string]json.RawMessage
	_ = json.Unmarshal(config, &keys) // It was decoded before.
	h := readHead(keys)
	if err := cniplugin.FirstError(h.errs); err != nil {
		return err
	}
	for i, plugin := range h.plugins {
		if err := cniplugin.FirstError(pluginErrors(plugin)); err != nil {
			return cniplugin.Wrap(err, "plugins["+strconv.Itoa(i)+"]")
		}
	}
	return nil
}
