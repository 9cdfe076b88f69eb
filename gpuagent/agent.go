// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package gpuagent

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/config"
	"sluice.dev/gpuagent/journal"
	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/occupancy"
	"sluice.dev/gpuagent/partition"
	"sluice.dev/gpuagent/picture"
	"sluice.dev/gpuagent/plugin"
	"sluice.dev/gpuagent/report"
	"sluice.dev/gpuagent/survey"
	"sluice.dev/gpuagent/watched"
)

// agent is a node's agent. What is not said to be otherwise belongs to its loop alone.
type agent struct {
	cfg    *config.Config
	log    logr.Logger
	cached client.Reader

	library nvml.Library // watched
	calls   *watched.Watch
	engine  *partition.Engine
	kubelet *occupancy.Kubelet
	// now reads who has what for a decision, seen for a report.
	now, seen *occupancy.Reader
	surveyor  *survey.Surveyor
	plugin    plugin.Finder
	writer    *report.Writer
	events    events.EventRecorder

	connection connection
	layout     layout
	told       told
	wake       chan struct{}
	// last is how the GPUs were at the last look.
	last []v1alpha1.ObservedGPU

	// carrying is the spec that is being carried out, nil while none is; any goroutine may
	// have it given up.
	carrying atomic.Pointer[carrying]
	// shown is the last picture; read by the socket and by the metrics.
	shown atomic.Pointer[picture.Node]
}

func newAgent(mgr ctrl.Manager, cfg *config.Config, library nvml.Library, book *journal.Journal, logger logr.Logger) (*agent, error) {
	kubelet, err := occupancy.NewKubelet(cfg.PodResources)
	if err != nil {
		return nil, err
	}
	calls := &watched.Watch{Returned: observeCall}
	library = watched.Library{Driver: library, Watch: calls}
	a := &agent{
		cfg: cfg, log: logger.WithName("agent"), cached: mgr.GetClient(),
		library: library, calls: calls,
		engine:   &partition.Engine{Library: library, Journal: book, Log: logger.WithName("driver")},
		kubelet:  kubelet,
		now:      &occupancy.Reader{Node: cfg.NodeName, Kubelet: kubelet, Pods: mgr.GetAPIReader(), Library: library},
		seen:     &occupancy.Reader{Node: cfg.NodeName, Kubelet: kubelet, Pods: mgr.GetClient(), Library: library},
		surveyor: &survey.Surveyor{Library: library, Proc: cfg.Proc},
		plugin:   plugin.Finder{Proc: cfg.Proc, Command: cfg.DevicePlugin.Command},
		writer:   &report.Writer{Node: cfg.NodeName, Live: mgr.GetAPIReader(), Status: mgr.GetClient().Status()},
		events:   mgr.GetEventRecorder(v1alpha1.FieldManagerGPUAgent),
		told:     told{path: cfg.StateDir},
		wake:     make(chan struct{}, 1),
	}
	return a, nil
}

func (a *agent) close() { _ = a.kubelet.Close() }

// wakeUp has the loop look at once; from any goroutine.
func (a *agent) wakeUp() {
	select {
	case a.wake <- struct{}{}:
	default: // it will
	}
}

// looked is an error until the agent has looked at the node once.
func (a *agent) looked() error {
	if a.shown.Load() == nil {
		return errors.New("the agent has not looked at the GPUs yet")
	}
	return nil
}

// atLeast is the least time between two looks: many pods may come at once.
const atLeast = 200 * time.Millisecond

// loop looks at the node again and again until ctx ends.
func (a *agent) loop(ctx context.Context) error {
	if err := a.told.load(); err != nil {
		a.log.Error(err, "what the device plugin was last told is not known; it is told again")
	}
	for ctx.Err() == nil {
		wait := a.pass(ctx)
		if sleep(ctx, atLeast, nil) {
			sleep(ctx, max(wait-atLeast, 0), a.wake)
		}
	}
	// What else waits for the driver is ended with the process.
	return nil
}

// sleep waits, but no longer than until it is woken; false where ctx ended.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-wake:
	case <-timer.C:
	}
	return true
}
