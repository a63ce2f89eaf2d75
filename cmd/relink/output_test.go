package main

import (
	"bytes"
	"encoding/json"
	"math/big"
	"reflect"
	"syscall"
	"testing"

	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"github.com/relink-cni/relink/pkg/printable"
)

// data returns v on a screen in format f.
func data(t interface{ Fatal(...any) }, f string, v any) []byte {
	var b bytes.Buffer
	if err := (format{name: f}).write(&printable.Writer{To: &b}, v); err != nil {
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

// A subnet of IPv6 has more addresses than a floating-point number can count.
func TestYAMLKeepsLargeNumbers(t *testing.T) {
	v := map[string]*big.Int{"size": new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 64), big.NewInt(2))}
	if got := string(data(t, formatYAML, v)); got != "size: 18446744073709551614\n" {
		t.Errorf("%q", got)
	}
}

// Output that cannot be written is a failure.
func TestOutputThatCannotBeWritten(t *testing.T) {
	for _, args := range [][]string{{"status"}, {"check"}, {"version"}, {"version", "-o", "json"}, {"list", "-o", "yaml"}} {
		var stderr bytes.Buffer
		code := run(t.Context(), append(args, "--checkpoint-dir", t.TempDir()), full{}, &stderr)
		if code != exitDiffers || stderr.String() != "relink: what it has to say cannot be written: no space left on device\n" {
			t.Errorf("%v: exit status %d, %q", args, code, &stderr)
		}
	}
}

// full is a full disk.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }
