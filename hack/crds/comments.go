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
	of map[string]string
	// names are what a reader of YAML knows for what a comment names in Go: fields, and characters.
	names map[string]string
}

// readComments reads the comments of all Go files in the directories, but not of tests.
func readComments(dirs ...string) (comments, error) {
	c := comments{of: map[string]string{}, names: map[string]string{}}
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
			c.read(f)
		}
	}
	return c, nil
}

// read notes what a file has.
func (c comments) read(f *ast.File) {
	for _, d := range f.Decls {
		group, is := d.(*ast.GenDecl)
		if !is {
			continue
		}
		for _, s := range group.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				c.of[s.Name.Name] = text(group.Doc)
				c.readFields(s)
			case *ast.ValueSpec:
				c.readCharacters(s)
			}
		}
	}
}

func (c comments) readFields(s *ast.TypeSpec) {
	fields, is := s.Type.(*ast.StructType)
	if !is {
		return
	}
	for _, f := range fields.Fields.List {
		for _, n := range f.Names {
			c.of[s.Name.Name+"."+n.Name] = text(f.Doc)
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
		if value, is := s.Values[i].(*ast.BasicLit); is && value.Kind == token.CHAR {
			c.names[n.Name] = value.Value
		}
	}
}

// text is the comment in one line.
func text(doc *ast.CommentGroup) string { return strings.Join(strings.Fields(doc.Text()), " ") }

var word = regexp.MustCompile(`[A-Z][A-Za-z]*`)

// field returns what is said of a field, with the names that YAML has. UID and the like are words, too.
func (c comments) field(t reflect.Type, name string) string {
	return word.ReplaceAllStringFunc(c.of[t.Name()+"."+name], func(w string) string {
		if known, is := c.names[w]; is && (w == name || w != strings.ToUpper(w)) {
			return known
		}
		return w
	})
}

// about describes the type itself.
func (c comments) about(s *schema, t reflect.Type) {
	if t.Kind() == reflect.Struct && t != reflect.TypeFor[pool.Meta]() && s.Type == "object" {
		s.Description = c.of[t.Name()]
	}
}
