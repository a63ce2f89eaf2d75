package validate

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// once removes each key that comes again later in its object: libcni writes the configuration anew for the plugins,
// and of such keys it keeps the last one. The rest of the text stays as it is. twice are the places of the keys. Text
// that is no JSON stays as it is.
func once(config []byte) (_ []byte, twice []string) {
	p := pass{text: config, decoder: jsontext.NewDecoder(bytes.NewReader(config), jsontext.AllowDuplicateNames(true))}
	if err := p.value(""); err != nil || len(p.cuts) == 0 {
		return config, nil
	}
	slices.SortFunc(p.cuts, func(a, b [2]int) int { return a[0] - b[0] })
	var kept []byte
	at := 0
	for _, cut := range p.cuts {
		if cut[0] >= at { // Others are in a value that is cut as a whole.
			kept = append(kept, config[at:cut[0]]...)
			at = cut[1]
		}
	}
	return append(kept, config[at:]...), p.twice
}

// pass is one pass through a configuration.
type pass struct {
	text    []byte
	decoder *jsontext.Decoder
	// cuts are the parts of the text to leave out: the place of the first byte of each, and the place behind its last byte.
	cuts  [][2]int
	twice []string
}

func (p *pass) value(at string) error {
	switch p.decoder.PeekKind() {
	case '{':
		return p.object(at)
	case '[':
		if _, err := p.decoder.ReadToken(); err != nil {
			return err
		}
		for i := 0; p.decoder.PeekKind() != ']'; i++ {
			if err := p.value(fmt.Sprintf("%s[%d]", at, i)); err != nil {
				return err
			}
		}
		_, err := p.decoder.ReadToken()
		return err
	}
	return p.decoder.SkipValue()
}

func (p *pass) object(at string) error {
	if _, err := p.decoder.ReadToken(); err != nil {
		return err
	}
	seen := map[string][2]int{}
	for p.decoder.PeekKind() != '}' {
		begin := p.skip(int(p.decoder.InputOffset()), ", \t\r\n")
		name, err := p.decoder.ReadToken()
		if err != nil {
			return err
		}
		key := name.String()
		place := key
		if at != "" {
			place = at + "." + key
		}
		if before, again := seen[key]; again {
			p.cuts = append(p.cuts, before)
			if !slices.Contains(p.twice, place) {
				p.twice = append(p.twice, place)
			}
		}
		if err := p.value(place); err != nil {
			return err
		}
		// Another key comes behind each that is cut. So there is a comma.
		seen[key] = [2]int{begin, p.skip(p.skip(int(p.decoder.InputOffset()), " \t\r\n"), ",")}
	}
	_, err := p.decoder.ReadToken()
	return err
}

// skip returns the first place from there on that has none of the bytes.
func (p *pass) skip(from int, passed string) int {
	for from < len(p.text) && bytes.IndexByte([]byte(passed), p.text[from]) >= 0 {
		from++
	}
	return from
}
