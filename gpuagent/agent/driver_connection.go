// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/nvml"
)

// firstRetry is how long after a first failure the driver is tried again.
const firstRetry = time.Second

// connection is the agent's to the driver.
type connection struct {
	connected   bool
	version     string
	failures    int
	loggedError string
}

// ensure connects where that is not so, and is the driver's version.
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

// close ends a connection that gives no answers, so that the next pass makes another:
// the driver may have been replaced.
func (c *connection) close(library nvml.Library) {
	_ = library.Shutdown() // it is of no use any more
	c.connected = false
}

// retryDelay is when to connect again: twice as long after each failure, up to most.
func (c *connection) retryDelay(most time.Duration) time.Duration {
	wait := firstRetry
	for range min(c.failures-1, 20) {
		wait = min(2*wait, most)
	}
	return min(wait, most)
}

// logOnce logs a failure once, not each time it happens again.
func (c *connection) logOnce(log logr.Logger, err error) {
	if text := err.Error(); text != c.loggedError {
		c.loggedError = text
		log.Error(err, "the driver cannot be used; it is tried again")
	}
}

// driverUnavailable says why the driver cannot be used, and what to do.
func driverUnavailable(err error) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonDriverError}
	advice := "the driver refuses; see its messages in the kernel's log (dmesg)"
	switch {
	case errors.Is(err, nvml.ErrLibraryNotFound):
		c.Reason = v1alpha1.ReasonLibraryNotFound
		advice = "install NVIDIA's driver on the node, or name its library in the agent's configuration (driver.library); in a container, NVIDIA's runtime has to put it there"
	case errors.Is(err, nvml.ErrDriverNotLoaded):
		c.Reason = v1alpha1.ReasonDriverNotLoaded
		advice = "load the driver on the node (nvidia-smi there has to work); the agent goes on by itself then"
	}
	c.Message = fmt.Sprintf("%s: %v", advice, err)
	return c
}
