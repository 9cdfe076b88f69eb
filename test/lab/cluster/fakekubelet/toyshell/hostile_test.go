// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package toyshell

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Nothing of this machine is read, written or started. $file is a file of this machine, and $folder its folder.
func TestScriptsDoNotReachThisMachine(t *testing.T) {
	const secret = "secret-of-this-machine"
	folder := t.TempDir()
	file := filepath.Join(folder, "secret")
	if err := os.WriteFile(file, []byte("echo "+secret+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SLUICE_SECRET", secret)
	c := newTestContainer()
	c.Env["file"], c.Env["folder"], c.Env["TMPDIR"], c.Env["PATH"] = file, folder, folder, folder
	const notFound, refused = "not found", "the simulated shell is a POSIX shell without"
	for _, tc := range []struct {
		script, out, errText string
		code                 int
	}{
		// Commands and builtins of real shells.
		{"cd $folder", "", "No such file", 1},
		{"cd /proc/self/cwd", "", "No such file", 1},
		{"cat $file", "", "No such file", 1},
		{"ls $folder", "", "cannot access", 2},
		{"$file", "", notFound, 127},
		{"secret", "", notFound, 127},
		{"sh $file", "", "scripts in files are not in this simulation", 2},
		{". $file", "", notFound, 127},
		{"source $file", "", notFound, 127},
		{"exec $file", "", notFound, 127},
		{"command $file", "", "only command -v", 2},
		{"command -v secret ls", "/usr/bin/ls\n", "", 1},
		{"builtin cd $folder", "", notFound, 127},
		{"eval cat $file", "", notFound, 127},
		{"trap 'cat $file' EXIT", "", notFound, 127},
		{"[ -f $file ]", "", notFound, 127},
		{"test -O $file", "", notFound, 127},
		{"[[ -e $file ]]", "", notFound, 127},
		{"type -p ls", "", notFound, 127},
		{"hash ls", "", notFound, 127},
		{"pushd $folder", "", notFound, 127},
		{"popd; dirs", "", notFound, 127},
		{"read -r line", "", notFound, 127},
		{"mapfile lines", "", notFound, 127},
		{"wait; kill -9 1", "", notFound, 127},
		{"coproc cat $file", "", notFound, 127},
		{"alias ls=$file; ulimit -n 1; umask 0; times; set -x; shopt -s nullglob; enable -n cd", "", notFound, 127},
		{"pwd -P", "/workspace\n", "", 0},
		// Redirections, also to the names of the pipes of package interp.
		{"echo a > $file", "", refused, 2},
		{"echo a >> $folder/new", "", refused, 2},
		{"echo a 2> $folder/new", "", refused, 2},
		{"echo a >| $folder/new", "", refused, 2},
		{"echo a > $TMPDIR/sh-interp-0", "", refused, 2},
		{"exec 3<>$file", "", refused, 2},
		{"> $folder/new", "", refused, 2},
		{"cat < $file", "", refused, 2},
		{"cat <<E\n$(cat $file)\nE", "", refused, 2},
		{"cat <<< $file", "", refused, 2},
		{"cat <(cat $file)", "", refused, 2},
		{"echo a > >(cat)", "", refused, 2},
		{"echo $(< $file)", "", refused, 2},
		{"if true; then echo $(cat < $file); fi", "", refused, 2},
		{"echo a >&$file", "", refused, 2},
		{"cat $file &", "", refused, 2},
		{"cat $file | cat", "", refused, 2},
		// Expansions.
		{"echo /e* $folder/* $file?", "/e* " + folder + "/* " + file + "?\n", "", 0},
		{"echo ~root ~nobody/x ~", "~root ~nobody/x /root\n", "", 0},
		{"echo $$ $PPID $UID $EUID $RANDOM $! $0 $- $@ $# $SLUICE_SECRET; env -i", "\n", "", 1},
		{"echo $((PPID)) $((UID)); A=PPID; echo $((A))", "0 0\n0\n", "", 0},
		{"echo ${!PPID}", "", refused, 2},
		{"echo $(cat $file; ls $folder)", "\n", "No such file", 0},
	} {
		out, errOut, code := runTest(t, c, nil, "sh", "-c", tc.script)
		if out != tc.out || code != tc.code || !strings.Contains(errOut, tc.errText) || tc.errText == "" && errOut != "" {
			t.Errorf("%q: %q, exit %d, errors %q; want %q, exit %d, errors %q", tc.script, out, code, errOut, tc.out, tc.code, tc.errText)
		}
		if strings.Contains(out+errOut, secret) {
			t.Errorf("%q prints the secret of this machine", tc.script)
		}
	}
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) != 1 {
		t.Errorf("the folder of this machine has %v, %v", entries, err)
	}
	if content, err := os.ReadFile(file); string(content) != "echo "+secret+"\n" {
		t.Errorf("the file of this machine has %q, %v", content, err)
	}
}

// Scripts that would grow or run without end are stopped, and use little memory.
func TestHostileScripts(t *testing.T) {
	const tooLong, tooMany, tooDeep = "a command has more than", "too many commands", "nested too deep"
	long := "A=" + strings.Repeat("x", 40_000) + "\n"
	for _, tc := range []struct{ name, script, want string }{
		{"a variable that doubles", "A=" + strings.Repeat("x", 1000) + strings.Repeat("\nA=$A$A", 40), tooLong},
		{"a loop that doubles a variable", "A=x; while true; do A=$A$A; done", tooLong},
		{"a shell that starts itself", `export A='sh -c "$A"'; sh -c "$A"`, "starts shells too deep"},
		{"a shell that starts two shells", `export A='sh -c "$A"; sh -c "$A"'; sh -c "$A"`, "starts shells too deep"},
		{"a substitution that starts itself", `export A='echo $(sh -c "$A")'; sh -c "$A"`, "starts shells too deep"},
		{"many quotes", strings.Repeat(`"`, maxText-10), ""},
		{"many values", long + "echo " + strings.Repeat("$A", 1000), tooLong},
		{"many values in an assignment", long + "B=" + strings.Repeat("$A", 1000), tooLong},
		{"many values in nested defaults", long + "echo " + strings.Repeat("${B:-$A", 100) + strings.Repeat("}", 100), tooLong},
		{"many substitutions", long + "echo " + strings.Repeat("$(echo $A)", 1000), tooLong},
		{"a substitution without end", "A=$(while true; do echo x; done)", tooLong},
		{"a script of 65 KiB", "echo " + strings.Repeat("x", maxText), "argument list too long"},
		{"a loop without end", "while true; do echo x; done", tooMany},
		{"a loop without commands", "until false; do A=1; done >/dev/null 2>&1", tooMany},
		{"loops in loops", "for a in " + strings.Repeat("a ", 9_000) + "; do for b in " + strings.Repeat("b ", 9_000) + "; do :; done; done", tooMany},
		{"a loop with long output", long + "while true; do echo $A; done", "its output is too long"},
		{"a loop with long errors", long + "while true; do $A; done", "its output is too long"},
		{"a loop with arithmetic", "I=1; while echo $((I=I*3+(1<<62)+2**63)) >/dev/null; do :; done", tooMany},
		{"many variables", "while : $((I=I+1)); do export A$I=x; done", "more than 1000 variables"},
		{"many variables by arithmetic", "while : ${A:=x} $((I=I+1)); do export A$I; : $((A$I=1)); done", ""},
		{"many braces", "echo {1..100000000}", "not in this simulation"},
		{"nested braces", "echo " + strings.Repeat("a{a,", 9_000) + "a" + strings.Repeat("}", 9_000), "not in this simulation"},
		{"braces without an end", "while true; do : " + strings.Repeat("a{a,", 9_000) + "; done", "not in this simulation"},
		{"braces in values", "A={; for i in " + strings.Repeat("a ", 13) + "; do A=$A$A; done; echo $A", "not in this simulation"},
		{"braces in quoted values", "A='a{a,'; for i in " + strings.Repeat("a ", 13) + "; do A=$A$A; done; echo $A$B$A >/dev/null", ""},
		{"long arithmetic", "while : $((" + strings.Repeat("A+", 20_000) + "A)); do :; done", tooMany},
		{"long values", long + "while : ${#A}; do :; done", tooMany},
		{"words without text", "A=;while true; do : " + strings.Repeat("$A ", 15_000) + "; done", tooMany},
		{"a chain", "false" + strings.Repeat("||false", 9_000), ""},
		{"a chain of elif", "if false; then :;" + strings.Repeat("elif false; then :;", 3_000) + "fi", ""},
		{"nested parentheses", strings.Repeat("(", 60_000), tooDeep},
		{"nested closed parentheses", strings.Repeat("(", 30_000) + "echo a" + strings.Repeat(")", 30_000), tooDeep},
		{"nested blocks", strings.Repeat("{ ", 30_000), tooDeep},
		{"nested substitutions", strings.Repeat("$(", 30_000), tooDeep},
		{"nested quoted substitutions", strings.Repeat(`"$(`, 20_000), tooDeep},
		{"nested defaults", strings.Repeat("${A:-", 12_000), tooDeep},
		{"nested arithmetic", strings.Repeat("$((((", 12_000), tooDeep},
		{"nested conditions", strings.Repeat("if ", 20_000), tooDeep},
		{"nested loops", strings.Repeat("while ", 10_000), tooDeep},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var stdout, stderr tail
			ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
			defer cancel()
			code := Run(ctx, newTestContainer(), []string{"sh", "-c", tc.script}, Streams{Out: &stdout, Err: &stderr})
			if ctx.Err() != nil {
				t.Error("the script has no end")
			}
			if !strings.Contains(stderr.text, tc.want) || tc.want != "" && code == 0 || strings.Contains(stderr.text, "panic") {
				t.Errorf("exit %d, errors %q; want %q", code, stderr.text, tc.want)
			}
			if printed := stdout.size + stderr.size; printed > maxOutput+maxText {
				t.Errorf("printed %d bytes", printed)
			}
			var memory runtime.MemStats
			runtime.ReadMemStats(&memory)
			if used := memory.Sys >> 20; used > 128 {
				t.Errorf("this process uses %d MiB", used)
			}
		})
	}
}

