// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package launcher

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/test/lab/cluster/process"
)

// prepareIfDue writes the pod's files after a change and from time to time.
func (w *worker) prepareIfDue(ctx context.Context, pod *corev1.Pod) error {
	if time.Since(w.prepared) < filesInterval {
		return nil
	}
	if err := w.prepare(ctx, pod); err != nil {
		return err
	}
	w.prepared = time.Now()
	return nil
}

// prepare writes the pod's files. It may be called again at any time.
func (w *worker) prepare(ctx context.Context, pod *corev1.Pod) error {
	if w.rewriter == nil {
		if err := checkSupported(pod); err != nil {
			return err
		}
		if err := w.identity.reservePorts(pod); err != nil {
			return err
		}
		// An earlier pod of this name may have left files.
		if err := os.RemoveAll(w.dir); err != nil {
			return err
		}
		w.folders = w.launcher.volumeFolders(pod, w.dir)
		mounts, err := mountFolders(pod, w.folders)
		if err != nil {
			return err
		}
		w.rewriter = newRewriter(mounts, w.identity.ports)
	}
	if err := os.MkdirAll(w.dir, 0o700); err != nil {
		return err
	}
	if err := w.writeVolumes(ctx, pod); err != nil {
		return err
	}
	if folder, mounted := w.rewriter.folders[serviceAccountPath]; mounted {
		if err := writeKubeconfig(filepath.Join(w.dir, "kubeconfig"), w.launcher.API.Host, folder, pod.Namespace); err != nil {
			return err
		}
	}
	if w.owner != nil {
		return chownAll(w.dir, w.owner)
	}
	return nil
}

// startContainers starts the next init container, or all containers.
func (w *worker) startContainers(ctx context.Context, pod *corev1.Pod) error {
	for _, c := range w.containers {
		if !c.started {
			if err := w.start(ctx, pod, c); err != nil {
				return err
			}
		}
		if c.init && !c.succeeded() {
			return nil
		}
	}
	return nil
}

// succeeded reports whether a container has ended for good with exit code 0.
func (c *container) succeeded() bool {
	return c.status.State == process.Exited && c.status.LastExitCode == 0
}

// start adds a container's process to the group.
func (w *worker) start(ctx context.Context, pod *corev1.Pod, c *container) error {
	program, args, err := w.launcher.program(c.spec)
	if err != nil {
		return err
	}
	env, values, err := w.environment(pod, c.spec)
	if err != nil {
		return err
	}
	for i := range args {
		args[i] = w.rewriter.rewrite(Expand(args[i], values))
	}
	user, err := w.user(pod, c.spec, program)
	if err != nil {
		return err
	}
	w.owner = user
	spec := process.Spec{
		Name: c.process, Path: program, Args: args, Env: env, WorkDir: w.dir, User: user,
		ReadyLater: true, Ready: w.firstReadiness(c.spec), RestartAfter: restartAfter(pod.Spec.RestartPolicy, c.init),
		StopTimeout: gracePeriod(pod),
	}
	if err := w.launcher.Group.Start(ctx, spec); err != nil {
		return fmt.Errorf("container %s: %w", c.spec.Name, err)
	}
	c.started = true
	w.observeProcesses(ctx, w.launcher.Group.List())
	return nil
}

// firstReadiness returns the check of a run until it is ready.
func (w *worker) firstReadiness(spec *corev1.Container) func(context.Context) error {
	return func(ctx context.Context) error {
		for _, probe := range []*corev1.Probe{spec.StartupProbe, spec.ReadinessProbe} {
			if probe == nil {
				continue
			}
			if err := w.identity.check(ctx, probe, spec); err != nil {
				return err
			}
		}
		return nil
	}
}

// restartAfter returns which exit codes restart a container.
func restartAfter(policy corev1.RestartPolicy, init bool) func(int) bool {
	switch {
	case policy == corev1.RestartPolicyNever:
		return func(int) bool { return false }
	case policy == corev1.RestartPolicyOnFailure || init:
		return func(code int) bool { return code != 0 }
	}
	return nil
}
