// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mail

import (
	"fmt"
	"maps"
	"reflect"
	"strings"
	"text/template/parse"
)

// allowedSyntax describes the allowed template syntax.
const allowedSyntax = "allowed are fields of the page, such as .First, .Why, .How, .Deadline.Local and .Facts, " +
	"with if, with, range over a list, variables, and the functions and, or, not, eq, ne, lt, le, gt, ge, len"

// allowedFunctions holds the functions that a template may call; none returns more text than it gets.
var allowedFunctions = map[string]bool{
	"and": true, "or": true, "not": true, "eq": true, "ne": true, "lt": true, "le": true, "gt": true, "ge": true, "len": true,
}

// maxRangeDepth bounds nested ranges. Lists are short, so this bounds the execution time.
const maxRangeDepth = 2

// templateValidator walks a template and tracks the type of the dot. An unknown type is nil; the
// execution of the examples checks what depends on it.
type templateValidator struct {
	tree       *parse.Tree
	vars       map[string]reflect.Type
	rangeDepth int
}

// validateTemplate rejects disallowed syntax, also in branches that no example executes.
func validateTemplate(tree *parse.Tree) error {
	page := reflect.TypeFor[TemplateData]()
	i := &templateValidator{tree: tree, vars: map[string]reflect.Type{"$": page}}
	return i.validateList(tree.Root, page)
}

func (i *templateValidator) reject(n parse.Node, format string, args ...any) error {
	where, _ := i.tree.ErrorContext(n)
	return fmt.Errorf("template %s: %s (%s)", where, fmt.Sprintf(format, args...), allowedSyntax)
}

func (i *templateValidator) validateList(l *parse.ListNode, dot reflect.Type) error {
	if l == nil {
		return nil
	}
	for _, n := range l.Nodes {
		if err := i.validateNode(n, dot); err != nil {
			return err
		}
	}
	return nil
}

func (i *templateValidator) validateNode(n parse.Node, dot reflect.Type) error {
	switch n := n.(type) {
	case *parse.ActionNode:
		_, err := i.validatePipe(n.Pipe, dot)
		return err
	case *parse.IfNode:
		_, err := i.validatePipe(n.Pipe, dot)
		return i.validateBranch(err, &n.BranchNode, dot, dot)
	case *parse.WithNode:
		inner, err := i.validatePipe(n.Pipe, dot)
		return i.validateBranch(err, &n.BranchNode, inner, dot)
	case *parse.RangeNode:
		return i.validateRange(n, dot)
	case *parse.TemplateNode:
		return i.reject(n, "it calls another template")
	case *parse.TextNode, *parse.CommentNode, *parse.BreakNode, *parse.ContinueNode:
		return nil
	}
	return i.reject(n, "%q is not allowed", n.String())
}

// validateBranch checks both lists; variables declared in them end there.
func (i *templateValidator) validateBranch(err error, b *parse.BranchNode, inner, outer reflect.Type) error {
	if err != nil {
		return err
	}
	before := maps.Clone(i.vars)
	defer func() { i.vars = before }()
	if err := i.validateList(b.List, inner); err != nil {
		return err
	}
	return i.validateList(b.ElseList, outer)
}

// validateRange allows a range only over a field of [TemplateData] or the dot. The value of a
// variable depends on the executed branch and may be a number.
func (i *templateValidator) validateRange(n *parse.RangeNode, dot reflect.Type) error {
	over := dot
	if n.Pipe.Cmds[0].Args[0].Type() != parse.NodeDot {
		var err error
		if over, err = i.resolvePipe(n.Pipe, dot); err != nil {
			return err
		}
	}
	if len(n.Pipe.Cmds) != 1 || len(n.Pipe.Cmds[0].Args) != 1 || over == nil || over.Kind() != reflect.Slice {
		return i.reject(n, "%q is no list of the page", n.Pipe.String())
	}
	if i.rangeDepth++; i.rangeDepth > maxRangeDepth {
		return i.reject(n, "more than %d ranges stand in one another", maxRangeDepth)
	}
	defer func() { i.rangeDepth-- }()
	for at, v := range n.Pipe.Decl {
		i.vars[v.Ident[0]] = nil
		if at == len(n.Pipe.Decl)-1 {
			i.vars[v.Ident[0]] = over.Elem()
		}
	}
	return i.validateBranch(nil, &n.BranchNode, over.Elem(), dot)
}

// validatePipe checks a pipeline and declares its variables.
func (i *templateValidator) validatePipe(p *parse.PipeNode, dot reflect.Type) (reflect.Type, error) {
	t, err := i.resolvePipe(p, dot)
	for _, v := range p.Decl {
		i.vars[v.Ident[0]] = t
	}
	return t, err
}

// resolvePipe returns the type of a pipeline.
func (i *templateValidator) resolvePipe(p *parse.PipeNode, dot reflect.Type) (t reflect.Type, err error) {
	for _, c := range p.Cmds {
		for _, arg := range c.Args {
			if t, err = i.resolveArgument(arg, dot); err != nil {
				return nil, err
			}
		}
		if len(c.Args) > 1 || len(p.Cmds) > 1 {
			t = nil
		}
	}
	return t, nil
}

func (i *templateValidator) resolveArgument(n parse.Node, dot reflect.Type) (reflect.Type, error) {
	switch n := n.(type) {
	case *parse.FieldNode:
		return i.resolveField(n, dot, n.Ident)
	case *parse.VariableNode:
		t, err := i.resolveField(n, i.vars[n.Ident[0]], n.Ident[1:])
		if len(n.Ident) == 1 && n.Ident[0] != "$" {
			return nil, err
		}
		return t, err
	case *parse.ChainNode:
		t, err := i.resolveArgument(n.Node, dot)
		if err != nil {
			return nil, err
		}
		return i.resolveField(n, t, n.Field)
	case *parse.PipeNode:
		return i.validatePipe(n, dot)
	case *parse.DotNode:
		return dot, nil
	case *parse.IdentifierNode:
		if !allowedFunctions[n.Ident] {
			return nil, i.reject(n, "the function %s is not allowed", n.Ident)
		}
	}
	return nil, nil
}

// resolveField resolves a chain of field names.
func (i *templateValidator) resolveField(n parse.Node, t reflect.Type, names []string) (reflect.Type, error) {
	for _, name := range names {
		for t != nil && t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		switch {
		case t == nil:
			return nil, nil
		case t.Kind() == reflect.Map:
			t = t.Elem()
		case t.Kind() == reflect.Struct:
			f, ok := t.FieldByName(name)
			if !ok {
				return nil, i.reject(n, "there is no field .%s; available are %s", name, fieldNames(t))
			}
			t = f.Type
		default:
			return nil, i.reject(n, "%s has no fields", n.String())
		}
	}
	return t, nil
}

func fieldNames(t reflect.Type) string {
	var names []string
	for f := range t.NumField() {
		names = append(names, "."+t.Field(f).Name)
	}
	return strings.Join(names, " ")
}
