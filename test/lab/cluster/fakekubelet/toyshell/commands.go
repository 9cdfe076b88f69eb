// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package toyshell

import (
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"mvdan.cc/sh/v3/syntax"
)

// commands returns the commands by name. Each gets its arguments and returns its exit code.
func commands() map[string]func(*session, []string) int {
	return map[string]func(*session, []string) int{
		":":          func(*session, []string) int { return 0 },
		"cat":        (*session).cat,
		"cd":         (*session).cd,
		"command":    (*session).command,
		"date":       (*session).date,
		"echo":       (*session).echo,
		"env":        (*session).printEnv,
		"exec":       (*session).exec,
		"exit":       (*session).exit,
		"export":     (*session).export,
		"false":      func(*session, []string) int { return 1 },
		"help":       printing(func(*session) string { return helpText() }),
		"hostname":   printing(func(s *session) string { return s.container.Hostname }),
		"ls":         (*session).ls,
		"nvidia-smi": (*session).nvidiaSMI,
		"printenv":   (*session).printEnv,
		"pwd":        printing(func(s *session) string { return s.dir }),
		"sleep":      (*session).sleep,
		"true":       func(*session, []string) int { return 0 },
		"uname":      printing(func(*session) string { return "Linux" }),
		"which":      (*session).which,
		"whoami":     printing(func(s *session) string { return s.container.User }),
	}
}

// commandNames returns the names of the commands and of a shell, sorted.
func commandNames() []string {
	names := append(slices.Collect(maps.Keys(commands())), "sh")
	slices.Sort(names)
	return slices.DeleteFunc(names, func(name string) bool { return name == ":" })
}

func (s *session) println(text string) { fmt.Fprintln(s.out, text) }

// printing returns a command that prints one text.
func printing(text func(*session) string) func(*session, []string) int {
	return func(s *session, _ []string) int {
		s.println(text(s))
		return 0
	}
}

func helpText() string {
	return "This container is simulated. Its shell has " + strings.Join(commandNames(), ", ") + "."
}

// cat prints files, or standard input without arguments.
func (s *session) cat(names []string) int {
	if len(names) == 0 && s.in != nil && s.terminal == nil && s.depth == 0 {
		_, _ = io.Copy(s.out, s.in) // the user may end the session
	}
	code := 0
	for _, name := range names {
		full := s.resolve(name)
		if content, found := s.files[full]; found {
			_, _ = io.WriteString(s.out, content)
		} else if _, isFolder := s.files.list(full); isFolder {
			code = s.fail(1, "cat: %s: Is a directory", name)
		} else {
			code = s.fail(1, "cat: %s: No such file or directory", name)
		}
	}
	return code
}

func (s *session) cd(args []string) int {
	target := append(args, s.env["HOME"])[0]
	full := s.resolve(target)
	if _, isFolder := s.files.list(full); !isFolder {
		return s.fail(1, "cd: %s: No such file or directory", target)
	}
	s.dir = full
	return 0
}

func (s *session) date(args []string) int {
	if len(args) > 0 && args[0] != "-u" {
		return s.fail(1, "date: %s: formats are not in this simulation", args[0])
	}
	s.println(time.Now().UTC().Format("Mon Jan _2 15:04:05 UTC 2006"))
	return 0
}

func (s *session) echo(args []string) int {
	end := "\n"
	if len(args) > 0 && args[0] == "-n" {
		args, end = args[1:], ""
	}
	_, _ = io.WriteString(s.out, strings.Join(args, " ")+end) // the user may end the session
	return 0
}

// printEnv prints all variables, or the values of those that are named.
func (s *session) printEnv(names []string) int {
	code := 0
	for _, name := range names {
		if value, found := s.env[name]; found {
			s.println(value)
		} else {
			code = 1
		}
	}
	if len(names) == 0 {
		for _, name := range slices.Sorted(maps.Keys(s.env)) {
			fmt.Fprintf(s.out, "%s=%s\n", name, s.env[name])
		}
	}
	return code
}

