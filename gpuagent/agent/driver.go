// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/host"
	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/status"
)

// hungCallReporter reports driver calls that do not return. The reconciler cannot report them: its goroutine
// waits for the call. By default the GPUNode reports a hung call after 45 s, and after two minutes the
// health check fails, so that the kubelet restarts the agent.
type hungCallReporter struct {
	library *nvml.MonitoredLibrary
	timeout time.Duration
	node    func() *v1alpha1.GPUNode
	writer  *status.Writer
	log     logr.Logger
}

// start reports hung calls until ctx ends.
func (h *hungCallReporter) start(ctx context.Context) error {
	for sleep(ctx, h.timeout/12, nil) {
		hung := h.hungCall()
		node := h.node()
		if hung == nil || node == nil {
			continue
		}
		report := status.Report{Generation: node.Generation, Conditions: []metav1.Condition{driverNotResponding(hung)}}
		if _, err := h.writer.Write(ctx, node, report); err != nil {
			h.log.Error(err, "Failed to report hung driver call")
		}
	}
	return nil
}

// hungCall returns an error that names a call to report.
func (h *hungCallReporter) hungCall() error { return h.library.HungCall(h.timeout * 3 / 8) }

// check fails once a call has exceeded the whole timeout.
func (h *hungCallReporter) check() error { return h.library.HungCall(h.timeout) }

func driverNotResponding(err error) metav1.Condition {
	return metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonDriverNotResponding,
		Message: err.Error(),
	}
}

// firstRetry is the delay after the first failed connection to the driver.
const firstRetry = time.Second

// connection is the connection to the driver.
type connection struct {
	connected   bool
	version     string
	failures    int
	loggedError string
}

// ensure connects if necessary and returns the driver's version.
func (c *connection) ensure(library nvml.Library) (string, error) {
	if c.connected {
		return c.version, nil
	}
	if err := library.Init(); err != nil {
		c.failures++
		return "", err
	}
	version, err := library.DriverVersion()
	if err != nil {
		c.failures++
		return "", errors.Join(err, library.Shutdown())
	}
	c.connected, c.version, c.failures, c.loggedError = true, version, 0, ""
	return version, nil
}

// close ends a connection that failed. The next pass connects again, since the driver may have been
// replaced.
func (c *connection) close(library nvml.Library) {
	_ = library.Shutdown() // The connection is unusable either way.
	c.connected = false
}

// retryDelay returns the delay before the next attempt. It doubles with each failure, up to most.
func (c *connection) retryDelay(most time.Duration) time.Duration {
	wait := firstRetry
	for range min(c.failures-1, 20) {
		wait = min(2*wait, most)
	}
	return min(wait, most)
}

// logOnce logs a failure unless it equals the failure that was logged last.
func (c *connection) logOnce(log logr.Logger, err error) {
	if text := err.Error(); text != c.loggedError {
		c.loggedError = text
		log.Error(err, "Failed to connect to the driver")
	}
}

// driverUnavailable returns the Ready condition for a driver that cannot be used.
func driverUnavailable(err error) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonDriverError}
	advice := "the driver returns an error; see its messages in the kernel log (dmesg)"
	switch {
	case errors.Is(err, nvml.ErrLibraryNotFound):
		c.Reason = v1alpha1.ReasonLibraryNotFound
		advice = "install NVIDIA's driver on the node, or set driver.library in the agent's configuration to the path of its library; " +
			"in a container, NVIDIA's runtime has to mount it"
	case errors.Is(err, nvml.ErrDriverNotLoaded):
		c.Reason = v1alpha1.ReasonDriverNotLoaded
		advice = "load the driver on the node; once nvidia-smi works there, the agent connects by itself"
	}
	c.Message = fmt.Sprintf("%s: %v", advice, err)
	return c
}

// reconcileDriverLoad discards what is known of the GPUs if the driver was loaded again, as after an
// upgrade. The spec is then applied, and the device plugin told, as after a boot.
func (r *reconciler) reconcileDriverLoad() {
	load, err := host.DriverLoad(r.cfg.Sys)
	if err != nil {
		r.log.Error(err, "Failed to read load of driver")
		return
	}
	reloaded, err := r.engine.SetDriverLoad(load)
	if err != nil {
		r.log.Error(err, "Failed to record load of driver")
	}
	if !reloaded {
		return
	}
	r.log.Info("Driver was loaded again; applying the layout", "load", load)
	r.layout, r.lastGPUs = layoutState{recovered: true}, nil
	r.invalidateOffer()
}
