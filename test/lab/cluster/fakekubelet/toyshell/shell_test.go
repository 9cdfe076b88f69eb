// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package toyshell

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func newTestContainer() Container {
	return Container{
		Hostname: "train-0", User: "root", WorkingDir: "/workspace",
		Env:           map[string]string{"HOME": "/root", "EPOCHS": "10"},
		Files:         map[string]string{"/etc/hosts": "127.0.0.1 localhost\n"},
		Folders:       []string{"/data/sets"},
		DriverVersion: "550.54.15",
	}
}

// waitTimeout is for a machine on which much else runs. It is shorter than the longest sleep, an hour.
const waitTimeout = 5 * time.Minute

// runTest runs a command and returns what it printed and its exit code.
func runTest(t *testing.T, c Container, in io.Reader, command ...string) (out, errOut string, code int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	code = Run(ctx, c, command, Streams{In: in, Out: &stdout, Err: &stderr})
	if ctx.Err() != nil {
		t.Errorf("%.100q has no end", command)
	}
	return stdout.String(), stderr.String(), code
}

func TestScripts(t *testing.T) {
	for _, tc := range []struct {
		script, want string
		code         int
	}{
		{"echo hello", "hello\n", 0},
		{"echo -n a; echo 'b  c' \"d $EPOCHS\" e\\ f", "ab  c d 10 e f\n", 0},
		{"echo '$EPOCHS' ${EPOCHS} $UNSET end \"\"", "$EPOCHS 10 end \n", 0},
		{"false || echo failed && echo then", "failed\nthen\n", 0},
		{"true || echo no; false && echo no; echo $?", "1\n", 0},
		{"exit 3; echo unreachable", "", 3},
		{"false; exit", "", 1},
		{"pwd; cd /data; pwd; ls; cd ..; pwd", "/workspace\n/data\nsets\n/\n", 0},
		{"cd; pwd; cd ~; pwd", "/root\n/root\n", 0},
		{"export LR=0.1; printenv LR; A=b; echo $A", "0.1\nb\n", 0},
		{"sh -c 'cd /data; A=inner; exit 4'; echo $? $A; pwd", "4\n/workspace\n", 0},
		{"hostname; whoami; # a comment; exit 9", "train-0\nroot\n", 0},
		{"cat /etc/hosts /etc/hostname", "127.0.0.1 localhost\ntrain-0\n", 0},
		{"cat ../../../../etc/hostname", "train-0\n", 0},
		{"which nvidia-smi && sleep 0.01 && echo slept", "/usr/bin/nvidia-smi\nslept\n", 0},
		{"echo one\necho two", "one\ntwo\n", 0},
		{"/usr/bin/hostname", "train-0\n", 0},
		{"echo one >/dev/null; echo two > /dev/null && echo three", "three\n", 0},
		{"command -v bash pwd; command -v python || echo none", "/usr/bin/bash\n/usr/bin/pwd\nnone\n", 0},
		{"exec sh -c 'echo in; exit 4'; echo unreachable", "in\n", 4},
		{"sh -c 'exec false'; echo $?", "1\n", 0},
		{"command -v bash >/dev/null && exec bash -c 'echo in bash' || exec sh -c 'echo in sh'", "in bash\n", 0}, // as `sluice bash`
		{"A=b printenv A; echo ${A:-none}", "b\nnone\n", 0},
		{"for i in 1 \"2\" 3 $(echo 4 5); do echo -n $i,; done", "1,2,3,4,5,", 0},
		{"i=0; until printenv DONE; do i=$((i+1)); for j in 1 2 3; do export N$i=; done; printenv N3 && DONE=yes; done; echo $i", "\nyes\n3\n", 0},
		{"if false; then echo a; elif true; then echo b; else echo c; fi; if false; then echo d; fi; echo $?", "b\n0\n", 0},
		{"! true; echo $?; ! false && { echo a; (cd /data; exit 3); }; echo $? $PWD", "1\na\n3 /workspace\n", 0},
		{"A=$(false); echo $?; A=e\\ f; echo \"$A `hostname`\"", "1\ne f train-0\n", 0},
		{"ls /none 2>/dev/null; python >/dev/null 2>&1; echo $?; false; echo $?", "127\n1\n", 0},
		{"while exit 4; do :; done; echo no", "", 4},
	} {
		out, errOut, code := runTest(t, newTestContainer(), nil, "bash", "-lc", tc.script)
		if out != tc.want || code != tc.code || errOut != "" {
			t.Errorf("%q: %q, exit %d, errors %q; want %q, exit %d", tc.script, out, code, errOut, tc.want, tc.code)
		}
	}
}

