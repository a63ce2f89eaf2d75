package checkpoint

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io/fs"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/relink-cni/relink/pkg/attachment"
)

// Unreadable is a checkpoint, or a sandbox's directory of them, that cannot be
// read.
type Unreadable struct {
	ContainerID string
	// IfName is empty for a directory.
	IfName string
	Err    error
	// Partial is what can be read of a torn checkpoint, or of one of a newer relink. Each part
	// of it is whole or empty. Of the interface each member is.
	Partial Record

	// file is the one that could not be read, nil where that is not known.
	file fs.FileInfo
}

// Attachment returns the attachment as the checkpoint's file names it. Its network is NetworkUnknown if it cannot be read.
func (u Unreadable) Attachment() attachment.Key {
	return attachment.Key{Network: cmp.Or(u.Partial.Attachment.Network, NetworkUnknown), ContainerID: u.ContainerID, IfName: u.IfName}
}

// unreadable returns what is known of a checkpoint for which Load returned err.
func (s *Store) unreadable(key attachment.Key, err error) Unreadable {
	u := Unreadable{ContainerID: key.ContainerID, IfName: key.IfName, Err: err}
	b, file, readErr := readFile(s.path(key))
	if readErr != nil {
		return u
	}
	u.file = file
	if partial := decodePartial(b); partial.Attachment.SameInterface(key) {
		u.Partial = partial
	}
	return u
}

// decodePartial returns what can be read of b, which is no whole record.
func decodePartial(b []byte) (partial Record) {
	for name, value := range wholeMembers(jsontext.NewDecoder(bytes.NewReader(b), partialFormat)) {
		member, _ := json.Marshal(map[string]json.RawMessage{name: value}) // JSON that was read can be written.
		extended := partial
		if jsonv2.Unmarshal(member, &extended, partialFormat) == nil {
			partial = extended
		}
	}
	if n := partial.Namespace; n.Path == "" || n.BootID == "" || n.Inode == 0 {
		partial.Namespace = attachment.Namespace{} // It has no identity.
	}
	return partial
}

// partialFormat allows what a runtime may have given and what Encode keeps as it is, and unknown fields.
var partialFormat = jsonv2.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// wholeMembers returns the members of the next object, up to the first one that is not whole. Of the interface each whole member counts.
// Half of a namespace's identity would fit other namespaces too, and half of the parents would be other parents.
func wholeMembers(decoder *jsontext.Decoder) map[string]json.RawMessage {
	members := map[string]json.RawMessage{}
	if token, err := decoder.ReadToken(); err != nil || token.Kind() != '{' {
		return members
	}
	for {
		token, err := decoder.ReadToken()
		if err != nil || token.Kind() == '}' {
			return members
		}
		name := token.String()
		if name == "interface" && decoder.StackDepth() == 1 && decoder.PeekKind() == '{' {
			members[name], _ = json.Marshal(wholeMembers(decoder)) // JSON that was read can be written.
			continue
		}
		value, err := decoder.ReadValue()
		if err != nil {
			return members
		}
		members[name] = json.RawMessage(value.Clone())
	}
}
