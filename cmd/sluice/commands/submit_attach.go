// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"sluice.dev/api/workload"
	"sluice.dev/cmd/sluice/printer"
	"sluice.dev/cmd/sluice/submission"
	"sluice.dev/cmd/sluice/workloads"
)

// attachPollInterval is real time.
const attachPollInterval = 500 * time.Millisecond

// attachSubmission waits until a pod of a submitted workload runs, and attaches to its program. Ctrl-C ends the wait
// or the connection, and not the workload.
func (c *clusterClient) attachSubmission(cmd *cobra.Command, request *submission.Request) error {
	reader, err := newWorkloadReader(c)
	if err != nil {
		return err
	}
	notes := cmd.ErrOrStderr()
	tty := request.TTY && keyboardOf(cmd.InOrStdin()) != nil
	if request.TTY && !tty {
		fmt.Fprintln(notes, "Standard input is no terminal; the program's terminal is used without one.")
	}
	w, err := waitUntilAttachable(cmd.Context(), reader, request, notes)
	if err == nil {
		err = c.attachTo(cmd, w, request.Stdin, tty)
	}
	select {
	case <-cmd.Context().Done(): // Ctrl-C
		fmt.Fprintf(notes, "\n%s goes on. To come back: sluice attach %s%s -n %s\n",
			request.Name, request.Name, attachSwitches(request.Stdin, request.TTY), printer.Sanitize(request.Namespace))
		return nil
	default:
		return err
	}
}

func attachSwitches(stdin, tty bool) string {
	switch {
	case tty:
		return " -it"
	case stdin:
		return " -i"
	}
	return ""
}

// waitUntilAttachable returns a workload that has a running pod, or that has ended. It notes each change of its state,
// and why it waits.
func waitUntilAttachable(ctx context.Context, reader workloads.Reader, request *submission.Request, notes io.Writer) (found *workloads.Workload, err error) {
	last := ""
	err = wait.PollUntilContextCancel(ctx, attachPollInterval, true, func(ctx context.Context) (bool, error) {
		w, err := reader.Find(ctx, request.Namespace, request.WorkloadReference())
		if err != nil {
			return false, err
		}
		status, reason := w.Status()
		found = w
		if hasRunningPod(w) || hasEnded(w, status) {
			return true, nil
		}
		if reason != "" {
			status += ": " + reason
		}
		if status != last {
			fmt.Fprintf(notes, "Waiting for %s: %s\n", referenceText(w), printer.Sanitize(status))
			last = status
		}
		return false, nil
	})
	return found, err
}

func hasRunningPod(w *workloads.Workload) bool {
	_, err := selectPod(w, "", true)
	return err == nil
}

// hasEnded reports whether a workload starts no further pod by itself. A Job tries again after a pod that failed.
func hasEnded(w *workloads.Workload, status string) bool {
	return w.Kind.IsFinished(w.Object) || status == workloads.StatusStopped || status == workloads.StatusTerminating
}

// attachTo attaches to the running pod of a workload. Of one that has ended, it prints the log.
func (c *clusterClient) attachTo(cmd *cobra.Command, w *workloads.Workload, stdin, tty bool) error {
	notes, name := cmd.ErrOrStderr(), referenceText(w)
	pod, err := selectPod(w, "", false)
	if err != nil {
		return err
	}
	target := &podTarget{clusterClient: c, workload: w, pod: pod}
	if target.container, err = selectContainer(pod, ""); err != nil {
		return err
	}
	if !workload.IsPodTerminal(pod) {
		leave := "Ctrl-C leaves it running"
		if tty {
			leave = "Ctrl-C goes to the program"
		}
		fmt.Fprintf(notes, "Attached to pod %s; %s. Earlier output: sluice logs %s -n %s\n",
			printer.Sanitize(pod.Name), leave, name, printer.Sanitize(pod.Namespace))
		return target.attach(cmd, stdin, tty)
	}
	status, reason := w.Status()
	fmt.Fprintf(notes, "%s has ended (%s). Its log:\n", name, printer.Sanitize(status))
	if err := c.copyLog(cmd.Context(), pod, &corev1.PodLogOptions{Container: target.container}, cmd.OutOrStdout()); err != nil {
		return err
	}
	if status == workloads.StatusFailed {
		return fmt.Errorf("%s failed: %s", name, printer.Sanitize(reason))
	}
	return nil
}
