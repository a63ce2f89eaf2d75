package lease

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/relink-cni/relink/pkg/pool"
)

// grantKey orders the grants of a pool by the index.
func grantKey(name string, index int64) []byte {
	return binary.BigEndian.AppendUint64(textKey(name), uint64(index))
}

// A grant is stored as its epoch, its first address and texts. Each ADD reads all grants of a pool: JSON
// would take as long as the rest of the choice.

func encodeGrant(g pool.Grant) []byte {
	start := append(binary.BigEndian.AppendUint64(nil, uint64(g.Epoch)), addressKey(g.First)...)
	return appendTexts(start, grantTexts(&g)...)
}

func grantTexts(g *pool.Grant) []*string {
	return []*string{&g.Addresses, &g.Block, &g.PoolUID, &g.Ended}
}

// decodeGrant reads what encodeGrant has written. rest is what a newer relink has added.
func decodeGrant(key, b []byte) (g pool.Grant, rest []byte, err error) {
	index, err := readTexts(key, &g.Pool)
	if err == nil && len(index) != numberLen {
		err = errCutShort
	}
	if err != nil {
		return g, nil, fmt.Errorf("grant %q: %w", key, err)
	}
	g.Index = int64(binary.BigEndian.Uint64(index))
	const start = numberLen + addressLen
	if len(b) < start {
		return g, nil, fmt.Errorf("grant %s: %w", g.Name(), errCutShort)
	}
	g.Epoch, g.First = int64(binary.BigEndian.Uint64(b)), addressOf(b[numberLen:start])
	if rest, err = readTexts(b[start:], grantTexts(&g)...); err == nil {
		if reason := wrongGrant(g); reason != "" {
			err = damaged("%s", reason)
		}
	}
	if err != nil {
		return g, nil, fmt.Errorf("grant %s: %w", g.Name(), err)
	}
	return g, rest, nil
}

// wrongGrant says why no store can have the grant, empty if it can.
func wrongGrant(g pool.Grant) string {
	const chars = pool.GrantedChars + string(pool.Marked) + string(pool.NotGranted)
	switch n := len(g.Addresses); {
	case g.Pool == "":
		return "it names no pool"
	case g.Index < 0:
		return fmt.Sprintf("its index is %d", g.Index)
	case n == 0 || n > pool.MaxBlockSize:
		return fmt.Sprintf("it has %d addresses: a block has 1 to %d", n, pool.MaxBlockSize)
	case strings.Trim(g.Addresses, chars) != "":
		return fmt.Sprintf("its addresses are %q", g.Addresses)
	case !g.First.IsValid() || !g.Last().IsValid():
		return fmt.Sprintf("it has no %d addresses from %s on", n, g.First)
	}
	return ""
}

var errCutShort = damaged("it was cut short")

// numberLen and addressLen are the lengths of a number and of an address, as they are stored.
const numberLen, addressLen = 8, 16

// textKey writes texts so that no two lists of them look alike. No list looks like the beginning of another
// one of as many texts.
func textKey(texts ...string) (key []byte) {
	for i := range texts {
		key = appendTexts(key, &texts[i])
	}
	return key
}

func appendTexts(b []byte, texts ...*string) []byte {
	for _, t := range texts {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(*t))), *t...)
	}
	return b
}

// readTexts reads what appendTexts has appended, and returns what follows it.
func readTexts(b []byte, texts ...*string) (rest []byte, err error) {
	const length = 4
	for _, t := range texts {
		if len(b) < length || uint64(len(b)-length) < uint64(binary.BigEndian.Uint32(b)) {
			return nil, errCutShort
		}
		end := length + int(binary.BigEndian.Uint32(b))
		*t, b = string(b[length:end]), b[end:]
	}
	return b, nil
}
