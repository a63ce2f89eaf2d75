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
type table[T object] struct{ objects map[string]T }

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

// deepCopy returns the object as it comes over the wire: nobody shares its parts.
func deepCopy[T object](o T) (c T) {
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
	o, ok := t.objects[name]
	if !ok {
		return o, fmt.Errorf("%s: %w", name, pool.ErrNotFound)
	}
	return deepCopy(o), nil
}

// list returns the objects that are wanted, all for nil, in the order of their names.
func (t *table[T]) list(wanted func(T) bool) (objects []T) {
	for _, name := range sorted(t.objects) {
		if o := t.objects[name]; wanted == nil || wanted(o) {
			objects = append(objects, deepCopy(o))
		}
	}
	return objects
}

// create makes an object that does not exist.
func (t *table[T]) create(a *API, o T) (T, error) {
	o = deepCopy(o)
	m := metaOf(&o)
	if _, exists := t.objects[m.Name]; exists {
		return o, fmt.Errorf("%s: %w", m.Name, pool.ErrExists)
	}
	a.last++
	m.UID = fmt.Sprintf("uid-%d", a.last)
	if m.CreationTimestamp == "" {
		m.CreationTimestamp = fmt.Sprintf("2026-03-01T10:00:%02dZ", a.last%60)
	}
	return t.put(a, o), nil
}

// current returns the object as it is now, if it is still as it was read.
func (t *table[T]) current(o T) (current T, err error) {
	m := metaOf(&o)
	if current, err = t.get(m.Name); err != nil {
		return current, err
	}
	if currentMeta := metaOf(&current); m.UID != currentMeta.UID || m.ResourceVersion != currentMeta.ResourceVersion {
		return current, fmt.Errorf("%s: %w", m.Name, pool.ErrConflict)
	}
	return current, nil
}

func (t *table[T]) update(a *API, o T) (T, error) {
	current, err := t.current(o)
	if err != nil {
		return o, err
	}
	o = deepCopy(o)
	if reflect.DeepEqual(current, o) {
		return o, nil // It keeps its resource version, as in the API.
	}
	return t.put(a, o), nil
}

func (t *table[T]) remove(o T) (T, error) {
	current, err := t.current(o)
	if err == nil {
		delete(t.objects, metaOf(&current).Name)
	}
	return current, err
}

// put stores the object with a new resource version.
func (t *table[T]) put(a *API, o T) T {
	a.last++
	m := metaOf(&o)
	m.ResourceVersion = strconv.FormatInt(a.last, 10)
	if t.objects == nil {
		t.objects = map[string]T{}
	}
	t.objects[m.Name] = deepCopy(o)
	return o
}

// mustCreate makes an object of a test, which does not exist.
func mustCreate[T object](a *API, t *table[T], o T) T {
	a.mu.Lock()
	defer a.mu.Unlock()
	stored, err := t.create(a, o)
	if err != nil {
		panic(err) // The test is wrong.
	}
	return deepCopy(stored)
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