// What the shell does not have is refused, with a message, and nothing of the line runs.
func TestRefusals(t *testing.T) {
	for _, tc := range []struct {
		command []string
		want    string
		code    int
	}{
		{[]string{"python", "train.py"}, "sh: python: not found", 127},
		{[]string{"/bin/busybox"}, "sh: busybox: not found", 127},
		{[]string{"../../bin/sh"}, "sh: ../../bin/sh: not found", 127},
		{[]string{"tar", "cf", "-", "/etc/passwd"}, "sh: tar: not found", 127},
		{[]string{"sh", "-c", "echo a | cat"}, `"echo a | cat": not in this simulation`, 2},
		{[]string{"sh", "-c", "echo a > /dev/nullx"}, `"> /dev/nullx": not in this simulation`, 2},
		{[]string{"sh", "-c", "echo a 3>/dev/null"}, `"3>/dev/null": not in this simulation`, 2},
		{[]string{"command", "pwd"}, "only command -v NAME", 2},
		{[]string{"sh", "-c", "echo a > /tmp/b"}, `"> /tmp/b": not in this simulation`, 2},
		{[]string{"sh", "-c", "echo a; sleep 1 &"}, `"sleep 1 &": not in this simulation`, 2},
		{[]string{"sh", "-c", "echo a; cat <(ls)"}, "must be followed by a word (the simulated shell is a POSIX shell without", 2},
		{[]string{"sh", "-c", "echo a; ls > >(cat)"}, "must be followed by a word (the simulated shell is a POSIX shell without", 2},
		{[]string{"sh", "-c", "echo a; coproc cat"}, "sh: coproc: not found", 127},
		{[]string{"sh", "-c", "f() { f; }; f"}, `"f() { f; }": not in this simulation`, 2},
		{[]string{"sh", "-c", "case a in *) echo a;; esac"}, "not in this simulation", 2},
		{[]string{"sh", "-c", "echo ${EPOCHS#1}"}, `"${EPOCHS#1}": not in this simulation`, 2},
		{[]string{"sh", "-c", "echo {1..3}"}, `"{1..3}": not in this simulation`, 2},
		{[]string{"sh", "-c", "a=(b c)"}, "arrays are a bash", 2},
		{[]string{"sh", "-c", "echo $((1/0))"}, "division by zero", 2},
		{[]string{"sh", "-c", "echo ${UNSET:?is unset}"}, "UNSET: is unset", 2},
		{[]string{"sh", "-c", "echo 'open"}, "without closing quote", 2},
		{[]string{"sh", "run.sh"}, "scripts in files are not in this simulation", 2},
		{[]string{"cat", "/etc/passwd"}, "No such file or directory", 1},
		{[]string{"cat", "/proc/self/environ"}, "No such file or directory", 1},
		{[]string{"cat", "/etc"}, "Is a directory", 1},
		{[]string{"ls", "/work"}, "cannot access '/work'", 2},
		{[]string{"cd", "/none"}, "No such file or directory", 1},
		{[]string{"sleep", "-1"}, "invalid time interval", 1},
		{[]string{"sleep", "NaN"}, "invalid time interval", 1},
		{[]string{"nvidia-smi"}, "No devices were found", 6},
		{[]string{"date", "+%s"}, "formats are not in this simulation", 1},
		{[]string{"exit", "x"}, "numeric argument required", 2},
		{[]string{}, "the command is empty", 2},
		{[]string{"echo", strings.Repeat("x", maxText+1)}, "argument list too long", 126},
	} {
		out, errOut, code := runTest(t, newTestContainer(), nil, tc.command...)
		if !strings.Contains(errOut, tc.want) || tc.command != nil && out != "" && code == 0 {
			t.Errorf("%.80q: out %q, errors %q, exit %d; want %q", tc.command, out, errOut, code, tc.want)
		}
		if code != tc.code {
			t.Errorf("%.80q: exit %d, want %d", tc.command, code, tc.code)
		}
	}
}

func TestLinesOfStandardInput(t *testing.T) {
	out, errOut, code := runTest(t, newTestContainer(), strings.NewReader("echo $EPOCHS\ncd /data\npwd\nexit 5\necho no\n"), "sh")
	if out != "10\n/data\n" || errOut != "" || code != 5 {
		t.Errorf("printed %q, errors %q, exit %d", out, errOut, code)
	}
	if out, _, code := runTest(t, newTestContainer(), strings.NewReader("some data"), "cat"); out != "some data" || code != 0 {
		t.Errorf("cat printed %q, exit %d", out, code)
	}
	long := strings.NewReader(strings.Repeat("x", 2*maxText))
	if _, errOut, code := runTest(t, newTestContainer(), long, "sh"); !strings.Contains(errOut, "a line may have") || code != 2 {
		t.Errorf("a long line: errors %q, exit %d", errOut, code)
	}
}

func TestSleepEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if code := Run(ctx, newTestContainer(), []string{"sleep", "infinity"}, Streams{Out: io.Discard}); code != 143 {
		t.Errorf("exit %d, want 143", code)
	}
}

