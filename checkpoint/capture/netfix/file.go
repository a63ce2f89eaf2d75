package netfix

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"reflect"
	"strings"
	"unicode"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
)

// File is a checkpoint of i40e_net_fix.
type File struct {
	// Netns is the path of the sandbox's namespace when the file was written. By now it can lead to a
	// stranger's.
	Netns string
	// PodName is the tool's name for the pod, for people to read.
	PodName string
	// ContainerID is the container ID.
	ContainerID string
	IfName      string
	// MAC is in the form of netstate.Link.MAC.
	MAC       string
	Addresses []netstate.Address
	Routes    []netstate.Route
	// Result is the CNI result as the file has it.
	Result json.RawMessage
}

// content is the file as the tool writes it. Other keys are refused: what they ask for would be
// lost.
type content struct {
	Netns   string          `json:"netns"`
	PodName string          `json:"podname"`
	Sandbox string          `json:"sandbox"`
	IfName  string          `json:"ifname"`
	Result  json.RawMessage `json:"result"`
}

// Parse returns the whole checkpoint in b, or an error that names the key, its value and what to do.
// It refuses keys that the tool does not write. Result can have more keys, which it keeps and does
// not look at.
func Parse(b []byte) (File, error) {
	var c content
	decoder := json.NewDecoder(bytes.NewReader(b))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&c); err != nil {
		return File{}, jsonError("", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return File{}, errors.New("torn or no checkpoint of i40e_net_fix: more follows after its end")
	}
	f := File{Netns: c.Netns, PodName: c.PodName, ContainerID: c.Sandbox, IfName: c.IfName, Result: c.Result}
	if err := f.validate(); err != nil {
		return File{}, err
	}
	if err := f.parseResult(); err != nil {
		return File{}, err
	}
	return f, nil
}

// validate returns the first error in a key other than result.
func (f File) validate() error {
	if !filepath.IsAbs(f.Netns) || strings.ContainsRune(f.Netns, 0) {
		return invalidValue("netns", f.Netns, "must be the absolute path of the sandbox's network namespace")
	}
	if err := attachment.ValidateName(f.ContainerID); err != nil {
		return invalidValue("sandbox", f.ContainerID, fmt.Sprintf("the container ID %v", err))
	}
	if err := attachment.ValidateIfName(f.IfName); err != nil {
		return invalidValue("ifname", f.IfName, fmt.Sprintf("the interface's name %v", err))
	}
	if f.IfName[0] == '.' {
		return invalidValue("ifname", f.IfName, "a name that begins with a dot can't be remembered")
	}
	// It goes to a terminal.
	if strings.ContainsFunc(f.PodName, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return invalidValue("podname", f.PodName, "must be printable: correct it, it is for people to read")
	}
	if len(f.Result) == 0 || string(f.Result) == "null" {
		return invalidValue("result", "missing", "must be the CNI result of the attachment")
	}
	return nil
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

// jsonError says what is wrong in the JSON below the key prefix.
func jsonError(prefix string, err error) error {
	var wrongType *json.UnmarshalTypeError
	if errors.As(err, &wrongType) && (prefix != "" || wrongType.Field != "") {
		key := strings.Trim(prefix+"."+wrongType.Field, ".")
		return invalidValue(key, wrongType.Value, "must be "+jsonType(wrongType.Type))
	}
	var wrongAddress *net.ParseError
	if errors.As(err, &wrongAddress) {
		return invalidValue(prefix, wrongAddress.Text, "must be a valid "+wrongAddress.Type)
	}
	if unknown, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return fmt.Errorf("unknown key %s: i40e_net_fix writes netns, podname, sandbox, ifname and result: remove it, if nothing depends on it", unknown)
	}
	return fmt.Errorf("torn or no checkpoint of i40e_net_fix: %w", err)
}

// jsonType names the expected type in words of JSON.
func jsonType(t reflect.Type) string {
	if t == reflect.TypeFor[net.IP]() {
		return "a string"
	}
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Int:
		return "a whole number"
	case reflect.Slice:
		return "a list"
	case reflect.Pointer:
		return jsonType(t.Elem())
	}
	return "an object"
}

// fileNameLength is how much of the container ID the tool uses as the file's name.
const fileNameLength = 12

// checkName reports a file without the name of its sandbox. It may be a copy of another file, and
// out of date.
func (f File) checkName(name string) error {
	if strings.HasPrefix(f.ContainerID, name) && len(name) >= min(fileNameLength, len(f.ContainerID)) {
		return nil
	}
	return invalidValue("sandbox", f.ContainerID, "the file's name is not the beginning of it: remove the file if it is a copy, or rename it to "+f.ContainerID[:min(fileNameLength, len(f.ContainerID))])
}
