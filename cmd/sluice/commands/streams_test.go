// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	clientforward "k8s.io/client-go/tools/portforward"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"

	"sluice.dev/api/policytime"
)

// streamServer serves the streams of the pod training-0, in which each command prints its words and its input,
// and exits with the number after "exit".
type streamServer struct{ log string }

func (s *streamServer) ExecInContainer(
	_ context.Context, _, _, container string, command []string, in io.Reader, out, errOut io.WriteCloser, tty bool,
	_ <-chan remotecommand.TerminalSize, _ time.Duration,
) error {
	fmt.Fprintf(out, "%s: %s tty=%v\n", container, strings.Join(command, " "), tty)
	if in != nil {
		_, _ = io.Copy(out, in)
	}
	if command[0] == "exit" {
		fmt.Fprintln(errOut, "failed")
		code, _ := strconv.Atoi(command[1])
		return utilexec.CodeExitError{Err: errors.New("exit"), Code: code}
	}
	return nil
}

func (s *streamServer) AttachContainer(
	_ context.Context, _, _, container string, _ io.Reader, out, _ io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize,
) error {
	_, err := fmt.Fprintf(out, "attached to %s\n", container)
	return err
}

func (s *streamServer) PortForward(_ context.Context, name, _ string, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	_, err := fmt.Fprintf(stream, "port %d of %s", port, name)
	return err
}

