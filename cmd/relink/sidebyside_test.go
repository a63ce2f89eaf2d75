package main

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/relink-cni/relink/pkg/netstate"
)

// shownIn has the facts that show a difference of each field.
var shownIn = map[netstate.Field][]string{
	netstate.FieldKind: {"Interface:"}, netstate.FieldVLAN: {"Interface:"}, netstate.FieldMode: {"Interface:"},
	netstate.FieldParent: {"Parents:"}, netstate.FieldOptions: {"Options:"}, netstate.FieldBCQueue: {"Options:"},
	netstate.FieldMAC: {"MAC:"}, netstate.FieldMTU: {"MTU:"}, netstate.FieldTxQueueLen: {"txqueuelen:"},
	netstate.FieldAlias: {"Alias:"}, netstate.FieldGroup: {"Group:"}, netstate.FieldFlags: {"Flags:"}, netstate.FieldUp: {"Link:"},
	netstate.FieldMaster: {"Master:", "Bridge port:"}, netstate.FieldSetting: {"Settings:"},
	netstate.FieldAddress: {"Addresses:"}, netstate.FieldRoute: {"Routes:"},
	netstate.FieldRule: {"Rules:"}, netstate.FieldNeighbour: {"Neighbours:"}, netstate.FieldQdisc: {"Qdiscs:"},
}

// show has a row for each difference between an interface and its record. The test changes each attribute of the
// samples in turn, on either side.
func TestShowHasARowForEachDifference(t *testing.T) {
	found, filled := map[netstate.Field]bool{}, map[string]bool{}
	for name, sample := range samples() {
		expectRowsThatDiffer(t, name, sample, samples()[name], found)
		changed := samples()[name]
		eachChange(reflect.ValueOf(&changed).Elem(), name, filled, func(what string) {
			expectRowsThatDiffer(t, what+" changed", sample, changed, found)
			expectRowsThatDiffer(t, what+" was otherwise", changed, sample, found)
		})
		if !reflect.DeepEqual(sample, changed) {
			t.Fatalf("%s is not what it was before the changes:\n%+v", name, changed)
		}
	}
	for field := range shownIn {
		if !found[field] {
			t.Errorf("no change of the samples makes a difference of the field %q", field)
		}
	}
	for attribute, set := range filled {
		if !set {
			t.Errorf("no sample has %s", attribute)
		}
	}
}

// expectRowsThatDiffer notes in found the fields that differ.
func expectRowsThatDiffer(t *testing.T, what string, want, have netstate.Interface, found map[netstate.Field]bool) {
	t.Helper()
	differ := map[string]bool{}
	for _, c := range compare(want, have) {
		for _, p := range c.pairs {
			differ[c.name] = differ[c.name] || p.live != "" && p.live != p.recorded
		}
	}
	diffs := netstate.Diff(want, have)
	for _, d := range diffs {
		found[d.Field] = true
		if !slices.ContainsFunc(shownIn[d.Field], func(fact string) bool { return differ[fact] }) {
			t.Errorf("%s: no row shows that %s: %v", what, d, compare(want, have))
		}
	}
	if reflect.DeepEqual(want, have) && len(diffs)+len(differ) > 0 {
		for fact, is := range differ {
			if is {
				t.Errorf("%s: nothing differs, but %s does", what, fact)
			}
		}
	}
}

// whole are the types whose attributes must all occur in a sample. Of the host's devices only the identity matters.
var whole = []any{
	netstate.Interface{}, netstate.Link{}, netstate.LinkFlags{}, netstate.Macvlan{}, netstate.IPvlan{}, netstate.VLAN{}, netstate.VLANOptions{},
	netstate.NIC{}, netstate.Master{}, netstate.Address{}, netstate.Route{}, netstate.NextHop{},
	netstate.Rule{}, netstate.Neighbour{}, netstate.Qdisc{}, netstate.Filter{}, netstate.Redirect{},
}

// eachChange changes every attribute below v in turn, calls then with its name, and changes it back. It notes in filled
// which attributes have a value.
func eachChange(v reflect.Value, name string, filled map[string]bool, then func(what string)) {
	old := reflect.New(v.Type()).Elem()
	old.Set(v)
	try := func(to any) {
		v.Set(reflect.ValueOf(to).Convert(v.Type()))
		then(name)
		v.Set(old)
	}
	switch of := v.Interface().(type) {
	case netip.Prefix:
		if of.IsValid() {
			try(netip.PrefixFrom(of.Addr().Next(), of.Bits()))
		}
		return
	case netip.Addr:
		if of.IsValid() {
			try(of.Next())
		}
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		try(!v.Bool())
	case reflect.String:
		try(v.String() + "x")
	case reflect.Int, reflect.Int32, reflect.Int64:
		try(v.Int() + 1)
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		try(v.Uint() + 1)
	case reflect.Pointer:
		if !v.IsNil() {
			eachChange(v.Elem(), name, filled, then)
		}
	case reflect.Struct:
		eachFieldChange(v, name, filled, then)
	case reflect.Slice, reflect.Map:
		eachElementChange(v, name, filled, then)
	default:
		panic(fmt.Sprintf("%s: a %s", name, v.Kind()))
	}
}

func eachFieldChange(v reflect.Value, name string, filled map[string]bool, then func(what string)) {
	counts := slices.ContainsFunc(whole, func(one any) bool { return reflect.TypeOf(one) == v.Type() })
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Tag.Get("json") == "-" {
			continue // Not recorded.
		}
		if attribute := v.Type().Name() + "." + f.Name; counts {
			filled[attribute] = filled[attribute] || !v.Field(i).IsZero()
		}
		eachChange(v.Field(i), name+"."+f.Name, filled, then)
	}
}

// eachElementChange goes through the elements of a list or a map. It removes each one, swaps it with the one before it,
// and changes it.
func eachElementChange(v reflect.Value, name string, filled map[string]bool, then func(what string)) {
	old := v.Interface()
	if v.Kind() == reflect.Slice {
		for i := range v.Len() {
			fewer := reflect.MakeSlice(v.Type(), 0, v.Len())
			fewer = reflect.AppendSlice(reflect.AppendSlice(fewer, v.Slice(0, i)), v.Slice(i+1, v.Len()))
			v.Set(fewer)
			then(fmt.Sprintf("%s without %d", name, i))
			v.Set(reflect.ValueOf(old))
			if i > 0 {
				swap := reflect.Swapper(old)
				swap(i-1, i)
				then(fmt.Sprintf("%s with %d first", name, i))
				swap(i-1, i)
			}
			eachChange(v.Index(i), fmt.Sprintf("%s[%d]", name, i), filled, then)
		}
		return
	}
	for _, key := range v.MapKeys() {
		was := v.MapIndex(key)
		v.SetMapIndex(key, reflect.Value{})
		then(fmt.Sprintf("%s without %v", name, key))
		v.SetMapIndex(key, was)
		element := reflect.New(was.Type()).Elem()
		element.Set(was)
		eachChange(element, fmt.Sprintf("%s[%v]", name, key), filled, func(what string) {
			v.SetMapIndex(key, element)
			then(what)
		})
		v.SetMapIndex(key, was)
	}
}
