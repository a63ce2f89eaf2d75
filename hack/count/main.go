// Command count counts what there is to read: the tokens of the Go files that are shipped, and the names there that are words of English
// grammar, which say little. It fails if there are more than the flags allow. Run it from the root of the repository.
package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

var words = strings.Fields(`is was were are be been to at of in on off by for from with without there here now then left both all any some none
	other others same such so as if not no yes has had have does did do can could may might must will would who whose what which when where why
	how this that these those its it he she they them their one two each every few many much more most less least own once again still yet already
	also only just even ever never done gone said says say given taken made seen known told`)

// counter has what was counted in the files so far.
type counter struct {
	files         *token.FileSet
	tokens, names int
	odd           []*ast.Ident
}

func main() {
	tokens := flag.Int("tokens", 0, "the most tokens")
	percent := flag.Float64("odd", 0, "the most names, in percent, that are words of grammar")
	flag.Parse()
	c := counter{files: token.NewFileSet()}
	err := filepath.WalkDir(".", c.visit)
	if err == nil {
		fmt.Printf("%d tokens, %d names, %d of them words of grammar\n", c.tokens, c.names, len(c.odd))
		err = c.check(*tokens, *percent)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "count: %v\n", err)
		os.Exit(1)
	}
}

func (c *counter) check(tokens int, percent float64) error {
	if c.tokens > tokens {
		return fmt.Errorf("there are more than %d tokens: delete some", tokens)
	}
	if 100*float64(len(c.odd)) <= percent*float64(c.names) {
		return nil
	}
	for _, name := range c.odd {
		fmt.Printf("%s: %s\n", c.files.Position(name.Pos()), name.Name)
	}
	return fmt.Errorf("more than %g%% of the names are words of grammar", percent)
}

// visit is a [fs.WalkDirFunc].
func (c *counter) visit(path string, entry fs.DirEntry, err error) error {
	if err != nil {
		return err
	}
	name := entry.Name()
	switch {
	case entry.IsDir() && (path == "test" || name == "testdata" || path != "." && strings.HasPrefix(name, ".")):
		return filepath.SkipDir
	case entry.IsDir() || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go"):
		return nil
	}
	source, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	file, err := parser.ParseFile(c.files, path, source, parser.ParseComments)
	if err != nil || ast.IsGenerated(file) {
		return err
	}
	c.countTokens(source)
	ast.Inspect(file, c.inspect)
	return nil
}

// countTokens leaves out the semicolons that are the ends of lines.
func (c *counter) countTokens(source []byte) {
	var s scanner.Scanner
	s.Init(token.NewFileSet().AddFile("", -1, len(source)), source, nil, 0)
	for {
		switch _, kind, text := s.Scan(); {
		case kind == token.EOF:
			return
		case kind != token.SEMICOLON || text != "\n":
			c.tokens++
		}
	}
}

// inspect counts the names that a node declares.
func (c *counter) inspect(node ast.Node) bool {
	switch n := node.(type) {
	case *ast.Field:
		c.add(n.Names...)
	case *ast.ValueSpec:
		c.add(n.Names...)
	case *ast.AssignStmt:
		if n.Tok == token.DEFINE {
			c.addExpr(n.Lhs...)
		}
	case *ast.RangeStmt:
		if n.Tok == token.DEFINE {
			c.addExpr(n.Key, n.Value)
		}
	}
	return true
}

func (c *counter) addExpr(exprs ...ast.Expr) {
	for _, e := range exprs {
		if name, ok := e.(*ast.Ident); ok {
			c.add(name)
		}
	}
}

func (c *counter) add(names ...*ast.Ident) {
	for _, name := range names {
		if name.Name == "_" {
			continue
		}
		c.names++
		if slices.Contains(words, name.Name) {
			c.odd = append(c.odd, name)
		}
	}
}
