package checkpoint

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io/fs"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/pkg/netstate"
)

// Unreadable is a checkpoint, or a sandbox's directory of them, that cannot be
// read.
type Unreadable struct {
	ContainerID string
	// IfName is empty for a directory.
	IfName string
	Err    error
	// Partial is what can be read of a torn checkpoint, or of one of a newer relink. Each part
	// of it can be empty, or lack its last elements. Namespace and the parts of CNI are whole
	// or empty.
	Partial Record

	// file is the one that could not be read, nil where that is not known.
	file fs.FileInfo
}

// Attachment returns the attachment as the checkpoint's file names it. Its network is NetworkUnknown if it cannot be read.
func (u Unreadable) Attachment() attachment.Key {
	return attachment.Key{Network: cmp.Or(u.Partial.Attachment.Network, NetworkUnknown), ContainerID: u.ContainerID, IfName: u.IfName}
}

// Unreadable returns what is known of a checkpoint for which Load returned err.
func (s *Store) Unreadable(containerID, ifName string, err error) Unreadable {
	u := Unreadable{ContainerID: containerID, IfName: ifName, Err: err}
	b, file, readErr := readFile(s.path(containerID, ifName))
	if readErr != nil {
		return u
	}
	u.file = file
	if partial := decodePartial(b); partial.Attachment.ContainerID == containerID && partial.Attachment.IfName == ifName {
		u.Partial = partial
	}
	return u
}

// decodePartial returns what can be read of b, which is no whole record.
func decodePartial(b []byte) Record {
	var parts map[string]json.RawMessage
	if json.Unmarshal(wholePrefix(b), &parts) != nil {
		return Record{}
	}
	return Record{
		Version:    decodePart[int](parts["version"]),
		Attachment: decodePart[attachment.Key](parts["attachment"]),
		Pod:        decodePart[attachment.Pod](parts["pod"]),
		Owner:      decodePart[attachment.Owner](parts["owner"]),
		Namespace:  decodeNamespace(parts["namespace"]),
		Interface:  decodePart[netstate.Interface](parts["interface"]),
		HostAccess: decodePart[*hostaccess.Access](parts["hostAccess"]),
		CNI:        decodePart[CNI](parts["cni"]),
		Writer:     decodePart[string](parts["writer"]),
	}
}

// decodePart is empty where b is not of its type.
func decodePart[T any](b []byte) T {
	var value, zero T
	if json.Unmarshal(b, &value) != nil {
		return zero
	}
	return value
}

// decodeNamespace is empty where the namespace has no identity.
func decodeNamespace(b []byte) attachment.Namespace {
	n := decodePart[attachment.Namespace](b)
	if n.Path == "" || n.BootID == "" || n.Inode == 0 {
		return attachment.Namespace{}
	}
	return n
}

// wholePrefix returns the beginning of the JSON object in b, with as many of its members as are
// whole, and then closed. Of the interface each whole member counts. Of its lists each whole
// element counts. Half of a namespace's identity would fit other namespaces too, and half of the
// parents would be other parents.
func wholePrefix(b []byte) []byte {
	decoder := jsontext.NewDecoder(bytes.NewReader(b), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	var whole int64
	var brackets []byte
	for {
		token, err := decoder.ReadToken()
		if err != nil {
			return append(bytes.Clone(b[:whole]), brackets...)
		}
		end := decoder.InputOffset()
		// The rest of a number can be missing.
		if !endsValue(decoder, token.Kind()) || token.Kind() == '0' && end == int64(len(b)) || !isUsableAlone(decoder) {
			continue
		}
		whole, brackets = end, closingBrackets(decoder)
	}
}

// endsValue says that the token that was just read is a value's last one, and no name.
func endsValue(decoder *jsontext.Decoder, token jsontext.Kind) bool {
	if token == '{' || token == '[' {
		return false
	}
	container, length := decoder.StackIndex(decoder.StackDepth())
	return container != '{' || length%2 == 0
}

// isUsableAlone says that the value is of use without what follows it.
func isUsableAlone(decoder *jsontext.Decoder) bool {
	const top, member, element = 1, 2, 3 // Such as /interface/addresses/0.
	path := strings.Split(string(decoder.StackPointer()), "/")[1:]
	container, _ := decoder.StackIndex(decoder.StackDepth())
	switch {
	case len(path) <= top:
		return true
	case path[0] != "interface":
		return false
	}
	return len(path) == member || len(path) == element && container == '[' && path[1] != "parents"
}

// closingBrackets returns the brackets that close what is open.
func closingBrackets(decoder *jsontext.Decoder) []byte {
	var brackets []byte
	for depth := decoder.StackDepth(); depth > 0; depth-- {
		bracket := byte('}')
		if container, _ := decoder.StackIndex(depth); container == '[' {
			bracket = ']'
		}
		brackets = append(brackets, bracket)
	}
	return brackets
}
