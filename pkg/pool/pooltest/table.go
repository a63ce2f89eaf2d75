package pooltest

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"

	"github.com/relink-cni/relink/pkg/pool"
)

// object is what the API has.
type object interface {
	pool.Pool | pool.Block | pool.Claim
}

// table has all objects of one kind, by name. Who uses it holds API.mu.
type table[T object] struct{ all map[string]T }

// metaOf returns the metadata of an object.
func metaOf[T object](o *T) *pool.Meta {
	switch o := any(o).(type) {
	case *pool.Pool:
		return &o.Metadata
	case *pool.Block:
		return &o.Metadata
	case *pool.Claim:
		return &o.Metadata
	}
	return nil
}

// copied returns the object as it comes over the wire: nobody shares its parts.
func copied[T object](o T) (c T) {
	b, err := json.Marshal(o)
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err != nil {
		panic(err) // Plain data.
	}
	return c
}

func (t *table[T]) get(name string) (T, error) {
	o, is := t.all[name]
	if !is {
		return o, fmt.Errorf("%s: %w", name, pool.ErrNotThere)
	}
	return copied(o), nil
}

// list returns the objects that are wanted, all for nil, in the order of their names.
func (t *table[T]) list(wanted func(T) bool) (all []T) {
	for _, name := range sorted(t.all) {
		if o := t.all[name]; wanted == nil || wanted(o) {
			all = append(all, copied(o))
		}
	}
	return all
}

// make makes an object that does not exist.
func (t *table[T]) make(a *API, o T) (T, error) {
	o = copied(o)
	m := metaOf(&o)
	if _, is := t.all[m.Name]; is {
		return o, fmt.Errorf("%s: %w", m.Name, pool.ErrExists)
	}
	a.last++
	m.UID = fmt.Sprintf("uid-%d", a.last)
	if m.CreationTimestamp == "" {
		m.CreationTimestamp = fmt.Sprintf("2026-03-01T10:00:%02dZ", a.last%60)
	}
	return t.put(a, o), nil
}

// asRead returns the object as it is now, if it is still as it was read.
func (t *table[T]) asRead(o T) (now T, err error) {
	m := metaOf(&o)
	if now, err = t.get(m.Name); err != nil {
		return now, err
	}
	if is := metaOf(&now); m.UID != is.UID || m.ResourceVersion != is.ResourceVersion {
		return now, fmt.Errorf("%s: %w", m.Name, pool.ErrConflict)
	}
	return now, nil
}

func (t *table[T]) update(a *API, o T) (T, error) {
	now, err := t.asRead(o)
	if err != nil {
		return o, err
	}
	o = copied(o)
	if reflect.DeepEqual(now, o) {
		return o, nil // It keeps its resource version, as in the API.
	}
	return t.put(a, o), nil
}

func (t *table[T]) remove(o T) (T, error) {
	now, err := t.asRead(o)
	if err == nil {
		delete(t.all, metaOf(&now).Name)
	}
	return now, err
}

// put stores the object with a new resource version.
func (t *table[T]) put(a *API, o T) T {
	a.last++
	m := metaOf(&o)
	m.ResourceVersion = strconv.FormatInt(a.last, 10)
	if t.all == nil {
		t.all = map[string]T{}
	}
	t.all[m.Name] = copied(o)
	return o
}

// mustMake makes an object of a test, which does not exist.
func mustMake[T object](a *API, t *table[T], o T) T {
	a.mu.Lock()
	defer a.mu.Unlock()
	made, err := t.make(a, o)
	if err != nil {
		panic(err) // The test is wrong.
	}
	return copied(made)
}

// edit changes an object of a test, which exists.
func edit[T object](a *API, t *table[T], name string, change func(*T)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o, err := t.get(name)
	if err != nil {
		panic(err) // The test is wrong.
	}
	change(&o)
	t.put(a, o)
}

func sorted[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }
