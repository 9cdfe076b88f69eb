// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"
)

// shellCommand starts bash, or sh where an image has no bash.
var shellCommand = []string{"/bin/sh", "-c", "command -v bash >/dev/null && exec bash || exec sh"}

func newExecCommand() *cobra.Command {
	var stdin, tty bool
	cmd := &cobra.Command{
		Use:   "exec NAME [-- COMMAND...]",
		Short: "Run a command in a workload, or a shell",
		Long: `Run a command in a container of a workload: in the first pod that runs. Without a command
it is a shell with a terminal. The exit status is that of the command. Your role must
allow it: pods/exec, in your own pods or in all of the project.`,
		Example: `  # Open a shell
  sluice exec notebook

  # Run a command
  sluice exec training -- nvidia-smi

  # Copy a file into the workload
  sluice exec notebook -i -- sh -c "cat > data.csv" < data.csv`,
		Args: cobra.MinimumNArgs(1),
	}
	flags := addPodFlags(cmd)
	cmd.Flags().BoolVarP(&stdin, "stdin", "i", false, "Pass standard input to the command")
	cmd.Flags().BoolVarP(&tty, "tty", "t", false, "Give the command a terminal")
	cmd.ValidArgsFunction = flags.completeWorkload
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		options := &corev1.PodExecOptions{Stdin: stdin || tty, TTY: tty, Command: args[1:]}
		if len(options.Command) == 0 {
			options.Command, options.Stdin = shellCommand, true
			options.TTY = tty || keyboardOf(cmd.InOrStdin()) != nil
		}
		return flags.exec(cmd, args[0], options)
	}
	return cmd
}

func newBashCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bash NAME",
		Short: "Open a shell in a workload",
		Long: `Open a shell in a container of a workload, as sluice exec does without a command: bash, or
sh where the image has no bash.`,
		Example: `  # Open a shell
  sluice bash notebook

  # Open a shell in one pod of a project
  sluice bash training --pod training-1-x7k2p -p thesis-mueller`,
		Args: cobra.ExactArgs(1),
	}
	flags := addPodFlags(cmd)
	cmd.ValidArgsFunction = flags.completeWorkload
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		terminal := keyboardOf(cmd.InOrStdin()) != nil
		return flags.exec(cmd, args[0], &corev1.PodExecOptions{Stdin: true, TTY: terminal, Command: shellCommand})
	}
	return cmd
}

func newAttachCommand() *cobra.Command {
	var stdin, tty bool
	cmd := &cobra.Command{
		Use:   "attach NAME",
		Short: "Attach to the output of a workload's program, and with -i to its input",
		Long: `Attach to the program of a workload: print what it writes from now on, and with -i send it
standard input. Ctrl-C ends the connection and not the program, except with -t.`,
		Example: `  # Watch the program
  sluice attach training

  # Use a program that reads from a terminal
  sluice attach notebook -it`,
		Args: cobra.ExactArgs(1),
	}
	flags := addPodFlags(cmd)
	cmd.Flags().BoolVarP(&stdin, "stdin", "i", false, "Pass standard input to the program")
	cmd.Flags().BoolVarP(&tty, "tty", "t", false, "The program has a terminal")
	cmd.ValidArgsFunction = flags.completeWorkload
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		target, err := flags.connectPod(cmd, args[0], true)
		if err != nil {
			return err
		}
		return target.attach(cmd, stdin, tty)
	}
	return cmd
}

// exec runs a command in the pod of a workload that the flags choose.
func (f *podFlags) exec(cmd *cobra.Command, name string, options *corev1.PodExecOptions) error {
	target, err := f.connectPod(cmd, name, true)
	if err != nil {
		return err
	}
	options.Container, options.Stdout, options.Stderr = target.container, true, !options.TTY
	return target.connectStreams(cmd, target.pod, "exec", options, options.Stdin, options.TTY)
}

// attach connects to the program of a container.
func (t *podTarget) attach(cmd *cobra.Command, stdin, tty bool) error {
	options := &corev1.PodAttachOptions{Container: t.container, Stdin: stdin, Stdout: true, Stderr: !tty, TTY: tty}
	return t.connectStreams(cmd, t.pod, "attach", options, stdin, tty)
}

// connectStreams connects the streams of a command to a container. With a terminal it passes every key on.
func (c *clusterClient) connectStreams(
	cmd *cobra.Command, pod *corev1.Pod, subresource string, options runtime.Object, stdin, tty bool,
) error {
	streams := remotecommand.StreamOptions{Stdout: cmd.OutOrStdout(), Tty: tty}
	if stdin {
		streams.Stdin = cmd.InOrStdin()
	}
	if !tty {
		streams.Stderr = cmd.ErrOrStderr()
	}
	if tty {
		keyboard := keyboardOf(cmd.InOrStdin())
		if keyboard == nil {
			return errNoTerminal
		}
		state, err := term.MakeRaw(int(keyboard.Fd()))
		if err != nil {
			return fmt.Errorf("read keys from the terminal: %w", err)
		}
		defer term.Restore(int(keyboard.Fd()), state) //nolint:errcheck // the terminal is gone
		sizes := watchTerminalSize(cmd.Context(), keyboard)
		defer sizes.stop()
		streams.TerminalSizeQueue = sizes
	}
	err := c.stream(cmd.Context(), pod, subresource, options, streams)
	var ended exec.CodeExitError
	switch {
	case errors.As(err, &ended):
		return withExitStatus(ended.Code, fmt.Errorf("the command in pod %s ended with exit code %d", pod.Name, ended.Code))
	case errors.Is(err, context.Canceled):
		return nil // Ctrl-C
	case err != nil:
		return fmt.Errorf("%s pod %s: %w", subresource, pod.Name, explainRefusedStream(err, subresource))
	}
	return nil
}

// stream connects through a WebSocket, and to servers that know none with SPDY, as kubectl does.
func (c *clusterClient) stream(
	ctx context.Context, pod *corev1.Pod, subresource string, options runtime.Object, streams remotecommand.StreamOptions,
) error {
	// The WebSocket is opened with GET, and SPDY with POST.
	request, err := c.podRequest("GET", pod, subresource)
	if err != nil {
		return err
	}
	url := request.VersionedParams(options, scheme.ParameterCodec).URL()
	webSocket, err := remotecommand.NewWebSocketExecutor(c.streamConfig(), "GET", url.String())
	if err != nil {
		return err
	}
	spdy, err := remotecommand.NewSPDYExecutor(c.streamConfig(), "POST", url)
	if err != nil {
		return err
	}
	executor, err := remotecommand.NewFallbackExecutor(webSocket, spdy, isUpgradeFailure)
	if err != nil {
		return err
	}
	return executor.StreamWithContext(ctx, streams)
}

// explainRefusedStream adds a hint to the error of a stream that the API server refused. The error of a failed
// upgrade has no status, only the server's message.
func explainRefusedStream(err error, subresource string) error {
	if strings.Contains(err.Error(), "denied the request") {
		return err // the webhook says whom to ask
	}
	if apierrors.IsForbidden(err) || strings.Contains(err.Error(), "forbidden") {
		return fmt.Errorf("%w; connections into pods need the right pods/%s: `sluice whoami` shows your roles", err, subresource)
	}
	return err
}

// isUpgradeFailure reports whether a server, or a proxy in between, accepts no WebSocket.
func isUpgradeFailure(err error) bool {
	return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
}

// keyboardOf returns the terminal from which a command reads, or nil.
func keyboardOf(input io.Reader) *os.File {
	if file, ok := input.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		return file
	}
	return nil
}
