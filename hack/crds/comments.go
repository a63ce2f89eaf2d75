package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"

	"github.com/relink-cni/relink/pkg/pool"
)

// comments are the doc comments of types and of their fields, by TYPE and TYPE.FIELD, as the Go files have them.
type comments struct {
	texts map[string]string
	// names are what a reader of YAML knows for what a comment names in Go: fields, and characters.
	names map[string]string
}

// readComments reads the comments of all Go files in the directories, but not of tests.
func readComments(dirs ...string) (comments, error) {
	c := comments{texts: map[string]string{}, names: map[string]string{}}
	for _, dir := range dirs {
		paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			return c, err
		}
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
			if err != nil {
				return c, err
			}
			c.addFile(f)
		}
	}
	return c, nil
}

// addFile notes what a file has.
func (c comments) addFile(f *ast.File) {
	for _, d := range f.Decls {
		group, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, s := range group.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				c.texts[s.Name.Name] = oneLine(group.Doc)
				c.readFields(s)
			case *ast.ValueSpec:
				c.readCharacters(s)
			}
		}
	}
}

func (c comments) readFields(s *ast.TypeSpec) {
	fields, ok := s.Type.(*ast.StructType)
	if !ok {
		return
	}
	for _, f := range fields.Fields.List {
		for _, n := range f.Names {
			c.texts[s.Name.Name+"."+n.Name] = oneLine(f.Doc)
			if f.Tag == nil {
				continue
			}
			name, _, _ := strings.Cut(reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json"), ",")
			if _, character := c.names[n.Name]; name != "" && !character {
				c.names[n.Name] = name
			}
		}
	}
}

// readCharacters notes constants such as '.'.
func (c comments) readCharacters(s *ast.ValueSpec) {
	for i, n := range s.Names {
		if i >= len(s.Values) {
			return
		}
		if value, ok := s.Values[i].(*ast.BasicLit); ok && value.Kind == token.CHAR {
			c.names[n.Name] = value.Value
		}
	}
}

// oneLine is the comment in one line.
func oneLine(doc *ast.CommentGroup) string { return strings.Join(strings.Fields(doc.Text()), " ") }

var word = regexp.MustCompile(`[A-Z][A-Za-z]*`)

// fieldText returns what is said of a field, with the names that YAML has. UID and the like are words, too.
func (c comments) fieldText(t reflect.Type, name string) string {
	return word.ReplaceAllStringFunc(c.texts[t.Name()+"."+name], func(w string) string {
		if yamlName, ok := c.names[w]; ok && (w == name || w != strings.ToUpper(w)) {
			return yamlName
		}
		return w
	})
}

// describe describes the type itself.
func (c comments) describe(s *schema, t reflect.Type) {
	if t.Kind() == reflect.Struct && t != reflect.TypeFor[pool.Meta]() && s.Type == "object" {
		s.Description = c.texts[t.Name()]
	}
}
