package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/netstate"
)

// The last byte is a newline after the record. Without it the record is still whole.
func TestDecodeOfEveryPrefixIsTorn(t *testing.T) {
	for name := range golden() {
		t.Run(name, func(t *testing.T) {
			whole := bytes.TrimRight(readGolden(t, name), "\n")
			if _, err := Decode(whole); err != nil {
				t.Fatal(err)
			}
			for n := range whole {
				r, err := Decode(whole[:n])
				if !errors.Is(err, ErrTorn) || r.Version != 0 {
					t.Fatalf("the first %d of %d bytes: %+v, %v, want ErrTorn", n, len(whole), r, err)
				}
			}
		})
	}
}

// A file system can leave a file at its full length, with zeros for the part that never reached the disk.
func TestDecodeOfAZeroedTailIsTorn(t *testing.T) {
	whole := readGolden(t, "v1/vlan-on-nic.json")
	for n := range len(whole) - 1 {
		zeroed := append(bytes.Clone(whole[:n]), make([]byte, len(whole)-n)...)
		if _, err := Decode(zeroed); !errors.Is(err, ErrTorn) {
			t.Fatalf("zeros from byte %d on: %v, want ErrTorn", n, err)
		}
	}
}

// edit returns the stored record with its JSON changed.
func edit(t *testing.T, change func(map[string]any)) []byte {
	t.Helper()
	var value map[string]any
	if err := json.Unmarshal(readGolden(t, "v1/macvlan-on-vlan-on-bond.json"), &value); err != nil {
		t.Fatal(err)
	}
	change(value)
	b, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func object(value map[string]any, keys ...string) map[string]any {
	for _, key := range keys {
		value = value[key].(map[string]any)
	}
	return value
}

func TestDecodeSaysWhatIsWrong(t *testing.T) {
	for name, test := range map[string]struct {
		change func(map[string]any)
		is     error
		says   string
	}{
		"a later version": {func(r map[string]any) { r["version"] = 8 }, ErrVersion, "unknown checkpoint version: 8, this relink reads 1"},
		"a later version with more in it": {func(r map[string]any) { r["version"], r["colour"], r["interface"] = 8, "red", 7 },
			ErrVersion, "unknown checkpoint version: 8, this relink reads 1"},
		"version 0":          {func(r map[string]any) { r["version"] = 0 }, ErrVersion, "unknown checkpoint version: 0, this relink reads 1"},
		"no version":         {func(r map[string]any) { delete(r, "version") }, ErrTorn, "torn or no checkpoint: it has no version"},
		"version null":       {func(r map[string]any) { r["version"] = nil }, ErrTorn, "torn or no checkpoint: it has no version"},
		"version a string":   {func(r map[string]any) { r["version"] = "1" }, ErrTorn, `version of type int`},
		"an unknown field":   {func(r map[string]any) { r["colour"] = "red" }, ErrTorn, `unknown object member name "colour"`},
		"one further down":   {func(r map[string]any) { object(r, "interface", "link")["colour"] = "red" }, ErrTorn, `unknown object member name "colour" within "/interface/link"`},
		"MTU a string":       {func(r map[string]any) { object(r, "interface", "link")["mtu"] = "1500" }, ErrTorn, `within "/interface/link/mtu"`},
		"MTU a fraction":     {func(r map[string]any) { object(r, "interface", "link")["mtu"] = 1500.5 }, ErrTorn, `within "/interface/link/mtu"`},
		"parents an object":  {func(r map[string]any) { object(r, "interface")["parents"] = map[string]any{} }, ErrTorn, `within "/interface/parents"`},
		"no time":            {func(r map[string]any) { r["capturedAt"] = "yesterday" }, ErrTorn, `"/capturedAt": parsing time`},
		"an attachment less": {func(r map[string]any) { delete(r, "attachment") }, ErrTorn, `attachment: network "": is empty`},
		"a container ID up":  {func(r map[string]any) { object(r, "attachment")["containerID"] = "../x" }, ErrTorn, `attachment: container ID "../x": must start with`},
		"no namespace path":  {func(r map[string]any) { object(r, "namespace")["path"] = "" }, ErrTorn, "namespace: path, boot ID or inode is missing"},
		"no boot ID":         {func(r map[string]any) { delete(object(r, "namespace"), "bootID") }, ErrTorn, "namespace: path, boot ID or inode is missing"},
		"no inode":           {func(r map[string]any) { delete(object(r, "namespace"), "inode") }, ErrTorn, "namespace: path, boot ID or inode is missing"},
		"no parents":         {func(r map[string]any) { object(r, "interface")["parents"] = nil }, ErrTorn, `interface: link "eth0": no parents`},
		"no MAC":             {func(r map[string]any) { delete(object(r, "interface", "link"), "mac") }, ErrTorn, "interface: name, MAC or MTU is missing"},
		"no MTU":             {func(r map[string]any) { object(r, "interface", "link")["mtu"] = 0 }, ErrTorn, "interface: name, MAC or MTU is missing"},
		"an unknown kind":    {func(r map[string]any) { object(r, "interface", "link")["kind"] = "x" }, ErrTorn, `kind "x" does not go with its attributes`},
		"address no prefix": {func(r map[string]any) {
			object(r, "interface")["addresses"] = []any{map[string]any{"prefix": "10.0.0.1"}}
		}, ErrTorn, `"/interface/addresses/0/prefix": netip.ParsePrefix("10.0.0.1"): no '/'`},
		"address without one": {func(r map[string]any) { object(r, "interface")["addresses"] = []any{map[string]any{}} }, ErrTorn, "an address without prefix"},
		"route without one":   {func(r map[string]any) { object(r, "interface")["routes"] = []any{map[string]any{}} }, ErrTorn, "a route without destination"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Decode(edit(t, test.change))
			if !errors.Is(err, test.is) || !strings.Contains(message(err), test.says) || r.Version != 0 {
				t.Errorf("Decode() = %+v, %v, want %q", r, err, test.says)
			}
			if errors.Is(err, ErrTorn) == errors.Is(err, ErrVersion) {
				t.Errorf("%v is torn and of an unknown version at once", err)
			}
		})
	}
}

