package checkpoint

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/attachment"
)

// FuzzDecode shows that no bytes make Decode panic. A record that was read once can be stored and read again unchanged.
func FuzzDecode(f *testing.F) {
	for name := range golden() {
		f.Add(readGolden(f, name))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if n := decodePartial(b).Namespace; n != (attachment.Namespace{}) && (n.Path == "" || n.BootID == "" || n.Inode == 0) {
			t.Errorf("half of an identity is left: %+v", n)
		}
		r, err := Decode(b)
		if err != nil {
			if errors.Is(err, ErrTorn) == errors.Is(err, ErrVersion) {
				t.Errorf("%v: is one of ErrTorn and ErrVersion", err)
			}
			return
		}
		stored, err := Encode(r)
		if err != nil {
			t.Fatalf("read, but can't be stored: %v", err)
		}
		again, err := Decode(stored)
		if err != nil {
			t.Fatalf("stored, but can't be read: %v\n%s", err, stored)
		}
		if diff := cmp.Diff(r, again, sameRecord); diff != "" {
			t.Errorf("another record after it was stored (-before +after):\n%s", diff)
		}
	})
}
