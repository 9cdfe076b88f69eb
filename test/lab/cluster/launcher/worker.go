// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package launcher

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/test/lab/cluster/process"
)

// worker runs one pod. Only run's goroutine uses the fields below tokens.
type worker struct {
	launcher  *launcher
	identity  *identity
	namespace string
	dir       string // the pod's
	log       *slog.Logger
	changed   chan struct{} // a change of the fields below mu, of a probe, or of the volumes' sources

	mu   sync.Mutex
	pod  *corev1.Pod // the newest
	gone bool        // the pod was removed from the API

	tokens     *tokenCache
	folders    map[string]string // by volume
	rewriter   *rewriter
	containers []*container  // init containers first
	prepared   time.Time     // when the files were last written; zero if they are due
	owner      *process.User // of the files; nil for this process's user
	waiting    *corev1.ContainerStateWaiting
	startTime  time.Time
	published  corev1.PodStatus
}

// container is a container of the pod.
type container struct {
	spec *corev1.Container
	init bool
	// process is its name in the group.
	process string
	// earlier is the number of starts before this worker's.
	earlier int32
	// started is set once the group has the process.
	started bool
	status  process.Status
	run     *run
}

func (l *launcher) newWorker(pod *corev1.Pod) *worker {
	id := l.registry.reserve(pod)
	w := &worker{
		launcher: l, identity: id, namespace: pod.Namespace, dir: l.podDir(id.name),
		log:     l.Log.With("pod", pod.Namespace+"/"+pod.Name),
		changed: make(chan struct{}, 1), pod: pod,
		tokens: newTokenCache(l.client), startTime: time.Now(),
	}
	if pod.Status.StartTime != nil {
		w.startTime = pod.Status.StartTime.Time
	}
	w.addContainers(pod)
	return w
}

func (w *worker) addContainers(pod *corev1.Pod) {
	add := func(spec *corev1.Container, init bool, former []corev1.ContainerStatus) {
		c := &container{spec: spec, init: init, process: w.identity.name + "." + spec.Name}
		if !init && spec == &pod.Spec.Containers[0] {
			c.process = w.identity.name
		}
		for _, status := range former {
			if status.Name == spec.Name && status.ContainerID != "" {
				c.earlier = status.RestartCount + 1
			}
		}
		w.containers = append(w.containers, c)
	}
	for i := range pod.Spec.InitContainers {
		add(&pod.Spec.InitContainers[i], true, nil) // they run again, as after a reboot
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i], false, pod.Status.ContainerStatuses)
	}
}

// notify makes the worker inspect the pod again.
func (w *worker) notify() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

func (w *worker) update(pod *corev1.Pod) {
	w.mu.Lock()
	w.pod = pod
	w.mu.Unlock()
	w.notify()
}

func (w *worker) markGone() {
	w.mu.Lock()
	w.gone = true
	w.mu.Unlock()
	w.notify()
}

// current returns the newest pod, and whether it was removed.
func (w *worker) current() (pod *corev1.Pod, gone bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pod, w.gone
}

const (
	// tickInterval is the interval at which failed steps are tried again.
	tickInterval = time.Second
	// filesInterval is the interval at which tokens are checked for renewal.
	filesInterval = 10 * time.Second
	// endTimeout is the time for the containers of a pod that was removed without a grace
	// period, and for those that run when the launcher ends.
	endTimeout = 2 * time.Second
)

// run runs the pod until it has ended or is removed, or ctx ends. It then has no process. It reports whether the pod exists and has ended.
func (w *worker) run(ctx context.Context) (ended bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.log.Info("Starting pod", "name", w.identity.name, "ip", w.identity.ip)
	changes := w.launcher.Group.Watch(ctx)
	tick := time.NewTicker(tickInterval)
	defer tick.Stop()
	for {
		pod, gone := w.current()
		switch {
		case gone:
			w.end(endTimeout)
			w.removeFolder()
			return false
		case pod.DeletionTimestamp != nil:
			w.terminate(ctx, pod)
			return false
		}
		if w.advance(ctx, pod) {
			w.end(endTimeout) // it has no process; this only removes the names
			return true
		}
		select {
		case <-ctx.Done():
			w.end(endTimeout)
			return false
		case list, ok := <-changes:
			if ok {
				w.observeProcesses(ctx, list)
			}
		case <-w.changed:
			w.prepared = time.Time{}
		case <-tick.C:
		}
	}
}

// advance writes the volumes, starts the containers that are due and publishes the status.
// It reports whether the pod has ended.
func (w *worker) advance(ctx context.Context, pod *corev1.Pod) (ended bool) {
	w.waiting = nil
	if err := w.prepareIfDue(ctx, pod); err != nil {
		w.waiting = &corev1.ContainerStateWaiting{Reason: reasonConfigError, Message: err.Error()}
	} else if err := w.startContainers(ctx, pod); err != nil {
		w.waiting = &corev1.ContainerStateWaiting{Reason: reasonStartError, Message: err.Error()}
	}
	if ctx.Err() != nil || w.groupStopped() {
		return false
	}
	status := w.podStatus(pod)
	if err := w.publish(ctx, pod, status); err != nil {
		if ctx.Err() == nil {
			w.log.Warn("Failed to report the pod's status, retrying", "error", err)
		}
		return false
	}
	return status.Phase == corev1.PodSucceeded || status.Phase == corev1.PodFailed
}

// groupStopped reports whether the group has stopped a container, which it does only with
// the whole cluster. The pod's status stays, as with a node that is switched off.
func (w *worker) groupStopped() bool {
	return slices.ContainsFunc(w.containers, func(c *container) bool { return c.status.State == process.Stopped })
}

// Reasons of waiting containers, as the kubelet has them.
const (
	reasonConfigError = "CreateContainerConfigError"
	reasonStartError  = "CreateContainerError"
	reasonCreating    = "ContainerCreating"
	reasonInit        = "PodInitializing"
	reasonBackOff     = "CrashLoopBackOff"
)

// observeProcesses takes over the state of the pod's processes, and probes new runs.
func (w *worker) observeProcesses(ctx context.Context, list []process.Status) {
	for _, c := range w.containers {
		if !c.started {
			continue
		}
		for _, status := range list {
			if status.Name == c.process {
				c.status = status
			}
		}
		if r := c.run; r != nil && (r.pid != c.status.PID || !r.startedAt.Equal(c.status.StartedAt)) {
			r.cancel()
			c.run = nil
		}
		if c.run == nil && c.status.PID != 0 && c.status.State != process.Stopping {
			runCtx, cancel := context.WithCancel(ctx)
			c.run = &run{pid: c.status.PID, startedAt: c.status.StartedAt, cancel: cancel, ready: make(chan struct{})}
			w.probe(runCtx, c, c.run)
		}
		if c.run != nil && c.status.State == process.Running {
			c.run.setReady()
		}
	}
}

// isReady reports whether a container passes its readiness probe.
func (c *container) isReady() bool {
	return c.run != nil && c.status.State == process.Running && !c.run.unready.Load()
}