func (s *session) export(args []string) int {
	for _, arg := range args {
		name, value, assigns := strings.Cut(arg, "=")
		if !syntax.ValidName(name) {
			return s.fail(1, "export: %q is not the name of a variable", name)
		}
		if assigns {
			s.set(name, value)
		}
	}
	return 0
}

// command prints where commands and shells are. Only -v is simulated.
func (s *session) command(args []string) int {
	if len(args) == 0 || args[0] != "-v" {
		return s.fail(exitUsage, "command: only command -v NAME is in this simulation")
	}
	return s.which(args[1:])
}

// exec runs a command and ends the shell.
func (s *session) exec(args []string) int {
	if len(args) == 0 {
		return 0
	}
	code := s.run(args)
	s.exited = true
	return code
}

func (s *session) exit(args []string) int {
	s.exited = true
	if len(args) == 0 {
		return s.last
	}
	code, err := strconv.Atoi(args[0])
	if err != nil {
		return s.fail(exitUsage, "exit: %s: numeric argument required", args[0])
	}
	return code & 0xff
}

// ls lists folders. The only flags are -a, -h, -l and -1.
func (s *session) ls(args []string) int {
	long, code := false, 0
	var names []string
	for _, arg := range args {
		switch flags, isFlag := strings.CutPrefix(arg, "-"); {
		case !isFlag:
			names = append(names, arg)
		case strings.Trim(flags, "al1h") != "":
			return s.fail(exitUsage, "ls: %s: only -a, -h, -l and -1 are in this simulation", arg)
		default:
			long = long || strings.Contains(flags, "l")
		}
	}
	if len(names) == 0 {
		names = []string{"."}
	}
	for _, name := range names {
		full := s.resolve(name)
		content, isFile := s.files[full]
		entries, isFolder := s.files.list(full)
		if isFile {
			s.listEntry(name, len(content), long)
		} else if !isFolder {
			code = s.fail(exitUsage, "ls: cannot access '%s': No such file or directory", name)
		}
		for _, entry := range entries {
			s.listEntry(entry, len(s.files[path.Join(full, entry)]), long)
		}
	}
	return code
}

func (s *session) listEntry(name string, size int, long bool) {
	plain, isFolder := strings.CutSuffix(name, "/")
	switch {
	case !long:
		s.println(plain)
	case isFolder:
		fmt.Fprintf(s.out, "drwxr-xr-x %s %8d %s\n", s.container.User, 0, plain)
	default:
		fmt.Fprintf(s.out, "-rw-r--r-- %s %8d %s\n", s.container.User, size, plain)
	}
}

// sleep waits for a number of seconds, or a duration with a unit. Ctrl-C in a terminal ends
// it.
func (s *session) sleep(args []string) int {
	if len(args) != 1 {
		return s.fail(1, "sleep: give one duration, such as 5, 1.5, 2m or infinity")
	}
	duration, err := time.ParseDuration(args[0])
	if seconds, errSeconds := time.ParseDuration(args[0] + "s"); errSeconds == nil {
		duration, err = seconds, nil
	}
	if args[0] == "infinity" {
		duration, err = maxSleep, nil
	}
	if err != nil || duration < 0 {
		return s.fail(1, "sleep: invalid time interval '%s'", args[0])
	}
	duration = min(duration, s.limits.sleep)
	timer := time.NewTimer(duration)
	defer timer.Stop()
	for !s.limits.interrupted {
		select {
		case <-timer.C:
			if s.limits.sleep -= duration; s.limits.sleep <= 0 {
				s.limits.stop("its commands have slept for " + maxSleep.String())
			}
			return 0
		case typed, open := <-s.typed():
			s.receive(typed, open)
		case <-s.ctx.Done():
			return 143
		}
	}
	return 130
}

func (s *session) which(names []string) int {
	code := 0
	for _, name := range names {
		if slices.Contains(commandNames(), name) || slices.Contains(shells, name) {
			s.println("/usr/bin/" + name)
		} else {
			code = 1
		}
	}
	return code
}
