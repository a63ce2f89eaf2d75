package printable

import (
	"bytes"
	"encoding/json"
	"errors"
	"os/exec"
	"reflect"
	"strings"
	"testing"
)

// A shell takes each word for its text, and runs nothing of it.
func TestCommand(t *testing.T) {
	for _, s := range []string{"", "eth0", "bond4.3", "$(echo x)", "`echo x`", "a;echo", "a&b|c>d", "it's", "*", "\\n", "a b", "~", "größe"} {
		out, err := exec.Command("sh", "-c", Command("printf", "%s", s)).Output()
		if string(out) != s || err != nil {
			t.Errorf("%s: %q, %v", Command(s), out, err)
		}
	}
	if got := Command("ip", "link", "set", "eth0@x-1", "down"); got != "ip link set eth0@x-1 down" {
		t.Error(got)
	}
}

func TestLine(t *testing.T) {
	for s, want := range map[string]string{
		"":                         "",
		"eth0 is gone":             "eth0 is gone",
		"größe 網 ✓ �":              "größe 網 ✓ �",
		"\x1b]0;title\a":           `\u001b]0;title\u0007`,
		"a\nshop/db-0: fine\r\tb":  `a\nshop/db-0: fine\r\tb`,
		"\u009b2J":                 `\u009b2J`,
		"\x7f\x00":                 `\u007f\u0000`,
		"\u202eabc\u2066":          `\u202eabc\u2066`,
		"\u200b\u2028\u00a0\ufeff": `\u200b\u2028\u00a0\ufeff`,
		"\U000e0041":               `\udb40\udc41`,
		"\x9b2J\xff":               `\x9b2J\xff`,
	} {
		if got := Line(s); got != want {
			t.Errorf("Line(%q) = %q, want %q", s, got, want)
		}
	}
}

func TestJoined(t *testing.T) {
	if got := Joined(errors.Join(errors.New("a\x1b"), errors.New("b"))); got != "a\x1b; b" {
		t.Errorf("%q", got)
	}
}

func TestWriter(t *testing.T) {
	const text = "POD\tWHY\nshop/web-0  \x1b[2J 網 \u009b \xff!\n"
	const want = "POD\tWHY\nshop/web-0  \\u001b[2J 網 \\u009b \\xff!\n"
	// In whatever pieces it comes.
	for size := 1; size <= len(text); size++ {
		var b bytes.Buffer
		w := &Writer{Output: &b}
		for rest := text; rest != ""; {
			n := min(size, len(rest))
			if wrote, err := w.Write([]byte(rest[:n])); wrote != n || err != nil {
				t.Fatal(wrote, err)
			}
			rest = rest[n:]
		}
		if b.String() != want {
			t.Errorf("in pieces of %d: %q", size, b.String())
		}
	}
}

func TestJSONStaysWhatItIs(t *testing.T) {
	want := map[string]string{"alias": "\x1b[2J\n\u009b\x7f\u202e\U000e0041 網"}
	var b bytes.Buffer
	encoder := json.NewEncoder(&Writer{Output: &b})
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(want); err != nil {
		t.Fatal(err)
	}
	var got map[string]string
	if err := json.Unmarshal(b.Bytes(), &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %q, want %q", err, got, want)
	}
	if strings.ContainsAny(b.String(), "\x1b\u009b\x7f\u202e") {
		t.Errorf("%q", b.String())
	}
}