func TestDecodeOfWhatIsNoRecordAtAll(t *testing.T) {
	for name, b := range map[string]string{
		"nothing": "", "white space": " \n", "null": "null", "a list": "[]", "a number": "1", "text": "eth0", "an empty object": "{}",
		"UTF-16": "\xff\xfe{\x00}\x00",
	} {
		if r, err := Decode([]byte(b)); !errors.Is(err, ErrTorn) {
			t.Errorf("%s: %+v, %v, want ErrTorn", name, r, err)
		}
	}
}

func TestDecodeRefusesWhatFollowsARecord(t *testing.T) {
	whole := readGolden(t, "v1/vlan-on-nic.json")
	for _, more := range []string{"x", "}", "{}", "\x00", string(whole)} {
		if _, err := Decode(append(bytes.Clone(whole), more...)); !errors.Is(err, ErrTorn) {
			t.Errorf("followed by %.5q: %v, want ErrTorn", more, err)
		}
	}
}

func TestEncodeWritesTheVersionItself(t *testing.T) {
	r := record("c1", "eth0")
	r.Version = 8
	b, err := Encode(r)
	if err != nil {
		t.Fatal(err)
	}
	if decoded, err := Decode(b); err != nil || decoded.Version != Version {
		t.Errorf("version %d, %v, want %d", decoded.Version, err, Version)
	}
}

// The JSON of a runtime is kept as it was, however strange. It is no reason to lose the checkpoint.
func TestARuntimesStrangeJSONComesBack(t *testing.T) {
	deep := strings.Repeat("[", 500) + strings.Repeat("]", 500)
	for name, config := range map[string]string{
		"a key twice": `{"mtu": 1, "mtu": 2}`, "no UTF-8": "{\"name\": \"\xff\"}", "half a surrogate": `{"name": "\ud800"}`, "null": "null", "a number": "1e999",
		"deep": `{"a": ` + deep + `}`,
	} {
		t.Run(name, func(t *testing.T) {
			r := record("c1", "eth0")
			r.CNI.Config = json.RawMessage(config)
			b, err := Encode(r)
			if err != nil {
				t.Fatal(err)
			}
			decoded, err := Decode(b)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := Encode(decoded); err != nil || !bytes.Equal(again, b) {
				t.Errorf("written again: %s, %v, want %s", again, err, b)
			}
		})
	}
}

func TestEncodeRefusesWhatDecodeWould(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Record)
		want   string
	}{
		"a name that is no file's":  {func(r *Record) { r.Attachment.ContainerID = "a/b" }, `encode checkpoint: attachment: container ID "a/b": must start with`},
		"an interface hidden":       {func(r *Record) { r.Attachment.IfName = ".x" }, `encode checkpoint: attachment: interface name ".x": a name that begins with a dot`},
		"a namespace without inode": {func(r *Record) { r.Namespace.Inode = 0 }, "encode checkpoint: namespace: path, boot ID or inode is missing"},
		"no parents":                {func(r *Record) { r.Interface.Parents = nil }, `encode checkpoint: interface: link "eth0": no parents`},
		"no MAC":                    {func(r *Record) { r.Interface.Link.MAC = "" }, "encode checkpoint: interface: name, MAC or MTU is missing"},
		"a kind that is not built":  {func(r *Record) { r.Interface.Link.Kind = "hub" }, `encode checkpoint: interface: link "eth0": kind "hub" does not go with its attributes`},
		"an address of nothing":     {func(r *Record) { r.Interface.Addresses = []netstate.Address{{}} }, "encode checkpoint: interface: an address without prefix"},
		"a result that is no JSON":  {func(r *Record) { r.CNI.Result = json.RawMessage(`{"a"`) }, "encode checkpoint: json: error calling MarshalJSON"},
		"a time beyond RFC 3339":    {func(r *Record) { r.CapturedAt = time.Unix(math.MaxInt32*200, 0) }, "encode checkpoint: json: error calling MarshalJSON"},
	} {
		t.Run(name, func(t *testing.T) {
			r := record("c1", "eth0")
			test.change(&r)
			if b, err := Encode(r); !strings.HasPrefix(message(err), test.want) || b != nil {
				t.Errorf("Encode() = %q, %v, want %q", b, err, test.want)
			}
		})
	}
}

func TestEncodeRefusesANameThatJSONCannotKeep(t *testing.T) {
	s := newStore(t)
	for _, name := range []string{"net\xff", "\xff\xff\xff\xff\xff\xff"} {
		r := record("c1", name)
		if err := s.Save(r); err != nil {
			continue
		}
		if _, err := s.Load("c1", name); err != nil {
			t.Errorf("saved %q, but: %v", name, err)
		}
	}
}
