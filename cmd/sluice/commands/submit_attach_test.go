// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sluice.dev/cmd/sluice/submission"
	"sluice.dev/cmd/sluice/workloads"
)

const attachedJob = `{metadata: {name: train, namespace: thesis, uid: j}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: a}]}}}}`

// newAttachedPod returns the pod of attachedJob with a status.
func newAttachedPod(t *testing.T, status string) *corev1.Pod {
	t.Helper()
	return parseTyped[corev1.Pod](t, `{metadata: {name: train-1, namespace: thesis, uid: p, ownerReferences: [{apiVersion: batch/v1, kind: Job, name: train,
		uid: j, controller: true}]}, spec: {containers: [{name: main, image: a}]}, status: `+status+`}`)
}

// The wait notes why the workload waits, each reason once, and ends when a pod runs or the workload has ended. The end of
// the context ends it.
func TestWaitUntilAttachable(t *testing.T) {
	const waiting = `{phase: Pending, conditions: [{type: PodScheduled, status: "False", message: "no GPU is free\u001b[2J"}]}`
	request := &submission.Request{Name: "train", Namespace: "thesis", Type: "train"}
	for name, tt := range map[string]struct{ then, job, want string }{
		"runs":   {`{phase: Running}`, `{}`, "Running"},
		"failed": {`{phase: Failed}`, `{conditions: [{type: Failed, status: "True", message: "too often"}]}`, "Failed"},
		"never":  {waiting, `{}`, "Pending"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			lists := 0
			job := parseTyped[batchv1.Job](t, attachedJob)
			c := newFakeClient(t, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				if _, isEvents := list.(*corev1.EventList); isEvents {
					return nil // the fake client has no index of their reasons
				}
				if list.GetObjectKind().GroupVersionKind().Kind == "PodList" {
					if lists++; lists == 3 {
						cancelIf(name == "never", cancel)
						job.Status = parseTyped[batchv1.Job](t, "{status: "+tt.job+"}").Status
						if err := errors.Join(c.Status().Update(ctx, newAttachedPod(t, tt.then)), c.Status().Update(ctx, job)); err != nil {
							return err
						}
					}
				}
				return c.List(ctx, list, options...)
			}}, job, newAttachedPod(t, waiting))
			var notes bytes.Buffer
			w, err := waitUntilAttachable(ctx, workloads.Reader{Client: c}, request, &notes)
			if (err != nil) != (name == "never") || lists < 3 {
				t.Fatalf("%v after %d reads", err, lists)
			}
			if status, _ := w.Status(); status != tt.want {
				t.Errorf("status %s, want %s", status, tt.want)
			}
			if got := notes.String(); strings.Count(got, "Waiting for job/train: Pending: no GPU is free") != 1 || strings.Contains(got, "\x1b") {
				t.Errorf("notes %q", got)
			}
		})
	}
}

func cancelIf(condition bool, cancel func()) {
	if condition {
		cancel()
	}
}

// A running pod is attached to. Of a workload that ended first, the log is printed, and the command fails as the workload did.
func TestAttachTo(t *testing.T) {
	for name, tt := range map[string]struct {
		phase                   corev1.PodPhase
		conditions              string
		output, notes, failures string
	}{
		"running": {
			corev1.PodRunning, "[]", "attached to main\n",
			"Attached to pod training-0; Ctrl-C leaves it running. Earlier output: sluice logs job/training -n thesis\n", "",
		},
		"succeeded": {corev1.PodSucceeded, `[{type: Complete, status: "True"}]`, "step 1 tail= follow=\n", "job/training has ended (Succeeded). Its log:\n", ""},
		"failed": {
			corev1.PodFailed, `[{type: Failed, status: "True", message: "too often\u001b[2J"}]`, "step 1 tail= follow=\n",
			"job/training has ended (Failed). Its log:\n", "job/training failed: too often",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, pod := newStreamClient(t, "step 1", "")
			pod.Status.Phase = tt.phase
			w := newListedWorkload(t, "{apiVersion: batch/v1, kind: Job, metadata: {name: training, namespace: thesis}, status: {conditions: "+tt.conditions+"}}", 0)
			w.Pods = []*corev1.Pod{pod}
			cmd, out, notes := newStreamCommand(t, "")
			err := c.attachTo(cmd, w, false, false)
			if out.String() != tt.output || notes.String() != tt.notes {
				t.Errorf("output %q, notes %q", out, notes)
			}
			if (err != nil) != (tt.failures != "") || err != nil && (!strings.HasPrefix(err.Error(), tt.failures) || strings.Contains(err.Error(), "\x1b")) {
				t.Errorf("error %v, want %s", err, tt.failures)
			}
		})
	}
}
