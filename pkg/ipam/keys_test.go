package ipam

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/cniplugin"
)

// tagsOf returns the keys from which a struct is decoded.
func tagsOf(t reflect.Type) []string {
	var all []string
	for i := range t.NumField() {
		f := t.Field(i)
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			all = append(all, name)
		} else if f.Anonymous {
			all = append(all, tagsOf(f.Type)...)
		}
	}
	return all
}

// relink would refuse a key as misspelt if it is read but not known. It would ignore a key that is known but not read.
func TestKnownKeysAreThoseThatAreRead(t *testing.T) {
	for _, test := range []struct {
		keys cniplugin.Keys
		read any
		more []string
	}{{Keys, section{}, []string{"type"}}, {rangeKeys, rangeConfig{}, nil}} {
		known, read := map[string]int{}, map[string]int{}
		for _, k := range test.keys.Accepted {
			known[k.Name]++
		}
		for _, k := range append(tagsOf(reflect.TypeOf(test.read)), test.more...) {
			read[k]++
		}
		if diff := cmp.Diff(read, known); diff != "" {
			t.Errorf("(-read +known):\n%s", diff)
		}
		for _, hint := range test.keys.Elsewhere {
			if hint.Key != strings.ToLower(hint.Key) || strings.ContainsAny(hint.Key, "_-") || known[hint.Key] > 0 {
				t.Errorf("%q can't be found", hint.Key)
			}
		}
	}
}