// ServeHTTP answers as the API server does: it refuses a user without the right, and streams with SPDY only.
func (s *streamServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const pod = "/api/v1/namespaces/thesis/pods/training-0/"
	query := r.URL.Query()
	options, err := remotecommand.NewOptions(&http.Request{Method: http.MethodPost, Form: map[string][]string{
		"input": {flagNumber(query.Get("stdin"))}, "output": {"1"}, "error": {flagNumber(query.Get("stderr"))}, "tty": {flagNumber(query.Get("tty"))},
	}})
	protocols := []string{"v4.channel.k8s.io"}
	switch {
	case r.Header.Get("Authorization") == "Bearer stranger":
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"pods is forbidden: not yours"}`)
	case r.URL.Path == pod+"log":
		fmt.Fprintf(w, "%s tail=%s follow=%s\n", s.log, query.Get("tailLines"), query.Get("follow"))
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
	case r.URL.Path == pod+"exec":
		remotecommand.ServeExec(w, r, s, "training-0", "", query.Get("container"), query["command"], options, time.Minute, time.Minute, protocols)
	case r.URL.Path == pod+"attach":
		remotecommand.ServeAttach(w, r, s, "training-0", "", query.Get("container"), options, time.Minute, time.Minute, protocols)
	case r.URL.Path == pod+"portforward":
		portforward.ServePortForward(w, r, s, "training-0", "", &portforward.V4Options{}, time.Minute, time.Minute, []string{portforward.ProtocolV1Name})
	default:
		http.NotFound(w, r)
	}
}

func flagNumber(text string) string {
	if text == "true" {
		return "1"
	}
	return "0"
}

// newStreamClient returns a client of a server with the pod training-0.
func newStreamClient(t *testing.T, log, token string) (*clusterClient, *corev1.Pod) {
	t.Helper()
	server := httptest.NewServer(&streamServer{log: log})
	t.Cleanup(server.Close)
	pod := newListedPod("training-0", "dgx-1", corev1.PodRunning, corev1.ContainerState{})
	return &clusterClient{config: &rest.Config{Host: server.URL, BearerToken: token}, clock: policytime.System()}, pod
}

// newStreamCommand returns a command with an input, and its outputs.
func newStreamCommand(t *testing.T, input string) (cmd *cobra.Command, out, errOut *bytes.Buffer) {
	t.Helper()
	cmd, out, errOut = &cobra.Command{}, &bytes.Buffer{}, &bytes.Buffer{}
	cmd.SetContext(t.Context())
	cmd.SetIn(strings.NewReader(input))
	cmd.SetOut(out)
	cmd.SetErr(errOut)
	return cmd, out, errOut
}

func TestExecStreams(t *testing.T) {
	c, pod := newStreamClient(t, "", "")
	run := func(input string, options *corev1.PodExecOptions) (string, string, error) {
		cmd, out, errOut := newStreamCommand(t, input)
		options.Container, options.Stdout, options.Stderr = "main", true, !options.TTY
		err := c.connectStreams(cmd, pod, "exec", options, options.Stdin, options.TTY)
		return out.String(), errOut.String(), err
	}
	out, _, err := run("data\n", &corev1.PodExecOptions{Command: []string{"cat", "-"}, Stdin: true})
	if want := "main: cat - tty=false\ndata\n"; err != nil || out != want {
		t.Errorf("the command printed %q, %v; want %q", out, err, want)
	}
	out, errOut, err := run("unused", &corev1.PodExecOptions{Command: []string{"exit", "7"}})
	if !strings.HasPrefix(out, "main: exit 7") || errOut != "failed\n" || ExitStatus(err) != 7 {
		t.Errorf("output %q, error output %q, exit status %d of %v; want status 7", out, errOut, ExitStatus(err), err)
	}
	if _, _, err = run("", &corev1.PodExecOptions{Command: []string{"sh"}, TTY: true, Stdin: true}); !errors.Is(err, errNoTerminal) {
		t.Errorf("a terminal without one: %v", err)
	}
	c.config.BearerToken = "stranger"
	_, _, err = run("", &corev1.PodExecOptions{Command: []string{"sh"}})
	if err == nil || !strings.Contains(err.Error(), "not yours") || !strings.Contains(err.Error(), "pods/exec") {
		t.Errorf("a user without the right: %v", err)
	}
}

func TestAttachStreams(t *testing.T) {
	c, pod := newStreamClient(t, "", "")
	cmd, out, _ := newStreamCommand(t, "")
	options := &corev1.PodAttachOptions{Container: "main", Stdout: true, Stderr: true}
	if err := c.connectStreams(cmd, pod, "attach", options, false, false); err != nil || out.String() != "attached to main\n" {
		t.Errorf("attach printed %q, %v", out, err)
	}
}

func TestCopyLog(t *testing.T) {
	c, pod := newStreamClient(t, "step 1", "")
	var out bytes.Buffer
	tail := int64(5)
	if err := c.copyLog(t.Context(), pod, &corev1.PodLogOptions{TailLines: &tail, Follow: true}, &out); err != nil {
		t.Fatal(err)
	}
	if want := "step 1 tail=5 follow=true\n"; out.String() != want {
		t.Errorf("the log is %q, want %q", out.String(), want)
	}
}

func TestPortForward(t *testing.T) {
	c, pod := newStreamClient(t, "", "")
	ctx, end := context.WithCancel(t.Context())
	forwarder, err := c.newPortForwarder(ctx, pod, []string{"127.0.0.1"}, []string{":8888"}, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- forwarder.ForwardPorts() }()
	select {
	case err := <-ended:
		t.Fatal(err)
	case <-forwarder.Ready:
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", "127.0.0.1:"+strconv.Itoa(int(ports[0].Local)))
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(connection)
	if want := "port 8888 of training-0"; err != nil || string(got) != want {
		t.Errorf("the port answers %q, %v; want %q", got, err, want)
	}
	end()
	if err := explainForwarding(ctx, pod, <-ended); err != nil {
		t.Errorf("after Ctrl-C: %v", err)
	}
	c.config.BearerToken = "stranger"
	forwarder, err = c.newPortForwarder(t.Context(), pod, []string{"127.0.0.1"}, []string{":8888"}, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if err := explainForwarding(t.Context(), pod, forwarder.ForwardPorts()); err == nil || !strings.Contains(err.Error(), "pods/portforward") {
		t.Errorf("a user without the right: %v", err)
	}
}

func TestValidatePorts(t *testing.T) {
	for _, text := range []string{"8888", "9000:6006", ":6006"} {
		if err := validatePorts(text); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{"", ":", "0", "70000", "x", "1:", "1:2:3", "-1", "8888:0", "+5", " 5"} {
		if err := validatePorts(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

// What is accepted has a port of the pod that the forwarder accepts, too.
func FuzzValidatePorts(f *testing.F) {
	for _, text := range []string{"8888", "9000:6006", ":6006", "", ":", "1:2:3", "0x10", "1_0"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if validatePorts(text) != nil {
			return
		}
		_, err := clientforward.NewOnAddressesForStreaming(nil, []string{"127.0.0.1"}, []string{text}, nil, nil, io.Discard, io.Discard)
		if err != nil {
			t.Fatalf("%q is accepted: %v", text, err)
		}
	})
}
