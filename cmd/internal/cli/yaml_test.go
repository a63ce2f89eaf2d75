package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"reflect"
	"testing"

	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"github.com/relink-cni/relink/pkg/printable"
)

// data returns v on a screen in format f.
func data(t interface{ Fatal(...any) }, f string, v any) []byte {
	var b bytes.Buffer
	if err := (&Screen{Format: f, Out: &printable.Writer{Output: &b}}).writeData(v); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A program reads the same from YAML as from JSON, whatever names a pod has chosen.
func TestYAMLSaysWhatJSONSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{
			"\u202eabc", "\u0085", "true", "12", "null", "~", "- a", "a: b", "\x1b[31m", "a\nb", "a\n\u202e\n", " x ", "", "#", "'", `"`, `\u202e`, "0x10", "1e3", "2026-01-02",
		}))
		v := map[string]any{
			text.Draw(t, "key"): text.Draw(t, "value"), "list": []any{text.Draw(t, "first"), map[string]any{"a": text.Draw(t, "second")}},
			"none": []any{}, "null": nil, "yes": true,
		}
		var fromJSON, fromYAML any
		if err := json.Unmarshal(data(t, formatJSON, v), &fromJSON); err != nil {
			t.Fatal(err)
		}
		b := data(t, formatYAML, v)
		if err := yaml.Unmarshal(b, &fromYAML); err != nil {
			t.Fatalf("%v\n%s", err, b)
		}
		if !reflect.DeepEqual(fromJSON, fromYAML) {
			t.Fatalf("JSON %q\nYAML %q\n%s", fromJSON, fromYAML, b)
		}
	})
}

// Readers of YAML 1.1 know more kinds of text than YAML 1.2: text of such a kind needs quotes. Plain words need none.
func TestYAMLIsReadAlikeByOldReaders(t *testing.T) {
	for _, quoted := range []string{
		"52:54:00:12:34:56", "1:30", "190:20:30.15", "-1:0", "+12:59", "1_0:30",
		"y", "Y", "yes", "Yes", "YES", "n", "N", "no", "NO", "on", "On", "off", "OFF", "true", "FALSE",
		"=", "<<", "~", "null", "Null", "", ".inf", "-.Inf", ".NaN",
		"12", "-12", "+1", "0123", "0o17", "0b11", "0x1f", "-0x_1f", "1_000", "1.5", "1.", ".5", "1e10", "1e-7", "1.5e+3", "6.8523015e+5",
		"2026-11-22", "2026-1-2", "2026-11-22T10:00:00Z", "2026-11-22 10:00:00.5 -5", "2026-11-22t10:00:00+01:00",
	} {
		want := fmt.Sprintf("- %q\n%q: 1\n", quoted, quoted)
		if got := string(data(t, formatYAML, []string{quoted})) + string(data(t, formatYAML, map[string]int{quoted: 1})); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for _, plain := range []string{"a", "shop/web-0", "eth0.3", "yes-0", "none", "/run/netns/x", "ipv4/arp_notify"} {
		if got, want := string(data(t, formatYAML, []string{plain})), "- "+plain+"\n"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A subnet of IPv6 has more addresses than a floating-point number can count.
func TestYAMLKeepsLargeNumbers(t *testing.T) {
	v := map[string]*big.Int{"size": new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 64), big.NewInt(2))}
	if got := string(data(t, formatYAML, v)); got != "size: 18446744073709551614\n" {
		t.Errorf("%q", got)
	}
}
