package kernel

import (
	"testing"

	"github.com/relink-cni/relink/test/fresh"
)

// The settings that the kernel reports with the link are the same as in the files.
func TestSettingsAreToldWithTheLink(t *testing.T) {
	w := newWorld(t)
	w.build(t, everything(), ConfigureOptions{Known: true})
	for _, values := range []string{"0", "1"} {
		for key := range devconf {
			if err := w.sandbox.WriteSetting("eth0", key, values); err != nil {
				t.Fatal(err)
			}
			link := must(w.sandbox.link("eth0"))(t)
			if told, ok := link.setting(key); !ok || told != values {
				t.Errorf("%s is %s: the kernel tells %q, %v", key, values, told, ok)
			}
			dir, file := settingFile("eth0", key)
			if got := fresh.Run(t, w.path, "cat "+dir+"/"+file); got != values {
				t.Errorf("%s is %s, want %s", key, got, values)
			}
		}
	}
	if _, ok := must(w.sandbox.link("eth0"))(t).setting("ipv4/rp_filter"); ok {
		t.Error("a setting is told that no ADD makes")
	}
}
