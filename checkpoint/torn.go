package checkpoint

import (
	"bytes"
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
	// Left is what can be read of a torn checkpoint, or of one of a newer relink. Each part
	// of it can be empty, or lack its last elements. Namespace and the parts of CNI are whole
	// or empty.
	Left Record

	// file is the one that could not be read, nil where that is not known.
	file fs.FileInfo
}

// Unreadable returns what is known of a checkpoint for which Load returned err.
func (s *Store) Unreadable(containerID, ifName string, err error) Unreadable {
	u := Unreadable{ContainerID: containerID, IfName: ifName, Err: err}
	b, file, readErr := readFile(s.path(containerID, ifName))
	if readErr != nil {
		return u
	}
	u.file = file
	if left := leftOf(b); left.Attachment.ContainerID == containerID && left.Attachment.IfName == ifName {
		u.Left = left
	}
	return u
}

// leftOf returns what can be read of b, which is no whole record.
func leftOf(b []byte) Record {
	var parts map[string]json.RawMessage
	if json.Unmarshal(wholePart(b), &parts) != nil {
		return Record{}
	}
	r := Record{
		Version:    part[int](parts["version"]),
		Attachment: part[attachment.Key](parts["attachment"]),
		Pod:        part[attachment.Pod](parts["pod"]),
		Owner:      part[attachment.Owner](parts["owner"]),
		Namespace:  identityIn(parts["namespace"]),
		Interface:  part[netstate.Interface](parts["interface"]),
		HostAccess: part[*hostaccess.Access](parts["hostAccess"]),
		CNI:        part[CNI](parts["cni"]),
		Writer:     part[string](parts["writer"]),
	}
	if r.Version < routesApart {
		r.upgradeRoutes()
	}
	return r
}

// part is empty where b is not of its type.
func part[T any](b []byte) T {
	var is, none T
	if json.Unmarshal(b, &is) != nil {
		return none
	}
	return is
}

// identityIn is empty where the namespace has no identity.
func identityIn(b []byte) attachment.Namespace {
	n := part[attachment.Namespace](b)
	if n.Path == "" || n.BootID == "" || n.Inode == 0 {
		return attachment.Namespace{}
	}
	return n
}

// wholePart returns the beginning of the JSON object in b, with as many of its members as are
// whole, and then closed. Of the interface each whole member counts. Of its lists each whole
// element counts. Half of a namespace's identity would fit other namespaces too, and half of the
// parents would be other parents.
func wholePart(b []byte) []byte {
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
		if !endsValue(decoder, token.Kind()) || token.Kind() == '0' && end == int64(len(b)) || !countsAlone(decoder) {
			continue
		}
		whole, brackets = end, closing(decoder)
	}
}

// endsValue says that the token that was just read is a value's last one, and no name.
func endsValue(decoder *jsontext.Decoder, token jsontext.Kind) bool {
	if token == '{' || token == '[' {
		return false
	}
	in, length := decoder.StackIndex(decoder.StackDepth())
	return in != '{' || length%2 == 0
}

// countsAlone says that the value is of use without what follows it.
func countsAlone(decoder *jsontext.Decoder) bool {
	const top, member, element = 1, 2, 3 // Such as /interface/addresses/0.
	path := strings.Split(string(decoder.StackPointer()), "/")[1:]
	in, _ := decoder.StackIndex(decoder.StackDepth())
	switch {
	case len(path) <= top:
		return true
	case path[0] != "interface":
		return false
	}
	return len(path) == member || len(path) == element && in == '[' && path[1] != "parents"
}

// closing returns the brackets that close what is open.
func closing(decoder *jsontext.Decoder) []byte {
	var brackets []byte
	for depth := decoder.StackDepth(); depth > 0; depth-- {
		bracket := byte('}')
		if in, _ := decoder.StackIndex(depth); in == '[' {
			bracket = ']'
		}
		brackets = append(brackets, bracket)
	}
	return brackets
}
