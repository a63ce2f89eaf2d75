package attachment

import (
	"strings"
	"testing"
)

// message is what an error says, empty for none.
func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestKeyValidateNamesTheFirstWrongPart(t *testing.T) {
	const form = "must start with a letter or a digit and contain only letters, digits, '_', '.' and '-'"
	for name, test := range map[string]struct {
		change func(*Key)
		want   string
	}{
		"as a runtime gives it":      {func(*Key) {}, ""},
		"all characters of a name":   {func(k *Key) { k.Network, k.ContainerID = "n_1.a-B", "0_1.a-B" }, ""},
		"network missing":            {func(k *Key) { k.Network = "" }, `network "": is empty`},
		"network with a slash":       {func(k *Key) { k.Network = "a/b" }, `network "a/b": ` + form},
		"network first of several":   {func(k *Key) { *k = Key{} }, `network "": is empty`},
		"container ID missing":       {func(k *Key) { k.ContainerID = "" }, `container ID "": is empty`},
		"container ID goes up":       {func(k *Key) { k.ContainerID = ".." }, `container ID "..": ` + form},
		"container ID hidden":        {func(k *Key) { k.ContainerID = ".lock" }, `container ID ".lock": ` + form},
		"container ID, newline last": {func(k *Key) { k.ContainerID = "c1\n" }, `container ID "c1\n": ` + form},
		"interface name missing":     {func(k *Key) { k.IfName = "" }, `interface name "": is empty`},
		"interface name with slash":  {func(k *Key) { k.IfName = "a/b" }, `interface name "a/b": contains '/', ':', white space or a control character`},
		"interface name hidden":      {func(k *Key) { k.IfName = ".eth0" }, `interface name ".eth0": a name that begins with a dot cannot be remembered`},
	} {
		t.Run(name, func(t *testing.T) {
			key := Key{Network: "pods", ContainerID: "c1", IfName: "eth0"}
			test.change(&key)
			if got := message(key.Validate()); got != test.want {
				t.Errorf("Validate() = %q, want %q", got, test.want)
			}
		})
	}
}

func TestValidateNameLimitsTheLength(t *testing.T) {
	if err := ValidateName(strings.Repeat("a", 255)); err != nil {
		t.Errorf("255 characters: %v", err)
	}
	want := "is 256 characters long, at most 255 are allowed"
	if got := message(ValidateName(strings.Repeat("a", 256))); got != want {
		t.Errorf("256 characters: %q, want %q", got, want)
	}
}

func TestValidateIfName(t *testing.T) {
	const characters = "contains '/', ':', white space or a control character"
	for name, want := range map[string]string{
		"eth0":             "",
		"bond4.3":          "",
		"eth0@x":           "",
		"...":              "",
		"fifteen-letters":  "",
		"":                 "is empty",
		"sixteen-letters-": "has 16 characters, the kernel allows 15",
		".":                "is no device name",
		"..":               "is no device name",
		"a/b":              characters,
		"eth0:1":           characters,
		"a b":              characters,
		"a\tb":             characters,
		"a\x00b":           characters,
		"a\x7f":            characters,
	} {
		if got := message(ValidateIfName(name)); got != want {
			t.Errorf("ValidateIfName(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestKeyAndPodAsText(t *testing.T) {
	for got, want := range map[string]string{
		Key{Network: "pods", ContainerID: "c1", IfName: "eth0"}.String(): "eth0 of c1 on pods",
		Pod{Namespace: "default", Name: "web-0", UID: "u"}.String():      "default/web-0",
		Pod{Namespace: "default"}.String():                               "-",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// The kernel takes a '%' as a format (dev_get_valid_name): "net%d" becomes net0, "100%" is EINVAL.
// It refuses the byte 0xa0 (isspace of lib/ctype.c), which is in the UTF-8 of "à".
func TestValidateIfNameRefusesWhatTheKernelDoesNotTakeAsItIs(t *testing.T) {
	for _, name := range []string{"net%d", "100%", "à"} {
		if ValidateIfName(name) == nil {
			t.Errorf("%q is accepted", name)
		}
	}
}
