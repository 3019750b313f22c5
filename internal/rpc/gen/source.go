package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
)

// source is what reflection does not tell about a package's types.
type source struct {
	docs   map[string]string   // of Type and Type.Field
	values map[string][]string // of a string type: its constants
}

func readSource(dir string) (source, error) {
	s := source{map[string]string{}, map[string][]string{}}
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return s, err
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			return s, err
		}
		for _, d := range f.Decls {
			if g, ok := d.(*ast.GenDecl); ok {
				s.take(g)
			}
		}
	}
	return s, nil
}

func (s source) take(g *ast.GenDecl) {
	for _, spec := range g.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			s.docs[spec.Name.Name] = words(g.Doc, spec.Doc)
			if st, ok := spec.Type.(*ast.StructType); ok {
				for _, f := range st.Fields.List {
					for _, n := range f.Names {
						s.docs[spec.Name.Name+"."+n.Name] = words(f.Doc, f.Comment)
					}
				}
			}
		case *ast.ValueSpec:
			t, ok := spec.Type.(*ast.Ident)
			if !ok || g.Tok != token.CONST {
				continue
			}
			for _, v := range spec.Values {
				if lit, ok := v.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					if text, err := strconv.Unquote(lit.Value); err == nil {
						s.values[t.Name] = append(s.values[t.Name], text)
					}
				}
			}
		}
	}
}

// words joins comments into one line.
func words(groups ...*ast.CommentGroup) string {
	var out []string
	for _, g := range groups {
		if g != nil {
			out = append(out, strings.Fields(g.Text())...)
		}
	}
	return strings.Join(out, " ")
}
