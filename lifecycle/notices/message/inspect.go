// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package message

import (
	"fmt"
	"maps"
	"reflect"
	"strings"
	"text/template/parse"
)

// allowed says what a template may have.
const allowed = "allowed are fields of the page, such as .First, .Why, .How, .Deadline.Local and .Facts, with if, with, range over a list, variables, and the functions and, or, not, eq, ne, lt, le, gt, ge, len"

// functions are all that a template may call: none makes more text than it was given.
var functions = map[string]bool{
	"and": true, "or": true, "not": true, "eq": true, "ne": true, "lt": true, "le": true, "gt": true, "ge": true, "len": true,
}

// deepest is how many ranges may stand in one another. Lists are short, so two of
// them bound how long a template takes.
const deepest = 2

// inspector goes through a template, and knows what the dot is at each place. A type
// that it cannot tell is nil, and what depends on it is found when it is executed.
type inspector struct {
	tree   *parse.Tree
	vars   map[string]reflect.Type
	ranges int
}

// inspect finds what a template may not have, also where no example goes.
func inspect(tree *parse.Tree) error {
	page := reflect.TypeFor[Page]()
	i := &inspector{tree: tree, vars: map[string]reflect.Type{"$": page}}
	return i.list(tree.Root, page)
}

func (i *inspector) refuse(n parse.Node, format string, args ...any) error {
	where, _ := i.tree.ErrorContext(n)
	return fmt.Errorf("template %s: %s (%s)", where, fmt.Sprintf(format, args...), allowed)
}

func (i *inspector) list(l *parse.ListNode, dot reflect.Type) error {
	if l == nil {
		return nil
	}
	for _, n := range l.Nodes {
		if err := i.node(n, dot); err != nil {
			return err
		}
	}
	return nil
}

func (i *inspector) node(n parse.Node, dot reflect.Type) error {
	switch n := n.(type) {
	case *parse.ActionNode:
		_, err := i.pipe(n.Pipe, dot)
		return err
	case *parse.IfNode:
		_, err := i.pipe(n.Pipe, dot)
		return i.branch(err, &n.BranchNode, dot, dot)
	case *parse.WithNode:
		inner, err := i.pipe(n.Pipe, dot)
		return i.branch(err, &n.BranchNode, inner, dot)
	case *parse.RangeNode:
		return i.loop(n, dot)
	case *parse.TemplateNode:
		return i.refuse(n, "it calls another template")
	case *parse.TextNode, *parse.CommentNode, *parse.BreakNode, *parse.ContinueNode:
		return nil
	}
	return i.refuse(n, "%q is not allowed", n.String())
}

// branch goes through both lists; what these declare ends with them.
func (i *inspector) branch(err error, b *parse.BranchNode, inner, outer reflect.Type) error {
	if err != nil {
		return err
	}
	before := maps.Clone(i.vars)
	defer func() { i.vars = before }()
	if err := i.list(b.List, inner); err != nil {
		return err
	}
	return i.list(b.ElseList, outer)
}

// loop allows a range over a list of the page alone: a field, or the dot that is one.
// What a variable holds depends on the way that was taken, and may be a number.
func (i *inspector) loop(n *parse.RangeNode, dot reflect.Type) error {
	over := dot
	if n.Pipe.Cmds[0].Args[0].Type() != parse.NodeDot {
		var err error
		if over, err = i.resolve(n.Pipe, dot); err != nil {
			return err
		}
	}
	if len(n.Pipe.Cmds) != 1 || len(n.Pipe.Cmds[0].Args) != 1 || over == nil || over.Kind() != reflect.Slice {
		return i.refuse(n, "%q is no list of the page", n.Pipe.String())
	}
	if i.ranges++; i.ranges > deepest {
		return i.refuse(n, "more than %d ranges stand in one another", deepest)
	}
	defer func() { i.ranges-- }()
	for at, v := range n.Pipe.Decl {
		i.vars[v.Ident[0]] = nil
		if at == len(n.Pipe.Decl)-1 {
			i.vars[v.Ident[0]] = over.Elem()
		}
	}
	return i.branch(nil, &n.BranchNode, over.Elem(), dot)
}

// pipe goes through a pipeline, and declares its variables.
func (i *inspector) pipe(p *parse.PipeNode, dot reflect.Type) (reflect.Type, error) {
	t, err := i.resolve(p, dot)
	for _, v := range p.Decl {
		i.vars[v.Ident[0]] = t
	}
	return t, err
}

// resolve is the type of what a pipeline gives.
func (i *inspector) resolve(p *parse.PipeNode, dot reflect.Type) (t reflect.Type, err error) {
	for _, c := range p.Cmds {
		for _, arg := range c.Args {
			if t, err = i.argument(arg, dot); err != nil {
				return nil, err
			}
		}
		if len(c.Args) > 1 || len(p.Cmds) > 1 {
			t = nil
		}
	}
	return t, nil
}

func (i *inspector) argument(n parse.Node, dot reflect.Type) (reflect.Type, error) {
	switch n := n.(type) {
	case *parse.FieldNode:
		return i.field(n, dot, n.Ident)
	case *parse.VariableNode:
		t, err := i.field(n, i.vars[n.Ident[0]], n.Ident[1:])
		if len(n.Ident) == 1 && n.Ident[0] != "$" {
			return nil, err
		}
		return t, err
	case *parse.ChainNode:
		t, err := i.argument(n.Node, dot)
		if err != nil {
			return nil, err
		}
		return i.field(n, t, n.Field)
	case *parse.PipeNode:
		return i.pipe(n, dot)
	case *parse.DotNode:
		return dot, nil
	case *parse.IdentifierNode:
		if !functions[n.Ident] {
			return nil, i.refuse(n, "the function %s is not allowed", n.Ident)
		}
	}
	return nil, nil
}

// field follows names from a type.
func (i *inspector) field(n parse.Node, t reflect.Type, names []string) (reflect.Type, error) {
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
				return nil, i.refuse(n, "there is no field .%s; here there are %s", name, fieldNames(t))
			}
			t = f.Type
		default:
			return nil, i.refuse(n, "%s has no fields", n.String())
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
