// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package toyshell interprets a few commands as if they ran in a simulated container. It
// starts no process and reads no file of this machine: every command is a function here, and
// the files are in memory. A command or a syntax that it does not have is refused with a
// message that says so.
package toyshell

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
)

// Limits keep a hostile script from using up this process, which serves all nodes.
const (
	// maxText is the longest script, line, argument list and value of a variable, in bytes.
	maxText = 64 << 10
	// maxDepth limits the depth of shells that shells start.
	maxDepth = 16
	// maxCommands is the number of commands of one session.
	maxCommands = 100_000
)

// The exit codes of a shell.
const (
	exitUsage    = 2
	exitNotFound = 127
)

// Container is what the commands see.
type Container struct {
	// Hostname and User are the names that hostname and whoami print.
	Hostname, User string
	// WorkingDir is the folder in which commands start.
	WorkingDir string
	// Env has the variables by name, and Files the contents of files by absolute path.
	Env, Files map[string]string
	// Folders are absolute paths of folders, which may be empty.
	Folders []string
	// DriverVersion is the version of the GPUs' driver.
	DriverVersion string
	// Devices are the container's GPUs and MIG devices, in the order of their GPUs.
	Devices []Device
}

// Streams connect a session with its user. In is nil without standard input.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	// TTY makes In and Out a terminal: the shell echoes and edits lines. Resize then reports
	// its size.
	TTY    bool
	Resize <-chan Size
}

// Size is the size of a terminal, in characters.
type Size struct{ Width, Height int }

// Run runs a command and returns its exit code. It returns early when ctx ends.
func Run(ctx context.Context, container Container, command []string, streams Streams) int {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := newSession(ctx, container, streams)
	if s.tty {
		s.openTerminal(streams)
	}
	if size := len(strings.Join(command, " ")); size > maxText {
		return s.fail(126, "argument list too long: %d bytes, of at most %d in this simulation", size, maxText)
	}
	if len(command) == 0 {
		return s.fail(exitUsage, "the command is empty")
	}
	return s.run(command)
}

// session is the state of a shell and of the shells that it starts.
type session struct {
	ctx       context.Context
	container Container
	files     files
	in        io.Reader
	out, err  io.Writer
	tty       bool
	terminal  *terminal

	env      map[string]string
	dir      string
	last     int // the exit code of the last command
	depth    int
	commands int
	exited   bool
}

func newSession(ctx context.Context, container Container, streams Streams) *session {
	s := &session{
		ctx: ctx, container: container, files: newFiles(container),
		in: streams.In, out: streams.Out, err: streams.Err, tty: streams.TTY && streams.In != nil && streams.Out != nil,
		env: maps.Clone(container.Env), dir: path.Clean("/" + container.WorkingDir),
	}
	if s.env == nil {
		s.env = map[string]string{}
	}
	if s.out == nil {
		s.out = io.Discard
	}
	if s.err == nil {
		s.err = s.out // a terminal has one stream
	}
	return s
}

// fail writes a message and returns code.
func (s *session) fail(code int, format string, args ...any) int {
	fmt.Fprintf(s.err, format+"\n", args...)
	return code
}

// run runs one command with its arguments.
func (s *session) run(args []string) int {
	s.commands++
	if s.commands > maxCommands || s.depth >= maxDepth {
		s.exited = true
		return s.fail(1, "the simulated shell ends: the script has too many commands or starts shells too deep")
	}
	name := args[0]
	// A container may name a program by its path.
	if folder := path.Dir(name); strings.HasPrefix(name, "/") && slices.Contains(programFolders, folder) {
		name = path.Base(name)
	}
	if slices.Contains(shells, name) {
		return s.runShell(name, args[1:])
	}
	if command, known := commands()[name]; known {
		return command(s, args[1:])
	}
	if slices.Contains(keywords, name) {
		return s.fail(exitUsage, "%s: %s", name, notSimulated)
	}
	return s.fail(exitNotFound, "%s: not in this simulation: no program runs in this container; it has only %s",
		name, strings.Join(commandNames(), ", "))
}

// runShell runs a shell: a script after -c, a terminal, or the lines of standard input.
func (s *session) runShell(name string, args []string) int {
	script, given := "", false
	for len(args) > 0 {
		flags, isFlag := strings.CutPrefix(args[0], "-")
		switch {
		case strings.HasPrefix(flags, "-"): // --login, --norc
		case isFlag && strings.HasSuffix(flags, "c") && len(args) > 1:
			script, given, args = args[1], true, nil
			continue
		case !isFlag:
			return s.fail(exitUsage, "%s: %s: scripts in files are not in this simulation; use %s -c 'COMMAND'", name, args[0], name)
		}
		args = args[1:]
	}
	s.depth++
	defer func() { s.depth-- }()
	switch {
	case given:
		return s.inChild(func() { s.runScript(script) })
	case s.terminal != nil:
		return s.inChild(s.runTerminal)
	case s.in == nil:
		return 0
	}
	return s.inChild(s.runLines)
}

// inChild runs a shell whose variables, folder and exit do not change the outer one.
func (s *session) inChild(run func()) int {
	env, dir := maps.Clone(s.env), s.dir
	s.last = 0
	run()
	s.env, s.dir = env, dir
	if s.commands <= maxCommands {
		s.exited = false
	}
	return s.last
}

// runLines runs each line of standard input.
func (s *session) runLines() {
	scanner := bufio.NewScanner(s.in)
	scanner.Buffer(make([]byte, 0, 4<<10), maxText)
	// Commands that read standard input get nothing: the lines are the script.
	for !s.exited && s.ctx.Err() == nil && scanner.Scan() {
		s.runScript(scanner.Text())
	}
	if err := scanner.Err(); err != nil && s.ctx.Err() == nil {
		s.last = s.fail(exitUsage, "read the commands: %v; a line may have %d bytes", err, maxText)
	}
}

// runScript runs a script of one or more lines.
func (s *session) runScript(script string) {
	steps, err := parse(script)
	if err != nil {
		s.last = s.fail(exitUsage, "sh: %v", err)
		return
	}
	for _, next := range steps {
		if s.exited || s.ctx.Err() != nil {
			return
		}
		if next.when == onSuccess && s.last != 0 || next.when == onFailure && s.last == 0 {
			continue
		}
		s.last = s.runStep(next)
	}
}

// runStep runs one command after its variables are replaced.
func (s *session) runStep(next step) int {
	args, err := s.expand(next.words)
	if err != nil {
		return s.fail(exitUsage, "sh: %v", err)
	}
	if len(args) == 0 {
		return 0
	}
	if next.discards {
		out := s.out
		s.out = io.Discard
		defer func() { s.out = out }()
	}
	name, value, assigns := strings.Cut(args[0], "=")
	switch {
	case assigns && isName(name) && len(args) == 1:
		return s.set(name, value)
	case assigns && isName(name):
		return s.fail(exitUsage, "sh: %s before a command: %s; use export %s first", args[0], notSimulated, name)
	}
	return s.run(args)
}

func (s *session) set(name, value string) int {
	if len(value) > maxText {
		return s.fail(1, "sh: %s: the value has %d bytes, of at most %d in this simulation", name, len(value), maxText)
	}
	if _, known := s.env[name]; !known && len(s.env) >= 1000 {
		return s.fail(1, "sh: %s: there are at most 1000 variables in this simulation", name)
	}
	s.env[name] = value
	return 0
}