// tail counts the bytes of an output and keeps the last ones.
type tail struct {
	size int
	text string
}

func (o *tail) Write(data []byte) (int, error) {
	o.size += len(data)
	o.text += string(data)
	o.text = o.text[max(0, len(o.text)-500):]
	return len(data), nil
}

func TestSleepsAreLimited(t *testing.T) {
	var stderr bytes.Buffer
	s := newSession(t.Context(), newTestContainer(), Streams{Err: &stderr})
	s.limits.sleep = 20 * time.Millisecond
	s.runScript("while true; do sleep 0.005; done")
	if !s.over() || !strings.Contains(stderr.String(), "have slept for") {
		t.Errorf("errors %q", stderr.String())
	}
}

// A script has an end and an exit code, whatever it contains, and does not panic.
func FuzzScript(f *testing.F) {
	for _, seed := range []string{
		"echo a", "a && b || c; d", "'", `"`, `\`, "$", "${", "$(", "a#b", "cd ..; ls -l /", "ls -z", "exit 999", "cat /README",
		"if a; then b; elif c; then d; else e; fi", "for i in {1..3} $A; do echo $i; done >/dev/null 2>&1", "while a; do b; done",
		"A=b; echo ${A:-$(c)} $((A=1<<2)) ~x `d` ${#A} ${B:=e}", "! { a; (b); }", "a | b & c <<D\n", "echo {a,b $@ \"$*\" [a]* $'b'",
	} {
		f.Add(seed)
	}
	c := newTestContainer()
	c.Devices = newTestDevices()
	f.Fuzz(func(t *testing.T, script string) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		var stderr bytes.Buffer
		code := Run(ctx, c, []string{"sh", "-c", script}, Streams{Err: &stderr})
		if code < 0 || code > 255 || strings.Contains(stderr.String(), "ends: panic") && !strings.Contains(script, "panic") {
			t.Errorf("%q: exit %s, errors %.300q", script, strconv.Itoa(code), stderr.String())
		}
	})
}
