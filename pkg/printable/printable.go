package printable

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Line returns s with all that moves a cursor, ends a line or is not to be seen spelt out,
// such as \n and \u001b, so that it is one line that shows what is in it.
func Line(s string) string { return escape(s, "") }

// Joined returns the errors of errors.Join, which are lines, in one line. It spells nothing out:
// the text may be for JSON.
func Joined(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// Command returns the words as a command that somebody can type: a shell takes each of them as it is. A pod chooses the names of its
// devices, such as $(reboot).
func Command(words ...string) string {
	words = slices.Clone(words)
	for i, w := range words {
		if w == "" || strings.ContainsAny(w, " \t\n\"'`\\$&|;<>(){}[]*?!#~") {
			words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

// Lines returns s, each line of which is one of the program's own, as Line does.
func Lines(s string) string { return escape(s, "\n\t") }

// escape spells out what is not to be printed, but for the characters of keep.
func escape(s, keep string) string {
	bad := func(r rune) bool { return !isPrintable(r) && !strings.ContainsRune(keep, r) }
	if strings.IndexFunc(s, bad) < 0 && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], string(utf8.RuneError)):
			fmt.Fprintf(&b, `\x%02x`, s[i]) // No UTF-8.
		case bad(r):
			b.WriteString(escapeRune(r))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// isPrintable says that the character is seen where it is printed, and does nothing else. The
// controls are not, nor what turns the direction of writing or has no width.
func isPrintable(r rune) bool {
	if r < utf8.RuneSelf { // As nearly all are.
		return ' ' <= r && r <= '~'
	}
	return r == utf8.RuneError || unicode.IsGraphic(r) && !unicode.Is(unicode.Zs, r)
}

// escapeRune returns the character as JSON has it in a string, too.
func escapeRune(r rune) string {
	switch r {
	case '\n':
		return `\n`
	case '\t':
		return `\t`
	case '\r':
		return `\r`
	}
	if high, low := utf16.EncodeRune(r); high != unicode.ReplacementChar {
		return fmt.Sprintf(`\u%04x\u%04x`, high, low)
	}
	return fmt.Sprintf(`\u%04x`, r)
}

// Writer passes text on as Lines returns it. JSON stays what it is.
type Writer struct {
	// Output is where the text goes.
	Output io.Writer
	// partial is the beginning of a character whose rest is yet to come.
	partial []byte
}

// Write takes all of p, or fails.
func (w *Writer) Write(p []byte) (int, error) {
	text := slices.Concat(w.partial, p)
	whole := len(text)
	for back := 1; back <= min(utf8.UTFMax-1, len(text)); back++ {
		if tail := text[len(text)-back:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				whole -= back
			}
			break
		}
	}
	if _, err := io.WriteString(w.Output, Lines(string(text[:whole]))); err != nil {
		return 0, err
	}
	w.partial = text[whole:]
	return len(p), nil
}