// The terminal echoes and edits lines; Ctrl-C empties a line, and ends a sleep.
func TestTerminal(t *testing.T) {
	keys, typing := io.Pipe()
	var screen bytes.Buffer
	done := make(chan int)
	go func() {
		done <- Run(t.Context(), newTestContainer(), []string{"bash"}, Streams{In: keys, Out: &screen, TTY: true})
	}()
	for _, typed := range []string{"echo helo\x7flo\r", "exit 9\x03", "sleep infinity\r", "\x03", "while true; do sleep 1h; done\r", "\x03", "cd /data\r", "exit 7\r"} {
		if _, err := io.WriteString(typing, typed); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case code := <-done:
		if code != 7 {
			t.Errorf("exit %d, want 7", code)
		}
	case <-time.After(waitTimeout):
		t.Fatal("the terminal has no end")
	}
	for _, want := range []string{"root@train-0:/workspace# ", "\r\nhello\r\n", "root@train-0:/data# "} {
		if !strings.Contains(screen.String(), want) {
			t.Errorf("the screen lacks %q: %q", want, screen.String())
		}
	}
}

func TestTerminalEndsWithItsUser(t *testing.T) {
	for _, typed := range []string{"", "\x04", "sleep infinity\r"} {
		done := make(chan int)
		go func() {
			done <- Run(t.Context(), newTestContainer(), []string{"sh"}, Streams{In: strings.NewReader(typed), Out: io.Discard, TTY: true})
		}()
		select {
		case <-done:
		case <-time.After(waitTimeout):
			t.Fatalf("the terminal outlives its user, who typed %q", typed)
		}
	}
}

func newTestDevices() []Device {
	return []Device{
		{GPU: 0, Name: "NVIDIA A100-SXM4-40GB", UUID: "GPU-0", Profile: "1g.5gb", MIGUUID: "MIG-0", MemoryMiB: 4864, UsedMiB: 4377, Utilization: 80, PID: 41},
		{GPU: 0, Name: "NVIDIA A100-SXM4-40GB", UUID: "GPU-0", Profile: "2g.10gb", MIGUUID: "MIG-1", MemoryMiB: 9856},
		{GPU: 1, Name: "NVIDIA A100-SXM4-40GB", UUID: "GPU-1", MemoryMiB: 40960, UsedMiB: 100, Utilization: 5},
		{GPU: 2, Name: "NVIDIA A100-SXM4-40GB", UUID: "GPU-2", Share: "1 of 4 replicas", MemoryMiB: 10240},
	}
}

func TestNvidiaSMI(t *testing.T) {
	c := newTestContainer()
	c.Devices = newTestDevices()
	for command, want := range map[string]string{
		"nvidia-smi -L": `GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-0)
  MIG 1g.5gb       Device  0: (UUID: MIG-0)
  MIG 2g.10gb      Device  1: (UUID: MIG-1)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-1)
GPU 2: NVIDIA A100-SXM4-40GB (UUID: GPU-2)
`,
		"nvidia-smi": `NVIDIA-SMI (simulated)   Driver Version: 550.54.15
+-----+----------------------------+------------------+-----------------------+----------+
| GPU | Name                       | Part             | Memory-Usage          | GPU-Util |
+-----+----------------------------+------------------+-----------------------+----------+
|   0 | NVIDIA A100-SXM4-40GB      | MIG 1g.5gb       |     4377MiB / 4864MiB |      N/A |
|   0 | NVIDIA A100-SXM4-40GB      | MIG 2g.10gb      |        0MiB / 9856MiB |      N/A |
|   1 | NVIDIA A100-SXM4-40GB      | whole GPU        |     100MiB / 40960MiB |      5 % |
|   2 | NVIDIA A100-SXM4-40GB      | 1 of 4 replicas  |       0MiB / 10240MiB |      0 % |
+-----+----------------------------+------------------+-----------------------+----------+
Process 41 uses 4377 MiB of GPU 0
`,
		"nvidia-smi --query-gpu=index,memory.used,utilization.gpu --format=csv": `index, memory.used, utilization.gpu
0, 4377 MiB, [N/A]
0, 0 MiB, [N/A]
1, 100 MiB, 5 %
2, 0 MiB, 0 %
`,
	} {
		out, errOut, code := runTest(t, c, nil, strings.Fields(command)...)
		if diff := cmp.Diff(want, out); diff != "" || errOut != "" || code != 0 {
			t.Errorf("%s: exit %d, errors %q (-want +got):\n%s", command, code, errOut, diff)
		}
	}
	if _, errOut, code := runTest(t, c, nil, "nvidia-smi", "--query-gpu=temperature.gpu", "--format=csv"); code == 0 {
		t.Errorf("an unknown field is accepted: %q", errOut)
	}
}
