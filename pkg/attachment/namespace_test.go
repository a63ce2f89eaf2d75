package attachment

import "testing"

func TestNamespaceSameSaysWhyItIsNot(t *testing.T) {
	recorded := Namespace{Path: "/run/netns/a", BootID: "boot-1", Device: 4, Inode: 4026532000, Cookie: 7}
	for name, test := range map[string]struct {
		change func(*Namespace)
		want   string
	}{
		"the very same":                {func(*Namespace) {}, ""},
		"under another path":           {func(n *Namespace) { n.Path = "/proc/17/ns/net" }, ""},
		"without a cookie to compare":  {func(n *Namespace) { n.Cookie = 0 }, ""},
		"another boot":                 {func(n *Namespace) { n.BootID = "boot-2" }, "another namespace is there now: it was recorded in an earlier boot (boot ID boot-1, now boot-2)"},
		"another boot before all else": {func(n *Namespace) { *n = Namespace{BootID: "boot-2"} }, "another namespace is there now: it was recorded in an earlier boot (boot ID boot-1, now boot-2)"},
		"another inode":                {func(n *Namespace) { n.Inode++ }, "another namespace is there now (inode 4:4026532001, recorded 4:4026532000)"},
		"another nsfs":                 {func(n *Namespace) { n.Device++ }, "another namespace is there now (inode 5:4026532000, recorded 4:4026532000)"},
		"a reused inode":               {func(n *Namespace) { n.Cookie++ }, "another namespace is there now, with a reused inode number (cookie 8, recorded 7)"},
	} {
		t.Run(name, func(t *testing.T) {
			now := recorded
			test.change(&now)
			if got := message(recorded.Same(now)); got != test.want {
				t.Errorf("Same() = %q, want %q", got, test.want)
			}
		})
	}
}

func TestNamespaceRecordedWithoutACookieIsKnownByItsInode(t *testing.T) {
	recorded := Namespace{BootID: "boot-1", Device: 4, Inode: 1}
	now := recorded
	now.Cookie = 9
	if err := recorded.Same(now); err != nil {
		t.Errorf("Same() = %v, want nil", err)
	}
}
