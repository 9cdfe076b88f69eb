// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package toyshell

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

// subset ends the messages on syntax that the shell does not have.
const subset = "the simulated shell is a POSIX shell without pipes, background jobs, functions, case, braces, patterns, " +
	"here-documents, and redirections to files other than /dev/null"

var tooLong = fmt.Sprintf("a command has more than %d bytes", maxText)

// parse returns the commands of a script of at most maxText bytes. The error names what the
// shell does not have.
func parse(script string) (*syntax.File, error) {
	file, err := syntax.NewParser(syntax.Variant(syntax.LangPOSIX)).Parse(shallowReader{strings.NewReader(script)}, "")
	if err != nil {
		return nil, fmt.Errorf("%w (%s)", err, subset)
	}
	for node := range syntax.Preorder(file) {
		if !simulated(node) {
			return nil, fmt.Errorf("%.40q: not in this simulation: %s", script[node.Pos().Offset():node.End().Offset()], subset)
		}
	}
	return file, nil
}

// shallowReader returns an error when the parser that reads it has recursed too deep: a text of
// 64 KiB can nest so deep that the parser uses 256 MiB of stack.
type shallowReader struct{ io.Reader }

func (r shallowReader) Read(buffer []byte) (int, error) {
	if runtime.Callers(2000, make([]uintptr, 1)) > 0 {
		return 0, errors.New("the script is nested too deep")
	}
	return r.Reader.Read(buffer[:min(len(buffer), 64)])
}

// simulated reports whether the shell has a part of the syntax. It has no part that is not listed.
func simulated(node syntax.Node) bool {
	switch n := node.(type) {
	case *syntax.File, *syntax.Lit, *syntax.SglQuoted, *syntax.DblQuoted, *syntax.CmdSubst,
		*syntax.ArithmExp, *syntax.BinaryArithm, *syntax.UnaryArithm, *syntax.ParenArithm, *syntax.CallExpr, *syntax.Assign,
		*syntax.Block, *syntax.Subshell, *syntax.IfClause, *syntax.WhileClause, *syntax.ForClause, *syntax.WordIter:
		return true
	case *syntax.Word:
		// The library takes seconds and gigabytes to expand a few thousand braces.
		return !slices.ContainsFunc(n.Parts, func(part syntax.WordPart) bool {
			text, isText := part.(*syntax.Lit)
			return isText && strings.Contains(text.Value, "{")
		})
	case *syntax.Stmt:
		return !n.Background && !n.Coprocess && !n.Disown
	case *syntax.BinaryCmd:
		return n.Op == syntax.AndStmt || n.Op == syntax.OrStmt
	case *syntax.ParamExp:
		// A pattern would be a regular expression on a long value.
		return n.Exp == nil || n.Exp.Op < syntax.RemSmallSuffix
	case *syntax.Redirect:
		target := n.Word.Lit()
		return (n.N == nil || n.N.Value == "1" || n.N.Value == "2") && (n.Op == syntax.DplOut && (target == "1" || target == "2") ||
			(n.Op == syntax.RdrOut || n.Op == syntax.AppOut) && target == "/dev/null")
	}
	return false
}

// runScript runs a script of one or more lines.
func (s *session) runScript(script string) {
	file, err := parse(script)
	if err != nil {
		s.last = s.fail(exitUsage, "sh: %v", err)
		return
	}
	s.runStatements(file.Stmts)
}

func (s *session) runStatements(statements []*syntax.Stmt) {
	for _, statement := range statements {
		s.runStatement(statement)
	}
}

func (s *session) runStatement(statement *syntax.Stmt) {
	if s.over() {
		return
	}
	// A long command takes the time of many.
	s.limits.commands += 1 + int(statement.End().Offset()-statement.Pos().Offset())>>6
	if s.limits.commands > maxCommands {
		s.limits.stop("the script has too many commands")
		return
	}
	out, errOut := s.out, s.err
	for _, redirect := range statement.Redirs {
		stream := &s.out
		if redirect.N != nil && redirect.N.Value == "2" {
			stream = &s.err
		}
		*stream = map[string]io.Writer{"1": s.out, "2": s.err, "/dev/null": io.Discard}[redirect.Word.Lit()]
	}
	s.runCommand(statement.Cmd)
	s.out, s.err = out, errOut
	if statement.Negated {
		s.finish(1 - min(s.last, 1))
	}
}

// finish sets the exit code of a compound command, unless the shell has ended with one.
func (s *session) finish(code int) {
	if !s.over() {
		s.last = code
	}
}

