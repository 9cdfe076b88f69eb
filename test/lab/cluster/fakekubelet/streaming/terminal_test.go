// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package streaming

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"

	"sluice.dev/test/lab/cluster"
)

// A terminal echoes what is typed, and has the size of the user's. As with a real kubelet, what arrives once the shell has ended resets
// the connection, and the exit code is lost: so the size is sent before the first key, and the input is left open.
func TestExecInTerminal(t *testing.T) {
	s := newTestServer(t, newTestPod("train"))
	target, err := url.Parse("https://" + s.address + "/exec/course/train/main?command=bash&input=1&output=1&tty=1")
	if err != nil {
		t.Fatal(err)
	}
	executor, err := remotecommand.NewSPDYExecutor(s.client(t, cluster.KubeletClientUser, "dgx-1"), http.MethodPost, target)
	if err != nil {
		t.Fatal(err)
	}
	input, keyboard := io.Pipe()
	defer keyboard.Close()
	size := &oneSize{sent: make(chan struct{})}
	const prompt = "root@train:/# "
	u := &user{sized: size.sent, keyboard: keyboard, steps: [][2]string{
		{prompt, "hostname\r"}, {prompt, "sleep infinity\r"}, {"sleep infinity\r\n", "\x03"}, {prompt, "exit 6\r"},
	}}
	err = executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: input, Stdout: u, Tty: true, TerminalSizeQueue: size})
	var exit utilexec.CodeExitError
	if !errors.As(err, &exit) || exit.Code != 6 {
		t.Errorf("the shell ended with %v, want exit code 6", err)
	}
	if want := prompt + "hostname\r\ntrain\r\n"; !strings.Contains(u.screen.String(), want) {
		t.Errorf("the screen lacks %q: %q", want, u.screen.String())
	}
}

// user waits for a text on the screen and types the keys of that step, for each step.
type user struct {
	sized    <-chan struct{}
	keyboard io.Writer
	steps    [][2]string
	screen   bytes.Buffer
	unread   string
}

func (u *user) Write(output []byte) (int, error) {
	<-u.sized
	u.screen.Write(output)
	u.unread += string(output)
	if len(u.steps) > 0 {
		if _, after, found := strings.Cut(u.unread, u.steps[0][0]); found {
			keys := u.steps[0][1]
			u.steps, u.unread = u.steps[1:], after
			_, err := io.WriteString(u.keyboard, keys)
			return len(output), err
		}
	}
	return len(output), nil
}

// oneSize reports one size of a terminal, and closes sent once it was sent.
type oneSize struct {
	reported bool
	sent     chan struct{}
}

func (o *oneSize) Next() *remotecommand.TerminalSize {
	if o.reported {
		close(o.sent)
		return nil
	}
	o.reported = true
	return &remotecommand.TerminalSize{Width: 120, Height: 40}
}
