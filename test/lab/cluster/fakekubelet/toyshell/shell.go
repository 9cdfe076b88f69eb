// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package toyshell interprets a few commands as if they ran in a simulated container. It
// starts no process and reads no file of this machine: every command is a function of this
// package, and the files are in memory. A command or a syntax that it does not have is refused
// with a message that says so.
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
	"time"
)

// Limits keep a hostile script from using up this process, which serves all nodes.
const (
	// maxText is the longest script, line, argument list and value of a variable, in bytes.
	maxText = 64 << 10
	// maxOutput is the number of bytes that a session may print.
	maxOutput = 16 << 20
	// maxVariables is the number of variables of a shell.
	maxVariables = 1000
	// maxVariableBytes is the length of all values of a shell.
	maxVariableBytes = 1 << 20
	// maxDepth limits the depth of shells that shells start.
	maxDepth = 16
	// maxCommands is the number of commands of one session. 64 bytes of text, or 1 KiB of values,
	// count as one.
	maxCommands = 100_000
	// maxSleep limits all sleeps of a session, so that sessions whose user is gone end as well.
	maxSleep = time.Hour
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
	// its size, until it is closed.
	TTY    bool
	Resize <-chan Size
}

// Size is the size of a terminal, in characters.
type Size struct{ Width, Height int }

// Run runs a command and returns its exit code. It returns early when ctx ends.
func Run(ctx context.Context, container Container, command []string, streams Streams) (code int) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := newSession(ctx, container, streams)
	// A panic of the library that parses scripts must not end this process, which serves all nodes.
	defer func() {
		if problem := recover(); problem != nil {
			s.limits.stop(fmt.Sprint("panic: ", problem))
		}
		if s.limits.stopped {
			code = 1
		}
	}()
	if size := len(strings.Join(command, " ")); size > maxText {
		return s.fail(126, "argument list too long: %d bytes, of at most %d in this simulation", size, maxText)
	}
	if len(command) == 0 {
		return s.fail(exitUsage, "the command is empty")
	}
	return s.run(command)
}

// session is the state of one shell. The shells that it starts have copies.
type session struct {
	ctx       context.Context
	container Container
	files     files
	in        io.Reader
	out, err  io.Writer
	terminal  *terminal
	limits    *limits

	env    map[string]string
	dir    string
	last   int // the exit code of the last command
	depth  int
	exited bool
	// substituted is the exit code of the last $(...) of a command.
	substituted int
}

func newSession(ctx context.Context, container Container, streams Streams) *session {
	s := &session{
		ctx: ctx, container: container, files: newFiles(container), in: streams.In, out: streams.Out, err: streams.Err,
		env: map[string]string{}, dir: path.Clean("/" + container.WorkingDir),
	}
	maps.Copy(s.env, container.Env)
	if streams.TTY && s.in != nil && s.out != nil {
		s.openTerminal(streams)
	}
	if s.out == nil {
		s.out = io.Discard
	}
	if s.err == nil {
		s.err = s.out // a terminal has one stream
	}
	s.limits = &limits{messages: s.err, output: maxOutput, sleep: maxSleep}
	s.out = bounded{s.out, &s.limits.output, s.limits, "its output is too long"}
	s.err = bounded{s.err, &s.limits.output, s.limits, "its output is too long"}
	return s
}

// limits count what the shells of a session have used.
type limits struct {
	messages io.Writer
	commands int
	output   int           // bytes that may still be printed
	sleep    time.Duration // that commands may still sleep
	stopped  bool
	// interrupted reports that the user has typed Ctrl-C, which ends the line that runs.
	interrupted bool
}

// stop ends all shells of the session.
func (l *limits) stop(reason string) {
	if !l.stopped {
		fmt.Fprintln(l.messages, "the simulated shell ends:", reason)
	}
	l.stopped = true
}

// bounded writes at most left bytes, and then stops the session.
type bounded struct {
	io.Writer
	left   *int
	limits *limits
	reason string
}

func (b bounded) Write(data []byte) (int, error) {
	if *b.left -= len(data); *b.left < 0 {
		b.limits.stop(b.reason)
		return 0, io.ErrShortWrite
	}
	return b.Writer.Write(data)
}

// over reports whether no further command of the shell runs.
func (s *session) over() bool {
	return s.exited || s.limits.stopped || s.limits.interrupted || s.ctx.Err() != nil
}

// fail writes a message and returns code.
func (s *session) fail(code int, format string, args ...any) int {
	fmt.Fprintf(s.err, format+"\n", args...)
	return code
}

// run runs one command with its arguments.
func (s *session) run(args []string) int {
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
	return s.fail(exitNotFound, "sh: %s: not found: no program runs in this simulated container; it has only %s",
		name, strings.Join(commandNames(), ", "))
}

// child returns a shell whose variables, folder and exit do not change those of s.
func (s *session) child() *session {
	child := *s
	child.env, child.last = maps.Clone(s.env), 0
	if child.depth++; child.depth > maxDepth {
		s.limits.stop("it starts shells too deep")
	}
	return &child
}

// runShell runs a shell: a script after -c, a terminal, or the lines of standard input.
func (s *session) runShell(name string, args []string) int {
	shell := s.child()
	for i, arg := range args {
		flags, isFlag := strings.CutPrefix(arg, "-")
		switch {
		case strings.HasPrefix(flags, "-"): // --login, --norc
		case isFlag && strings.HasSuffix(flags, "c") && i+1 < len(args):
			shell.runScript(args[i+1])
			return shell.last
		case !isFlag:
			return s.fail(exitUsage, "%s: %s: scripts in files are not in this simulation; use %s -c 'COMMAND'", name, arg, name)
		}
	}
	if s.terminal != nil {
		shell.runTerminal()
	} else if s.in != nil {
		shell.runLines()
	}
	return shell.last
}

// runLines runs each line of standard input.
func (s *session) runLines() {
	scanner := bufio.NewScanner(s.in)
	scanner.Buffer(make([]byte, 0, 4<<10), maxText)
	// Commands that read standard input get nothing: the lines are the script.
	for !s.over() && scanner.Scan() {
		s.runScript(scanner.Text())
	}
	if err := scanner.Err(); err != nil && s.ctx.Err() == nil {
		s.last = s.fail(exitUsage, "read the commands: %v; a line may have %d bytes", err, maxText)
	}
}