func (s *session) runCommand(command syntax.Command) {
	switch c := command.(type) {
	case *syntax.CallExpr:
		s.last = s.call(c)
	case *syntax.Block:
		s.runStatements(c.Stmts)
	case *syntax.Subshell:
		child := s.child()
		child.runStatements(c.Stmts)
		s.last = child.last
	case *syntax.BinaryCmd:
		s.runStatement(c.X)
		if (s.last == 0) == (c.Op == syntax.AndStmt) {
			s.runStatement(c.Y)
		}
	case *syntax.IfClause:
		for ; c != nil; c = c.Else {
			s.runStatements(c.Cond) // none of an else
			if s.last == 0 || len(c.Cond) == 0 {
				s.runStatements(c.Then)
				return
			}
		}
		s.finish(0)
	case *syntax.WhileClause:
		code := 0
		for s.runStatements(c.Cond); !s.over() && (s.last == 0) != c.Until; s.runStatements(c.Cond) {
			s.runStatements(c.Do)
			code = s.last
			select {
			case typed, open := <-s.typed():
				s.receive(typed, open)
			default:
			}
		}
		s.finish(code)
	case *syntax.ForClause:
		loop := c.Loop.(*syntax.WordIter) // a parser of POSIX shells returns no other
		words, ok := s.expand(loop.Items, " \t\n")
		s.finish(0)
		if !ok {
			s.finish(exitUsage)
		}
		for _, word := range words {
			s.set(loop.Name.Value, word)
			s.runStatements(c.Do)
		}
	}
}

// call runs a simple command after its words are expanded.
func (s *session) call(command *syntax.CallExpr) int {
	s.substituted = 0
	args, ok := s.expand(command.Args, " \t\n")
	if !ok {
		return exitUsage
	}
	if env := s.env; len(args) > 0 && len(command.Assigns) > 0 { // variables of this command alone
		s.env = maps.Clone(env)
		defer func() { s.env = env }()
	}
	for _, assign := range command.Assigns {
		var value []string
		if assign.Value != nil {
			if value, ok = s.expand([]*syntax.Word{assign.Value}, ""); !ok {
				return exitUsage
			}
		}
		s.set(assign.Name.Value, strings.Join(value, " "))
	}
	if len(args) == 0 || s.over() {
		return s.substituted
	}
	return s.run(args)
}

// expand returns the arguments that words expand to, or false after a message. Values are
// split at the separators.
func (s *session) expand(words []*syntax.Word, separators string) (args []string, ok bool) {
	env := &expansion{session: s, separators: separators, left: maxText}
	out := bounded{nil, &env.left, s.limits, tooLong}
	config := &expand.Config{Env: env, CmdSubst: func(text io.Writer, substitution *syntax.CmdSubst) error {
		child := s.child()
		out.Writer = text
		child.out = out
		child.runStatements(substitution.Stmts)
		s.substituted = child.last
		return nil
	}}
	size := 0
	for arg, err := range expand.FieldsSeq(config, words...) {
		if size += len(arg) + 1; size > maxText {
			s.limits.stop(tooLong)
			return nil, false
		}
		if err != nil {
			s.fail(exitUsage, "sh: %v", err)
			return nil, false
		}
		args = append(args, arg)
	}
	s.limits.commands += (size + maxText - env.left) >> 10
	return args, true
}

// expansion are the variables of a shell while words are expanded. It has no files, so that
// patterns stay as they are.
type expansion struct {
	*session
	separators string
	left       int // bytes of values that may still be read
}

// Get returns a variable, or one without a value when too much has been read.
func (e *expansion) Get(name string) expand.Variable {
	value, found := e.env[name]
	switch user, isHome := strings.CutPrefix(name, "HOME "); {
	case isHome: // without a value the library would search the users of this machine
		value, found = "~"+user, true
	case name == "IFS":
		value, found = e.separators, true
	case name == "PWD":
		value, found = e.dir, true
	case name == "?":
		value, found = strconv.Itoa(e.last), true
	}
	if e.left -= len(value); e.left < 0 {
		e.limits.stop(tooLong)
		return expand.Variable{}
	}
	return expand.Variable{Set: found, Exported: found, Kind: expand.String, Str: value}
}

// Set sets a variable as ${NAME:=VALUE} and arithmetic do.
func (e *expansion) Set(name string, variable expand.Variable) error {
	e.set(name, variable.Str)
	return nil
}

// Each does nothing: only names with a prefix, which POSIX shells do not have, need it.
func (e *expansion) Each(func(string, expand.Variable) bool) {}

// set sets a variable of the shell.
func (s *session) set(name, value string) {
	size := len(value)
	for other, text := range s.env {
		if other != name {
			size += len(text)
		}
	}
	if _, known := s.env[name]; len(value) > maxText || size > maxVariableBytes || !known && len(s.env) >= maxVariables {
		s.limits.stop(fmt.Sprintf("%s is too long, or there are more than %d variables or %d bytes in them", name, maxVariables, maxVariableBytes))
		return
	}
	s.env[name] = value
}
